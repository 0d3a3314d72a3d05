"""Exports that finish the job: from text in one step, as one file, with a summary and a line that reads them back."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.errors import InputError, MismatchError, MissingStoreError, UsageError
from tokenmill.exchange.output import RECEIPT
from tokenmill.exchange.registry import FORMATS
from tokenmill.testing.exchange import die_at, make_store, some_documents

ROWS = {"seq_len": 64, "tail": "drop"}
ALONE = [name for name, format in FORMATS.items() if format.suffix]
TOKENS = "-t gpt2 (tokenizer='gpt2')"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("finished") / "made", some_documents(250), "uint16")


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """A folder with text, and the tokenizer `bytes`, in the working directory; splits are named."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    for name, count in (("train", 20), ("valid", 3), ("more", 4)):
        rows = [json.dumps({"text": f"{name} {number}", "body": "b" * number}) for number in range(count)]
        Path(f"data/{name}.jsonl").write_text("\n".join(rows))
    return Path("data")


def options_of(format: str) -> dict[str, object]:
    return {"format": format} | ({} if "documents" in FORMATS[format].takes else ROWS)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# The line that reads an export back


def library(monkeypatch, name: str, **members: object) -> None:
    """A stand-in for a library that is not installed here. `make conformance` reads these formats with the libraries."""
    for end in [i for i, letter in enumerate(f"{name}.") if letter == "."]:
        monkeypatch.setitem(sys.modules, name[:end], ModuleType(name[:end]))
    for member, value in members.items():
        setattr(sys.modules[name], member, value)


def read_index(folder: str, item_loader: object = None) -> int:
    """How many tokens or samples an index.json lists, of files that are there."""
    index = json.loads(Path(folder, "index.json").read_text())
    names = [chunk.get("filename") or chunk["raw_data"]["basename"] for chunk in index.get("chunks") or index["shards"]]
    assert all(Path(folder, name).is_file() for name in names)
    return (
        sum(chunk["dim"] for chunk in index["chunks"])
        if "chunks" in index
        else sum(s["samples"] for s in index["shards"])
    )


def read_back(line: str, monkeypatch) -> int:
    """What a line reads, as the number of its values; of a table or a list of samples, that of its rows."""
    library(
        monkeypatch, "megatron.core.datasets.indexed_dataset", IndexedDataset=lambda p: np.fromfile(f"{p}.bin", "<u2")
    )
    library(monkeypatch, "streaming", LocalDataset=read_index)
    library(monkeypatch, "litdata", StreamingDataset=read_index, TokensLoader=int)
    names: dict[str, object] = {}
    exec(line, names)
    data = names["data"]
    if isinstance(data, int):
        return data
    data = data["input_ids"] if isinstance(data, dict) and "input_ids" in data else data
    return (
        sum(map(len, data.values()))
        if isinstance(data, dict)
        else data.numel()
        if hasattr(data, "numel")
        else len(data)
    )


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shares", [None, "train=0.6,val=0.4"])
def test_the_line_reads_it(store, tmp_path, monkeypatch, capsys, format, shares):
    """From a folder with a name that Python must quote; of several parts, the first, or all."""
    out = tmp_path / "it's out"
    done = tm.export(store, out, shares=shares, **options_of(format))
    assert print(done) is None
    assert f"read it     {done.read}\n" in capsys.readouterr().out
    numbers = list(done.splits.values()) if format == "hf" else [done.splits["train"]]
    unit = "documents" if format in ("hf", "parquet", "arrow", "mds") else "tokens"
    assert read_back(done.read, monkeypatch) == sum(part[unit] for part in numbers) > 0


@pytest.mark.parametrize("format", ALONE)
def test_the_line_reads_a_file(store, tmp_path, monkeypatch, format):
    done = tm.export(store, tmp_path / f"it's{FORMATS[format].suffix}", **options_of(format))
    unit = "documents" if format in ("parquet", "arrow") else "tokens"
    assert read_back(done.read, monkeypatch) == done.splits["train"][unit] > 0


# One file


@pytest.mark.parametrize("format", ALONE)
def test_a_file_is_that_of_the_folder(store, tmp_path, format):
    """The same bytes, nothing else that is seen, and nothing to do the second time."""
    tm.export(store, tmp_path / "folder", **options_of(format))
    [expected] = (tmp_path / "folder").rglob(f"*{FORMATS[format].suffix}")
    (tmp_path / "new").mkdir()
    out = tmp_path / "new" / f"mine{FORMATS[format].suffix}"
    once, again = (tm.export(store, out, **options_of(format)) for _ in range(2))
    assert (once.path, once.files, once.written, again.written) == (out, 1, 1, 0)
    assert out.read_bytes() == expected.read_bytes()
    assert names_in(out.parent) == [f".{out.name}{RECEIPT}", out.name]
    facts = json.loads((out.parent / f".{out.name}{RECEIPT}").read_text())["facts"]
    assert facts["tokenizer"]["vocab_size"] == store.tokenizer.vocab_size
    out.write_bytes(b"changed")
    assert tm.export(store, out, **options_of(format)).written == 1
    assert out.read_bytes() == expected.read_bytes()


def test_a_file_comes_back(store, tmp_path):
    """With its eos and dtype, and the shards that the store had."""
    tm.export(store, tmp_path / "train.bin", format="nanogpt")
    assert tm.import_tokens(tmp_path / "train.bin", tmp_path / "again").fingerprint == store.fingerprint
    (tmp_path / "train.bin").write_bytes(b"\1\0\7\0")
    with pytest.raises(InputError, match=r"train\.bin has changed since it was exported"):
        tm.import_tokens(tmp_path / "train.bin", tmp_path / "changed")


def test_a_large_export_is_one_file_if_one_is_asked_for(store, tmp_path, monkeypatch):
    monkeypatch.setattr("tokenmill.exchange.formats.llmc.TOKENS_PER_FILE", 5000)
    assert tm.export(store, tmp_path / "folder", format="llmc").files > 3
    assert tm.export(store, tmp_path / "all.bin", format="llmc").files == 1
    assert len(np.memmap(tmp_path / "all.bin", np.uint16, "r", offset=1024)) == store.num_tokens


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("x.bin", {}, r"x\.bin does not say its format: give --format \(format=...\), llmc or nanogpt$"),
        ("x", {}, "x does not say its format: .* megatron or llmc or hf"),
        ("x.bin", {"format": "megatron"}, r"x\.bin: the format megatron has a folder: give \S*/x$"),
        ("x.arrow", {"format": "hf"}, r"the format hf has a folder: give \S*/x$"),
        ("x.bin", {"format": "parquet"}, r"a folder or a file that ends in \.parquet: give \S*/x\.parquet$"),
        (
            "x.bin",
            {"format": "nanogpt", "shares": "train=0.5,val=0.5"},
            r"x\.bin cannot be 2 files \(train\.bin, val\.bin\): give a folder, such as \S*/x$",
        ),
        ("x.pt", {"seq_len": 64, "rows_per_file": 1, "max_chunks": 4}, r"x\.pt cannot be 4 files .*: give a folder"),
    ],
)
def test_what_is_no_file(store, tmp_path, name, options, says):
    with pytest.raises(UsageError, match=says):
        tm.export(store, tmp_path / name, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["pt", "safetensors", "parquet", "arrow"])
def test_a_suffix_says_the_format(store, tmp_path, suffix):
    assert tm.export(store, tmp_path / f"x.{suffix}", seq_len=64).format == suffix


def test_a_folder_may_have_such_a_name(store, tmp_path):
    (tmp_path / "old.bin").mkdir()
    tm.export(store, tmp_path / "old.bin", format="nanogpt")
    tm.export(store, f"{tmp_path}/new.bin/", format="nanogpt")
    assert (tmp_path / "old.bin/train.bin").read_bytes() == (tmp_path / "new.bin/train.bin").read_bytes()


def test_files_of_others_are_left_alone(store, tmp_path):
    """A file that is there, one of a folder's export, one in another format, one of another store."""
    mine = tmp_path / "mine.bin"
    mine.write_bytes(b"mine")
    with pytest.raises(UsageError, match=r"mine\.bin is there, and was not exported by this name"):
        tm.export(store, mine, format="nanogpt")
    assert (mine.read_bytes(), names_in(tmp_path)) == (b"mine", ["mine.bin"])
    tm.export(store, tmp_path / "folder", format="nanogpt")
    with pytest.raises(UsageError, match="was not exported by this name"):
        tm.export(store, tmp_path / "folder/train.bin", format="nanogpt")
    (tmp_path / ".lock").write_text("of another program")
    tm.export(store, tmp_path / "a.bin", format="nanogpt")
    tm.export(store, tmp_path / "b.bin", format="nanogpt")
    assert (tmp_path / ".lock").read_text() == "of another program"
    with pytest.raises(UsageError, match=r"a\.bin holds an export in the format nanogpt"):
        tm.export(store, tmp_path / "a.bin", format="llmc")
    other = make_store(tmp_path / "other", some_documents(200), "uint16")
    with pytest.raises(MismatchError, match=r"a\.bin holds an export of another store"):
        tm.export(other, tmp_path / "a.bin", format="nanogpt")
    assert (tmp_path / "a.bin").read_bytes() == (tmp_path / "b.bin").read_bytes()


def test_a_file_that_was_interrupted_is_finished(store, tmp_path):
    """Wherever it is killed, the file is whole or not there; the next run leaves nothing of it."""
    write = partial(tm.export, store, format="nanogpt")
    write(tmp_path / "whole.bin")
    right = (tmp_path / "whole.bin").read_bytes()
    for moment in range(1, 30, 4):
        folder = tmp_path / str(moment)
        folder.mkdir()
        die_at(moment, partial(write, folder / "train.bin"), folder)
        assert not (folder / "train.bin").exists() or (folder / "train.bin").read_bytes() == right
        write(folder / "train.bin")
        assert (folder / "train.bin").read_bytes() == right
        assert names_in(folder) == [f".train.bin{RECEIPT}", "train.bin"], moment


# Splits


def test_splits_in_one_call(corpus):
    """Those of a store, and a dict of views, stores or paths: named as the tool of the format calls them."""
    import datasets

    store = tm.build("data", "bytes", "store", progress="quiet")
    views = tm.pack(store, 8, split="all", fields=["input_ids"]).split(by="name")
    texts = {"train": "data/train.jsonl", "validation": "data/valid.jsonl"}
    stores = {name: tm.build(path, "bytes", name, progress="quiet") for name, path in texts.items()}
    for number, data in enumerate((store, stores, {name: each.path for name, each in stores.items()})):
        tm.export(data, f"nano{number}", format="nanogpt")
        assert {"train.bin", "val.bin"} < set(names_in(Path(f"nano{number}")))
    assert (
        Path("nano1/val.bin").read_bytes() == Path("nano0/val.bin").read_bytes() == Path("nano2/val.bin").read_bytes()
    )
    tm.export(texts, "nano3", format="nanogpt", tokenizer="bytes")
    assert Path("nano3/val.bin").read_bytes() == Path("nano0/val.bin").read_bytes()
    for number, data in enumerate((store, views)):
        tm.export(data, f"hf{number}", format="hf")
        assert sorted(datasets.load_from_disk(f"hf{number}")) == ["train", "validation"]


def test_a_dataset_dict_of_text(corpus):
    """Each of its splits is a part, and the names that `datasets` gives them stay."""
    import datasets

    data = datasets.DatasetDict({n: datasets.Dataset.from_dict({"text": [n, "b"]}) for n in ("train", "validation")})
    done = tm.export(data, "out", format="hf", tokenizer="bytes")
    assert (done.parts, done.left_out) == (("train", "validation"), ())
    found = datasets.load_from_disk("out")["validation"]["input_ids"]
    assert [bytes(ids[:-1]).decode() for ids in found] == ["validation", "b"]


# From text in one step


def test_text_to_a_file(corpus, capsys):
    """The second time nothing is read but the list of files; changed text is exported again."""
    command = ["export", "data/train.jsonl", "data/more.jsonl", "-t", "bytes", "--format", "nanogpt", "-o", "train.bin"]
    assert main(command) == 0
    said = capsys.readouterr()
    assert ("24 documents, " in said.out, "24 documents in" in said.err) == (True, True)
    assert main(command) == 0
    said = capsys.readouterr()
    assert ("up to date" in said.out, "up to date" in said.err) == (True, True)
    text = bytes(np.fromfile("train.bin", np.uint16).astype(np.uint8)).decode("latin-1")
    assert "train 19" in text
    Path("data/train.jsonl").write_text('{"text": "other"}\n')
    Path("data/more.jsonl").write_text('{"text": "text"}\n')
    assert main([*command, "-q", "--json"]) == 0
    said = capsys.readouterr()
    assert (json.loads(said.out)["splits"], said.err) == ({"train": {"documents": 2, "tokens": 11}}, "")
    assert tm.export("data", "all", format="nanogpt", tokenizer="bytes").parts == ("train", "val")


def test_several_texts_that_changed_are_exported_again(corpus):
    """All of them, so that no document is as it was: their names say that the export is theirs."""
    paths = [Path("data/train.jsonl"), Path("data/more.jsonl")]
    for text in ("one", "other"):
        for path in paths:
            path.write_text(json.dumps({"text": text}))
        done = tm.export(paths, "out", format="nanogpt", tokenizer="bytes")
        assert done.splits == {"train": {"documents": 2, "tokens": 2 * len(text) + 2}}
    tm.export(["a text"], "memory", format="nanogpt", tokenizer="bytes")
    with pytest.raises(MismatchError, match="memory holds an export of another store"):
        tm.export(["another"], "memory", format="nanogpt", tokenizer="bytes")


def test_text_to_chunks(corpus):
    import torch

    flags = ["--format", "pt", "--rows-per-file", "1", "--text-field", "body", "--split", "all"]
    assert main(["export", "data", "-t", "bytes", "--seq-len", "64", *flags, "-o", "chunks/", "-q"]) == 0
    first = torch.load("chunks/chunk_00000.pt", weights_only=True)
    assert first.shape == (1, 64)
    assert set(first.flatten().tolist()) <= {ord("b"), 256}


@pytest.mark.parametrize("out", ["data/out", "data/rows.parquet"])
def test_the_export_is_not_among_its_text(corpus, out):
    """Although the folder is read that it is written to."""
    options = {"format": "parquet", "tokenizer": "bytes", "split": "all"}
    first = tm.export("data", out, **options)
    second = tm.export("data", out, **options)
    assert (second.written, second.splits) == (0, first.splits)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["data"], "no token store at data (it has no manifest.json); stores near it: "),
        (["data"], f"; text needs a tokenizer, such as {TOKENS}"),
        (["data/*.jsonl"], f"; text needs a tokenizer, such as {TOKENS}"),
        (["data/train.jsonl"], f"; text needs a tokenizer, such as {TOKENS}"),
        (["data/train.jsonl", "data/more.jsonl"], f"is not a store; text needs a tokenizer, such as {TOKENS}"),
        (["nope"], "no token store at nope (no such folder)"),
        (["stroe"], "stores near it: store"),
        (
            ["named"],
            "x.bin cannot be 2 files (train.bin, val.bin): give a folder, such as x, or --split all (split='all')",
        ),
        (["nope.jsonl", "-t", "bytes"], "nope.jsonl"),
        (["store", "-t", "bytes"], "store is a store, which has its own tokenizer: leave out -t (tokenizer=...)"),
        (
            ["store", "--text-field", "body"],
            "--text-field (text_field=...) is for text: give its -t (tokenizer=...) too",
        ),
        (
            ["-", "-t", "bytes"],
            "jsonl, lines, text or csv; how text is read is told to tokenmill build (tm.read) alone: build first",
        ),
        (["data", "-t", "bytes", "--seq-len", "8"], "the format nanogpt holds documents, not rows"),
    ],
)
def test_what_cannot_be_exported(corpus, capsys, words, says):
    """One line, before anything is built or written."""
    tm.build("data/more.jsonl", "bytes", "store", progress="quiet")
    tm.build("data", "bytes", "named", progress="quiet")
    capsys.readouterr()
    assert main(["export", *words, "-o", "x.bin", "--format", "nanogpt"]) > 0
    said = capsys.readouterr().err
    assert says in said
    assert (said.count("\n"), names_in(Path())) == (1, ["data", "named", "store"])


def test_a_place_must_be_given_and_free(corpus, capsys):
    """Without -o the last of several words is the place: never a file that was meant as text."""
    assert main(["export", "data/train.jsonl", "-t", "bytes", "--format", "nanogpt"]) == 2
    assert "give -o PATH" in capsys.readouterr().err
    before = Path("data/more.jsonl").read_bytes()
    assert main(["export", "data/train.jsonl", "data/more.jsonl", "-t", "bytes", "--format", "nanogpt"]) == 2
    assert "data/more.jsonl is a file; an export is a folder: choose another path" in capsys.readouterr().err
    assert Path("data/more.jsonl").read_bytes() == before
    assert main(["export", "data/train.jsonl", "--format", "nanogpt", "out", "-t", "bytes", "-q"]) == 0
    assert Path("out/train.bin").exists()


def test_what_python_passes(corpus):
    """Texts, a source with its own options, and a view are told apart."""
    assert tm.export(["one", "two"], "a.bin", format="nanogpt", tokenizer="bytes").splits["train"]["documents"] == 2
    columns = {"text": ["one", "two"], "id": [1, 2]}
    assert tm.export(columns, "columns", format="nanogpt", tokenizer="bytes").splits["train"]["documents"] == 2
    source = tm.read("data/train.jsonl", text_field="body")
    assert tm.export(source, "b.bin", format="nanogpt", tokenizer="bytes").splits["train"]["tokens"] == 190 + 20
    with pytest.raises(UsageError, match=r"pass text_field to tm\.read"):
        tm.export(source, "c.bin", format="nanogpt", tokenizer="bytes", text_field="text")
    for data in (["one", "two"], source, None, 42):
        with pytest.raises(MissingStoreError, match="is not a store; text needs a tokenizer"):
            tm.export(data, "c.bin", format="nanogpt")
    with pytest.raises(UsageError, match=r"a view has its rows already: .* tokenizer with text"):
        tm.export(tm.pack(tm.build(["one"], "bytes", "store"), 4), "rows", format="pt", tokenizer="bytes")
    assert not Path("c.bin").exists()


# The summary


def test_what_was_left_out(corpus):
    store = tm.build("data", "bytes", "store", progress="quiet")
    one = tm.export(store, "one", format="nanogpt", split="train")
    assert (one.splits["train"]["documents"], one.left_out) == (24, ("3 documents of other splits or shares",))
    rows = tm.pack(store, 8, split="all", tail="drop", min_doc_tokens=9, fields=["input_ids"])
    done = tm.export(rows, "rows", format="pt", rows_per_file=3, max_chunks=2)
    lost = rows.stats.dropped + rows.stats.truncated
    assert done.splits == {"train": {"rows": 6, "positions": 48}}
    assert done.left_out == (
        f"{len(rows) - 6} rows of train, by --max-chunks (max_chunks=...)",
        f"{lost} tokens of train, by the options of packing",
        f"{rows.stats.documents_dropped} whole documents of train",
    )
    padded = tm.export(tm.pack(store, 64, split="all", strategy="pad"), "padded", format="parquet")
    assert padded.splits["train"] == {"rows": 27, "positions": 27 * 64, "tokens": store.num_tokens}
    assert padded.left_out == ()
    assert repr(padded) == f"Exported('padded', parquet, train: 27 rows, 1,728 positions, {store.num_tokens} tokens)"


@pytest.mark.parametrize("format", ["pt", "parquet", "hf"])
def test_the_metadata_counts_what_is_written(store, tmp_path, format):
    tm.export(store, tmp_path / "out", format=format, **ROWS, rows_per_file=3, max_chunks=2)
    receipt = json.loads((tmp_path / "out" / RECEIPT).read_text())["facts"]
    metadata = json.loads((tmp_path / "out" / "metadata.json").read_text())
    assert receipt["splits"]["train"]["rows"] == metadata["splits"]["train"]["rows"] == 6


def test_text_that_cannot_be_read_is_said(corpus, capsys):
    Path("data/bad.parquet").write_bytes(b"no table")
    assert main(["export", "data", "-t", "bytes", "--format", "nanogpt", "-o", "out"]) == 4
    said = capsys.readouterr()
    assert "left out    1 input file that could not be read\n" in said.out
    assert said.err.endswith("1 input file failed; run the command again to retry, or use the store as it is\n")


def test_every_line_of_the_summary(corpus, capsys):
    tm.build("data/more.jsonl", "bytes", "store", progress="quiet")
    capsys.readouterr()
    assert main(["export", "store", "train.bin", "--format", "nanogpt"]) == 0
    size = os.path.getsize("train.bin")
    assert capsys.readouterr().out == (
        "export      train.bin\nformat      nanogpt\nparts       train: 4 documents, 28 tokens\n"
        f"files       1, {size} B: 1 file written\n"
        "read it     import numpy as np; data = np.memmap('train.bin', 'uint16', 'r')\n"
    )
