"""Text that is not in a file: tables, datasets and iterables."""

from __future__ import annotations

import glob
import json
import sys
from pathlib import Path

import datasets
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import tokenmill as tm


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


@pytest.mark.parametrize(
    "wrap", [lambda each: each, lambda each: datasets.DatasetDict(train=each)], ids=["one", "dict"]
)
def test_a_transform_of_a_dataset_is_not_left_out(wrap, built):
    dataset = datasets.Dataset.from_dict({"text": MEMORY_TEXTS})
    louder = dataset.with_transform(lambda rows: {"text": [text.upper() for text in rows["text"]]})
    with pytest.raises(tm.errors.UsageError, match=r"has a transform .* pass \(row\['text'\] for row in dataset\)"):
        built(wrap(louder))
    assert built(row["text"] for row in louder)[0] == [text.upper() for text in MEMORY_TEXTS]
    assert built(wrap(louder.with_format(None)))[0] == MEMORY_TEXTS
    assert built(wrap(dataset.with_format("numpy")))[0] == MEMORY_TEXTS


def test_a_dataset_without_the_column(tmp_path, tokenizer_path):
    dataset = datasets.Dataset.from_dict({"title": ["A"], "body": ["x"]})
    with pytest.raises(tm.errors.UsageError, match="title, body"):
        tm.build(dataset, tokenizer_path, tmp_path / "out", workers=0, progress="quiet")


@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        lambda: glob.glob("missing/*.jsonl"),
        lambda: iter(()),
        lambda: np.array([], str),
        lambda: pa.table({"text": pa.array([], pa.string())}),
        lambda: datasets.Dataset.from_dict({"text": []}),
    ],
    ids=["list", "tuple", "glob", "generator", "array", "table", "dataset"],
)
def test_inputs_without_anything_are_refused(built, tmp_path, make):
    """A store of nothing is what nobody wants: a glob found no file, or a generator was used up."""
    with pytest.raises(tm.errors.UsageError, match="empty"):
        built(make())
    assert list(tmp_path.iterdir()) == []


def test_a_stream_of_nothing_beside_others(built, jsonl):
    assert built((str(jsonl(["from a file"])), iter(()))) == (["from a file"], [])


def test_streams_larger_than_a_shard(built):
    """A long stream is spooled in chunks, and comes out in order."""
    texts = [f"document {i} " + "word " * (i % 50) for i in range(3000)]
    assert built(iter(texts), shard_bytes=1 << 14) == (texts, [])


def test_files_and_streams_together(built, jsonl):
    """Files first, then streams, each in order."""
    assert built((str(jsonl(["from a file"])), iter(["one"]), iter(["two"]))) == (["from a file", "one", "two"], [])


def test_a_null_at_the_start_has_its_row(built):
    assert built([None, None, "a"]) == (["a"], [(0, "not text"), (1, "not text")])
    assert built(text for text in [None, "a", None]) == (["a"], [(0, "not text"), (2, "not text")])
    with pytest.raises(tm.errors.UsageError, match="yields strings or dicts, but this one yields int"):
        built([None, 3])


def test_one_column_of_a_data_frame(built):
    assert built(pandas.Series(["one", None, "two"])) == (["one", "two"], [(1, "null field")])
    assert built(pandas.DataFrame({"text": ["one"]})["text"], text_field="body") == (["one"], [])


def test_objects_of_a_data_frame(built):
    """Other columns are not looked at; the text is told what is wrong with it."""
    assert built(pandas.DataFrame({"text": ["one"], "other": [object()]})) == (["one"], [])
    mixed = pandas.Series(["one", 1], dtype=object)
    for data in (mixed, pandas.DataFrame({"text": mixed})):
        with pytest.raises(tm.errors.WrongTypeError, match=r"is read as columns of strings: .*Expected bytes"):
            built(data)


CONTAINERS = {
    "generator": lambda names: (name for name in names),
    "keys": lambda names: dict.fromkeys(names).keys(),
    "array": np.array,
    "objects": lambda names: np.array(names, object),
    "arrow": pa.array,
    "series": pandas.Series,
    "table": lambda names: pa.table({"text": names}),
    "frame": lambda names: pandas.DataFrame({"text": names}),
    "dataset": lambda names: datasets.Dataset.from_dict({"text": names}),
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_paths_are_not_taken_for_text(built, tmp_path, monkeypatch, kind):
    """The slip everyone makes once: file names are refused, not tokenized, whatever holds them and whether they exist."""
    monkeypatch.chdir(tmp_path)
    make = CONTAINERS[kind]
    for names in (
        ["train-0.jsonl", "train-1.jsonl"],
        ["s3://bucket/a", "x"],
        ["*.parquet.zst"],
        ["C/my data.csv", None],
    ):
        with pytest.raises(tm.errors.UsageError, match=r"look like paths, such as '.*tm\.read\(\*paths\)"):
            built(make(names if kind != "array" else [str(name) for name in names]))
    Path("notes").write_text("a")
    with pytest.raises(tm.errors.UsageError, match="such as 'notes'"):
        built(make(["notes"]))
    texts = [f"text {i}" for i in range(30)] + ["README.md", "N/A", "What? *", "see notes.txt"]
    assert built(make(texts)) == (texts, [])
    assert built(make(["a.txt", "b.txt"]), template="{text}") == (["a.txt", "b.txt"], [])


@pytest.mark.parametrize("make", [list, iter, lambda lines: pa.table({"text": lines})], ids=["list", "lines", "table"])
def test_lines_of_json_are_not_taken_for_text(built, make):
    """An open file, read line by line."""
    lines = [json.dumps({"id": i, "text": f"text {i}"}) + "\n" for i in range(3)]
    with pytest.raises(tm.errors.UsageError, match=r"strings that are JSON, such as .* pass the path of their file"):
        built(make(lines))
    assert built(make(lines), template="{text}") == (lines, [])
    texts = [*(f"text {i}" for i in range(20)), lines[0], '{"text": code', "{}"]
    assert built(make(texts)) == (texts, [])


def test_a_column_and_a_dataset_of_arrow(built, tmp_path):
    assert built(datasets.Dataset.from_dict({"text": ["one", "two"]})["text"]) == (["one", "two"], [])
    table = pa.table({"id": [1, 2], "text": ["one", "two"]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert built(pyarrow.dataset.dataset(table)) == (["one", "two"], [])
    assert built(pyarrow.dataset.dataset(tmp_path / "a.parquet"), text_field="text") == (["one", "two"], [])


def test_a_list_of_paths_is_files(built, jsonl, monkeypatch):
    """Not tokenized; and what is meant is said. In a tuple it is said already."""
    path = jsonl(["from a file"])
    monkeypatch.chdir(path.parent)
    for name in (path.name, str(path), "*.jsonl"):
        with pytest.warns(UserWarning, match=r"is read as 1 path: pass tm\.read\(\*paths\)"):
            assert built([name]) == (["from a file"], [])
    assert built([path]) == built((path.name,)) == (["from a file"], [])
    with (
        pytest.warns(UserWarning, match="read as 2 paths"),
        pytest.raises(tm.errors.MissingInputError, match=r"no such file.*b"),
    ):
        tm.build([path.name, "data/b.jsonl"], "bytes")
    with pytest.warns(UserWarning, match="read as 1 path"):
        assert len(tm.load([path.name], 1, tokenizer="bytes", seq_len=4, epochs=1))
    assert built([path.name], template="{text}") == ([path.name], [])
    assert built([path], template="{text}") == (["from a file"], [])  # it says nothing of what is no string
    with pytest.raises(tm.errors.UsageError, match=r"PosixPath.*tm\.read\(\*paths\)"):
        built(each for each in path.parent.glob("*.jsonl"))
    for names in (["finewebedu", "org/name"], ["https://example.invalid/a.jsonl"]):  # no request is made
        with pytest.raises(tm.errors.UsageError, match=f"such as '{names[0]}'"):
            built(names)


def test_tuples_are_inputs_wherever_they_are(jsonl):
    path = jsonl(["a"])
    assert tm.read((path, str(path.parent))).inputs == tm.read(path, str(path.parent)).inputs
    with pytest.raises(tm.errors.MissingInputError, match="no such file or folder: hello"):
        tm.read(("hello", "world"))


def test_an_open_file_is_read_by_its_path(jsonl):
    with open(jsonl(["a"])) as file, pytest.raises(tm.errors.UsageError, match=r"pass the path \(.*\.jsonl\)"):
        tm.read(file)
    with pytest.raises(tm.errors.UsageError, match="'-' is standard input"):
        tm.read(sys.stdin)


def test_a_set_has_no_order():
    with pytest.raises(tm.errors.UsageError, match=r"sorted\(texts\)"):
        tm.read({"one text", "another"})


@pytest.mark.parametrize("thing", [3, b"bytes", None], ids=repr)
def test_what_cannot_be_read(thing):
    with pytest.raises(tm.errors.UsageError, match=type(thing).__name__):
        tm.read(thing)
