"""Tables that are damaged or ambiguous: the file is named, no row is taken from a wrong column, no cut row passes as whole."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading_files import CODECS, pack, write_arrow

import tokenmill as tm
from tokenmill.errors import InputError, UsageError
from tokenmill.reading import check_fields, read_piece, split


def texts_of(path, **options) -> list[str]:
    source = tm.read(path, **options)
    pieces = [piece for file in source.files for piece in split(file, source, 1 << 20)]
    return [text for piece in pieces for texts in read_piece(piece, source) for text in texts.values.to_pylist()]


def write_twice_named(path) -> None:
    """A table with the columns text, n, text."""
    table = pa.table([pa.array(["a"]), pa.array([1]), pa.array(["b"])], names=["text", "n", "text"])
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".arrow":
        write_arrow(path, table)
    else:
        comma = "," if path.suffix == ".csv" else "\t"
        path.write_text(f"{comma.join(['text', 'n', 'text'])}\n{comma.join('a1b')}\n")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet", "a.arrow"])
def test_two_columns_of_one_name(tmp_path, name):
    """It is not guessed which of them is meant; another column can be read."""
    path = tmp_path / name
    write_twice_named(path)
    message = r"2 columns are named 'text'.*It has text, n, text"
    with pytest.raises(InputError, match=message):
        texts_of(path)
    with pytest.raises(UsageError, match=message):
        tm.build(path, "bytes", tmp_path / "store", workers=0, progress="quiet")
    if path.suffix in (".csv", ".tsv"):
        assert texts_of(path, text_field="n") == ["1"]


@pytest.mark.parametrize("name", ["b.csv", "b.parquet", "b.arrow"])
def test_two_columns_of_one_name_in_a_later_file(tmp_path, name, jsonl):
    """The file fails by name, and the others are built."""
    first = jsonl(["x", "y"], "a.jsonl")
    write_twice_named(tmp_path / name)
    store = tm.build(tmp_path, "bytes", tmp_path / "store", workers=0, progress="quiet")
    assert first.exists()
    assert len(store) == 2
    [failed] = store._manifest.failed
    assert failed["file"].endswith(name)
    assert "2 columns are named 'text'" in failed["error"]


@pytest.mark.parametrize("codec", CODECS)
def test_a_csv_file_cut_inside_a_quoted_field(tmp_path, codec):
    """Cut at any byte: an error inside quotes; elsewhere the rows up to there, as in any file without a mark at its end."""
    whole = b'text,n\n"a ""quoted"" word",1\nb,2\n"line\nline, 3",3\n'
    inside = False
    for end in range(len(b"text,n\n"), len(whole) + 1):
        path = tmp_path / f"{end}.csv{codec}"
        path.write_bytes(pack(whole[:end], codec))
        inside = whole[:end].count(b'"') % 2 == 1
        if inside:
            with pytest.raises(InputError, match=f"{end}.csv.*: ends inside a quoted field; is the file cut short"):
                texts_of(path)
        else:
            rows = whole[:end].count(b"\n") - (whole[:end].count(b"line\nline"))
            assert len(texts_of(path)) <= rows


@pytest.mark.parametrize("rows", [1, 3000])
def test_a_lone_quote_in_a_field_without_quotes_is_text(tmp_path, rows):
    path = tmp_path / "a.csv"
    path.write_text("text,n\n" + "".join(f'a 5" pipe,{i}\n' for i in range(rows)))
    assert texts_of(path) == ['a 5" pipe'] * rows


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Files with the text in the second of four columns, and where their metadata starts."""
    folder = tmp_path_factory.mktemp("tables")
    table = pa.table({
        "id": pa.array(range(50)),
        "text": [f"document {i}" for i in range(50)],
        "more": [{"a": "x", "b": i} for i in range(50)],
        "kind": pa.array(["a", "b"] * 25).dictionary_encode(),
    })  # fmt: skip
    pq.write_table(table, folder / "a.parquet", row_group_size=20)
    write_arrow(folder / "file.arrow", table, 20)
    write_arrow(folder / "stream.arrow", table, 20, stream=True)
    footer = int.from_bytes((folder / "a.parquet").read_bytes()[-8:-4], "little") + 8
    starts = {"a.parquet": (folder / "a.parquet").stat().st_size - footer, "file.arrow": 0, "stream.arrow": 0}
    return folder, starts


READ_FLIPPED = """
import sys, tokenmill as tm
from tokenmill.errors import TokenmillError
from tokenmill.reading import check_fields, content_of, read_piece, split
from tokenmill.reading.formats import get_format
raw, start, step, path = open(sys.argv[1], "rb").read(), *map(int, sys.argv[2:4]), sys.argv[4]
for bit in range(8 * start, 8 * len(raw), step):
    changed = bytearray(raw)
    changed[bit // 8] ^= 1 << bit % 8
    open(path, "wb").write(changed)
    source = tm.read(path)
    [file], format = source.files, get_format(source.files[0].format)
    for use in (
        lambda: [list(read_piece(piece, source)) for piece in split(file, source, 100)],
        lambda: [content_of(piece, source) for piece in split(file, source, 100)],
        lambda: format.parts(file, source) if format.entry(file, source) == "parts" else format.head_rows(file, 1000),
        lambda: list(format.first_records(file, 5)),
        lambda: check_fields(source),
    ):
        try:
            use()
        except TokenmillError as error:
            assert path in str(error), error
print("survived")
"""


@pytest.mark.parametrize("step", [197, pytest.param(1, marks=pytest.mark.stress)])
@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow"])
def test_a_flipped_bit_in_the_metadata_of_any_column(tables, tmp_path, name, step):
    """It is read, or an error names the file. pyarrow would end the process at some of them, if it were used carelessly."""
    folder, starts = tables
    arguments = [folder / name, starts[name], step, tmp_path / name]
    ran = subprocess.run(
        [sys.executable, "-c", READ_FLIPPED, *map(str, arguments)], capture_output=True, text=True, timeout=600
    )
    assert (ran.returncode, ran.stdout) == (0, "survived\n"), ran.stderr[-2000:]


@pytest.mark.parametrize("bad", ["a.jsonl", "z.jsonl"])
def test_a_file_without_the_field_fails_alone_wherever_it_is(tmp_path, bad):
    """The first file is no different from the others; but if none has the field, the option is wrong."""
    for name in ("a.jsonl", "m.jsonl", "z.jsonl"):
        (tmp_path / name).write_text('{"body": "x"}\n' if name == bad else '{"text": "x"}\n')
    check_fields(tm.read(tmp_path))
    with pytest.raises(UsageError, match=r"a\.jsonl"):
        check_fields(tm.read(tmp_path, text_field="nothing"))


def test_a_parquet_footer_that_contradicts_itself(tmp_path):
    """Each count of rows in turn is less than the others: of a column in a row group, of a row group, of the file."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"text {i}" for i in range(300)]}), path, row_group_size=100)
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    changed = 0
    for count, fewer in ((b"\x16\xc8\x01", b"\x16\xc0\x01"), (b"\x16\xd8\x04", b"\x16\xd0\x04")):  # 100, 96; 300, 296
        at = whole.find(count, footer)
        while at >= 0:
            path.write_bytes(whole[:at] + fewer + whole[at + len(count) :])
            with pytest.raises(InputError, match=r"a\.parquet"):
                texts_of(path)
            changed += 1
            at = whole.find(count, at + 1)
    assert changed == 7


def test_an_arrow_file_whose_footer_lacks_a_batch(tmp_path):
    """The last batch is in the file, but the footer does not list it."""
    path = tmp_path / "a.arrow"
    table = pa.table({"text": [f"text {i}" for i in range(30)]})
    write_arrow(path, table, 10)
    write_arrow(tmp_path / "less.arrow", table.slice(0, 20), 10)
    whole, less = path.read_bytes(), (tmp_path / "less.arrow").read_bytes()
    starts = [len(data) - 10 - int.from_bytes(data[-10:-6], "little") for data in (whole, less)]
    path.write_bytes(whole[: starts[0]] + less[starts[1] :])
    with pytest.raises(InputError, match=r"a\.arrow: damaged: its footer lists 2 of 3"):
        texts_of(path)
