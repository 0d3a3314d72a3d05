"""The GPU engine as far as no GPU is needed: its tables, how batches are cut, and what is said where it cannot run."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.encoding.engines import runners
from tokenmill.encoding.gpu import hash_tables
from tokenmill.encoding.gpu.bpe_tables import BpeTables, bpe_tables
from tokenmill.encoding.gpu.engine import CUPY, GpuEngine, batches
from tokenmill.encoding.gpu.hash_tables import HashTables, tables_of
from tokenmill.encoding.libraries import installed_version
from tokenmill.errors import TokenizerError

HAS_CUPY = any(map(installed_version, CUPY))


@pytest.fixture(scope="module")
def demo_json(tokenizer_path) -> str:
    return (tokenizer_path / "tokenizer.json").read_text("utf-8")


@pytest.fixture(scope="module")
def tables(demo_json) -> BpeTables:
    found, why = bpe_tables(json.loads(demo_json))
    assert found is not None, why
    return found


def mixed(value: int) -> int:
    """As in words.cu."""
    for _ in range(2):
        value = ((value ^ value >> 32) * 0xD6E8FEB86659FD93) % 2**64
    return value ^ value >> 32


def found_in(table: np.ndarray, key: tuple[int, ...], hashed: int, empty: tuple[int, int]) -> Any:
    """What a kernel finds: it goes on from the hash to the first place that has the key, or is empty."""
    place = hashed % len(table)
    while tuple(table[place, : len(key)].tolist()) != key:
        if table[place, empty[0]] == empty[1]:
            return None
        place = (place + 1) % len(table)
    return table[place]


def test_every_short_word_is_found_and_no_other(tables):
    vocabulary = hash_tables.hash_tables(tables).vocabulary
    words = [*tables.words, b"\xff\xfe", b"not a token", b"zzzzzzzzzzzz"]
    for word in words:
        if len(word) < 16:
            padded = word.ljust(16, b"\0")
            low, high = int.from_bytes(padded[:8], "little"), int.from_bytes(padded[8:], "little") | len(word) << 56
            row = found_in(vocabulary, (low, high), mixed(low ^ mixed(high)), (1, 0))
            assert (None if row is None else int(row[2])) == tables.words.get(word), word


def test_every_pair_is_found_and_no_other(tables):
    pairs = hash_tables.hash_tables(tables).pairs
    for left, right in [*tables.pairs, (0, 0), (4000, 4001)]:
        row = found_in(pairs, (left << 32 | right,), mixed((left << 32 | right) + 1), (0, 2**64 - 1))
        wanted = tables.pairs.get((left, right))
        assert (None if row is None else (int(row[1]) % 2**32, int(row[1]) >> 32)) == wanted


def test_tables_are_kept_and_made_again_if_they_are_damaged(tmp_path, monkeypatch, demo_json):
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path))

    def same(one: HashTables, other: HashTables) -> bool:
        return all(np.array_equal(getattr(one, each.name), getattr(other, each.name)) for each in fields(HashTables))

    first = tables_of(demo_json)
    (path,) = (tmp_path / "gpu").iterdir()
    monkeypatch.setattr(hash_tables, "bpe_tables", None)  # not needed any more
    assert same(tables_of(demo_json), first)
    monkeypatch.undo()
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path))
    for damage in (b"", b"PK nothing", path.read_bytes()[:-200]):
        path.write_bytes(damage)
        assert same(tables_of(demo_json), first)


def bpe(pairs: dict[tuple[int, int], tuple[int, int]], words: dict[bytes, int], *, looks_up_first: bool) -> BpeTables:
    return BpeTables(words, pairs, np.arange(256, dtype=np.uint32), (), looks_up_first)


def test_merges_out_of_order_are_noticed():
    """256 is made by a merge that comes after one that uses it."""
    a, b, c = b"abc"
    ordered = {(a, b): (0, 256), (256, c): (1, 257)}
    assert hash_tables.hash_tables(bpe(ordered, {b"ab": 256}, looks_up_first=False)).is_ordered
    late = {(a, b): (0, 256), (256, c): (1, 257), (c, a): (2, 256)}
    assert not hash_tables.hash_tables(bpe(late, {b"ab": 256}, looks_up_first=False)).is_ordered


def test_long_words_that_are_looked_up_and_not_merged_are_named():
    """With the tokenizers that look up first, and only there."""
    a = ord("a")
    pairs = {(a, a): (0, 256), (256, 256): (1, 257), (257, 257): (2, 258), (258, 258): (3, 259)}
    words = {b"a" * 16: 259, b"ab" * 8: 300}
    assert hash_tables.hash_tables(bpe(pairs, words, looks_up_first=True)).beyond == (b"ab" * 8,)
    assert hash_tables.hash_tables(bpe(pairs, words, looks_up_first=False)).beyond == ()


@pytest.mark.parametrize(
    "sizes", [[], [0], [0, 0, 0], [5, 100, 300, 0, 7000, 1], [100] * 40, [1600, 1600], [0] * 50, [1599], [1598, 1]]
)
def test_batches_cover_all_documents_and_fit(sizes):
    bounds = np.concatenate(([0], np.cumsum(np.array(sizes, np.int64))))
    ranges = batches(bounds, 1600, 20)
    assert [number for low, high in ranges for number in range(low, high)] == list(range(len(sizes)))
    for low, high in ranges:
        assert 0 < high - low <= 20
        assert high - low == 1 or bounds[high] - bounds[low] + high - low <= 1600


def test_it_is_used_only_if_it_is_asked_for(tokenizer_path):
    assert GpuEngine.name not in runners(tm.load_tokenizer(tokenizer_path)._definition)


@pytest.mark.skipif(HAS_CUPY, reason="CuPy is installed here")
def test_without_cupy_the_extra_is_named(tokenizer_path, tmp_path, capsys):
    with pytest.raises(
        TokenizerError, match=r"engine='gpu' cannot be used: CuPy is not installed: pip install 'tokenmill\[gpu\]'"
    ):
        assert tm.load_tokenizer(tokenizer_path, engine="gpu").engine
    (tmp_path / "a.txt").write_text("text")
    assert (
        main(
            ["build", str(tmp_path / "a.txt"), "-t", str(tokenizer_path), "-o", str(tmp_path / "s"), "--engine", "gpu"]
        )
        == 1
    )
    assert "pip install 'tokenmill[gpu]'" in capsys.readouterr().err


def test_other_tokenizers_and_missing_devices_are_refused_with_the_reason(monkeypatch, tokenizer_path):
    monkeypatch.setattr("tokenmill.encoding.gpu.engine.installed_version", lambda name: "14")
    assert "only tokenizers with a tokenizer.json" in GpuEngine.refusal(tm.encoding.definition.Definition(json=None))
    body = json.loads((tokenizer_path / "tokenizer.json").read_text("utf-8"))
    other = {**body, "pre_tokenizer": {"type": "Whitespace"}}
    assert (
        GpuEngine.refusal(tm.encoding.definition.Definition(json=json.dumps(other)))
        == "it is not a byte-level tokenizer"
    )
    if not HAS_CUPY:
        refusal = GpuEngine.refusal(tm.load_tokenizer(tokenizer_path)._definition)
        assert refusal == "CuPy cannot be imported: No module named 'cupy'"
