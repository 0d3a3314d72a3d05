"""Broken input is an error that names the file, never a short read; a wrong option is an error that names the option."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading_files import CODECS as ALL_CODECS
from reading_files import json_lines, pack

import tokenmill as tm
from tokenmill.errors import InputError, MissingInputError, UsageError
from tokenmill.reading import Piece, read_piece, split

CODECS = ALL_CODECS[1:]
LETTERS = random.Random(7)
TEXTS = [f"document {i} " + "".join(LETTERS.choices("abcdefghijklmnop ", k=60)) for i in range(60)]


BODIES = {
    ".jsonl": json_lines(TEXTS),
    ".txt": "\n".join(TEXTS).encode(),
    ".csv": "\n".join(["text", *TEXTS]).encode() + b"\n",
}


def write_table(path, texts=TEXTS):
    """A table in the format of its suffix, some rows a group; ".stream.arrow" is an Arrow stream."""
    table = pa.table({"text": texts})
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=20)
        return
    make = pa.ipc.new_stream if path.name.endswith(".stream.arrow") else pa.ipc.new_file
    with make(str(path), table.schema) as out:
        out.write_table(table, max_chunksize=20)


def documents(path, block_bytes=1 << 20, **options):
    source = tm.read(path, **options)
    blocks = (block for file in source.files for block in read_piece(Piece(file), source, block_bytes))
    return [text for block in blocks for text in block.values.to_pylist()]


def build(source, tokenizer_path, out, **options):
    return tm.build(source, tokenizer_path, out, workers=0, progress="quiet", **options)


# Files that end too early.


@pytest.mark.parametrize("suffix", BODIES)
@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_file_cut_short(tmp_path, suffix, codec):
    """Wherever the file ends before its end, reading it fails and names it."""
    path = tmp_path / f"cut{suffix}{codec}"
    whole = pack(BODIES[suffix], codec)
    cuts = {*range(0, len(whole), 61), *range(20), *range(len(whole) - 20, len(whole))}
    for cut in sorted(cuts):
        path.write_bytes(whole[:cut])
        for block_bytes in (100, 1 << 20):
            with pytest.raises(InputError, match="cut"):
                documents(path, block_bytes)


def test_broken_csv_files_leave_nothing_hanging(tmp_path):
    """A process that met many broken csv files goes on, and ends when it is done.

    Arrow reads ahead on threads of its own; an error raised there has been seen to leave one stuck for good.
    """
    path = tmp_path / "cut.csv.gz"
    whole = pack(b"text\n" + b"".join(b"document %d with words\n" % i for i in range(2000)), ".gz")
    path.write_bytes(whole[: len(whole) // 2])
    script = (
        "import sys, tokenmill as tm\n"
        "from tokenmill.reading import Piece, read_piece\n"
        "source = tm.read(sys.argv[1])\n"
        "for _ in range(120):\n"
        "    try:\n"
        "        list(read_piece(Piece(source.files[0]), source, 1000))\n"
        "    except tm.errors.InputError:\n"
        "        pass\n"
    )
    some = [subprocess.Popen([sys.executable, "-c", script, str(path)]) for _ in range(3)]
    try:
        assert [process.wait(timeout=30) for process in some] == [0, 0, 0]
    finally:
        for process in some:
            process.kill()
            process.wait()


@pytest.mark.parametrize("codec", CODECS)
def test_a_second_stream_cut_short(tmp_path, codec):
    """A file of several compressed streams is as long as all of them."""
    path = tmp_path / f"cut.jsonl{codec}"
    whole = pack(json_lines(TEXTS), codec)
    for cut in (1, 2, 5, 11, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole + whole[:cut])
        with pytest.raises(InputError, match="cut"):
            documents(path)


@pytest.mark.parametrize("codec", CODECS)
def test_a_second_stream_whose_start_is_damaged(tmp_path, codec):
    """What follows a stream is another stream; garbage there is lost text, not an end."""
    path = tmp_path / f"damaged.jsonl{codec}"
    whole = pack(json_lines(TEXTS), codec)
    path.write_bytes(whole + b"\x01\x02" + whole[2:])
    with pytest.raises(InputError, match="damaged"):
        documents(path)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("suffix", BODIES)
def test_no_compressed_file_has_zero_bytes(tmp_path, suffix, codec):
    """An empty .gz is a download that failed, not a corpus without documents."""
    path = tmp_path / f"nothing{suffix}{codec}"
    path.write_bytes(b"")
    with pytest.raises(InputError, match="nothing"):
        documents(path)


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_that_is_not_what_its_name_says(tmp_path, codec):
    path = tmp_path / f"plain.jsonl{codec}"
    path.write_bytes(json_lines(TEXTS))
    with pytest.raises(InputError, match="plain"):
        documents(path)


@pytest.mark.parametrize("codec", [".gz", ".bz2", ".xz"])
def test_a_flipped_bit_in_a_file_with_checksums(tmp_path, codec):
    """Codecs that carry checksums are held to them."""
    path = tmp_path / f"flipped.jsonl{codec}"
    whole = pack(json_lines(TEXTS), codec)
    for place in range(12, len(whole) - 8, len(whole) // 40):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="flipped"):
            documents(path)


@pytest.mark.parametrize("name", ["cut.parquet", "cut.arrow", "cut.stream.arrow", "cut.feather"])
def test_a_table_cut_short(tmp_path, name):
    """Every cut, also one that falls between two record batches."""
    path = tmp_path / name
    write_table(path)
    whole = path.read_bytes()
    short, unnamed = [], []
    for cut in sorted({*range(0, len(whole), 8), *range(len(whole) - 20, len(whole))}):
        path.write_bytes(whole[:cut])
        try:
            count = len(documents(path))
        except InputError as error:
            unnamed += [] if name in str(error) else [cut]
        else:
            short += [(cut, count)] if count < len(TEXTS) else []
    assert (short, unnamed) == ([], [])


@pytest.mark.parametrize("name", ["damaged.parquet", "damaged.arrow", "damaged.stream.arrow"])
def test_a_table_with_a_hole_in_it(tmp_path, name):
    """A run of zeros where data was: an error or, in plain text bytes, what is there; never fewer rows, never a crash.

    The reader runs in a process of its own, since the libraries below have been seen to abort on such files.
    """
    write_table(tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    for place in range(0, len(whole) - 64, len(whole) // 30):
        folder = tmp_path / f"{place:06}"
        folder.mkdir()
        (folder / name).write_bytes(whole[:place] + bytes(64) + whole[place + 64 :])
    script = (
        "import sys, tokenmill as tm\n"
        "from tokenmill.reading import Piece, read_piece\n"
        "for path in sys.argv[1:]:\n"
        "    source = tm.read(path)\n"
        "    try:\n"
        "        print(path, sum(block.rows for block in read_piece(Piece(source.files[0]), source)), flush=True)\n"
        "    except tm.errors.InputError as error:\n"
        "        print(path, 'named' if path in str(error) else 'not named', flush=True)\n"
    )
    paths = sorted(str(path) for path in tmp_path.glob(f"0*/{name}"))
    done = subprocess.run([sys.executable, "-c", script, *paths], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-500:]
    answers = {line.rsplit(" ", 1)[1] for line in done.stdout.splitlines()}
    assert answers <= {"named", str(len(TEXTS))}
    assert "named" in answers


def test_offsets_that_point_nowhere(tmp_path):
    """An Arrow file whose strings lie outside their buffer is refused, and nothing is read from there."""
    offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 5, 1 << 30, 7)))
    column = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"abcdefg")])
    path = tmp_path / "wild.arrow"
    table = pa.table({"text": column})
    with pa.ipc.new_file(str(path), table.schema) as out:
        out.write_table(table)
    script = (
        "import sys, tokenmill as tm\n"
        "from tokenmill.reading import Piece, read_piece\n"
        "source = tm.read(sys.argv[1])\n"
        "try:\n"
        "    print(*[block.values.to_pylist() for block in read_piece(Piece(source.files[0]), source)])\n"
        "except tm.errors.InputError as error:\n"
        "    print('refused', error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.startswith(f"refused {path}")


@pytest.mark.parametrize("name", ["nothing.parquet", "nothing.arrow", "nothing.feather"])
def test_no_table_has_zero_bytes(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError, match="nothing"):
        documents(tmp_path / name)


def test_a_broken_file_is_cut_in_no_pieces_and_fails_no_plan(tmp_path):
    """A file whose structure cannot be read stays whole, to fail by name when it is read."""
    for name in ("a.parquet", "a.arrow"):
        path = tmp_path / name
        path.write_bytes(b"ARROW1 or not" * 100)
        source = tm.read(path)
        (piece,) = split(source.files[0], source, 100)
        with pytest.raises(InputError, match=name):
            list(read_piece(piece, source))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("how", ["cut", "damaged"])
def test_a_build_goes_on_without_a_broken_file(tmp_path, tokenizer_path, codec, how):
    """Also if it is the first one: the others are built, it is named, and nothing of it is in the store."""
    good = pack(json_lines(TEXTS), codec)
    middle = len(good) // 2
    bad = (
        good[:-7]
        if how == "cut"
        else good[:middle] + bytes(b ^ 0x5A for b in good[middle : middle + 60]) + good[middle + 60 :]
    )
    (tmp_path / f"a.jsonl{codec}").write_bytes(bad)
    (tmp_path / f"b.jsonl{codec}").write_bytes(good)
    store = build(str(tmp_path / "*.jsonl*"), tokenizer_path, tmp_path / "out")
    if how == "damaged" and store.complete:
        assert codec in (".zst", ".lz4"), "only a codec without checksums may not notice"
        return
    assert not store.complete
    assert [entry["file"] for entry in store.failed] == [str(tmp_path / f"a.jsonl{codec}")]
    assert len(store) == len(TEXTS)
    assert store.verify() == []


# JSON that is not JSON lines.


@pytest.mark.parametrize(
    "body",
    [
        b'[{"text": "a"}, {"text": "b"}]',
        b'[\n  {"text": "a"},\n  {"text": "b"}\n]\n',
        b'[{"text": "a"},\n{"text": "b"}]\n',
        b'[\r\n{"text": "a"}\r\n]\r\n',
        b'\n \n[\n{"text": "a"}\n]\n',
        b'\xef\xbb\xbf[\n{"text": "a"}\n]\n',
        b'[ {"text": "a"} ]',
    ],
)
def test_a_json_array_is_read(tmp_path, body):
    path = tmp_path / "array.json"
    path.write_bytes(body)
    assert documents(path) == [each["text"] for each in json.loads(body)]


@pytest.mark.parametrize("body", [b'[{"text": "a"}, {"text": "b\\"]"}]', b'{\n"text": "a"\n}\n{"text":\n"\\\\b"}'])
def test_json_that_spans_lines_is_whole_or_an_error(tmp_path, body):
    """Cut anywhere after its first object has begun, or with more behind its end."""
    path = tmp_path / "spans.json"
    for size in range(body.index(b'"') + 1, len(body)):
        path.write_bytes(body[:size])
        if body.startswith(b"[") or b"}" not in body[:size] or size > body.index(b"}") + 2:
            with pytest.raises(InputError, match=r"spans\.json.*ends inside a JSON"):
                documents(path)
    path.write_bytes(body)
    assert len(documents(path)) == 2
    path.write_bytes(body + b"\n]")
    with pytest.raises(InputError, match=r"spans\.json.*goes on"):
        documents(path)


def test_bad_elements_of_a_json_array_are_bad_rows(tmp_path):
    """Its other elements keep their row numbers, also after a raw line break in a string."""
    (tmp_path / "array.json").write_text('[{"text": "a"}, {"text": 1 2}, {"text": "b\nc"},\n7, [{}], {"text": "d"}]')
    store = tm.build(tmp_path / "array.json", "bytes", tmp_path / "store", progress="quiet", workers=0)
    assert [store.text(i) for i in range(len(store))] == ["a", "d"]
    assert [entry["row"] for entry in store.quarantine()] == [1, 2, 3, 4]


# Files that are not there, or not the same any more.


def test_missing_files(tmp_path):
    with pytest.raises(MissingInputError, match=r"nowhere\.jsonl"):
        tm.read(tmp_path / "nowhere.jsonl")
    with pytest.raises(MissingInputError, match="nofolder"):
        tm.read(str(tmp_path / "nofolder") + "/")
    with pytest.raises(MissingInputError, match=r"\*\.jsonl"):
        tm.read(str(tmp_path / "*.jsonl"))
    with pytest.raises(MissingInputError, match=r"nowhere\.list"):
        tm.read(f"@{tmp_path}/nowhere.list")
    with pytest.raises(UsageError):
        tm.read()


def test_a_dangling_link(tmp_path, tokenizer_path):
    """Named, it is an error at once; matched or found in a folder, it fails alone, by name, and the others do not."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "dangling.jsonl").symlink_to(tmp_path / "gone")
    (tmp_path / "data" / "good.jsonl").write_text('{"text": "good"}\n')
    with pytest.raises(MissingInputError, match=r"dangling\.jsonl"):
        tm.read(tmp_path / "data" / "dangling.jsonl")
    for i, wanted in enumerate((tmp_path / "data", str(tmp_path / "data" / "*.jsonl"))):
        store = tm.build(wanted, tokenizer_path, tmp_path / f"store{i}", progress="quiet", workers=0)
        assert len(store) == 1
        assert [entry["file"] for entry in store.failed] == [str(tmp_path / "data" / "dangling.jsonl")]


def test_an_empty_folder(tmp_path):
    (tmp_path / "README.md").write_text("notes")
    with pytest.raises(UsageError, match=r"not a data file \(.md\): 1.*--format"):
        tm.read(tmp_path)


def test_a_list_that_names_itself(tmp_path):
    """A list of lists may not go in circles."""
    (tmp_path / "a.list").write_text(f"@{tmp_path}/a.list\n")
    with pytest.raises(UsageError, match=r"a\.list"):
        tm.read(f"@{tmp_path}/a.list")


def test_a_list_with_a_missing_file(tmp_path):
    (tmp_path / "a.list").write_text(f"{tmp_path}/nowhere.jsonl\n")
    with pytest.raises(MissingInputError, match=r"nowhere\.jsonl"):
        tm.read(f"@{tmp_path}/a.list")


@pytest.mark.parametrize("name", ["data.unknown", "data", "data.unknown.gz", "data.gz"])
def test_unknown_formats(tmp_path, name):
    """A format is never guessed; the error says how to tell it."""
    (tmp_path / name).write_bytes(b"text")
    with pytest.raises(UsageError, match=rf"{name}.*--format"):
        tm.read(tmp_path / name)


@pytest.mark.parametrize("name", ["a.parquet.gz", "a.arrow.zst"])
def test_packed_tables_are_not_packed_twice(tmp_path, name):
    (tmp_path / name).write_bytes(b"text")
    with pytest.raises(UsageError, match=name):
        tm.read(tmp_path / name)


def test_a_pipe_is_not_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(UsageError, match=r"pipe\.jsonl"):
        tm.read(tmp_path / "pipe.jsonl")


KINDS = ["a.jsonl", "a.txt", "a.csv", "a.jsonl.gz", "a.parquet", "a.arrow", "a.stream.arrow"]


def write_any(path):
    if path.suffix in (".parquet", ".arrow"):
        write_table(path)
    elif path.suffix == ".gz":
        path.write_bytes(pack(BODIES[".jsonl"], ".gz"))
    else:
        path.write_bytes(BODIES[path.suffix])


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("change", ["longer", "shorter", "touched", "gone"])
def test_a_file_that_changes_after_it_was_planned(tmp_path, name, change):
    """Reading what was not planned would give a shard nobody asked for."""
    path = tmp_path / name
    write_any(path)
    source = tm.read(path)
    info = path.stat()
    if change == "longer":
        path.write_bytes(path.read_bytes() + b"\n")
    elif change == "shorter":
        path.write_bytes(path.read_bytes()[:-1])
    elif change == "touched":
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns + 1_000_000_000))
    else:
        path.unlink()
    with pytest.raises(InputError, match=name):
        list(read_piece(Piece(source.files[0]), source))


@pytest.mark.parametrize("name", KINDS)
def test_a_file_that_changes_while_it_is_read(tmp_path, name):
    """A file that is not what it was by the time its end is reached was not read as one thing."""
    path = tmp_path / name
    write_any(path)
    source = tm.read(path, format="lines" if name == "a.txt" else "auto")
    blocks = read_piece(Piece(source.files[0]), source, 64)
    next(blocks)
    info = path.stat()
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns + 1_000_000_000))
    with pytest.raises(InputError, match=rf"{name}.*changed"):
        list(blocks)


def test_a_file_that_goes_away_during_a_build_is_named(tmp_path, tokenizer_path, jsonl):
    first, second = jsonl(TEXTS, "a.jsonl"), jsonl(TEXTS, "b.jsonl")
    source = tm.read(first, second)
    second.unlink()
    store = build(source, tokenizer_path, tmp_path / "out")
    assert [entry["file"] for entry in store.failed] == [str(second)]
    assert len(store) == len(TEXTS)


# Wrong columns.


@pytest.mark.parametrize(
    "name", ["t.parquet", "t.arrow", "t.stream.arrow", "t.feather", "t.csv", "t.tsv", "t.csv.gz", "t.csv.zst"]
)
def test_a_wrong_column_lists_the_right_ones(tmp_path, name):
    """Who mistypes a column is shown the columns."""
    path = tmp_path / name
    if ".csv" in name or ".tsv" in name:
        body = b"title,content\na,b\n" if ".csv" in name else b"title\tcontent\na\tb\n"
        path.write_bytes(pack(body, path.suffix) if path.suffix in CODECS else body)
    else:
        table = pa.table({"title": ["a"], "content": ["b"]})
        if path.suffix == ".parquet":
            pq.write_table(table, path)
        else:
            make = pa.ipc.new_stream if name == "t.stream.arrow" else pa.ipc.new_file
            with make(str(path), table.schema) as out:
                out.write_table(table)
    with pytest.raises(InputError, match=rf"{name}.*'text'.*title, content.*--text-field .*sources of one recipe"):
        documents(path)


def test_a_wrong_field_of_json_lines_is_a_wrong_option(tmp_path, tokenizer_path):
    """A field that no record has is found before anything is built, and the fields there are listed."""
    (tmp_path / "a.jsonl").write_text('{"title": "a", "content": "b"}\n' * 5)
    with pytest.raises(UsageError, match=r"a\.jsonl.*'text'.*title, content.*--text-field"):
        build(tmp_path / "a.jsonl", tokenizer_path, tmp_path / "out")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2]),
        pa.array([["a"], ["b"]]),
        pa.array([{"a": "b"}] * 2),
        pa.array([1.5, 2.5]),
        pa.array([True, False]),
    ],
    ids=lambda column: str(column.type),
)
@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_a_column_that_is_not_text(tmp_path, column, name):
    """Numbers, lists and structs are not text, and the whole column is at fault."""
    table = pa.table({"text": column})
    if name == "t.parquet":
        pq.write_table(table, tmp_path / name)
    else:
        with pa.ipc.new_file(str(tmp_path / name), table.schema) as out:
            out.write_table(table)
    with pytest.raises(InputError, match=rf"{name}.*'text'.*not text.*--text-field"):
        documents(tmp_path / name)


@pytest.mark.parametrize("path", ["meta.nope", "meta.inner.nope", "title.deeper", "nope.deeper"])
def test_a_wrong_nested_column(tmp_path, path):
    pq.write_table(pa.table({"title": ["a"], "meta": [{"inner": {"x": "a"}}]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=rf"a\.parquet.*'{path}'.*title, meta"):
        documents(tmp_path / "a.parquet", text_field=path)


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"text_field": "body"}, "--text-field"),
        ({"template": "{a}"}, "--template"),
        ({"format": "lines", "text_field": "b"}, "--text-field"),
    ],
)
def test_a_field_of_files_without_fields_is_refused(tmp_path, options, flag):
    """Unless other files have fields."""
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(
        UsageError, match=rf"{flag} \(.*\) is for files with fields, such as jsonl, but .*a\.txt is read as"
    ):
        tm.read(tmp_path / "a.txt", **options)
    (tmp_path / "b.jsonl").write_text('{"body": "text"}')
    if "format" not in options:
        assert len(tm.read(tmp_path / "a.txt", tmp_path / "b.jsonl", **options).files) == 2


# Wrong options.


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"format": "xml"}, "format"),
        ({"format": ""}, "format"),
        ({"limit": 3}, "tm.read has no option 'limit'"),
        ({"text_filed": "body"}, "'text_filed'; did you mean text_field"),
        ({"separator": ""}, "separator"),
        ({"separator": "--", "format": "jsonl"}, "separator"),
        ({"on_error": "ignore"}, "on_error"),
        ({"template": ""}, "template"),
        ({"template": "no hole"}, "template"),
        ({"template": "{{escaped}}"}, "template"),
        ({"template": "{"}, "template"),
        ({"template": "}"}, "template"),
        ({"template": "{title"}, "template"),
        ({"template": "{}"}, "template"),
        ({"template": "{title!r}"}, "template"),
        ({"template": "{title:>10}"}, "template"),
    ],
    ids=str,
)
def test_wrong_options_are_named(jsonl, options, named):
    """Before anything is read, and with the name of what is wrong."""
    with pytest.raises(UsageError, match=named):
        tm.read(jsonl(["a"]), **options)


def test_a_template_reaches_data_and_nothing_else(tmp_path):
    """A hole is a field's name; Python's attributes and indices are not reachable through it."""
    (tmp_path / "a.jsonl").write_text('{"a": "x"}\n')
    for template in ("{a.__class__}", "{a[0]}", "{a.__init__.__globals__}"):
        assert documents(tmp_path / "a.jsonl", template=template) == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"workers": -1}, "workers"),
        ({"shard_bytes": 10}, "shard_bytes"),
        ({"engine": "fastest"}, "engine"),
        ({"eos": "<|nope|>"}, "eos"),
        ({"eos": 1 << 20}, "eos"),
        ({"eos": -1}, "eos"),
        ({"bos": "<|nope|>"}, "bos"),
        ({"max_rows": 0}, "max_rows"),
    ],
    ids=str,
)
def test_wrong_build_options_are_named(tmp_path, tokenizer_path, jsonl, options, named):
    with pytest.raises(UsageError, match=named):
        tm.build(jsonl(["a"]), tokenizer_path, tmp_path / "out", **{"workers": 0, "progress": "quiet", **options})


def test_reading_options_go_with_reading(tmp_path, tokenizer_path, jsonl):
    source = tm.read(jsonl(["a"]))
    with pytest.raises(UsageError, match="text"):
        build(source, tokenizer_path, tmp_path / "out", text_field="body")
