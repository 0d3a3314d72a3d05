"""The check of the import direction can fail, and does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import load_script

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_imports.py"


@pytest.fixture
def check():
    return load_script(SCRIPT)


def test_imports_point_down(check):
    assert check.problems() == []


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("store/a.py", "from tokenmill.reading import read", "store must not import from reading"),
        ("reading/a.py", "def f():\n    import tokenmill.building.plan", "reading must not import from building"),
        ("documents.py", "from tokenmill import errors", "documents must not import from errors"),
        ("store/a.py", "from . import shard", "relative import"),
        ("store/a.py", "import torch", "store must not import torch"),
        ("store/a.py", "import pickle", "store must not import pickle"),
        ("helpers/a.py", "", "does not know"),
    ],
)
def test_an_import_that_points_up_is_found(check, tmp_path, monkeypatch, file, line, complaint):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(line)
    monkeypatch.setattr(check, "PACKAGE", tmp_path)
    found = check.problems(tmp_path)
    assert len(found) == 1
    assert complaint in found[0]


def write_modules(folder: Path, modules: dict[str, str]) -> None:
    for name, text in modules.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_cycle_is_found_also_through_functions_and_inside_a_folder(check, tmp_path):
    a, b, c = "store/a.py", "store/b.py", "store/c.py"
    write_modules(tmp_path, {a: "from tokenmill.store.b import x", b: "import tokenmill.store.c", c: "x = 1"})
    assert check.cycles(tmp_path) == []
    write_modules(tmp_path, {c: "def f():\n    from tokenmill.store import a"})
    assert check.cycles(tmp_path) == ["import cycle: tokenmill.store.a, tokenmill.store.b, tokenmill.store.c"]


def test_a_module_name_that_is_used_twice_is_found(check, tmp_path):
    write_modules(tmp_path, {"store/api.py": "", "packing/api.py": "", "store/plan.py": ""})
    assert check.names_used_twice(tmp_path) == []
    write_modules(tmp_path, {"packing/plan.py": ""})
    assert check.names_used_twice(tmp_path) == ["2 modules are called plan.py"]
