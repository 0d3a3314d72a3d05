"""What the tests of this folder share: one tokenizer in every form."""

from __future__ import annotations

import base64
import io
import json
import os
import random
import shutil
from pathlib import Path

import pytest
import sentencepiece
import tiktoken
from gpu_simulation import simulated_gpu
from tokenizer_checks import END, GPT2
from wrong_engines import site

import tokenmill as tm
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.selection import suite
from tokenmill.encoding.selection.suite import texts as suite_texts

pytest.register_assert_rewrite("tokenmill.testing.engines")

DIFFICULT = [
    "", " ", "\n", "'", "''", "a" * 9000, " " * 3000, "\n" * 500, "1" * 1000, "'s" * 300, "aB" * 2000, "ÀÉ" * 300, "x" * 127,
    "x" * 128, "x" * 129, "ab" * 4000, "é" * 300, "中" * 500, "🙂" * 400, "a\u0301" * 100, "don't I'LL we'Ve it'S 'tis ''s",
    "  leading", "trailing  ", "a  b   c\n\n d \r\n\te", "1234567 12 1", "\x00\x01\x7f", "/" * 50 + "\n/\n", "ſ'ſ", "ǅ ǈ",
]  # fmt: skip


@pytest.fixture(scope="session")
def body(tokenizer_path) -> dict:
    """The demo tokenizer's tokenizer.json."""
    return json.loads((tokenizer_path / "tokenizer.json").read_text("utf-8"))


@pytest.fixture(scope="session")
def ranks(body) -> dict[bytes, int]:
    """The demo tokenizer's tokens as bytes."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    byte_of = {chr(byte): byte for byte in printed}
    hidden = [byte for byte in range(256) if byte not in printed]
    byte_of |= {chr(256 + place): byte for place, byte in enumerate(hidden)}
    return {bytes(map(byte_of.__getitem__, name)): i for name, i in body["model"]["vocab"].items() if name != END}


@pytest.fixture(scope="session")
def encoding(ranks) -> tiktoken.Encoding:
    return tiktoken.Encoding("demo", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={END: 0})


@pytest.fixture(scope="session")
def rank_file(ranks) -> bytes:
    return b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks.items())


@pytest.fixture(scope="session")
def train(real_texts):
    """Trains a SentencePiece model."""

    def train(**options) -> bytes:
        lines = [line for text in real_texts[:40] for line in text.splitlines() if line.strip()]
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(random.Random(0).sample(lines, 1500)),
            model_writer=out,
            minloglevel=3,
            num_threads=1,
            **{"vocab_size": 500, "hard_vocab_limit": False} | options,
        )
        return out.getvalue()

    return train


@pytest.fixture(scope="session")
def like_llama(train) -> bytes:
    return train(
        model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False
    )


@pytest.fixture(scope="session")
def like_xlmr(train) -> bytes:
    return train(model_type="unigram")


@pytest.fixture
def folder(tmp_path):
    """Makes a folder with files: bytes and text as they are, other things as JSON."""
    made = iter(range(100))

    def make(files: dict[str, object]) -> Path:
        where = tmp_path / f"folder{next(made)}"
        where.mkdir()
        for name, content in files.items():
            text = content if isinstance(content, str | bytes) else json.dumps(content)
            (where / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return where

    return make


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """A cache of its own that is empty: an engine has to be proved, with all that it has to know about characters."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def known_characters(cache, proved) -> Path:
    """A cache that knows what gigatoken makes of characters with the demo tokenizer's pattern, so that a proof is short."""
    shutil.copytree(proved / "characters", cache / "characters")
    return cache


@pytest.fixture
def few_texts(monkeypatch):
    """Proofs with a part of their texts, for tests that are not about the texts."""
    monkeypatch.setattr(suite, "texts", lambda definition, every=1: suite_texts(definition, 50))


@pytest.fixture
def plant(tmp_path, monkeypatch):
    """Makes engines go wrong where they are examined, from now on: engine -> (way, pattern)."""

    def put(**plants: tuple[str, str]) -> None:
        folder = site(tmp_path / "site", {engine: list(way) for engine, way in plants.items()})
        monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)

    return put


@pytest.fixture(scope="session")
def small(kinds) -> Path:
    """A tokenizer.json with the demo tokenizer's pattern and a small vocabulary."""
    return kinds["byte_level"]


@pytest.fixture(scope="session")
def definition(small) -> Definition:
    return tm.load_tokenizer(small)._definition


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    """A GPU that is simulated on the CPU."""
    with simulated_gpu(tmp_path_factory.mktemp("gpu")) as patch:
        yield patch


@pytest.fixture(scope="session")
def gpu_definition(tokenizer_path) -> Definition:
    return tm.load_tokenizer(tokenizer_path)._definition


@pytest.fixture(scope="session")
def gpu_texts(real_texts) -> list[str]:
    """Texts that kernels may get wrong, random ones, and real ones."""
    draw = random.Random(0)
    letters = [*map(chr, (*range(32, 127), 9, 10, 13, 0xE9, 0x301, 0x4E2D, 0x3042, 0x1F642, 0x660, 0xA0, 0x2028))]
    made = ["".join(draw.choices(letters, k=draw.randint(0, 40))) for _ in range(200)]
    return [*DIFFICULT, *made, *(text[:2500] for text in real_texts[:6])]
