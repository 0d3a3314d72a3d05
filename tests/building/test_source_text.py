"""The text of quarantined rows, found by the file and row that a store names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading_files import pack, write_arrow

import tokenmill as tm
from tokenmill.building.source_text import source_row
from tokenmill.errors import InputError, StoreError, UsageError
from tokenmill.reading.raw_rows import RawRow

LONG = b"long enough to be a piece of its own " * 40
JSON = (
    b'{"text": "%s"}\n\n{bad\n{"other": 1}\n{"text": "%s"}\n\n{"text": "\xff"}\n{"text": null}\n{"text": 7}\n[]\n'
    % (LONG, LONG)
)
JSON_BAD = {
    2: "{bad",
    3: '{"other": 1}',
    6: '{"text": "\ufffd"}',
    7: '{"text": null}',
    8: '{"text": 7}',
    9: "[]",
}
CSV = b'id,text\n1,a\n\n2,"b\n\nc"\n3\n4,"d ""e"""\n5,\xff\n6,7,8\n'
CSV_BAD = {2: "3", 4: "5,\ufffd", 5: "6,7,8"}
TABLE = pa.table({"text": pa.array([LONG, None, LONG, b"\xff", LONG, None], pa.binary())})
TABLE_BAD = {1: "null", 3: "\ufffd", 5: "null"}


@pytest.fixture
def build(tokenizer_path, tmp_path):
    def run(*inputs, **options) -> tm.Store:
        options = {"workers": 0, "engine": "reference", "progress": "quiet", **options}
        return tm.build(list(inputs) if len(inputs) > 1 else inputs[0], tokenizer_path, tmp_path / "store", **options)

    return run


def bad_rows(store: tm.Store) -> dict[str, dict[int, str]]:
    """The text of each quarantined row, by the name of the file and the row."""
    found: dict[str, dict[int, str]] = {}
    for entry in store.quarantine():
        name = Path(entry["file"]).name
        found.setdefault(name, {})[entry["row"]] = source_row(store, entry["file"], entry["row"]).text
    return found


@pytest.mark.parametrize("shard_bytes", [1 << 20, 1 << 10])
def test_quarantined_rows_of_every_format(build, tmp_path, shard_bytes):
    """Row numbers are those of the store, also of files that were cut into pieces."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(JSON)
    (folder / "b.csv").write_bytes(CSV)
    (folder / "c.tsv").write_bytes(CSV.replace(b",", b"\t"))
    for codec in (".gz", ".zst"):
        (folder / f"a.jsonl{codec}").write_bytes(pack(JSON, codec))
        (folder / f"b.csv{codec}").write_bytes(pack(CSV, codec))
    (folder / "d.txt").write_bytes(b"not\nUTF-8: \xff\n")
    pq.write_table(TABLE, folder / "e.parquet", row_group_size=2)
    write_arrow(folder / "f.arrow", TABLE, rows=2)
    write_arrow(folder / "g.arrow", TABLE, rows=2, stream=True)
    store = build(folder, shard_bytes=shard_bytes)
    assert bad_rows(store) == {
        **dict.fromkeys(("a.jsonl", "a.jsonl.gz", "a.jsonl.zst"), JSON_BAD),
        **dict.fromkeys(("b.csv", "b.csv.gz", "b.csv.zst"), CSV_BAD),
        "c.tsv": {row: text.replace(",", "\t") for row, text in CSV_BAD.items()},
        "d.txt": {0: "not\nUTF-8: \ufffd\n"},
        **dict.fromkeys(("e.parquet", "f.arrow", "g.arrow"), TABLE_BAD),
    }
    files = [piece["file"] for shard in range(store.num_shards) for piece in store._pieces(shard)]
    is_cut = {Path(file).name for file in files if files.count(file) > 1}
    assert is_cut == ({"a.jsonl", "e.parquet", "f.arrow"} if shard_bytes == 1 << 10 else set())


@pytest.mark.parametrize("shard_bytes", [1 << 20, 1 << 10])
@pytest.mark.parametrize(("options", "mark"), [({"format": "lines"}, b"\n"), ({"separator": "<>"}, b"<>")])
def test_quarantined_lines_and_parts_between_separators(build, tmp_path, options, mark, shard_bytes):
    """The options of the build say what a row is."""
    (tmp_path / "a.txt").write_bytes(mark.join([LONG, b"", b"\xff", b"", LONG, b"bad \xfe", LONG]))
    store = build(tmp_path / "a.txt", shard_bytes=shard_bytes, **options)
    assert bad_rows(store) == {"a.txt": {2: "\ufffd", 5: "bad \ufffd"}}
    assert (store.num_shards > 1) == (shard_bytes == 1 << 10)


def test_documents_are_found_too(build, tmp_path):
    """By what `locate` says; fields of a template with their names."""
    pq.write_table(pa.table({"a": ["x", "y"], "b": [1, 2]}), tmp_path / "a.parquet")
    store = build(tmp_path / "a.parquet", template="{a} {b}")
    assert source_row(store, *store.locate(1)) == RawRow("a: y\nb: 2", False)


def test_options_that_do_not_fit_the_file_alone(build, tmp_path):
    """A field was chosen for the other file of the build."""
    (tmp_path / "a.txt").write_bytes(b"\xff")
    (tmp_path / "b.jsonl").write_bytes(b'{"body": "a"}\n{"body": 1}\n')
    store = build(tmp_path / "a.txt", tmp_path / "b.jsonl", text_field="body")
    assert bad_rows(store) == {"a.txt": {0: "\ufffd"}, "b.jsonl": {1: '{"body": 1}'}}


@pytest.fixture
def small(build, tmp_path) -> tm.Store:
    """A store of two files."""
    for name in ("a[1].jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(JSON)
    return build(tmp_path / "a[1].jsonl", tmp_path / "b.jsonl")


@pytest.mark.parametrize("name", ["/etc/passwd", "b.jsonl", "", "<stdin>", "../a.jsonl"])
def test_only_files_of_the_store_are_read(small, name):
    with pytest.raises(UsageError, match="was not built from a file"):
        source_row(small, name, 0)


def test_other_files_of_the_same_folder_are_not_read(small, tmp_path):
    (tmp_path / "c.jsonl").write_bytes(JSON)
    with pytest.raises(UsageError, match="was not built from a file"):
        source_row(small, str(tmp_path / "c.jsonl"), 0)


def test_a_file_that_is_gone(small, tmp_path):
    """Whatever has taken its place; the other one is still there."""
    path = tmp_path / "a[1].jsonl"
    path.rename(tmp_path / "a1.jsonl")  # which the name, taken for a pattern, would match
    with pytest.raises(InputError, match=r"a\[1\]\.jsonl is gone"):
        source_row(small, str(path), 2)
    path.mkdir()
    (path / "a.jsonl").write_bytes(JSON)
    with pytest.raises(InputError, match=r"a\[1\]\.jsonl is gone"):
        source_row(small, str(path), 2)
    assert source_row(small, str(tmp_path / "b.jsonl"), 2).text == "{bad"
    assert small.input_files == [str(path), str(tmp_path / "b.jsonl")]


def test_a_file_that_has_changed(small, tmp_path):
    """What is there now is shown, and a row that is there no more is an error."""
    (tmp_path / "b.jsonl").write_bytes(b"new\n")
    assert source_row(small, str(tmp_path / "b.jsonl"), 0).text == "new"
    with pytest.raises(InputError, match=r"b\.jsonl: there is no row 2; the file has changed"):
        source_row(small, str(tmp_path / "b.jsonl"), 2)


def test_text_that_was_never_in_files(build):
    store = build(iter(["a", 7, "b"]))
    (entry,) = store.quarantine()
    with pytest.raises(StoreError, match=r"built from text that is not in files \(<iterable"):
        source_row(store, entry["file"], entry["row"])


def test_imported_tokens_have_no_text(small, tmp_path):
    tm.export(small, tmp_path / "out", format="datatrove")
    store = tm.import_tokens(tmp_path / "out", out=tmp_path / "imported", tokenizer=small.path / "tokenizer")
    with pytest.raises(StoreError, match="was imported as tokens"):
        source_row(store, store.locate(0).file, 0)


def test_a_store_in_the_cache(build, tokenizer_path, tmp_path):
    """The files are those that this caller gave, whatever the first builder of the store called them."""
    for name in ("first", "second"):
        (tmp_path / f"{name}.jsonl").write_bytes(JSON)
        store = tm.build(
            tmp_path / f"{name}.jsonl", tokenizer_path, cache_dir=tmp_path / "cache", workers=0, progress="quiet"
        )
    (tmp_path / "first.jsonl").unlink()
    assert bad_rows(store) == {"second.jsonl": JSON_BAD}
