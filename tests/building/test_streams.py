"""Text that is not in files is encoded while it is read: little of it is on disk at any moment, and a limit ends the reading."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import chain, count

import datasets
import pyarrow as pa
import pytest
from build_helpers import shard_files

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.errors import DocumentError, InputError, MismatchError, UsageError
from tokenmill.events import EngineProof, Finished

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


def as_csv(rows: list[str], mark: str = ",") -> str:
    out = io.StringIO()
    table = csv.writer(out, delimiter=mark)
    table.writerows([["id", "text"], *([i, row] for i, row in enumerate(rows))])
    return out.getvalue()


@pytest.mark.parametrize(
    ("format", "options", "write"),
    [
        ("text", {"separator": "<|end|>"}, lambda rows: "\n<|end|>\n".join(rows)),
        ("text", {"separator": "<|end|>", "separator_newlines": "keep"}, lambda rows: "<|end|>\n".join(rows)),
        ("text", {"separator": "\n\n"}, lambda rows: "\n\n".join(rows)),
        ("csv", {}, as_csv),
        ("tsv", {}, lambda rows: as_csv(rows, "\t")),
    ],
    ids=["separator", "keep", "overlapping", "csv", "tsv"],
)
def test_texts_and_tables_are_segments_too(give, tokenizer_path, tmp_path, format, options, write):
    """The documents of a file, in as many shards as the stream has segments."""
    rows = [f'{text} "quoted", and\n{i} lines' for i, text in enumerate(texts(600))]
    (tmp_path / "a").write_text(write(rows), newline="")
    file = tm.build(tmp_path / "a", tokenizer_path, tmp_path / "file", format=format, **options, **OPTIONS)
    give(iter([write(rows).encode()]))
    streamed = tm.build("-", tokenizer_path, tmp_path / "stream", format=format, **options, **OPTIONS)
    assert documents(streamed) == documents(file)
    assert len(streamed) == 600
    assert streamed.num_shards > 5
    assert streamed.locate(500).row == file.locate(500).row == 500


def arrow_stream(rows: list[str], column: pa.DataType) -> bytes:
    table, out = pa.table({"n": range(len(rows)), "text": pa.array(rows, column)}), io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as sink:
        sink.write_table(table, max_chunksize=20)
    return out.getvalue()


@pytest.mark.parametrize("column", [pa.string(), pa.dictionary(pa.int32(), pa.string())], ids=["text", "dictionary"])
def test_arrow_streams_are_segments_too(give, tokenizer_path, tmp_path, column):
    """But not with dictionaries, which come before the batches that need them."""
    rows = [*texts(500), ""]
    data = arrow_stream(rows, column)
    (tmp_path / "a.arrow").write_bytes(data)
    file = tm.build(tmp_path / "a.arrow", tokenizer_path, tmp_path / "file", **OPTIONS)
    give(iter([data]))
    streamed = tm.build("-", tokenizer_path, tmp_path / "stream", format="arrow", **OPTIONS)
    assert documents(streamed) == documents(file)
    assert (streamed.num_shards > 3) == (column == pa.string())
    assert streamed.locate(400).row == 400


@pytest.mark.parametrize("end", [-8, -20, None])
def test_an_arrow_stream_that_breaks_off(give, tokenizer_path, tmp_path, end):
    data = arrow_stream(texts(500), pa.string())
    give(iter([data[:end] if end is not None else data + b"more"]))
    with pytest.raises(InputError, match="<stdin>: "):
        tm.build("-", tokenizer_path, tmp_path / "store", format="arrow", **OPTIONS)


@pytest.mark.parametrize(
    ("format", "head", "row", "message"),
    [
        ("csv", b"id,body\n", b"%d,some text\n", "<stdin>: no column 'text'; it has id, body"),
        ("jsonl", b"", b'{"body": "%d"}\n', "<stdin>: the first records have no field 'text'; they have body"),
    ],
)
def test_text_without_the_field_is_refused_at_once(give, tokenizer_path, tmp_path, format, head, row, message):
    stdin = give(chain([head], (row % i for i in count())))
    with pytest.raises(UsageError, match=message):
        tm.build("-", tokenizer_path, tmp_path / "store", format=format, **OPTIONS)
    assert stdin.taken < 3 << 20


def test_csv_that_ends_in_a_quoted_field(give, tokenizer_path, tmp_path):
    """As of a file: nothing of it is in the store."""
    give(iter([as_csv(texts(600)).encode(), b'600,"cut sh']))
    with pytest.raises(InputError, match=r"no document in -, .*ends inside a quoted field"):
        tm.build("-", tokenizer_path, tmp_path / "store", format="csv", **OPTIONS)


def test_a_later_segment_is_not_the_start_of_a_file(give, tokenizer_path, tmp_path):
    """A JSON array is read as a file, but as a line of many it is a bad row."""
    give(chain([b'{"text": "%s"}\n' % (b"word " * 900)], [b"[1]\n"], [b'{"text": "end"}\n']))
    store = tm.build("-", tokenizer_path, tmp_path / "store", format="jsonl", **OPTIONS)
    assert store.complete
    assert len(store) == 2
    assert [entry["row"] for entry in store.quarantine()] == [1]


def test_what_is_saved_as_a_whole_is_said(give, tokenizer_path, tmp_path, capsys):
    """A text that is one document is on disk before it is encoded. (This one is not: it is no UTF-8.)"""
    give(b"\xff" * 1000 for _ in range(2000))
    options = {**OPTIONS, "progress": "plain"}
    with pytest.raises(InputError, match="1 of 1 document \\(100%\\) left out"):
        tm.build("-", tokenizer_path, tmp_path / "store", format="text", **options)
    assert capsys.readouterr().err.count("reading standard input to disk: 1.0 MB\n") == 1


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
    """Waiting for a slow stream counts. A short one needs no proof of an engine."""

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
    assert not [event for event in seen if isinstance(event, EngineProof)]


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


@pytest.mark.parametrize(
    ("kind", "workers"), [("list", 0), ("table", 0), ("generator", 0), ("generator", 1), ("stdin", 0), ("dataset", 0)]
)
def test_another_text_at_the_same_place(give, tokenizer_path, tmp_path, kind, workers):
    """Is refused before the store changes, unless it is forced; the same text, more of it, or most of it is not."""

    def put(rows: list[str], **options: object) -> tm.Store:
        give(f"{row}\n".encode() for row in rows)
        source, form = {
            "list": (list(rows), "auto"),
            "table": (pa.table({"text": rows}), "auto"),
            "generator": ((row for row in rows), "auto"),
            "stdin": ("-", "lines"),
            "dataset": (datasets.Dataset.from_dict({"text": rows}), "auto"),
        }[kind]
        given = {**OPTIONS, "workers": workers, "format": form, **options}
        return tm.build(source, tokenizer_path, tmp_path / "store", **given)

    store = put(texts(600))
    manifest, shards = (tmp_path / "store/manifest.json").read_bytes(), shard_files(tmp_path / "store")
    others = [f"else {i}" for i in range(900)]
    for rows, lost in ((others, "the first of which are"), (texts(6), r"5\d\d of which are")):
        with pytest.raises(
            MismatchError, match=rf"has another text: 600 documents, .* tokens, {lost} not in <.*--force"
        ):
            put(rows)
        assert (tmp_path / "store/manifest.json").read_bytes() == manifest
        assert shards.items() <= shard_files(tmp_path / "store").items()
        assert tm.open(tmp_path / "store").verify() == []
    assert put(texts(600)).fingerprint == store.fingerprint
    assert shard_files(tmp_path / "store") == shards  # nothing is left of what was refused
    assert len(put([*texts(600), *others])) == 1500
    assert len(put(["new", *texts(590), *others])) == 1491
    assert len(put(others[:5], force=True)) == 5


def test_another_text_is_known_from_its_first_shard(tokenizer_path, tmp_path):
    """Not when hours were spent on it."""
    tm.build(texts(600), tokenizer_path, tmp_path / "store", **OPTIONS)
    for _ in range(2):  # the second time, that shard is there
        others = (f"else {i}" for i in range(50_000))
        with pytest.raises(MismatchError, match="another text"):
            tm.build(others, tokenizer_path, tmp_path / "store", **OPTIONS)
        assert next(others, None) is not None  # it was not read to its end


def test_a_change_in_a_store_of_one_shard(tokenizer_path, tmp_path):
    """The shard is another one, but most of its documents are the same."""
    sizes = {**OPTIONS, "shard_bytes": "1MB"}
    for rows in (texts(50), texts(50)[::-1], [*texts(40), ""], ["first", *texts(45)]):
        assert tm.build(rows, tokenizer_path, tmp_path / "store", **sizes).num_shards == 1
    with pytest.raises(MismatchError, match="another text: 46 documents"):
        tm.build(texts(20), tokenizer_path, tmp_path / "store", **sizes)


def test_an_array_on_standard_input_is_cut_like_lines(give, tokenizer_path, tmp_path):
    """The pieces are smaller than the array, and none of them is a whole one."""
    rows = [{"text": text} for text in texts(400)]
    options = ["-q", "--shard-bytes", "4KB", "--workers", "0", "--engine", "reference"]
    command = ["build", "-", "--format", "jsonl", "-t", str(tokenizer_path), *options]
    found = []
    for name, lines in (("array", json.dumps(rows, indent=1)), ("lines", "\n".join(map(json.dumps, rows)))):
        give(iter([lines.encode()]))
        assert main([*command, "-o", str(tmp_path / name)]) == 0
        found.append(documents(tm.open(tmp_path / name)))
    assert found[0] == found[1]
    assert tm.open(tmp_path / "array").num_shards > 3
    give(iter([json.dumps(rows, indent=1).encode()]))
    assert main([*command, "-o", str(tmp_path / "few"), "--max-documents", "10"]) == 0
    assert documents(tm.open(tmp_path / "few")) == found[0][:10]


def test_a_split_that_is_not_given_any_more(tokenizer_path, tmp_path):
    """Fewer parts of a dataset do not take their documents out of a store, however few they are."""
    train, test = (datasets.Dataset.from_dict({"text": texts(n)[-rows:]}) for n, rows in ((500, 400), (600, 20)))
    whole = tm.build(datasets.DatasetDict(train=train, test=test), tokenizer_path, tmp_path / "out", **OPTIONS)
    with pytest.raises(MismatchError, match="not in the input now: those of <dataset test>"):
        tm.build(datasets.DatasetDict(train=train), tokenizer_path, tmp_path / "out", **OPTIONS)
    assert tm.open(tmp_path / "out").fingerprint == whole.fingerprint
    more = datasets.DatasetDict(train=train, test=test, extra=test)
    assert len(tm.build(more, tokenizer_path, tmp_path / "out", **OPTIONS)) == len(whole) + 20
    fewer = tm.build(datasets.DatasetDict(train=train), tokenizer_path, tmp_path / "out", **OPTIONS, force=True)
    assert len(fewer) == 400


def test_standard_input_without_anything(give, tokenizer_path, tmp_path, capsys):
    """A pipe whose first command failed."""
    for format in ("jsonl", "text", "arrow"):
        give(iter(()))
        command = ["build", "-", "--format", format, "-t", str(tokenizer_path), "-o", str(tmp_path / "store"), "-q"]
        assert main(command) == 2
        assert "<stdin> is empty" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()
