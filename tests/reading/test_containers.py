"""Every container that people hold texts or paths in: read as what it means, or refused with one line that says what to pass."""

from __future__ import annotations

import glob
import io
import tarfile
import zipfile
from collections import deque
from functools import partial
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.errors import MissingInputError, UsageError, WrongTypeError

TEXTS = ["one text", "zwei Wörter", "three"]
ROWS = [{"id": number, "text": text} for number, text in enumerate(TEXTS)]
COLUMNS = {"id": [0, 1, 2], "text": TEXTS}
FRAME, LAZY, DATASET = pd.DataFrame(COLUMNS), pl.LazyFrame(COLUMNS), datasets.Dataset.from_dict(COLUMNS)


def texts_one_by_one():
    yield from TEXTS


def rows_one_by_one():
    yield from ROWS


class Texts:
    def __iter__(self):
        return iter(TEXTS)


class OldFrame:
    """A frame of a pandas without the Arrow interface: iterating it gives the names of its columns."""

    columns = ("text",)

    def __iter__(self):
        return iter(self.columns)


OldFrame.__module__ = "pandas.core.frame"

ACCEPTED = {
    "list": lambda: list(TEXTS),
    "deque": lambda: deque(TEXTS),
    "values of a dict": lambda: dict(enumerate(TEXTS)).values(),
    "iterable object": Texts,
    "iterator": lambda: iter(TEXTS),
    "map": lambda: map(str, TEXTS),
    "generator": texts_one_by_one,
    "generator function": lambda: texts_one_by_one,
    "generator function with arguments": lambda: partial(texts_one_by_one),
    "numpy strings": lambda: np.array(TEXTS),
    "numpy objects": lambda: np.array(TEXTS, object),
    "list of dicts": lambda: list(ROWS),
    "generator of dicts": rows_one_by_one,
    "generator function of dicts": lambda: rows_one_by_one,
    "dict of columns": lambda: dict(COLUMNS),
    "dict of arrays": lambda: {"text": np.array(TEXTS), "id": pa.array([1, 2, 3])},
    "pandas frame": lambda: FRAME,
    "pandas column": lambda: FRAME["text"],
    "pandas series": lambda: pd.Series(TEXTS, index=[5, 7, 9], dtype=object),
    "pandas records": lambda: FRAME.to_dict("records"),
    "pandas values": lambda: FRAME["text"].to_numpy(),
    "polars frame": lambda: LAZY.collect(),
    "polars column": lambda: LAZY.collect()["text"],
    "polars series": lambda: pl.Series("body", TEXTS),
    "polars categories": lambda: pl.Series(TEXTS, dtype=pl.Categorical),
    "polars lazy frame": lambda: LAZY,
    "polars lazy column": lambda: LAZY.select("text").filter(pl.col("text") != ""),
    "polars dicts": lambda: LAZY.collect().iter_rows(named=True),
    "dataset": lambda: DATASET,
    "column of a dataset": lambda: DATASET["text"],
    "rows of a dataset": lambda: DATASET[:],
    "dataset as an iterable": lambda: (row for row in DATASET),
    "streaming dataset": lambda: DATASET.to_iterable_dataset(),
    "dict of datasets": lambda: {"train": DATASET},
    "dict of splits": lambda: datasets.DatasetDict(train=DATASET),
    "Arrow table": lambda: pa.table(COLUMNS),
    "Arrow array": lambda: pa.array(TEXTS),
    "Arrow chunked array": lambda: pa.chunked_array([TEXTS[:1], TEXTS[1:]]),
    "Arrow dictionary": lambda: pa.array(TEXTS).dictionary_encode(),
    "Arrow batch": lambda: pa.record_batch(COLUMNS),
    "Arrow reader": lambda: pa.table(COLUMNS).to_reader(),
    "Arrow dataset": lambda: pads.dataset(pa.table(COLUMNS)),
    "Arrow scanner": lambda: pads.dataset(pa.table(COLUMNS)).scanner(),
}
PATHS = {
    "path": lambda: Path("data/1.txt"),
    "list of paths": lambda: [Path("data/1.txt")],
    "Path.glob": lambda: Path("data").glob("1*"),
    "Path.rglob": lambda: Path().rglob("1.txt"),
    "Path.iterdir": lambda: Path("data").iterdir(),
    "glob.iglob": lambda: glob.iglob("data/1*"),
    "map of Path": lambda: map(Path, ["data/1.txt"]),
    "map of a method of a path": lambda: map(Path("data").joinpath, ["1.txt"]),
}
PASS_ROWS = r"yields strings or dicts, but this one yields .*; pass \(row\['text'\] for row in rows\)"
REFUSED = {
    "None": (lambda: None, WrongTypeError, "cannot read a NoneType: pass paths, a table"),
    "number": (lambda: 3, WrongTypeError, "cannot read a int: pass paths"),
    "bytes": (lambda: b"text", WrongTypeError, "cannot read a bytes"),
    "text": (lambda: "some words", MissingInputError, "no such file or folder: some words"),
    "texts as inputs": (lambda: ("some words", "more"), MissingInputError, "no such file or folder: some words"),
    "function": (lambda: lambda: iter(TEXTS), WrongTypeError, "cannot read a function: pass what it returns"),
    "set": (lambda: set(TEXTS), WrongTypeError, r"a set has no order: pass sorted\(texts\)"),
    "list of bytes": (lambda: [b"text"], WrongTypeError, r"pass \(text.decode\(\) for text in texts\)"),
    "list of lists": (lambda: [TEXTS], WrongTypeError, PASS_ROWS),
    "list of numbers": (lambda: [1, 2], WrongTypeError, "this one yields int.*tm.import_tokens"),
    "pairs": (lambda: enumerate(TEXTS), WrongTypeError, PASS_ROWS),
    "two dimensions": (lambda: np.array([TEXTS]), WrongTypeError, PASS_ROWS),
    "numbers": (lambda: pd.Series([1, 2]), tm.errors.InputError, "has type int64, which is not text"),
    "other fields": (lambda: [{"body": "a b"}], UsageError, "no column 'text'; it has body. Choose with --text-field"),
    "other columns": (lambda: {"train": TEXTS, "test": TEXTS}, UsageError, "no column 'text'; it has train, test"),
    "other lazy columns": (lambda: LAZY.select("id"), UsageError, "no column 'text'; it has id"),
    "one row": (lambda: {"text": "a b"}, WrongTypeError, r"lists of strings of one length: .*pass \[row\] for one row"),
    "numbers as a column": (lambda: {"text": ["a", 3]}, WrongTypeError, "a dict is read as columns, which are lists"),
    "paths in a column": (lambda: {"text": ["a.txt"]}, UsageError, "look like paths"),
    "paths in dicts": (lambda: [{"text": "a.txt"}], UsageError, "look like paths"),
    "generator of paths": (lambda: (Path(name) for name in "ab"), WrongTypeError, r"pass tm.read\(\*paths\)"),
    "empty glob": (lambda: Path("data").glob("*.csv"), MissingInputError, "no file matches: the glob gave no path"),
    "old pandas": (OldFrame, WrongTypeError, r"too old to be read: pass pyarrow.Table.from_pandas\(frame\)"),
    "open file": (lambda: io.StringIO("text"), WrongTypeError, "an open file is not read: pass the path"),
    "source": (lambda: (tm.read(TEXTS),), WrongTypeError, "takes paths and data, not a Source"),
}
ARCHIVES = {
    "a.zip": "unzip a.zip",
    "a b.tar": "tar xf 'a b.tar'",
    "a.tar.gz": "tar xf a.tar.gz",
    "a.tgz": "tar xf a.tgz",
    "a.tar.zst": "tar xf a.tar.zst",
    "a.7z": "7z x a.7z",
    "a.RAR": "unrar x a.RAR",
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "1.txt").write_text("in a file")


def built(data: object, **options: object) -> list[str]:
    store = tm.build(data, "bytes", "store", progress=False, **options)
    return [store.text(number) for number in range(len(store))]


@pytest.mark.parametrize("container", ACCEPTED)
def test_texts_are_documents(container):
    assert built(ACCEPTED[container]()) == TEXTS
    data = ACCEPTED[container]()
    if hasattr(data, "__len__"):
        assert tm.estimate(data, "bytes").documents == 3
    else:
        with pytest.raises(UsageError, match="only once or has no length, and an estimate would use it up"):
            tm.estimate(data, "bytes")


@pytest.mark.parametrize("container", PATHS)
def test_paths_are_files(container):
    assert built(PATHS[container]()) == ["in a file"]
    assert tm.estimate(PATHS[container](), "bytes").documents == 1
    assert [Path(file.path).name for file in tm.read(PATHS[container]()).files] == ["1.txt"]


@pytest.mark.parametrize("container", REFUSED)
def test_what_cannot_be_read_says_what_to_pass(container):
    make, error, says = REFUSED[container]
    with pytest.raises(error, match=says) as raised:
        built(make())
    assert "\n" not in str(raised.value)
    assert not Path("store", "manifest.json").exists()


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives_are_to_be_unpacked(name, capsys):
    Path(name).write_bytes(b"PK\x03\x04")
    with pytest.raises(UsageError, match="is an archive: unpack it") as raised:
        built(name)
    assert f"({ARCHIVES[name]}), and pass the folder" in str(raised.value)
    assert main(["build", name, "-t", "bytes"]) == 2
    assert f"unpack it ({ARCHIVES[name]})" in capsys.readouterr().err
    with pytest.raises(UsageError, match=f"unpack it .*{name[-3:]}"):
        tm.recipe({"sources": {"a": name}, "tokenizer": "bytes", "pack": {"seq_len": 8}}).stores()


def test_a_folder_of_archives_says_so():
    with zipfile.ZipFile("data/a.zip", "w") as archive:
        archive.write("data/1.txt")
    Path("data/1.txt").unlink()
    with pytest.raises(UsageError, match=r"no file to read in .*ignored: an archive to unpack \(.zip\): 1"):
        built("data")


def test_an_archive_under_another_name_is_recognised():
    with tarfile.open("data/2.jsonl", "w") as archive:
        archive.add("data/1.txt")
    with pytest.raises(tm.errors.InputError, match="it is an archive: unpack it"):
        built("data/2.jsonl")


def test_rows_take_fields_and_templates():
    rows = [
        {"title": "A", "meta": {"body": "first", "n": 1}, "new": True},
        {"title": "B", "meta": {"body": "second", "n": 2.5}, "new": False},
    ]
    template = "{title}: {meta.body} {meta.n} {new}"
    assert built(rows, template=template) == ["A: first 1 true", "B: second 2.5 false"]
    assert built((row for row in rows), text_field="meta.body", force=True) == ["first", "second"]
    assert built({"title": ["A", "B"], "text": ["x", "y"]}, template="{title}{text}", force=True) == ["Ax", "By"]


def test_rows_without_a_text_are_left_out_and_counted():
    rows = [{"text": "good"}, {"text": None}, {}, {"text": 5}, None, {"text": "lone \ud800"}, {"text": "last"}]
    with pytest.warns(UserWarning, match="5 of 7 documents"):
        assert built(rows) == ["good", "last"]
    assert [entry["row"] for entry in tm.open("store").quarantine()] == [1, 2, 3, 4, 5]


def test_a_generator_function_is_read_anew():
    source = tm.read(texts_one_by_one)
    assert built(source) == built(source, force=True) == TEXTS


def test_a_lazy_frame_is_collected_in_parts(monkeypatch):
    """Only the columns that are read, and never the whole at once."""
    pq.write_table(pa.table(COLUMNS), "data/rows.parquet")
    frame = pl.scan_parquet("data/rows.parquet").with_columns(pl.col("id").cast(pl.String).str.to_integer())
    monkeypatch.setattr(pl.LazyFrame, "collect", lambda *_: pytest.fail("collected as a whole"))
    assert built(frame) == TEXTS


def test_a_source_says_why_it_has_no_length_and_no_texts():
    source = tm.read("data")
    assert source
    with pytest.raises(TypeError, match=r"tm.estimate\(source, tokenizer\)"):
        len(source)
    with pytest.raises(TypeError, match=r"tm.build\(source, tokenizer, max_documents=9\)"):
        list(source)
