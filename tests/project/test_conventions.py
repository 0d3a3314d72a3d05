"""Errors that a Python programmer catches as a builtin are that builtin, and tokenmill's own as well."""

from __future__ import annotations

import numpy as np
import pytest

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.errors import MissingInputError, MissingTokenizerError, UnknownOptionError, UsageError, WrongTypeError
from tokenmill.exchange.registry import FORMATS


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tm.build(["a b", "c d e"], "bytes", tmp_path_factory.mktemp("conventions") / "store", progress=False)


CALLS = {
    "unknown keyword of build": (UnknownOptionError, TypeError, lambda: tm.build("x", "bytes", verbose=True)),
    "unknown keyword of pack": (UnknownOptionError, TypeError, lambda: tm.pack("x", 8, block=1)),
    "unknown keyword of read": (UnknownOptionError, TypeError, lambda: tm.read("x", field="a")),
    "unknown keyword of load_tokenizer": (
        UnknownOptionError,
        TypeError,
        lambda: tm.load_tokenizer("bytes", use_fast=True),
    ),
    "missing file": (MissingInputError, FileNotFoundError, lambda: tm.build("gone.txt", "bytes")),
    "missing file of an estimate": (MissingInputError, FileNotFoundError, lambda: tm.estimate("gone.txt", "bytes")),
    "missing glob": (MissingInputError, FileNotFoundError, lambda: tm.read("gone/*.txt")),
    "missing list": (MissingInputError, FileNotFoundError, lambda: tm.read("@gone.txt")),
    "missing recipe": (MissingInputError, FileNotFoundError, lambda: tm.recipe("gone.yaml")),
    "missing tokenizer": (MissingTokenizerError, FileNotFoundError, lambda: tm.load_tokenizer("gone/tokenizer.json")),
    "missing tokenizer of a build": (
        MissingTokenizerError,
        FileNotFoundError,
        lambda: tm.build(["a b"], "gone/tokenizer.json"),
    ),
    "wrong type of an option": (WrongTypeError, TypeError, lambda: tm.pack("x", "2048")),
    "wrong type of a path": (WrongTypeError, TypeError, lambda: tm.build(["a b"], "bytes", 3)),
    "wrong type of an amount": (WrongTypeError, TypeError, lambda: tm.build(["a b"], "bytes", max_tokens=1.5)),
    "wrong type of a source": (WrongTypeError, TypeError, lambda: tm.build(None, "bytes")),
    "wrong type of a tokenizer": (WrongTypeError, TypeError, lambda: tm.build(["a b"], None)),
    "wrong type of a recipe": (WrongTypeError, TypeError, lambda: tm.recipe(3)),
    "wrong type of a mixture": (WrongTypeError, TypeError, lambda: tm.mix([1, 2])),
    "wrong type of a store": (TypeError, TypeError, lambda: tm.pack(3, 8)),
    "wrong value": (UsageError, ValueError, lambda: tm.pack("x", 0)),
    "wrong word": (UsageError, ValueError, lambda: tm.pack("x", 8, strategy="best")),
}


@pytest.mark.parametrize("case", CALLS)
def test_errors_are_those_of_python_too(case):
    own, builtin, call = CALLS[case]
    with pytest.raises(own) as raised:
        call()
    assert isinstance(raised.value, builtin)
    assert isinstance(raised.value, TypeError) == (builtin is TypeError)
    assert isinstance(raised.value, OSError) == (builtin is FileNotFoundError)


@pytest.mark.parametrize("format", ["auto", *FORMATS])
def test_a_missing_import_is_a_missing_file(tmp_path, format):
    with pytest.raises(MissingInputError, match="gone: no such file or folder"):
        tm.import_tokens(tmp_path / "gone", tmp_path / "store", format=format)


def test_numbers_outside_are_index_errors(store):
    view = tm.pack(store, 4)
    loader = tm.load(view, 1)
    for call in (
        lambda: store[10**9], lambda: store[-3], lambda: store.text(2), lambda: store.locate(2), lambda: store.document_at(99),
        lambda: view[len(view)], lambda: view.rows([10**9]), lambda: view.documents(10**9), lambda: loader.batch(-1),
        lambda: loader.batch(np.int64(-1)), lambda: loader.batch(2**63),
    ):  # fmt: skip
        with pytest.raises(IndexError):
            call()
    for call in (lambda: store["a"], lambda: store.text(1.0), lambda: view["a"], lambda: loader.batch(1.0)):
        with pytest.raises(TypeError):
            call()


@pytest.mark.parametrize("progress", [False, True, None, "quiet", print])
def test_progress_is_a_word_or_a_truth(tmp_path, capsys, progress):
    tm.build(["a b", "c"], "bytes", tmp_path / "store", progress=progress)
    said = capsys.readouterr()
    assert (
        (said.err == "" and (said.out == "") == (progress is not print)) if progress not in (True, None) else said.err
    )


def test_amounts_may_be_written_with_an_exponent(tmp_path):
    texts = [f"text {i}" for i in range(1100)]
    assert len(tm.build(texts, "bytes", tmp_path / "python", max_documents=1e3, progress=False)) == 1000
    (tmp_path / "a.txt").write_text("\n".join(texts))
    command = ["build", str(tmp_path / "a.txt"), "-t", "bytes", "--format", "lines", "-q", "--max-documents"]
    assert main([*command, "1e3", "-o", str(tmp_path / "command")]) == 0
    assert len(tm.open(tmp_path / "command")) == 1000
    with pytest.raises(SystemExit) as stopped:
        main([*command, "1.5", "-o", str(tmp_path / "refused")])
    assert stopped.value.code == 2
    recipe = {"sources": {"a": {"path": str(tmp_path / "a.txt"), "format": "lines"}}, "tokenizer": "bytes"}
    changes = ["build.max_documents=1e3", "build.progress=false", f"build.out={tmp_path / 'recipe'}", "pack.seq_len=8"]
    assert len(tm.recipe(recipe, set=changes).stores()["a"]) == 1000


def test_missing_files_on_the_command_line_are_wrong_arguments(capsys):
    assert main(["build", "gone.txt", "-t", "bytes"]) == 2
    assert capsys.readouterr().err == "tokenmill: no such file or folder: gone.txt\n"
