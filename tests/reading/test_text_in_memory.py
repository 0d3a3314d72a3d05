"""Text that is not in a file: tables, datasets and iterables."""

from __future__ import annotations

import json

import datasets
import pyarrow as pa
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
