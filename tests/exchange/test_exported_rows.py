"""Rows of a view in every format that holds rows, read back by the format's library."""

from __future__ import annotations

import shutil
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill as tm
from tokenmill.errors import MismatchError, UsageError
from tokenmill.exchange import exported_rows
from tokenmill.testing.exchange import contents, die_at, make_store, some_documents

FIELDS = ("input_ids", "labels", "position_ids", "attention_mask")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("rows") / "made", some_documents(250), "uint16")


def read(folder, format: str) -> dict[str, np.ndarray]:
    """All rows of an export, by column."""
    if format == "hf":
        import datasets

        table = datasets.load_from_disk(str(folder)).with_format("numpy")[:]
        return {name: np.stack(values) for name, values in table.items()}
    if format in ("parquet", "arrow"):
        opened = [
            pq.read_table(path) if format == "parquet" else pa.ipc.open_file(path).read_all()
            for path in sorted(folder.rglob(f"*.{format}"))
        ]
        table = pa.concat_tables(opened)
        return {name: np.array(table[name].to_pylist()) for name in table.column_names}
    chunks = [load(path, format) for path in sorted(folder.glob(f"chunk_*.{format}"))]
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


def load(path, format: str) -> dict[str, np.ndarray]:
    if format == "pt":
        import torch

        found = torch.load(path, weights_only=True)
        return {
            name: each.numpy() for name, each in (found if isinstance(found, dict) else {"input_ids": found}).items()
        }
    from safetensors.numpy import load_file

    return load_file(path)


@pytest.mark.parametrize("format", ["hf", "parquet", "arrow", "pt", "safetensors"])
@pytest.mark.parametrize("fields", [("input_ids",), FIELDS], ids=["ids", "all"])
@pytest.mark.parametrize("strategy", ["concat", "best_fit"])
def test_rows_are_those_of_the_view(store, tmp_path, format, fields, strategy):
    view = tm.pack(store, 128, strategy=strategy, fields=fields, dtype="int32")
    done = tm.export(view, tmp_path / "out", format=format, rows_per_file=100)
    found, expected = read(tmp_path / "out", format), view[:]
    assert set(found) == set(fields)
    for name in fields:
        assert (found[name] == expected[name]).all()
    again = tm.export(view, tmp_path / "out", format=format, rows_per_file=100)
    assert (again.written, again.files) == (0, done.files)
    by_store = tm.export(
        store, tmp_path / "2", format=format, rows_per_file=100, seq_len=128, strategy=strategy, fields=fields
    )
    assert by_store.files == done.files
    assert contents(tmp_path / "2") == contents(tmp_path / "out")


def test_a_dict_of_views(store, tmp_path):
    import datasets

    parts = tm.pack(store, 64, fields=["input_ids"]).split(train=0.7, eval=0.3)
    tm.export(parts, tmp_path / "out", format="hf")
    found = datasets.load_from_disk(str(tmp_path / "out"))
    assert {name: len(part) for name, part in found.items()} == {name: len(view) for name, view in parts.items()}
    assert found["eval"][0]["input_ids"] == parts["eval"][0]["input_ids"].tolist()


def test_the_trainer_takes_an_export(store, tmp_path):
    """`datasets` gives torch tensors of the dtype that was asked for."""
    import datasets
    import torch

    tm.export(store, tmp_path / "out", format="hf", seq_len=32, fields=["input_ids", "labels"], dtype="int64")
    batch = datasets.load_from_disk(str(tmp_path / "out")).with_format("torch")[:4]
    assert batch["input_ids"].shape == (4, 32)
    assert batch["labels"].dtype == torch.int64


def test_only_some_chunks(store, tmp_path):
    done = tm.export(store, tmp_path / "out", format="pt", seq_len=32, rows_per_file=10, max_chunks=3)
    assert sorted(name for name in contents(tmp_path / "out") if name.endswith(".pt")) == [
        f"chunk_0000{i}.pt" for i in range(3)
    ]
    assert len(read(tmp_path / "out", "pt")["input_ids"]) == 30
    assert done.format == "pt"


def test_tensors_are_written_in_parts(store, tmp_path, monkeypatch):
    """No more rows than a block are made at a time; the bytes are the same."""
    view = tm.pack(store, 64, fields=FIELDS, dtype="int32")
    tm.export(view, tmp_path / "whole", format="safetensors")
    monkeypatch.setattr(exported_rows, "BLOCK_TOKENS", 1024)
    made: list[int] = []
    rows = tm.View.rows
    monkeypatch.setattr(tm.View, "rows", lambda self, numbers: made.append(len(numbers)) or rows(self, numbers))
    tm.export(view, tmp_path / "parts", format="safetensors")
    assert max(made) <= 1024 // 64
    assert sum(made) == len(FIELDS) * len(view)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


@pytest.mark.parametrize("format", ["pt", "safetensors"])
def test_tensors_come_back(store, tmp_path, format):
    """The rows of a file one after the other: documents end at eos."""
    tm.export(store, tmp_path / "out", format=format, seq_len=64, rows_per_file=100, tail="drop")
    with pytest.warns(UserWarning, match="holds packed rows"):
        again = tm.import_tokens(tmp_path / "out", tmp_path / "again")
    kept = store.num_tokens // 64 * 64
    assert np.concatenate(list(again)).tolist() == np.concatenate(list(store))[:kept].tolist()
    files = len(list((tmp_path / "out").glob(f"*.{format}")))
    assert len(store) - 1 <= len(again) <= len(store) + files  # a document that crosses into another file is two


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"format": "pt"}, "holds rows, not documents: give --seq-len"),
        ({"format": "megatron", "seq_len": 32}, "holds documents, not rows"),
        (
            {"format": "hf", "seq_len": 32, "fields": ["input_ids", "cu_seqlens"]},
            "cu_seqlens has no value per position",
        ),
        ({"format": "hf", "seq_len": 32, "strategy": "pad", "buckets": [8, 16]}, "several widths"),
        ({"format": "hf", "shares": "train"}, "train=0.99,val=0.01"),
        ({"format": "hf", "shares": "train=0.9,val=0.9"}, "sum to 1.8"),
        ({"format": "nanoGPT"}, "nanogpt"),
        ({"format": "hf", "shares": "train=0.5,train=0.5"}, "train=0.99,val=0.01"),
        ({"format": "megatron", "rows_per_file": 5}, "--rows-per-file .* is for rows"),
        ({"format": "mds", "max_chunks": 5}, "--max-chunks .* is for rows: give --seq-len"),
        ({"format": "hf", "strategy": "best_fit"}, "--strategy .* is for rows: give --seq-len"),
        ({"format": "hf", "strategy": "concat"}, "--strategy"),  # the default
        ({"format": "hf", "fields": ["input_ids", "labels"]}, "--fields .* is for rows"),
        ({"format": "hf", "dtype": "int64"}, "--dtype .* is for rows"),
        ({"format": "megatron", "pad_id": 0}, "--pad-id .* is for rows"),
    ],
)
def test_what_does_not_go_together(store, tmp_path, options, said):
    with pytest.raises(UsageError, match=said):
        tm.export(store, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", [{"strategy": "best_fit"}, {"fields": ["labels"]}, {"dtype": "int64"}])
def test_a_view_is_packed_already(store, tmp_path, option):
    view = tm.pack(store, 32)
    for data in (view, {"train": view}):
        with pytest.raises(UsageError, match=f"give {next(iter(option))} to tm.pack"):
            tm.export(data, tmp_path / "out", format="hf", **option)
    assert not (tmp_path / "out").exists()


def test_a_store_that_has_grown(tmp_path):
    """Only the files that changed are written again; what is no longer needed is removed."""
    documents = some_documents(250)
    first = make_store(tmp_path / "first", documents, "uint16")
    options = {"format": "datatrove", "tokens_per_file": 5000}
    before = tm.export(first, tmp_path / "out", **options)
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.ds")}
    second = make_store(tmp_path / "second", [*documents, *some_documents(200)], "uint16")
    after = tm.export(second, tmp_path / "out", **options)
    assert after.files > before.files
    same = [name for name, time in kept.items() if (tmp_path / "out" / name).stat().st_mtime_ns == time]
    assert len(same) >= len(kept) - 1
    tm.export(first, tmp_path / "out", **options)
    fresh = tm.export(first, tmp_path / "fresh", **options)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")
    assert fresh.files == before.files


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/b", "", 1])
def test_names_of_parts(store, tmp_path, name):
    with pytest.raises(UsageError, match="cannot be the name of a part"):
        tm.export({name: store}, tmp_path / "out", format="nanogpt")
    assert list(tmp_path.iterdir()) == []


def test_stores_of_different_tokenizers(store, tmp_path):
    other = make_store(tmp_path / "other", some_documents(200_000, 20), "uint32")
    with pytest.raises(MismatchError, match="another tokenizer"):
        tm.export({"train": store, "val": other}, tmp_path / "out", format="nanogpt")


@pytest.mark.parametrize("format", ["megatron", "hf", "litdata"])
def test_ids_that_do_not_fit(tmp_path, format):
    np.array([1, 3_000_000_000, 7], np.uint32).tofile(tmp_path / "train.bin")
    with pytest.warns(UserWarning, match=r"its largest id is 3,000,000,000 .* dtype"):
        store = tm.import_tokens(tmp_path / "train.bin", tmp_path / "store", dtype="uint32", eos=7)
    with pytest.raises(UsageError, match="3000000000 does not fit into int32"):
        tm.export(store, tmp_path / "out", format=format)
    tm.export(store, tmp_path / "flat", format="nanogpt")
    assert np.fromfile(tmp_path / "flat" / "train.bin", np.uint32).tolist() == [1, 3_000_000_000, 7]


def test_shards_without_documents(tmp_path, tokenizer_path):
    """All rows of some shards are bad: the store comes back as it was."""
    for name, row, count in (("a", '{"text": "hello"}', 3), ("b", '{"nope": 1}', 800), ("c", '{"text": "world"}', 2)):
        (tmp_path / f"{name}.jsonl").write_text(f"{row}\n" * count)
    store = tm.build(tm.read(tmp_path / "*.jsonl"), tokenizer_path, tmp_path / "store", shard_bytes="2KB", workers=0)
    assert 0 in store._manifest.shard_documents
    tm.export(store, tmp_path / "out", format="megatron")
    assert tm.import_tokens(tmp_path / "out", tmp_path / "again").fingerprint == store.fingerprint


def test_parts_of_another_export_do_not_stay(store, tmp_path):
    """With another seed both files change: none of the old ones is there while the new ones are written."""
    tm.export(store, tmp_path / "out", format="nanogpt", shares="train=0.5,val=0.5")
    before = contents(tmp_path / "out")
    for moment in range(1, 60, 3):
        folder = tmp_path / str(moment)
        shutil.copytree(tmp_path / "out", folder)
        again = partial(tm.export, store, folder, format="nanogpt", shares="train=0.5,val=0.5", seed=1)
        die_at(moment, again, folder)
        found = {name: raw for name, raw in contents(folder).items() if name.endswith(".bin")}
        new = [name for name, raw in found.items() if before[name] != raw]
        assert not new or len(new) == len(found), moment


def test_an_export_in_another_format_is_left_alone(store, tmp_path):
    tm.export(store, tmp_path / "out", format="megatron")
    before = contents(tmp_path / "out")
    with pytest.raises(UsageError, match="holds an export in the format megatron"):
        tm.export(store, tmp_path / "out", format="nanogpt")
    assert contents(tmp_path / "out") == before


def test_parts_plan_no_other_rows(tmp_path):
    """Rows of the whole store are not planned where only its parts are written."""
    store = make_store(tmp_path / "made", some_documents(250), "uint16")
    rows = {"format": "parquet", "seq_len": 16, "strategy": "best_fit"}
    tm.export(store, tmp_path / "out", shares="train=0.8,val=0.2", **rows)
    assert len(list((store.path / "plans").glob("*.json"))) == 2
