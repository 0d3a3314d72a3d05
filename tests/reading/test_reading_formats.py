"""Every format, codec, cut and block size reads the same documents; fields and templates."""

from __future__ import annotations

import json
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading_files import CODECS, json_lines, pack, separated, table_of, write_arrow

import tokenmill as tm
from tokenmill.documents import BLANK
from tokenmill.reading import Piece, read_piece, split
from tokenmill.reading.formats import get_format

LINES = [
    "plain words",
    " leading and trailing ",
    "中文字符 — naïve café e\u0301 👩‍👩‍👧‍👦",
    "nul \x00 and \x1b escape",
    '"quoted, with commas", and\ttabs \\n {braces} <|endoftext|>',
    " ",
    "\u2028 line separators \x85 that are no newline \x0b\x0c",
    "x" * 3000,
    "last",
]
DOCS = [*LINES, "", "two\nlines", "\n", "  \n\t ", '{"text": "json inside"}', "a\n\n\nb"]
SEPARATOR = "\n<|doc|>\n"


def read_all(source, pieces=None, block_bytes=1 << 20):
    """Documents, rows, and (row, reason) of what was skipped; of pieces in turn, or of every file where none are given."""
    texts, skips, rows = [], [], 0
    for piece in pieces if pieces is not None else [Piece(file) for file in source.files]:
        for block in read_piece(piece, source, block_bytes):
            assert block.values.type == pa.large_string()
            assert block.values.null_count == 0
            assert len(block.values) + sum(skip.rows for skip in block.skips) == block.rows + block.unfinished
            texts += block.values.to_pylist()
            skips += [
                (rows + row, skip.reason) for skip in block.skips for row in range(skip.row, skip.row + skip.rows)
            ]
            rows += block.rows
    return texts, rows, skips


def documents(path, block_bytes=1 << 20, **options):
    return read_all(tm.read(path, **options), block_bytes=block_bytes)[0]


FORMATS = {
    "text": (".txt", {}, ["\n".join(LINES)], lambda texts: texts[0].encode()),
    "separator": (".txt", {"separator": SEPARATOR}, [t for t in DOCS if t], lambda t: SEPARATOR.join(t).encode()),
    "lines": (".txt", {"format": "lines"}, LINES, lambda texts: "\n".join(texts).encode()),
    "jsonl": (".jsonl", {}, DOCS, json_lines),
    "ndjson": (".ndjson", {}, DOCS, json_lines),
    "json": (".json", {}, DOCS, json_lines),
    "csv": (".csv", {}, DOCS, lambda texts: separated(texts, ",")),
    "tsv": (".tsv", {}, DOCS, lambda texts: separated(texts, "\t")),
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_in_every_codec(tmp_path, kind, codec):
    """What was written is what is read."""
    suffix, options, texts, make = FORMATS[kind]
    path = tmp_path / f"corpus{suffix}{codec}"
    path.write_bytes(pack(make(texts), codec))
    assert documents(path, **options) == texts


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", FORMATS)
def test_block_size_changes_nothing(tmp_path, kind, codec):
    """Blocks smaller than a line, than a field, than a character: the same documents."""
    suffix, options, texts, make = FORMATS[kind]
    path = tmp_path / f"corpus{suffix}{codec}"
    path.write_bytes(pack(make(texts), codec))
    for block_bytes in (8, 100, 1000, 5000):
        assert documents(path, block_bytes, **options) == texts


@pytest.mark.parametrize("codec", CODECS[1:])
def test_concatenated_streams_are_one_file(tmp_path, codec):
    """`cat a.gz b.gz` is a valid compressed file, and pigz, pbzip2 and zstd make such files."""
    path = tmp_path / f"corpus.jsonl{codec}"
    path.write_bytes(pack(json_lines(DOCS[:5]), codec) + pack(json_lines(DOCS[5:]), codec))
    assert documents(path) == DOCS


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip", "lz4", "brotli"])
def test_parquet(tmp_path, compression):
    """Whatever a parquet file is packed with, and however small the block."""
    path = tmp_path / "corpus.parquet"
    pq.write_table(table_of(DOCS), path, row_group_size=4, compression=compression)
    for block_bytes in (1, 100, 1 << 20):
        assert documents(path, block_bytes) == DOCS


@pytest.mark.parametrize("name", ["corpus.arrow", "corpus.feather", "corpus.ipc"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_arrow_files_and_streams(tmp_path, name, stream, compression):
    """An Arrow file and an Arrow stream differ inside, not in name; both are read."""
    table = table_of(DOCS)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(str(tmp_path / name), table.schema, options=options) as out:
        out.write_table(table, max_chunksize=4)
    for block_bytes in (1, 100, 1 << 20):
        assert documents(tmp_path / name, block_bytes) == DOCS


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_every_text_type_of_a_table(tmp_path, kind, name):
    """Text is text in any of Arrow's spellings; nulls are left out by row."""
    if kind.id == pa.dictionary(pa.int32(), pa.string()).id:
        column = pa.array(["a", None, "b", "a"]).dictionary_encode()
    else:
        column = pa.array(["a", None, "b", "a"], pa.string()).cast(kind)
    table = pa.table({"text": column})
    if name == "t.parquet":
        pq.write_table(table, tmp_path / name)
    else:
        with pa.ipc.new_file(str(tmp_path / name), table.schema) as out:
            out.write_table(table)
    assert read_all(tm.read(tmp_path / name)) == (["a", "b", "a"], 4, [(1, "null field")])


# Cutting a file into pieces.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cuts")


words = st.text(st.sampled_from('ab \t中é\x00\u0301👍{}"\\,'), max_size=30)
line_ends = st.sampled_from(["\n", "\r\n"])


def in_pieces(source, cuts, block_bytes):
    """The one file of a source, cut at any bytes."""
    edges = [0, *sorted(cuts), None]
    return read_all(source, [Piece(source.files[0], a, b) for a, b in pairwise(edges)], block_bytes)


def in_parts(source, piece_bytes, block_bytes):
    """The one file of a source, in the pieces that `split` makes of it."""
    return read_all(source, split(source.files[0], source, piece_bytes), block_bytes)


cuttings = st.lists(st.integers(1, 600), max_size=8, unique=True)
sizes = st.integers(1, 300)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(words.map(lambda t: json.dumps({"text": t})), st.sampled_from(["", " ", "{", '{"a": 1}']))),
       line_ends, st.booleans(), cuttings, sizes, sizes)  # fmt: skip
def test_json_lines_in_any_pieces(folder, lines, end, ended, cuts, piece_bytes, block_bytes):
    """Any cutting of a JSON lines file gives the same documents, rows and skips, bad and blank lines included."""
    path = folder / "any.jsonl"
    path.write_bytes((end.join(lines) + (end if ended else "")).encode())
    source = tm.read(path)
    whole = read_all(source)
    assert in_pieces(source, cuts, block_bytes) == whole
    assert in_parts(source, piece_bytes, block_bytes) == whole
    assert whole[0] == [json.loads(line)["text"] for line in lines if line.startswith('{"text"')]


@settings(max_examples=40, deadline=None)
@given(st.lists(words), line_ends, st.booleans(), cuttings, sizes, sizes)
def test_lines_in_any_pieces(folder, lines, end, ended, cuts, piece_bytes, block_bytes):
    """Any cutting of a file of lines gives the same documents and rows."""
    path = folder / "any.txt"
    path.write_bytes((end.join(lines) + (end if ended else "")).encode())
    source = tm.read(path, format="lines")
    whole = read_all(source)
    assert in_pieces(source, cuts, block_bytes)[:2] == whole[:2]
    assert in_parts(source, piece_bytes, block_bytes)[:2] == whole[:2]
    assert whole[0] == [line for line in lines if line]


@settings(max_examples=40, deadline=None)
@given(st.lists(words), st.sampled_from(["\n\n", "ab", "---", "中", "\n<|doc|>\n", "\x00"]), sizes, sizes)
def test_separated_text_in_any_pieces(folder, texts, separator, piece_bytes, block_bytes):
    """Any separator, also one that overlaps itself, gives the same documents in the pieces `split` makes."""
    path = folder / "separated.txt"
    content = separator.join(texts)
    path.write_bytes(content.encode())
    source = tm.read(path, separator=separator)
    expected = [text for text in content.split(separator) if text]
    whole = read_all(source)
    assert whole[0] == expected
    assert in_parts(source, piece_bytes, block_bytes)[:2] == whole[:2]


@settings(max_examples=25, deadline=None)
@given(st.lists(words, max_size=30), st.integers(1, 9), st.integers(1, 4000), sizes)
def test_parquet_in_any_pieces(folder, texts, rows, piece_bytes, block_bytes):
    """Any grouping of row groups gives the same documents and rows."""
    path = folder / "any.parquet"
    pq.write_table(table_of(texts), path, row_group_size=rows)
    source = tm.read(path)
    assert in_parts(source, piece_bytes, block_bytes) == (texts, len(texts), [])


@settings(max_examples=25, deadline=None)
@given(st.lists(words, max_size=30), st.integers(1, 9), st.booleans(), st.integers(1, 4000), sizes)
def test_arrow_in_any_pieces(folder, texts, rows, stream, piece_bytes, block_bytes):
    """Any grouping of record batches gives the same documents and rows; a stream stays whole."""
    path = folder / "any.arrow"
    write_arrow(path, table_of(texts), rows, stream=stream)
    source = tm.read(path)
    assert in_parts(source, piece_bytes, block_bytes) == (texts, len(texts), [])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.text(st.sampled_from('ab ,"\n\r\t中'), max_size=12), max_size=15), st.integers(8, 300), st.booleans()
)
def test_csv_as_the_csv_module_writes_it(folder, texts, block_bytes, tabs):
    """Whatever Python's csv module quotes is read back, in blocks of any size."""
    path = folder / ("any.tsv" if tabs else "any.csv")
    path.write_bytes(separated(texts, "\t" if tabs else ","))
    assert documents(path, block_bytes) == texts


@pytest.mark.parametrize("codec", ["", ".gz"])
def test_a_line_end_inside_a_csv_field_at_the_edge_of_a_block(tmp_path, codec):
    """Wherever a block ends, also between the two characters of a quoted line end, no character of a text is lost."""
    texts = ["line one\r\nline two"] * 20
    path = tmp_path / f"a.csv{codec}"
    for shift in range(25):
        body = separated(["y" * shift, *texts], ",")
        path.write_bytes(pack(body, codec) if codec else body)
        assert documents(path, 100)[1:] == texts, shift


# The small print of line formats.


def test_blank_lines_are_counted_and_are_no_documents(tmp_path):
    """Row numbers are line numbers, so blank lines count; but nothing was lost in them."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\n\n{"text": "a"}\n \t \n\r\n{"text": "b"}\n\nnot json\n\n')
    texts, rows, skips = read_all(tm.read(path))
    assert (texts, rows) == (["a", "b"], 9)
    assert [skip for skip in skips if skip[1] != BLANK] == [(7, "bad json")]
    assert [row for row, reason in skips if reason == BLANK] == [0, 1, 3, 4, 6, 8]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_line_ends(tmp_path, end, last):
    """Either line end, with or without one after the last line."""
    (tmp_path / "a.txt").write_bytes(end.join([b"one", b"", b"two "]) + (end if last else b""))
    assert read_all(tm.read(tmp_path / "a.txt", format="lines")) == (["one", "two "], 3, [(1, BLANK)])
    (tmp_path / "a.jsonl").write_bytes(
        end.join([b'{"text": "one"}', b"", b'{"text": "two "}']) + (end if last else b"")
    )
    assert read_all(tm.read(tmp_path / "a.jsonl")) == (["one", "two "], 3, [(1, BLANK)])


def test_a_carriage_return_inside_a_line_stays(tmp_path):
    """Only a line end is taken off a line."""
    (tmp_path / "a.txt").write_bytes(b"a\rb\r\r\nc\r")
    assert documents(tmp_path / "a.txt", format="lines") == ["a\rb\r", "c\r"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv"])
def test_a_byte_order_mark_is_no_text(tmp_path, name):
    """Windows tools put one at the start of a file; it is neither a bad record nor part of a column's name."""
    body = b'{"text": "one"}\n{"text": "two"}\n' if name.endswith("jsonl") else b"text\none\ntwo\n"
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + body)
    for block_bytes in (16, 1 << 20):
        assert documents(tmp_path / name, block_bytes) == ["one", "two"]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("name", "options"), [("e.jsonl", {}), ("e.txt", {"format": "lines"}), ("e.txt", {"separator": "--"})]
)
def test_an_empty_file_holds_nothing(tmp_path, name, options, codec):
    """No records, no documents, no complaint; compressed emptiness is not zero bytes."""
    path = tmp_path / (name + codec)
    path.write_bytes(pack(b"", codec))
    assert read_all(tm.read(path, **options)) == ([], 0, [])


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_header_alone_holds_nothing(tmp_path, name):
    """A table without rows is a table, with or without a line end after its header."""
    for body in (b"text\n", b"text"):
        (tmp_path / name).write_bytes(body)
        assert read_all(tm.read(tmp_path / name)) == ([], 0, [])


def test_empty_tables(tmp_path):
    pq.write_table(table_of([]), tmp_path / "a.parquet")
    write_arrow(tmp_path / "a.arrow", table_of([]))
    write_arrow(tmp_path / "b.arrow", table_of([]), stream=True)
    for name in ("a.parquet", "a.arrow", "b.arrow"):
        assert read_all(tm.read(tmp_path / name)) == ([], 0, [])


def test_whitespace_is_a_document(tmp_path, jsonl):
    """Only nothing is nothing: spaces are what the corpus says."""
    (tmp_path / "a.txt").write_text(" \n ")
    assert documents(tmp_path / "a.txt") == [" \n "]
    assert documents(jsonl([" ", "\n", "\t\t", ""])) == [" ", "\n", "\t\t", ""]


@pytest.mark.parametrize("codec", ["", ".gz", ".zst"])
def test_a_line_far_larger_than_a_block(tmp_path, codec):
    """A block grows to hold the record it needs to hold."""
    huge = "long line é " * 40_000
    texts = ["before", huge, "after"]
    (tmp_path / f"a.jsonl{codec}").write_bytes(pack(json_lines(texts), codec))
    (tmp_path / f"a.txt{codec}").write_bytes(pack("\n".join(texts).encode(), codec))
    (tmp_path / f"a.csv{codec}").write_bytes(pack(separated(texts, ","), codec))
    assert documents(tmp_path / f"a.jsonl{codec}", 4096) == texts
    assert documents(tmp_path / f"a.txt{codec}", 4096, format="lines") == texts
    assert documents(tmp_path / f"a.csv{codec}", 4096) == texts


@pytest.mark.parametrize("codec", CODECS)
def test_csv_rows_of_another_length_are_left_out(tmp_path, codec):
    """A ragged row is that row's fault; the rows around it are read, whatever the block."""
    path = tmp_path / f"a.csv{codec}"
    path.write_bytes(pack(b'text,n\na,1\nb\n"c\nc",3\nd,4,5\ne,6\n', codec))
    for block_bytes in (10, 1 << 20):
        texts, rows, skips = read_all(tm.read(path), block_bytes=block_bytes)
        assert (texts, rows) == (["a", "c\nc", "e"], 5)
        assert skips == [(1, "bad csv row"), (3, "bad csv row")]


def test_the_first_records_of_a_csv_file_with_a_large_field(tmp_path):
    """Fields larger than the default limit of Python's csv module are no error."""
    path = tmp_path / "a.csv"
    path.write_bytes(separated(["x" * 300_000, "b"], ","))
    records = list(get_format("csv").first_records(tm.read(path).files[0], 5))
    assert [len(record["text"]) for record in records] == [300_000, 1]


def test_text_that_is_not_utf8_is_left_out_by_row(tmp_path):
    """In every format the bad row goes, and only that."""
    (tmp_path / "a.txt").write_bytes(b"a\nb\xff\nc")
    (tmp_path / "a.csv").write_bytes(b"text\na\nb\xff\nc\n")
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\n{"text": "b\xff"}\n{"text": "c"}\n')
    pq.write_table(pa.table({"text": pa.array([b"a", b"b\xff", b"c"])}), tmp_path / "a.parquet")
    for name, options in (("a.txt", {"format": "lines"}), ("a.csv", {}), ("a.jsonl", {}), ("a.parquet", {})):
        assert read_all(tm.read(tmp_path / name, **options)) == (["a", "c"], 3, [(1, "invalid utf-8")]), name


# Which field, and templates.

RECORDS = [
    {"id": 1, "title": "One", "meta": {"lang": {"code": "en"}, "text": "first"}, "new": True},
    {"id": 20, "title": "Two {x}", "meta": {"lang": {"code": "de"}, "text": "second"}, "new": False},
]


def write_records(folder, name):
    path = folder / name
    if name.endswith("jsonl"):
        path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    elif name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(RECORDS), path)
    else:
        table = pa.Table.from_pylist(RECORDS)
        with pa.ipc.new_file(str(path), table.schema) as out:
            out.write_table(table)
    return path


@pytest.mark.parametrize("name", ["r.jsonl", "r.parquet", "r.arrow"])
@pytest.mark.parametrize(
    ("options", "texts"),
    [
        ({"text_field": "title"}, ["One", "Two {x}"]),
        ({"text_field": "meta.text"}, ["first", "second"]),
        ({"text_field": "meta.lang.code"}, ["en", "de"]),
        ({"template": "{title}"}, ["One", "Two {x}"]),
        ({"template": "# {title}\n\n{meta.text}"}, ["# One\n\nfirst", "# Two {x}\n\nsecond"]),
        ({"template": "{id}: {title} ({new})"}, ["1: One (true)", "20: Two {x} (false)"]),
        ({"template": "{{{title}}} {{}} %s \\n é"}, ["{One} {} %s \\n é", "{Two {x}} {} %s \\n é"]),
        ({"template": "{title}{title}"}, ["OneOne", "Two {x}Two {x}"]),
        ({"template": "{meta.text}{meta.lang.code}"}, ["firsten", "secondde"]),
    ],
    ids=str,
)
def test_fields_and_templates(tmp_path, name, options, texts):
    """One field, a nested one, or several put together: the same in every format that has fields."""
    assert documents(write_records(tmp_path, name), **options) == texts


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize(
    ("template", "texts"),
    [("{b}/{a}", ["x/007", "y y/1e5"]), ("{{{a}}}", ["{007}", "{1e5}"]), ("{a}{a}", ["007007", "1e51e5"])],
)
def test_csv_templates_take_fields_as_written(tmp_path, name, template, texts):
    """Nothing in a csv file is a number until someone guesses so; nobody does."""
    (tmp_path / name).write_text("a,b,c\n007,x,\n1e5,y y,\n".replace(",", "," if name == "a.csv" else "\t"))
    assert documents(tmp_path / name, template=template) == texts


def test_fields_that_are_never_in_the_same_record(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"title": "a"}\n{"body": "b"}\n')
    source = tm.read(path, template="{title} {body}")
    complaint = get_format("jsonl").check_fields(source.files[0], source)
    assert (
        complaint
        == f"{path}: no record has all of the fields; they have title, body. Correct --template (template=...)"
    )


def test_a_field_missing_from_a_template_leaves_the_record_out(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": "x", "b": "y"}\n{"a": "x"}\n{"a": "x", "b": null}\n{"a": "x", "b": [1]}\n')
    texts, rows, skips = read_all(tm.read(path, template="{a}{b}"))
    assert (texts, rows) == (["xy"], 4)
    assert skips == [(1, "missing field"), (2, "null field"), (3, "not text")]


def test_a_key_with_dots_in_its_name(tmp_path):
    """ "a.b" is a path, and where there is no such path, a name."""
    (tmp_path / "a.jsonl").write_text('{"a.b": "flat"}\n{"a": {"b": "nested"}}\n')
    assert documents(tmp_path / "a.jsonl", text_field="a.b") == ["flat", "nested"]
    pq.write_table(pa.table({"a.b": ["flat"]}), tmp_path / "a.parquet")
    assert documents(tmp_path / "a.parquet", text_field="a.b") == ["flat"]
