"""ARCHITECTURE.md follows the tree."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import load_script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lists():
    return load_script(ROOT / "scripts" / "module_lists.py")


def test_every_folder_of_the_package_is_listed(lists):
    packages = {path.parent.name for path in (ROOT / "src" / "tokenmill").glob("*/__init__.py")}
    assert lists.folders() == packages | {"."}


def test_the_lists_are_up_to_date(lists):
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    assert page == lists.page(), "run scripts/module_lists.py"
    assert "store/store.py" not in page  # names are relative to the folder of their list
    assert "formats/jsonl.py" in page
