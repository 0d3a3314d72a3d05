"""What tests of commands share: stores that were built by command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenmill.cli import main


@pytest.fixture
def build(jsonl, tokenizer_path, tmp_path):
    """Build a store of some texts by command; returns its folder."""

    def build(texts, *options) -> Path:
        out = tmp_path / "store"
        assert main(["build", str(jsonl(texts)), "-t", str(tokenizer_path), "-o", str(out), "-q", *options]) == 0
        return out

    return build


@pytest.fixture
def store(build, capsys) -> Path:
    folder = build(["hello world", "a second document", "and a third"])
    capsys.readouterr()
    return folder
