"""Every format, codec, cut and block size reads the same documents; inputs are found, sorted and taken once."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
from itertools import pairwise

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenmill as tm
from tokenmill.documents import BLANK
from tokenmill.reading import Piece, read_piece, split

CODECS = ("", ".gz", ".zst", ".bz2", ".xz", ".lz4")
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


def pack(data: bytes, codec: str) -> bytes:
    """Compress as the tools would."""
    if codec == ".gz":
        return gzip.compress(data)
    if codec == ".bz2":
        return bz2.compress(data)
    if codec == ".xz":
        return lzma.compress(data)
    if not codec:
        return data
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, {".zst": "zstd", ".lz4": "lz4"}[codec]) as out:
        out.write(data)
    return sink.getvalue().to_pybytes()


def json_lines(texts: list[str]) -> bytes:
    return "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)).encode()


def separated(texts: list[str], delimiter: str) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(["id", "text"])
    writer.writerows(enumerate(texts))
    return out.getvalue().encode()


def table_of(texts: list[str]) -> pa.Table:
    return pa.table({"id": list(range(len(texts))), "text": pa.array(texts, pa.string())})


def write_arrow(path, texts, rows=4, stream=False):
    table = table_of(texts)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)


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


@settings(max_examples=100, deadline=None)
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


@settings(max_examples=100, deadline=None)
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


@settings(max_examples=100, deadline=None)
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


@settings(max_examples=50, deadline=None)
@given(st.lists(words, max_size=30), st.integers(1, 9), st.integers(1, 4000), sizes)
def test_parquet_in_any_pieces(folder, texts, rows, piece_bytes, block_bytes):
    """Any grouping of row groups gives the same documents and rows."""
    path = folder / "any.parquet"
    pq.write_table(table_of(texts), path, row_group_size=rows)
    source = tm.read(path)
    assert in_parts(source, piece_bytes, block_bytes) == (texts, len(texts), [])


@settings(max_examples=50, deadline=None)
@given(st.lists(words, max_size=30), st.integers(1, 9), st.booleans(), st.integers(1, 4000), sizes)
def test_arrow_in_any_pieces(folder, texts, rows, stream, piece_bytes, block_bytes):
    """Any grouping of record batches gives the same documents and rows; a stream stays whole."""
    path = folder / "any.arrow"
    write_arrow(path, texts, rows, stream)
    source = tm.read(path)
    assert in_parts(source, piece_bytes, block_bytes) == (texts, len(texts), [])


@settings(max_examples=50, deadline=None)
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
    write_arrow(tmp_path / "a.arrow", [])
    write_arrow(tmp_path / "b.arrow", [], stream=True)
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


# Which files.


@pytest.fixture
def tree(tmp_path):
    for name in (
        "b.jsonl",
        "a.txt",
        "sub/c.jsonl.gz",
        "sub/deep/d.parquet",
        "sub/e.TXT",
        "README.md",
        "sub/script.py",
        "notes.md.gz",
        "data.unknown",
        ".hidden.jsonl",
        ".git/x.jsonl",
        "sub/.cache/y.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return tmp_path


def found(root, *inputs, **options):
    """The files of some inputs, below `root`, in their order."""
    return [file.path.removeprefix(f"{root}/") for file in tm.read(*inputs, **options).files]


def test_folders_are_taken_recursively(tree):
    """Data in a folder is found at any depth, in sorted order; notes, code, hidden and unknown files are left alone."""
    assert found(tree, tree) == ["a.txt", "b.jsonl", "sub/c.jsonl.gz", "sub/deep/d.parquet", "sub/e.TXT"]


def test_what_was_left_out_is_told(tree):
    left = [path.removeprefix(f"{tree}/") for path in tm.read(tree).left_out]
    assert sorted(left) == ["README.md", "data.unknown", "notes.md.gz", "sub/script.py"]


def test_a_format_takes_every_visible_file(tree):
    """With a format said aloud nothing is guessed from names."""
    names = found(tree, tree, format="text")
    assert {"README.md", "data.unknown", "sub/script.py", "notes.md.gz"} <= set(names)
    assert not any(part.startswith(".") for name in names for part in name.split("/"))


def test_globs(tree):
    """Globs match files, not folders or hidden files; `**` goes deep; prose that is asked for is taken."""
    assert found(tree, str(tree / "*.jsonl")) == ["b.jsonl"]
    assert found(tree, str(tree / "**" / "*.jsonl*")) == ["b.jsonl", "sub/c.jsonl.gz"]
    assert found(tree, str(tree / "*.md")) == ["README.md"]
    assert found(tree, str(tree / "[ab].*")) == ["a.txt", "b.jsonl"]


def test_a_name_with_magic_in_it_is_a_name_first(tree):
    (tree / "c[1].txt").write_bytes(b"")
    assert found(tree, str(tree / "c[1].txt")) == ["c[1].txt"]


def test_a_hidden_file_that_is_named_is_taken(tree):
    assert found(tree, tree / ".hidden.jsonl") == [".hidden.jsonl"]


def test_files_are_taken_once_in_sorted_order(tree):
    """However often and in whatever order inputs name a file."""
    inputs = [tree / "sub", tree / "b.jsonl", str(tree / "*.jsonl"), tree / "a.txt", f"{tree}/sub/../b.jsonl", tree]
    assert found(tree, *inputs) == found(tree, tree)
    assert found(tree, [tree / "b.jsonl", tree / "a.txt"]) == ["a.txt", "b.jsonl"]


def test_lists_of_inputs(tree):
    """@list names one input a line: files, globs, folders, other lists; blank lines are nothing."""
    (tree / "inner.list").write_text(f"{tree}/sub/deep\n")
    (tree / "outer.list").write_text(f"{tree}/b.jsonl\n\n  {tree}/*.txt  \n@{tree}/inner.list\n")
    assert found(tree, f"@{tree}/outer.list") == ["a.txt", "b.jsonl", "sub/deep/d.parquet"]


def test_links_that_go_in_circles(tree):
    """A link back up is followed once and no further."""
    (tree / "sub" / "deep" / "up").symlink_to(tree, target_is_directory=True)
    (tree / "again").symlink_to(tree / "again", target_is_directory=True)
    assert found(tree, tree / "b.jsonl", tree / "sub" / "deep" / "d.parquet") == ["b.jsonl", "sub/deep/d.parquet"]
    names = found(tree, tree / "sub")
    assert names == sorted(set(names))
    assert sum(name.endswith("d.parquet") for name in names) == 1
    assert sum(name.endswith("b.jsonl") for name in names) == 1


def test_a_linked_folder_is_read(tree, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "z.jsonl").write_bytes(b"")
    (tree / "link").symlink_to(elsewhere, target_is_directory=True)
    assert "link/z.jsonl" in found(tree, tree)


# Text that is not a file.


@pytest.fixture
def built(tmp_path, tokenizer_path, reference):
    """Build in this process; checks every count, and gives the texts of a store and what was left out."""
    made = []

    def build(source, **options):
        out = tmp_path / f"store{len(made)}"
        store = tm.build(source, tokenizer_path, out, workers=0, progress="quiet", **options)
        made.append(store)
        assert store.complete
        assert store.verify() == []
        eos = store.tokenizer.eos_id
        assert all(ids[-1] == eos for ids in store)
        left_out = [json.loads(line) for line in (out / "quarantine.jsonl").read_text().splitlines()]
        texts = [reference.decode(ids[:-1].tolist(), skip_special_tokens=False) for ids in store]
        for text, ids in zip(texts, store, strict=True):
            assert reference.encode(text, add_special_tokens=False).ids == ids[:-1].tolist()
        return texts, [(entry["row"], entry["reason"]) for entry in left_out]

    return build


MEMORY_TEXTS = ["one", "zwei é", "", "drei\nlines", "四 👍"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: pa.table({"id": range(5), "text": MEMORY_TEXTS}),
        lambda: pa.table({"text": pa.chunked_array([MEMORY_TEXTS[:2], MEMORY_TEXTS[2:]], pa.large_string())}),
        lambda: pa.record_batch({"text": MEMORY_TEXTS}),
        lambda: pa.RecordBatchReader.from_batches(
            pa.schema([("text", pa.string())]),
            [pa.record_batch({"text": MEMORY_TEXTS[:3]}), pa.record_batch({"text": MEMORY_TEXTS[3:]})],
        ),
        lambda: pa.array(MEMORY_TEXTS),
        lambda: pa.chunked_array([MEMORY_TEXTS[:2], MEMORY_TEXTS[2:]]),
        lambda: list(MEMORY_TEXTS),
        lambda: (iter(MEMORY_TEXTS),),
        lambda: (text for text in MEMORY_TEXTS),
        lambda: datasets.Dataset.from_dict({"id": range(5), "text": MEMORY_TEXTS}),
        lambda: datasets.DatasetDict(
            train=datasets.Dataset.from_dict({"text": MEMORY_TEXTS[:2]}),
            test=datasets.Dataset.from_dict({"text": MEMORY_TEXTS[2:]}),
        ),
        lambda: datasets.Dataset.from_dict({"text": MEMORY_TEXTS}).to_iterable_dataset(),
    ],
    ids=[
        "table",
        "chunked",
        "batch",
        "reader",
        "array",
        "chunks",
        "list",
        "tuple",
        "generator",
        "dataset",
        "dict",
        "iterable",
    ],
)
def test_text_in_memory(built, make):
    """Tables, datasets and iterables of strings are sources like any other."""
    assert built(make()) == (MEMORY_TEXTS, [])


def test_iterables_with_things_that_are_no_text(built):
    """What is not a string, or is not text, is left out by its place in the stream."""
    texts, left_out = built(item for item in ["a", None, 3, "x\ud800", "b", b"bytes", {"text": "c"}, "d", 1.5])
    assert texts == ["a", "b", "d"]
    assert [row for row, _ in left_out] == [1, 2, 3, 5, 6, 8]


def test_datasets_with_columns_to_choose(built):
    dataset = datasets.Dataset.from_dict({"title": ["A", "B", None], "body": ["x", None, "z"], "n": [1, 2, 3]})
    assert built(dataset, text_field="title") == (["A", "B"], [(2, "null field")])
    assert built(dataset, template="{title}: {body} {n}") == (["A: x 1"], [(1, "null field"), (2, "null field")])
    assert built(dataset.select([2, 0]), text_field="body") == (["z", "x"], [])
    assert built(dataset.map(lambda row: {"body": row["body"] or "-"}), text_field="body") == (["x", "-", "z"], [])


def test_a_dataset_without_the_column(tmp_path, tokenizer_path):
    dataset = datasets.Dataset.from_dict({"title": ["A"], "body": ["x"]})
    with pytest.raises(tm.errors.UsageError, match="title, body"):
        tm.build(dataset, tokenizer_path, tmp_path / "out", workers=0, progress="quiet")


@pytest.mark.parametrize("options", [{}, {"text_field": "body"}])
def test_streams_of_nothing(built, options):
    """No text is no documents, whatever the column would have been called."""
    assert built(iter(()), **options) == ([], [])
    assert built(pa.table({options.get("text_field", "text"): pa.array([], pa.string())}), **options) == ([], [])


def test_streams_larger_than_a_shard(built):
    """A long stream is spooled in chunks, and comes out in order."""
    texts = [f"document {i} " + "word " * (i % 50) for i in range(3000)]
    assert built(iter(texts), shard_bytes=1 << 14) == (texts, [])


def test_files_and_streams_together(built, jsonl):
    """Files first, then streams, each in order."""
    assert built((str(jsonl(["from a file"])), iter(["one"]), iter(["two"]))) == (["from a file", "one", "two"], [])


def test_a_list_of_paths_is_not_taken_for_text(jsonl):
    """The slip everyone makes once: a list of file names is refused, not tokenized."""
    with pytest.raises(tm.errors.UsageError, match="Path"):
        tm.read([str(jsonl(["a"]))])


@pytest.mark.parametrize("thing", [3, b"bytes", {"text": "a"}, None], ids=repr)
def test_what_cannot_be_read(thing):
    with pytest.raises(tm.errors.UsageError, match=type(thing).__name__):
        tm.read(thing)
