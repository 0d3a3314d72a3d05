"""Poison: every way a JSON lines file has been seen to be bad, between good documents that must not notice.

For each line it is written down here whether it must be kept, with which text, or left out, for which reason.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenmill as tm
from tokenmill.building.plan import Task
from tokenmill.building.task import TaskOptions, encode_task
from tokenmill.documents import BLANK
from tokenmill.errors import DocumentError
from tokenmill.reading import Piece, read_piece

BAD, MISSING, NULL, NOT_TEXT = "bad json", "missing field", "null field", "not text"
NOT_UTF8, SURROGATE = "invalid utf-8", "lone surrogate"


class Line(NamedTuple):
    """A line of a file; the text it must give, or the reason it must not."""

    data: bytes
    text: str | None = None
    reason: str | None = None


def good(number: int) -> Line:
    text = f"Good document {number}, with {'many ' * (number % 7)}words — naïve 中文 <|endoftext|> and\nlines.\n"
    return Line(json.dumps({"id": number, "text": text}, ensure_ascii=number % 2 == 0).encode(), text)


POISON = {
    # not JSON at all
    "garbage": Line(b"garbage", reason=BAD),
    "open brace": Line(b"{", reason=BAD),
    "close brace": Line(b"}", reason=BAD),
    "both braces, no sense": Line(b"{garbage}", reason=BAD),
    "cut in the text": Line(b'{"text": "cut sho', reason=BAD),
    "cut in the text, braced": Line(b'{"text": "cut sho}', reason=BAD),
    "cut after the text": Line(b'{"text": "cut"', reason=BAD),
    "cut in an inner object": Line(b'{"text": "cut", "meta": {}', reason=BAD),
    "one brace too many": Line(b'{"text": "a"}}', reason=BAD),
    "trailing comma": Line(b'{"text": "a",}', reason=BAD),
    "trailing comma after": Line(b'{"text": "a"},', reason=BAD),
    "comment": Line(b'{"text": "a" /* why */}', reason=BAD),
    "line comment": Line(b'// {"text": "a"}', reason=BAD),
    "single quotes": Line(b"{'text': 'a'}", reason=BAD),
    "no quotes": Line(b'{text: "a"}', reason=BAD),
    "Python": Line(b'{"text": "a", "b": True, "c": None}', reason=BAD),
    "undefined": Line(b'{"text": undefined}', reason=BAD),
    "no colon": Line(b'{"text" "a"}', reason=BAD),
    "key only": Line(b'{"text"}', reason=BAD),
    "leading zero": Line(b'{"text": "a", "n": 007}', reason=BAD),
    "hexadecimal": Line(b'{"text": "a", "n": 0x7f}', reason=BAD),
    "leading plus": Line(b'{"text": "a", "n": +1}', reason=BAD),
    "bare dot": Line(b'{"text": "a", "n": 1.}', reason=BAD),
    "unknown escape": Line(rb'{"text": "\x41"}', reason=BAD),
    "short escape": Line(rb'{"text": "\u12"}', reason=BAD),
    "raw tab": Line(b'{"text": "a\tb"}', reason=BAD),
    "raw carriage return": Line(b'{"text": "a\rb"}', reason=BAD),
    "raw NUL": Line(b'{"text": "a\x00b"}', reason=BAD),
    "raw escape character": Line(b'{"text": "a\x1bb"}', reason=BAD),
    "NUL after the object": Line(b'{"text": "a"}\x00', reason=BAD),
    "NUL and a brace after": Line(b'{"text": "a"}\x00}', reason=BAD),
    "hidden behind a NUL": Line(b'{"text": "a"}\x00{"text": "hidden"}', reason=BAD),
    "two objects and a NUL": Line(b'{"text": "a"}{"text": "b"}\x00}', reason=BAD),
    "a NUL alone": Line(b"\x00", reason=BAD),
    "form feed": Line(b'{"text":\x0c"a"}', reason=BAD),
    "no-break space": Line(b'\xc2\xa0{"text": "a"}', reason=BAD),
    "byte order mark": Line(b'\xef\xbb\xbf{"text": "a"}', reason=BAD),
    "csv": Line(b"id,text", reason=BAD),
    "gzip": Line(b"\x1f\x8b\x08\x00\x00\x00", reason=BAD),
    "UTF-16": Line('{"text": "a"}'.encode("utf-16-le"), reason=BAD),
    # JSON, but not one object on one line
    "two objects": Line(b'{"text": "a"}{"text": "b"}', reason=BAD),
    "two objects, spaced": Line(b'{"text": "a"} {"text": "b"}', reason=BAD),
    "two objects, comma": Line(b'{"text": "a"}, {"text": "b"}', reason=BAD),
    "first half of an object": Line(b'{"id": {"a": 1}', reason=BAD),
    "second half of an object": Line(b', "text": "a"}', reason=BAD),
    "half in a string": Line(b'{"text": "half {}', reason=BAD),
    "array": Line(b'["text", "a"]', reason=BAD),
    "array of objects": Line(b'["a", {"text": "a"}]', reason=BAD),
    "string": Line(b'"text"', reason=BAD),
    "number": Line(b"17", reason=BAD),
    "null": Line(b"null", reason=BAD),
    "true": Line(b"true", reason=BAD),
    # an object without the text
    "empty object": Line(b"{}", reason=MISSING),
    "other field": Line(b'{"content": "a"}', reason=MISSING),
    "other case": Line(b'{"Text": "a"}', reason=MISSING),
    "space in the key": Line(b'{"text ": "a"}', reason=MISSING),
    "too deep": Line(b'{"data": {"text": "a"}}', reason=MISSING),
    "null field": Line(b'{"text": null}', reason=NULL),
    "number field": Line(b'{"text": 17}', reason=NOT_TEXT),
    "float field": Line(b'{"text": 1.5}', reason=NOT_TEXT),
    "bool field": Line(b'{"text": true}', reason=NOT_TEXT),
    "list field": Line(b'{"text": ["a", "b"]}', reason=NOT_TEXT),
    "object field": Line(b'{"text": {"text": "a"}}', reason=NOT_TEXT),
    "empty list field": Line(b'{"text": []}', reason=NOT_TEXT),
    "the last of two counts": Line(b'{"text": "a", "text": 5}', reason=NOT_TEXT),
    # text that is not text
    "stray byte": Line(b'{"text": "a\xff"}', reason=NOT_UTF8),
    "Latin-1": Line('{"text": "café"}'.encode("latin-1"), reason=NOT_UTF8),
    "overlong": Line(b'{"text": "\xc0\xaf"}', reason=NOT_UTF8),
    "overlong NUL": Line(b'{"text": "\xc0\x80"}', reason=NOT_UTF8),
    "cut character": Line(b'{"text": "\xe4\xb8"}', reason=NOT_UTF8),
    "continuation alone": Line(b'{"text": "\x80"}', reason=NOT_UTF8),
    "five bytes": Line(b'{"text": "\xf8\x88\x80\x80\x80"}', reason=NOT_UTF8),
    "beyond Unicode": Line(b'{"text": "\xf4\x90\x80\x80"}', reason=NOT_UTF8),
    "surrogate in UTF-8": Line(b'{"text": "\xed\xa0\x80"}', reason=NOT_UTF8),
    "CESU-8": Line(b'{"text": "\xed\xa0\xbd\xed\xb8\x80"}', reason=NOT_UTF8),
    "stray byte and an escape": Line(b'{"text": "caf\\u00e9 \xff"}', reason=NOT_UTF8),
    "stray byte, escape elsewhere": Line(b'{"name": "caf\\u00e9", "text": "a\xff"}', reason=NOT_UTF8),
    "high surrogate": Line(rb'{"text": "a\ud83d"}', reason=SURROGATE),
    "low surrogate": Line(rb'{"text": "a\ude00b"}', reason=SURROGATE),
    "pair the wrong way": Line(rb'{"text": "\ude00\ud83d"}', reason=SURROGATE),
    "high surrogate, then text": Line(rb'{"text": "\ud83dabc"}', reason=SURROGATE),
    "two high surrogates": Line(rb'{"text": "\ud83d\ud83d\ude00"}', reason=SURROGATE),
    "escaped surrogate byte": Line(rb'{"text": "\udcff"}', reason=SURROGATE),
    # odd, but good
    "escaped pair": Line(rb'{"text": "\ud83d\ude00"}', "😀"),
    "stray byte elsewhere": Line(b'{"raw": "\xff\xfe", "text": "a"}', "a"),
    "stray byte in a key": Line(b'{"r\xffw": 1, "text": "a"}', "a"),
    "surrogate elsewhere": Line(rb'{"raw": "\ud800", "text": "a"}', "a"),
    "surrogate in a key": Line(rb'{"\ud800": 1, "text": "a"}', "a"),
    "escaped NUL": Line(rb'{"text": "a\u0000b"}', "a\x00b"),
    "escaped controls": Line(rb'{"text": "\t\r\n\b\f\u001b\/\"\\"}', '\t\r\n\b\f\x1b/"\\'),
    "delete": Line(b'{"text": "a\x7fb"}', "a\x7fb"),
    "noncharacter": Line(b'{"text": "\xef\xbf\xbf"}', "\uffff"),
    "byte order mark in the text": Line(b'{"text": "\xef\xbb\xbfa"}', "\ufeffa"),
    "line separators": Line('{"text": "a\u2028b\u2029c\x85d"}'.encode(), "a\u2028b\u2029c\x85d"),
    "special tokens": Line(b'{"text": "<|endoftext|><|endoftext|> a"}', "<|endoftext|><|endoftext|> a"),
    "empty text": Line(b'{"text": ""}', ""),
    "white text": Line(rb'{"text": " \n "}', " \n "),
    "duplicate key": Line(b'{"text": "first", "text": "last"}', "last"),
    "duplicate key, other type": Line(b'{"text": 5, "text": "last"}', "last"),
    "duplicate elsewhere": Line(b'{"a": 1, "a": "b", "text": "a"}', "a"),
    "escaped key": Line(rb'{"te\u0078t": "a"}', "a"),
    "empty key": Line(b'{"": 1, "text": "a"}', "a"),
    "spaces around": Line(b' \t{ "text" : "a" } ', "a"),
    "carriage return at the end": Line(b'{"text": "a"}\r', "a"),
    "NaN": Line(b'{"score": NaN, "text": "a"}', "a"),
    "Infinity": Line(b'{"score": [Infinity, -Infinity], "text": "a"}', "a"),
    "huge integer": Line(b'{"n": ' + b"9" * 5000 + b', "text": "a"}', "a"),
    "huge integer, spaced": Line(b' {"n": ' + b"9" * 5000 + b', "text": "a"}', "a"),
    "huge exponent": Line(b'{"n": 1e999, "text": "a"}', "a"),
    "deep nesting": Line(b'{"n": ' + b"[" * 500 + b"]" * 500 + b', "text": "a"}', "a"),
    "very deep nesting": Line(b'{"n": ' + b'{"a":' * 20_000 + b"1" + b"}" * 20_000 + b', "text": "a"}', "a"),
    "date": Line(b'{"text": "2024-01-01T00:00:00Z"}', "2024-01-01T00:00:00Z"),
    "number in a string": Line(b'{"text": "17"}', "17"),
    "braces and newlines": Line(rb'{"text": "}\n{\"text\": \"inside\"}"}', '}\n{"text": "inside"}'),
    "null elsewhere": Line(b'{"a": null, "text": "a", "b": [null]}', "a"),
    "very long": Line(b'{"text": "' + b"long words " * 30_000 + b'"}', "long words " * 30_000),
    "very long and bad": Line(b'{"text": "' + b"long words " * 30_000 + b"}", reason=BAD),
    "one letter": Line(b'{"text": "' + b"x" * 100_000 + b'"}', "x" * 100_000),
    # nothing: not a document, and not lost
    "blank": Line(b"", reason=BLANK),
    "spaces": Line(b"  \t ", reason=BLANK),
    "carriage return": Line(b"\r", reason=BLANK),
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus() -> list[Line]:
    """A good document before, between and after all the poison, then poison side by side."""
    lines = [good(0)]
    for i, line in enumerate(POISON.values(), 1):
        lines += [line, good(i)]
    return [*lines, *POISON.values(), good(1000)]


def write(path: Path, lines: list[Line]) -> Path:
    path.write_bytes(b"".join(line.data + b"\n" for line in lines))
    return path


def outcome(path: Path, block_bytes: int = 1 << 20, cuts: tuple[int, ...] = ()) -> list[tuple[str | None, str | None]]:
    """What each row of a file became: (text, None) or (None, reason)."""
    source = tm.read(path)
    rows: list[tuple[str | None, str | None]] = []
    edges = [0, *cuts, None]
    for start, stop in pairwise(edges):
        for block in read_piece(Piece(source.files[0], start, stop), source, block_bytes):
            gone = {row: skip.reason for skip in block.skips for row in range(skip.row, skip.row + skip.rows)}
            texts = iter(block.values.to_pylist())
            rows += [(None, gone[row]) if row in gone else (next(texts), None) for row in range(block.rows)]
            assert next(texts, None) is None
    return rows


def expected(lines: list[Line]) -> list[tuple[str | None, str | None]]:
    return [(line.text, line.reason) for line in lines]


def ids_of(reference, eos, text):
    return [*reference.encode(text, add_special_tokens=False).ids, eos]


def build(path, tokenizer_path, out, **options):
    return tm.build(path, tokenizer_path, out, workers=0, progress="quiet", **options)


def refused(path, tokenizer_path, out, **options):
    """A build that is to stop at the first bad document."""
    return build(path, tokenizer_path, out, engine="reference", on_error="raise", **options)


def test_there_is_enough_poison():
    bad = [line for line in POISON.values() if line.reason not in (None, BLANK)]
    assert len(bad) >= 40
    assert len({line.data for line in POISON.values()}) == len(POISON)


@pytest.mark.parametrize("name", POISON)
def test_each_alone(tmp_path, name):
    """Alone in a file, first, last, and between good documents: the line's fate is its own."""
    line = POISON[name]
    if line.reason != BLANK:
        assert outcome(write(tmp_path / "alone.jsonl", [good(1), line])) == expected([good(1), line])
    for lines in ([good(1), line, good(2)], [good(1), line, line, good(2)]):
        assert outcome(write(tmp_path / "between.jsonl", lines)) == expected(lines)
    path = tmp_path / "open.jsonl"
    path.write_bytes(good(1).data + b"\n" + line.data)
    assert [row for row in outcome(path) if row[1] != BLANK] == [
        row for row in expected([good(1), line]) if row[1] != BLANK
    ]


@pytest.mark.parametrize("block_bytes", [1, 64, 1000, 10_000, 1 << 20, 1 << 23])
def test_all_together_in_blocks_of_any_size(tmp_path, corpus, block_bytes):
    """Which other lines share a block with a line changes nothing."""
    assert outcome(write(tmp_path / "a.jsonl", corpus), block_bytes) == expected(corpus)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.sampled_from([line for line in POISON.values() if len(line.data) < 10_000]), max_size=12),
    st.integers(1, 2000),
    st.lists(st.integers(1, 2000), max_size=3, unique=True),
)
def test_in_any_company(tmp_path_factory, lines, block_bytes, cuts):
    """Any poison in any order, in any blocks and byte ranges, is judged line by line."""
    path = tmp_path_factory.getbasetemp() / "company.jsonl"
    lines = [good(0), *lines, good(1)]
    assert outcome(write(path, lines), block_bytes, tuple(sorted(cuts))) == expected(lines)


def test_a_build_counts_every_document(tmp_path, corpus, tokenizer_path, reference):
    """Documents in are documents out and quarantined; each is named by its line; the good ones are exact."""
    path = write(tmp_path / "a.jsonl", corpus)
    store = build(path, tokenizer_path, tmp_path / "out")
    kept = [(row, line.text) for row, line in enumerate(corpus) if line.text is not None]
    lost = [(row, line.reason) for row, line in enumerate(corpus) if line.reason not in (None, BLANK)]
    entries = [json.loads(line) for line in (tmp_path / "out" / "quarantine.jsonl").read_text().splitlines()]
    assert [(entry["row"], entry["reason"]) for entry in entries] == lost
    assert {entry["file"] for entry in entries} == {str(path)}
    assert len(store) == len(kept)
    assert sum(store._manifest.quarantined.values()) == len(lost)
    documents_in = sum(line.reason != BLANK for line in corpus)
    assert documents_in == len(store) + sum(store._manifest.quarantined.values())
    eos = store.tokenizer.eos_id
    for i, (row, text) in enumerate(kept):
        assert store[i].tolist() == ids_of(reference, eos, text), row
        assert store.locate(i) == (str(path), row)
    assert store.complete
    assert store.verify() == []


@pytest.mark.parametrize("shard_bytes", [12_000, 100_000, "1MB"])
def test_shards_of_any_size_hold_the_same(tmp_path, corpus, tokenizer_path, shard_bytes):
    """However the file is cut into tasks, the same documents and the same quarantine, row by row."""
    path = write(tmp_path / "a.jsonl", corpus)
    whole = build(path, tokenizer_path, tmp_path / "whole")
    parts = build(path, tokenizer_path, tmp_path / "parts", shard_bytes=shard_bytes)
    assert np.array_equal(np.concatenate(list(parts)), np.concatenate(list(whole)))
    assert np.array_equal(parts.lengths, whole.lengths)
    assert [parts.locate(i) for i in range(len(parts))] == [whole.locate(i) for i in range(len(whole))]
    assert (tmp_path / "parts/quarantine.jsonl").read_text() == (tmp_path / "whole/quarantine.jsonl").read_text()


def test_tasks_in_blocks_of_any_size(tmp_path, corpus, tokenizer_path):
    """The receipt and the tokens of a task do not depend on how much text is encoded at once."""
    source = tm.read(write(tmp_path / "a.jsonl", corpus))
    tokenizer = tm.load_tokenizer(tokenizer_path)
    encoder = tokenizer._encoder(eos_id=tokenizer.eos_id)
    task = Task("0" * 24, (Piece(source.files[0]),))
    found = []
    for block_bytes in (64, 5000, 1 << 22):
        options = TaskOptions(block_bytes=block_bytes)
        encoded = encode_task(task, source, encoder, tmp_path / str(block_bytes), options)
        found.append((encoded.facts, encoded.writer.commit(**encoded.facts)["columns"]))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("name", [name for name, line in POISON.items() if line.reason not in (None, BLANK)])
def test_raise_stops_at_the_first(tmp_path, name, tokenizer_path):
    """With on_error="raise" the first bad document ends the build, named by file, row and reason."""
    line = POISON[name]
    path = write(tmp_path / "a.jsonl", [good(0), POISON["blank"], good(1), line, good(2), line])
    with pytest.raises(DocumentError, match=rf"a\.jsonl, row 3: {line.reason}"):
        refused(path, tokenizer_path, tmp_path / "out")


@pytest.mark.parametrize("before", [30, 100, 101, 102, 103])
def test_raise_names_the_row_in_the_file_not_in_the_piece(tmp_path, before, tokenizer_path):
    """Also where the bad row lies in a later byte range of a file that was cut."""
    lines = [*map(good, range(before)), POISON["blank"], POISON["null field"], *map(good, range(50))]
    path = write(tmp_path / "a.jsonl", lines)
    with pytest.raises(DocumentError, match=rf"a\.jsonl, row {before + 1}: null field"):
        refused(path, tokenizer_path, tmp_path / "out", shard_bytes=1500)


def test_raise_does_not_mind_good_documents_and_blank_lines(tmp_path, corpus, tokenizer_path):
    """Odd but good is good."""
    lines = [line for line in corpus if line.reason in (None, BLANK)]
    store = build(write(tmp_path / "a.jsonl", lines), tokenizer_path, tmp_path / "out", on_error="raise")
    assert len(store) == sum(line.text is not None for line in lines)


@pytest.mark.parametrize("block_bytes", [100, 500, 1 << 20])
def test_a_line_too_long_to_hold_is_too_large_in_any_block(tmp_path, monkeypatch, block_bytes):
    """The bound on a line's length is the same however much is read at once."""
    monkeypatch.setattr("tokenmill.reading.formats.jsonl.LONG_LINE", 1000)
    fits = Line(json.dumps({"text": "x" * 900}).encode(), "x" * 900)
    large = Line(json.dumps({"text": "x" * 1200}).encode(), reason="too large")
    lines = [good(0), fits, large, good(1), large, fits]
    assert outcome(write(tmp_path / "a.jsonl", lines), block_bytes) == expected(lines)
