"""Rows as they are stored: the same numbers as reading gives them, whatever is wrong with them, in bounded memory."""

from __future__ import annotations

import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading_files import CODECS, pack, write_arrow

import tokenmill as tm
from tokenmill.errors import InputError, UsageError
from tokenmill.reading import cutting, raw_rows
from tokenmill.reading.raw_rows import RawRow, raw_row

JSON = b'\xef\xbb\xbf{"text": "a"}\n\n{bad\r\n{"other": 1}\n{"text": "\xff\xc3\xa9"}\n\r\n{"text": null}'
JSON_ROWS = ['\ufeff{"text": "a"}', "", "{bad", '{"other": 1}', '{"text": "\ufffdé"}', "", '{"text": null}']
CSV = b'\n\r\nid,text\n1,"a ""b""\n\nc"\r\n\n\n2,5" disk\n3\n"4","\xff"\r\n5,last'
CSV_ROWS = ['1,"a ""b""\n\nc"', '2,5" disk', "3", '"4","\ufffd"', "5,last"]


@pytest.fixture
def rows_of(tmp_path):
    """All rows of a file with this content, one by one up to the first that is not there."""

    def show(name: str, data: bytes | None = None, **options) -> list[RawRow]:
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        source = tm.read(path, **options)
        rows: list[RawRow] = []
        with pytest.raises(InputError, match=r"there is no row \d+; the file has changed"):  # noqa: PT012
            while True:
                rows.append(raw_row(source.files[0], source, len(rows)))
        return rows

    return show


def whole(texts: list[str]) -> list[RawRow]:
    return [RawRow(text, False) for text in texts]


@pytest.mark.parametrize("read_bytes", [1, 2, 7, 1 << 20])
@pytest.mark.parametrize(
    ("name", "data", "options", "expected"),
    [
        ("a.jsonl", JSON, {}, JSON_ROWS),
        ("a.jsonl", JSON + b"\n", {}, JSON_ROWS),
        ("a.txt", b"one\n\ntwo\r\nthree", {"format": "lines"}, ["one", "", "two", "three"]),
        ("a.txt", b"one\n<>\n<><>\xff", {"separator": "<>"}, ["one\n", "\n", "", "\ufffd"]),
        ("a.txt", b"1aaa2aaaa", {"separator": "aa"}, ["1", "a2", ""]),
        ("a.txt", b"one\n\xff\r\n\n", {}, ["one\n\ufffd\r\n\n"]),
        ("a.txt", b"", {}, [""]),
        ("a.txt", b"", {"format": "lines"}, []),
        ("a.csv", CSV, {}, CSV_ROWS),
        ("a.csv", CSV + b"\n\n\r\n", {}, CSV_ROWS),
        ("a.tsv", b"id\ttext\r1\ta,b\r2\t", {}, ["1\ta,b", "2\t"]),
        ("a.csv", b"text\n", {}, []),
    ],
)
def test_rows_as_they_are_stored(rows_of, monkeypatch, read_bytes, name, data, options, expected):
    """However the bytes arrive: blank lines are rows of lines and none of csv, a line break is no part of its row."""
    monkeypatch.setattr(raw_rows, "READ_BYTES", read_bytes)
    assert rows_of(name, data, **options) == whole(expected)


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_files(rows_of, codec):
    assert rows_of(f"a.jsonl{codec}", pack(JSON, codec)) == whole(JSON_ROWS)
    assert rows_of(f"a.csv{codec}", pack(CSV, codec)) == whole(CSV_ROWS)
    assert rows_of(f"a.txt{codec}", pack(b"one\ntwo", codec)) == whole(["one\ntwo"])


COLUMNS = {
    "text": pa.array([b"a", None, b"\xff\xc3\xa9", b"", b"last"], pa.binary()),
    "n": pa.array([1, 2, None, 4, 5]),
    "nested": pa.array([{"text": "x"}, None, {"text": None}, {"text": "y"}, {"text": "z"}]),
}


@pytest.fixture(params=["a.parquet", "a.arrow", "stream.arrow"])
def table_file(request, tmp_path) -> str:
    table = pa.table(COLUMNS)
    if request.param == "a.parquet":
        pq.write_table(table, tmp_path / request.param, row_group_size=2)
    else:
        write_arrow(tmp_path / request.param, table, rows=2, stream=request.param == "stream.arrow")
    return request.param


def test_rows_of_tables(rows_of, table_file):
    """The values of the chosen columns; several with their names."""
    assert rows_of(table_file) == whole(["a", "null", "\ufffdé", "", "last"])
    assert rows_of(table_file, text_field="nested.text") == whole(["x", "null", "null", "y", "z"])
    first, *_, null, _, _ = rows_of(table_file, template="{n}. {text}, {text}")
    assert first == RawRow("n: 1\ntext: a", False)
    assert null == RawRow("n: null\ntext: \ufffdé", False)


@pytest.mark.parametrize(
    ("name", "data", "options"),
    [
        ("a.jsonl", b"short\n%s\nafter", {}),
        ("a.txt", b"short<>%s<>after", {"separator": "<>"}),
        ("a.csv", b'text\nshort\n"%s"\nafter', {}),
    ],
)
def test_long_rows_are_cut_and_not_held(tmp_path, name, data, options):
    """Nor is what comes after them read, and the row after them is found."""
    line = b"x" * 62 + (b"\n\n" if name == "a.csv" else b"xx")
    (tmp_path / name).write_bytes(data % (line * (20 << 14)))
    source = tm.read(tmp_path / name, **options)
    tracemalloc.start()
    long = raw_row(source.files[0], source, 1)
    assert (len(long.text), long.is_cut) == (4096, True)
    assert raw_row(source.files[0], source, 2) == RawRow("after", False)
    assert tracemalloc.get_traced_memory()[1] < 12 * cutting.READ_BYTES
    tracemalloc.stop()


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a.csv", "a.parquet"])
@pytest.mark.parametrize(
    ("stored", "most_bytes", "expected"),
    [
        ("abcd", 4, RawRow("abcd", False)),
        ("abcde", 4, RawRow("abcd", True)),
        ("abcé", 4, RawRow("abc", True)),  # not in the middle of a character
        ("éé", 4, RawRow("éé", False)),
        (b"\xffab", 4, RawRow("\ufffda", True)),  # which is four bytes, too
        (b"\xff\xff", 2, RawRow("", True)),
    ],
)
def test_where_rows_are_cut(tmp_path, name, stored, most_bytes, expected):
    """At most so many bytes of text, also where U+FFFD takes more than what it stands for."""
    data = stored.encode() if isinstance(stored, str) else stored
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.table({"text": pa.array([data], pa.binary())}), path)
    else:
        path.write_bytes((b"text\n" if name == "a.csv" else b"") + data + (b"" if name == "a.txt" else b"\n"))
    source = tm.read(path)
    assert raw_row(source.files[0], source, 0, most_bytes) == expected


def test_a_row_of_csv_that_is_cut_at_line_breaks(tmp_path):
    """They belong to the row, and there is more of it."""
    (tmp_path / "a.csv").write_bytes(b'text\n"a\n\n\n\n\n\n\nb"\n')
    source = tm.read(tmp_path / "a.csv")
    assert raw_row(source.files[0], source, 0, 4) == RawRow('"a\n\n', True)


def test_errors_name_the_file(tmp_path):
    """A row that is not there, a number that is none, a file that is gone or broken."""
    (tmp_path / "a.jsonl").write_bytes(JSON)
    (tmp_path / "b.parquet").write_bytes(b"PAR1 broken")
    source = tm.read(tmp_path)
    lines, table = source.files
    with pytest.raises(UsageError, match="row -1: rows are counted from 0"):
        raw_row(lines, source, -1)
    with pytest.raises(InputError, match=r"a\.jsonl: there is no row 70,000"):
        raw_row(lines, source, 70_000)
    with pytest.raises(InputError, match=r"b\.parquet"):
        raw_row(table, source, 0)
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(InputError, match=r"a\.jsonl: No such file"):
        raw_row(lines, source, 0)
