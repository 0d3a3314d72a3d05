"""Shared by the tests that load tokenizers: constants, comparisons of ids, and commands in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

import tokenmill as tm
from tokenmill.encoding import safe_split
from tokenmill.encoding.selection.suite import texts as suite_texts

END = "<|endoftext|>"
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
WORDS_ONLY = r" ?\p{Ll}+|\s"  # what it does not match, tiktoken leaves out
BERT = {"tokenizer_class": "BertTokenizer"}
BERT_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "def", "import", "the", "is", "self", "##s", "##ing"]  # fmt: skip
REST = {"pattern": GPT2, "special_tokens": {END: 0}}


def texts_for(tokenizer: tm.Tokenizer, real_texts: list[str]) -> list[str]:
    """A part of the adversarial suite for a tokenizer, and some real text."""
    return [text for text in suite_texts(tokenizer._definition, 60) if len(text) < 1000] + [
        text[:3000] for text in real_texts[::10]
    ]


def ids_of(tokenizer: tm.Tokenizer, texts: list[str]) -> list[list[int]]:
    tokens = tokenizer._encoder().encode(pa.array(texts, pa.large_string()))
    return [part.tolist() for part in np.split(tokens.ids, tokens.ends)[:-1]]


def assert_same(tokenizer: tm.Tokenizer, own, texts: list[str]) -> None:
    """Document by document, the ids are those that `own` gives."""
    assert len(texts) > 1000
    for text, ids in zip(texts, ids_of(tokenizer, texts), strict=True):
        assert ids == own(text), ascii(text[:80])


@cache
def quick_rules(tokenizer_json: str) -> list[safe_split.Rule]:
    """The places where a tokenizer's documents may be cut, checked in few contexts: the full check takes a second or two.

    A check in fewer contexts rejects fewer rules. So whatever is shown for all rules of this list holds for those of
    the full check.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safe_split, "_ALPHABET", ("a", "7", " ", "\n", "."))
        return safe_split.safe_rules(tokenizer_json)


def by_transformers(made):
    return lambda text: made.encode(text, add_special_tokens=False)


def by_tiktoken(made):
    return lambda text: made.encode(text, allowed_special="all")


def python(*arguments: object, only: dict[str, str] | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own; in this environment with `more`, or with `only` what is given."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, **more} if only is None else only,
        capture_output=True,
        text=True,
        timeout=120,
    )


def command(*arguments: object, only: dict[str, str] | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "tokenmill.cli", *arguments, only=only, **more)


def answer(child: subprocess.CompletedProcess[str]):
    """What a process that went well printed, as JSON."""
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


def one_line(child: subprocess.CompletedProcess[str]) -> str:
    """The one line that a command that failed said."""
    assert "Traceback" not in child.stderr
    (line,) = child.stderr.splitlines()
    assert line.startswith("tokenmill: ")
    return line


def documents(store: tm.Store) -> list[list[int]]:
    return [ids.tolist() for ids in store]
