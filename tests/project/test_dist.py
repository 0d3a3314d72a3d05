"""What `make dist` relies on. The installs themselves take minutes, and need an index: `make dist` runs them."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
from pages import load_script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def check_dist():
    return load_script(ROOT / "scripts" / "check_dist.py")


def test_the_source_archive_has_what_is_expected_and_nothing_else(check_dist):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]
    assert {*included, "pyproject.toml"} == check_dist.EXPECTED
    for name in check_dist.EXPECTED:
        assert (ROOT / name).exists(), name
    whole = [f"{name}/a" for name in check_dist.EXPECTED]
    assert check_dist.wrong_content([*whole, "PKG-INFO"]) == []
    assert check_dist.wrong_content([*whole, ".bench/results/a.json"]) == ["the source archive has .bench"]
    assert check_dist.wrong_content([name for name in whole if name != "src/a"]) == ["the source archive lacks src"]


def test_a_python_of_each_version_is_looked_for(check_dist, tmp_path, monkeypatch):
    """In the PATH and among those of pyenv; one that answers with another version, or not at all, is passed over."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert check_dist.find_python(here) == Path(sys.executable)
    assert check_dist.find_python("3.99") is None
    for path, answer in (("bin/python3.99", "exit 1"), ("pyenv/versions/3.99.1/bin/python", "echo 3.99")):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(f"#!/bin/sh\n{answer}\n")
        (tmp_path / path).chmod(0o755)
    assert check_dist.find_python("3.99") == tmp_path / "pyenv/versions/3.99.1/bin/python"


def test_what_fails_is_shown(check_dist, tmp_path, capsys):
    python = Path(sys.executable)
    assert check_dist.succeeds(python, "-c", "import os; assert 'PYTHONPATH' not in os.environ", folder=tmp_path)
    assert not check_dist.succeeds(python, "-c", "raise ValueError('the reason')", folder=tmp_path)
    assert "the reason" in capsys.readouterr().out
