"""One document is "1 document", wherever it is said."""

from __future__ import annotations

import pytest

import tokenmill as tm
from tokenmill.cli import main

PLURALS = ["documents", "tokens", "files", "shards", "rows"]


@pytest.fixture
def says(tokenizer_path, tmp_path, capsys):
    """What a command prints about a corpus of one document with one token, in the folder of the test."""
    (tmp_path / "a.jsonl").write_text('{"text": "<|endoftext|>"}\n')

    def run(*command: str) -> str:
        names = {"TEXT": tmp_path / "a.jsonl", "STORE": tmp_path / "store", "TOKENIZER": tokenizer_path}
        assert main([str(names.get(word, word)) for word in command]) == 0
        said = capsys.readouterr()
        return said.out + said.err

    return run


def test_one_of_each(says, tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    build = ("build", "TEXT", "-t", "TOKENIZER", "-o", "STORE", "--eos", "none", "--workers", "0")
    said = says(*build)
    assert "1 document in = 1 out + 0 quarantined; 1 token\n" in said
    assert "1 document with special tokens" in said
    said += says(*build)
    assert "up to date: 1 document, 1 token in" in said
    said += says("show", "STORE") + says("verify", "STORE", "--reencode", "1")
    said += says("estimate", "TEXT", "-t", "TOKENIZER", "--eos", "none")
    assert "documents   1, of 1 token\n" in said
    assert "1 document holds special tokens" in says("info", "STORE")
    assert not [plural for plural in PLURALS if f" 1 {plural}" in said]


def test_one_in_errors(says, tmp_path):
    says("build", "TEXT", "-t", "TOKENIZER", "-o", "STORE", "--eos", "none", "--workers", "0", "-q")
    with pytest.raises(IndexError, match=r"a store with 1 document$"):
        tm.open(tmp_path / "store")[1]
