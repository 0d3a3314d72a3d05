"""The check of the import direction can fail, and does not."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_imports.py"


@pytest.fixture
def check():
    spec = importlib.util.spec_from_file_location("check_imports", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
