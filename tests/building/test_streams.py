"""Text that is not in files is encoded while it is read: little of it is on disk at any moment, and a limit ends the reading."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from build_helpers import shard_files
from hypothesis import given
from hypothesis import strategies as st

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.errors import DocumentError, InputError, UsageError
from tokenmill.events import EngineTrial, Finished
from tokenmill.reading.spool import _Lines

OPTIONS = {"engine": "reference", "shard_bytes": "4KB", "workers": 0, "progress": "quiet"}


class Stdin(io.RawIOBase):
    """Lines without an end, in pieces of odd sizes; counts what was taken."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self.lines, self.left, self.taken = lines, b"", 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        size = min(len(buffer), 997)
        while len(self.left) < size:
            line = next(self.lines, None)
            if line is None:
                break
            self.left += line
        part, self.left = self.left[:size], self.left[size:]
        buffer[: len(part)] = part
        self.taken += len(part)
        return len(part)


@pytest.fixture
def give(monkeypatch):
    """Make lines the standard input."""

    def put(lines: Iterator[bytes]) -> Stdin:
        raw = Stdin(lines)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(raw, 4096)))
        return raw

    return put


def documents(store: tm.Store) -> list[list[int]]:
    return [ids.tolist() for ids in store]


def texts(number: int) -> list[str]:
    return [f"text {i} of many, {'word ' * (i % 7)}" for i in range(number)]


@pytest.mark.parametrize("limit", [{"max_documents": 10}, {"max_rows": 10}])
def test_a_limit_ends_the_reading_of_an_iterable(tokenizer_path, tmp_path, limit):
    taken = []

    def endless() -> Iterator[str]:
        for i in count():
            taken.append(i)
            yield f"text {i}"

    store = tm.build(endless(), tokenizer_path, tmp_path / "store", **OPTIONS, **limit)
    assert len(store) == 10
    assert len(taken) <= 11


def test_a_limit_of_tokens_ends_the_reading(tokenizer_path, tmp_path):
    endless = (f"text {i}" for i in count())
    store = tm.build(endless, tokenizer_path, tmp_path / "store", **OPTIONS, max_tokens=500)
    assert 450 < store.num_tokens <= 500
    assert next(endless) < "text 9"


def test_a_limit_ends_the_reading_of_standard_input(give, tokenizer_path, tmp_path):
    stdin = give(b"y %d\n" % i for i in count())
    command = ["build", "-", "--format", "lines", "-t", str(tokenizer_path), "-o", str(tmp_path / "store"), "-q"]
    assert main([*command, "--max-documents", "10"]) == 0
    assert len(tm.open(tmp_path / "store")) == 10
    assert stdin.taken < 3 << 20


@pytest.mark.parametrize("workers", [0, 2])
def test_little_is_on_disk(tokenizer_path, tmp_path, workers):
    """While a stream of a hundred segments is read, a few of them are."""
    spool, most = tmp_path / "store/spool", 0

    def watched() -> Iterator[str]:
        nonlocal most
        for text in texts(4000):
            if spool.exists():
                most = max(most, sum(1 for _ in spool.iterdir()))
            yield text

    store = tm.build(watched(), tokenizer_path, tmp_path / "store", **{**OPTIONS, "workers": workers})
    assert store.num_shards > 20
    assert most <= 3 + 3 * workers
    assert not spool.exists()
    assert len(store) == 4000


def test_the_same_bytes_as_from_a_file(give, tokenizer_path, tmp_path):
    """However the bytes of a stream arrive, and in whatever form; rows are those of the whole."""
    rows = [json.dumps({"text": text}) for text in texts(900)]
    rows[700] = "{broken"
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    file = tm.build(tmp_path / "a.jsonl", tokenizer_path, tmp_path / "file", **OPTIONS)
    give(f"{row}\n".encode() for row in rows)
    streamed = tm.build("-", tokenizer_path, tmp_path / "stream", format="jsonl", **OPTIONS)
    assert documents(streamed) == documents(file)
    assert streamed.num_shards > 5
    assert [entry["row"] for entry in streamed.quarantine()] == [700]
    assert streamed.locate(800).row == 801
    listed = tm.build(iter(texts(900)), tokenizer_path, tmp_path / "listed", **OPTIONS)
    assert documents(listed)[:700] == documents(file)[:700]
    assert documents(listed)[701:] == documents(file)[700:]


def test_an_error_names_the_row_of_the_whole(give, tokenizer_path, tmp_path):
    rows = [json.dumps({"text": text}) for text in texts(900)]
    rows[700] = "{broken"
    give(f"{row}\n".encode() for row in rows)
    with pytest.raises(DocumentError, match="<stdin>, row 700"):
        tm.build("-", tokenizer_path, tmp_path / "store", format="jsonl", on_error="raise", **OPTIONS)


def test_segments_that_are_equal(give, tokenizer_path, tmp_path):
    """As of `yes`: one shard for all, and all documents."""
    give(iter([b"the same line\n"] * 5000))
    store = tm.build("-", tokenizer_path, tmp_path / "store", format="lines", **{**OPTIONS, "workers": 2})
    assert len(store) == 5000
    assert len(shard_files(tmp_path / "store")) < 20
    assert store.verify() == []


def test_killed_and_repeated(tokenizer_path, tmp_path):
    """What was durable is not made again, and the store is that of an undisturbed build."""
    code = """
import os, sys, tokenmill as tm
def texts():
    for i in range(4000):
        if i == 3000:
            os._exit(9)
        yield f"text {i} of many, {'word ' * (i % 7)}"
tm.build(texts(), sys.argv[1], sys.argv[2], engine="reference", shard_bytes="4KB", workers=0, progress="quiet")
"""
    ran = subprocess.run([sys.executable, "-c", code, tokenizer_path, tmp_path / "store"], timeout=60)
    assert ran.returncode == 9
    receipts = {path.name: path.stat().st_ino for path in (tmp_path / "store/shards").glob("*.json")}
    assert len(receipts) > 10
    store = tm.build(iter(texts(4000)), tokenizer_path, tmp_path / "store", **OPTIONS)
    whole = tm.build(iter(texts(4000)), tokenizer_path, tmp_path / "whole", **OPTIONS)
    assert store.fingerprint == whole.fingerprint
    assert shard_files(tmp_path / "store") == shard_files(tmp_path / "whole")
    after = {path.name: path.stat().st_ino for path in (tmp_path / "store/shards").glob("*.json")}
    assert {name: after[name] for name in receipts} == receipts
    assert not (tmp_path / "store/spool").exists()


def test_the_time_is_the_whole_time(tokenizer_path, tmp_path):
    """Waiting for a slow stream counts. A short one needs no trial of engines."""

    def slow() -> Iterator[str]:
        yield "one"
        time.sleep(0.3)
        yield "two"

    seen: list[object] = []
    os.environ["TOKENMILL_CACHE"], before = str(tmp_path / "cache"), os.environ["TOKENMILL_CACHE"]
    try:
        tm.build(slow(), tokenizer_path, tmp_path / "store", workers=0, progress=seen.append)
    finally:
        os.environ["TOKENMILL_CACHE"] = before
    [finished] = [event for event in seen if isinstance(event, Finished)]
    assert finished.seconds > 0.3
    assert not [event for event in seen if isinstance(event, EngineTrial)]


def test_an_iterator_is_read_once(tokenizer_path, tmp_path):
    source = tm.read(iter(["one", "two"]))
    assert len(tm.build(source, tokenizer_path, tmp_path / "a", **OPTIONS)) == 2
    with pytest.raises(UsageError, match="<iterable> was read before"):
        tm.build(source, tokenizer_path, tmp_path / "b", **OPTIONS)
    some = (text for text in ["one", "two", "three"])
    assert len(tm.build(some, tokenizer_path, tmp_path / "e", **OPTIONS, max_documents=1)) == 1
    with pytest.raises(UsageError, match="<iterable> was read before"):
        tm.build(some, tokenizer_path, tmp_path / "f", **OPTIONS)
    listed = tm.read(["one", "two"])
    for name in "cd":
        assert len(tm.build(listed, tokenizer_path, tmp_path / name, **OPTIONS)) == 2


def test_a_stream_that_breaks_off_leaves_what_is_finished(tokenizer_path, tmp_path):
    def broken() -> Iterator[str]:
        yield from texts(3000)
        raise ConnectionError("the line is dead")

    with pytest.raises(InputError, match=r"<iterable> broke off: the line is dead\. Finished shards are kept"):
        tm.build(broken(), tokenizer_path, tmp_path / "store", **OPTIONS)
    receipts = {path.name: path.stat().st_ino for path in (tmp_path / "store/shards").glob("*.json")}
    assert len(receipts) > 10
    tm.build(iter(texts(3500)), tokenizer_path, tmp_path / "store", **OPTIONS)
    after = {path.name: path.stat().st_ino for path in (tmp_path / "store/shards").glob("*.json")}
    assert {name: after[name] for name in receipts} == receipts


@given(
    st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b".") + b"\n"), max_size=30),
    st.binary(max_size=5).map(lambda line: line.replace(b"\n", b".")),
    st.lists(st.integers(1, 40), min_size=1, max_size=10),
    st.integers(1, 60),
    st.none() | st.integers(1, 5),
)
def test_segments_of_lines(tmp_path_factory, lines, tail, sizes, most_bytes, most_rows):
    """Whole lines, in order, each in one segment; where they are cut does not depend on how the bytes arrive."""

    class Raw:
        def __init__(self, sizes: list[int]) -> None:
            self.data, self.sizes, self.turn = io.BytesIO(b"".join(lines) + tail), sizes, 0

        def read(self, _: int) -> bytes:
            self.turn += 1
            return self.data.read(self.sizes[self.turn % len(self.sizes)])

    def cut(sizes: list[int]) -> list[bytes]:
        source, found = _Lines(Raw(sizes)), []  # type: ignore[arg-type]
        path = Path(tmp_path_factory.getbasetemp(), f"segment-{os.getpid()}")
        while not source.is_at_end:
            rows, size, _ = source.write(path, most_bytes, most_rows)
            found.append(path.read_bytes())
            assert (rows, size) == (found[-1].count(b"\n"), len(found[-1]))
        return found

    found = cut(sizes)
    assert b"".join(found) == b"".join(lines) + tail
    assert found == cut([7])
    for part in found[:-1]:
        assert part.endswith(b"\n")
        assert len(part) >= most_bytes or part.count(b"\n") == most_rows
        assert len(part[: part.rfind(b"\n", 0, -1) + 1]) < most_bytes
        assert most_rows is None or part.count(b"\n") <= most_rows
