"""Packing around the rows: what is refused and how, plans that are kept and never trusted, and what is not needed."""

from __future__ import annotations

import copy
import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from io_faults import Faults, hooked, read_only
from packing_reference import COUNTS, numbered, spread, write_store
from test_packing_rows import EXTRA, FIELDS, STRATEGIES, same

import tokenmill as tm
from tokenmill.errors import BuildError, CorruptError, UsageError

LENGTHS = [5, 0, 12, 1, 8, 30, 3, 7]
PLANNED = {
    "best_fit": {"strategy": "best_fit"},
    "pad": {"strategy": "pad", "buckets": (3,)},
    "windows": {"strategy": "windows", "overlap": 2},
    "filtered concat": {"min_doc_tokens": 4, "long_docs": "truncate"},
    "concat from documents": {"row_start": "document"},
}


@pytest.fixture
def folder(tmp_path) -> Path:
    return write_store(tmp_path / "store", spread(numbered(LENGTHS), [3]), vocab_size=100, eos=0)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arguments") / "store"
    return tm.open(write_store(folder, spread(numbered(LENGTHS), [3]), vocab_size=100))


@pytest.fixture(scope="module")
def view(store):
    return tm.pack(store, 8)


def everything(view) -> dict:
    """All a view tells, as plain values."""
    rows = {name: values.tolist() for name, values in view[:].items()}
    figures = {name: getattr(view.stats, name) for name in COUNTS}
    return {**rows, **figures, "pieces": [view.documents(i) for i in range(len(view))]}


# Rows by number.


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_indices_are_pythons(store, strategy):
    view = tm.pack(store, 8, strategy=strategy)
    rows = list(view)
    assert len(rows) == len(view) > 5
    for i in range(-len(view), len(view)):
        same(view[i]["input_ids"], rows[i]["input_ids"], "int64")
        assert view.documents(i) == view.documents(i % len(view))
    for index in (len(view), -len(view) - 1):
        for ask in (view.__getitem__, view.documents, lambda i: view.rows([0, i])):
            with pytest.raises(IndexError, match=str(index)):
                ask(index)
    for part in (slice(2, 5), slice(None), slice(-3, None), slice(1, 1), slice(None, None, 2), slice(4, 1, -1)):
        want = [row["input_ids"] for row in rows[part]]
        same(view[part]["input_ids"], np.array(want, "int64").reshape(-1, 8), "int64")
    mixed = [3, -1, 0, 3]
    for given_ in (mixed, tuple(mixed), np.array(mixed)):
        same(view.rows(given_)["input_ids"], [rows[i]["input_ids"] for i in mixed], "int64")
    for given_ in (mixed, np.array(mixed), np.array(mixed, np.int8), pa.array(mixed)):
        same(view[given_]["input_ids"], [rows[i]["input_ids"] for i in mixed], "int64")
    for mask in (np.arange(len(view)) % 2 == 1, [bool(i % 2) for i in range(len(view))]):
        same(view[mask]["input_ids"], [row["input_ids"] for row in rows[1::2]], "int64")
    same(view[[]]["input_ids"], np.empty((0, 8)), "int64")
    assert view.shape == (len(view), 8) == view[:]["input_ids"].shape
    for wrong, why in (
        (np.ones(len(view) + 1, bool), "a mask of"),
        ([0, len(view)], f"row {len(view)} is out of range"),
    ):
        with pytest.raises(IndexError, match=why):
            view[wrong]
    for wrong in (True, np.True_, (0, 1), np.array([[0]]), ["input_ids"], [0.5], [[0], [0, 1]], None, 1.0):
        with pytest.raises(UsageError, match="row numbers must be a list of whole numbers"):
            view[wrong]
    same(view.rows(range(1, 4))["labels"], [rows[i]["labels"] for i in (1, 2, 3)], "int64")
    same(view[np.int64(1)]["input_ids"], rows[1]["input_ids"], "int64")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_rows_asked_for_gives_arrays_without_rows(store, strategy):
    got = tm.pack(store, 8, strategy=strategy, fields=(*FIELDS, *EXTRA)).rows([])
    assert {name: got[name].shape for name in FIELDS} == dict.fromkeys(FIELDS, (0, 8))
    assert (got["document_mask"].shape, got["attention_mask_4d"].shape) == ((0, 8, 8), (0, 1, 8, 8))
    assert got["cu_seqlens"].tolist() == [0]


def test_a_row_is_the_callers_own(store):
    """Arrays can be written to, and that changes neither the store nor the next row."""
    for strategy in STRATEGIES:
        view = tm.pack(store, 8, strategy=strategy)
        before = {name: array.copy() for name, array in view[1].items()}
        for array in view[1].values():
            array[:] = -7
        for name, array in view[1].items():
            same(array, before[name], "int64")


def test_a_path_will_do_for_a_store(store):
    for path in (store.path, str(store.path)):
        same(tm.pack(path, 8)[:]["input_ids"], tm.pack(store, 8)[:]["input_ids"], "int64")


# What is refused. Rows of 8, a vocabulary of 100.

WRONG = [
    ({"seq_len": 0}, ["seq_len", "0", "1"]),
    ({"seq_len": -1}, ["seq_len", "-1", "1"]),
    ({"seq_len": 1.5}, ["seq_len", "1.5"]),
    ({"seq_len": "x"}, ["seq_len", "'x'"]),
    ({"seq_len": True}, ["seq_len", "True"]),
    ({"seq_len": None}, ["seq_len", "None"]),
    ({"strategy": "bestfit"}, ["strategy", "bestfit", *STRATEGIES]),
    ({"strategy": None}, ["strategy", "None", *STRATEGIES]),
    ({"labels": "next"}, ["labels", "next", "same", "shifted"]),
    ({"mask_labels": ("padding", "last")}, ["mask_labels", "last", "padding", "first", "overlap"]),
    ({"fields": ("input_ids", "tokens")}, ["fields", "tokens", "input_ids", "labels", "position_ids", "document_ids"]),
    ({"fields": ("mask",)}, ["fields", "mask", "attention_mask", "document_mask", "attention_mask_4d", "cu_seqlens"]),
    ({"dtype": "int16"}, ["dtype", "int16", "int32", "int64"]),
    ({"dtype": "float32"}, ["dtype", "float32", "int32", "int64"]),
    ({"tail": "cut"}, ["tail", "cut", "keep", "drop"]),
    ({"row_start": "sentence"}, ["row_start", "sentence", "anywhere", "document"]),
    ({"long_docs": "cut"}, ["long_docs", "cut", "split", "truncate", "drop"]),
    ({"padding_side": "top"}, ["padding_side", "top", "left", "right"]),
    ({"stride": 0}, ["stride", "0", "1", "8"]),
    ({"stride": 9}, ["stride", "9", "1", "8"]),
    ({"stride": 2.0}, ["stride", "2.0"]),
    ({"stride": True}, ["stride", "True"]),
    ({"overlap": 8}, ["overlap", "8", "0", "7"]),
    ({"overlap": -1}, ["overlap", "-1", "0", "7"]),
    ({"overlap": "2"}, ["overlap", "'2'"]),
    ({"stride": 4, "overlap": 4}, ["stride", "overlap"]),
    ({"stride": 0, "strategy": "windows"}, ["stride", "0", "1", "8"]),
    ({"overlap": 8, "strategy": "windows"}, ["overlap", "8", "0", "7"]),
    ({"stride": 4, "strategy": "best_fit"}, ["stride", "best_fit", "concat", "windows"]),
    ({"stride": 4, "strategy": "pad"}, ["stride", "pad", "concat", "windows"]),
    ({"overlap": 4, "strategy": "best_fit"}, ["overlap", "best_fit", "concat", "windows"]),
    ({"overlap": 4, "strategy": "pad"}, ["overlap", "pad", "concat", "windows"]),
    ({"tail": "drop", "strategy": "best_fit"}, ["tail", "best_fit", "concat"]),
    ({"tail": "drop", "strategy": "pad"}, ["tail", "pad", "concat"]),
    ({"tail": "drop", "strategy": "windows"}, ["tail", "windows", "concat"]),
    ({"buckets": (4,)}, ["buckets", "concat", "pad"]),
    ({"buckets": (4,), "strategy": "best_fit"}, ["buckets", "best_fit", "pad"]),
    ({"buckets": (4,), "strategy": "windows"}, ["buckets", "windows", "pad"]),
    ({"buckets": (), "strategy": "pad"}, ["buckets"]),
    ({"buckets": (4, 2), "strategy": "pad"}, ["buckets", "4", "2", "ascending"]),
    ({"buckets": (4, 4), "strategy": "pad"}, ["buckets", "4", "ascending"]),
    ({"buckets": (4, 9), "strategy": "pad"}, ["buckets", "9", "8"]),
    ({"buckets": (0, 4), "strategy": "pad"}, ["buckets", "0", "1"]),
    ({"buckets": (2.5,), "strategy": "pad"}, ["buckets", "2.5"]),
    ({"row_start": "document", "stride": 4}, ["row_start", "stride"]),
    ({"row_start": "document", "overlap": 4}, ["row_start", "overlap"]),
    ({"row_start": "document", "strategy": "best_fit"}, ["row_start", "long_docs", "truncate", "drop"]),
    ({"row_start": "document", "strategy": "pad"}, ["row_start", "long_docs", "truncate", "drop"]),
    ({"row_start": "document", "strategy": "windows"}, ["row_start", "long_docs", "truncate", "drop"]),
    ({"pad_id": -1}, ["pad_id", "-1", "from 0 to 2147483647"]),
    ({"pad_id": 100}, ["pad_id", "100", "0", "99"]),
    ({"pad_id": 1.0}, ["pad_id", "1.0"]),
    ({"min_doc_tokens": -1}, ["min_doc_tokens", "-1", "0"]),
    ({"min_doc_tokens": 0.5}, ["min_doc_tokens", "0.5"]),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG, ids=lambda value: str(value) if isinstance(value, dict) else "")
def test_wrong_arguments_are_named_with_their_range(store, arguments, words):
    with pytest.raises(UsageError) as caught:
        tm.pack(store, **{"seq_len": 8, **arguments})
    assert [word for word in words if word not in str(caught.value)] == []


def test_nothing_is_written_for_a_wrong_argument(folder):
    before = sorted(folder.rglob("*"))
    for strategy in STRATEGIES:
        with pytest.raises(UsageError):
            tm.pack(folder, 8, strategy=strategy, pad_id=100)
    assert sorted(folder.rglob("*")) == before


def test_a_path_without_a_store_is_said_so(tmp_path):
    with pytest.raises(tm.errors.MissingStoreError, match="nothing-here"):
        tm.pack(tmp_path / "nothing-here", 8)


SHARES = [
    ({"train": 1.5}, ["train", "1.5", "0", "1"]),
    ({"train": 0.8, "eval": 0.3}, ["train", "eval", "1"]),
    ({"train": -0.1}, ["train", "-0.1", "0", "1"]),
    ({"train": 0}, ["train", "0", "1"]),
    ({"train": 0.5, "eval": 0.0}, ["eval", "0", "1"]),
    ({"train": float("nan")}, ["train", "nan", "0", "1"]),
    ({"train": "half"}, ["train", "half"]),
    ({}, ["split", "train"]),
    ({"by": "colour", "train": 0.5}, ["by", "colour", "document", "folder"]),
    ({"by": "folder", "train": "nowhere"}, ["train", "nowhere"]),
    ({"by": "folder", "train": 0.5}, ["train", "0.5", "folder"]),
    ({"seed": "x", "train": 0.5}, ["seed", "'x'"]),
]


@pytest.mark.parametrize(
    ("arguments", "words"), SHARES, ids=lambda value: str(value) if isinstance(value, dict) else ""
)
def test_wrong_splits_are_named_with_their_range(view, arguments, words):
    with pytest.raises(UsageError) as caught:
        view.split(**arguments)
    assert [word for word in words if word not in str(caught.value)] == []


# What a view says of itself.


def test_stats_are_a_table_a_dict_and_a_value(view):
    stats = view.stats
    figures = stats.as_dict()
    assert {name: figures[name] for name in COUNTS} == {name: stats[name] for name in COUNTS}
    assert json.loads(json.dumps(figures))["tokens"] == sum(LENGTHS) == stats.tokens
    for shown in (stats.rows, stats.tokens, stats.padding, f"{stats.fill:.2%}"):
        assert str(shown) in str(stats)
    with pytest.raises(AttributeError):
        stats.rows = 5
    with pytest.raises(KeyError):
        stats["colour"]


def test_the_fingerprint_is_of_the_tokens_and_of_what_changes_a_row(folder, tmp_path):
    other = write_store(tmp_path / "other", spread(numbered(LENGTHS, first=2), [3]), vocab_size=100, eos=0)
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    plain = tm.pack(folder, 8).fingerprint
    assert plain == tm.pack(moved, 8).fingerprint
    assert int(plain, 16) > 0
    for unchanged in ({"dtype": "int32"}, {"fields": ("labels",)}, {"fields": ("document_mask",)}, {"stride": 8}):
        assert tm.pack(folder, 8, **unchanged).fingerprint == plain
    changes = [
        {"seq_len": 9}, {"stride": 7}, {"overlap": 2}, {"tail": "drop"}, {"row_start": "document"},
        {"long_docs": "truncate"}, {"long_docs": "drop"}, {"min_doc_tokens": 2}, {"padding_side": "left"},
        {"pad_id": 7}, {"labels": "shifted"}, {"mask_labels": ()}, {"mask_labels": ("padding", "first")},
        {"strategy": "best_fit"}, {"strategy": "pad"}, {"strategy": "windows"},
        {"strategy": "pad", "buckets": (4,)}, {"strategy": "pad", "buckets": (5,)},
        {"strategy": "windows", "overlap": 1},
    ]  # fmt: skip
    prints = [plain, tm.pack(other, 8).fingerprint]
    prints += [tm.pack(folder, **{"seq_len": 8, **changed}).fingerprint for changed in changes]
    parts = tm.pack(folder, 8).split(train=0.5, eval=0.5)
    prints += [part.fingerprint for part in parts.values()]
    assert len(set(prints)) == len(prints)


@pytest.mark.parametrize("options", PLANNED.values(), ids=PLANNED)
def test_a_copy_of_a_view_gives_the_same_rows(folder, options):
    view = tm.pack(folder, 8, fields=("labels", "cu_seqlens"), dtype="int32", **options)
    for again in (copy.deepcopy(view), pickle.loads(pickle.dumps(view))):  # noqa: S301
        assert everything_but_size(again) == everything_but_size(view)
        assert again[:]["labels"].dtype == np.int32
    assert len(pickle.dumps(view)) < 20_000, "the rows travel"


def everything_but_size(view):
    got = {name: values.tolist() for name, values in view[:].items() if name != "max_seqlen"}
    return got, view.stats.as_dict(), view.fingerprint, view.documents(0)


# Plans: kept, reused, and never trusted.


@pytest.fixture
def quick_disk(monkeypatch):
    """Power cuts are not under test where plans are made hundreds of times."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def plan_files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "plans").rglob("*") if path.is_file())


def identities(folder: Path) -> list[tuple]:
    return [(path.name, path.stat().st_ino, path.stat().st_mtime_ns) for path in plan_files(folder)]


@pytest.mark.parametrize("options", PLANNED.values(), ids=PLANNED)
def test_a_plan_is_made_once_and_used_again(folder, options):
    first = everything(tm.pack(folder, 8, **options))
    made = identities(folder)
    assert made
    assert everything(tm.pack(folder, 8, **options)) == first
    assert (
        everything(tm.pack(tm.open(folder), 8, dtype="int32", fields=("labels",), **options))["labels"]
        == first["labels"]
    )
    assert identities(folder) == made
    tm.pack(folder, 7, **options)[0]
    assert len(identities(folder)) > len(made)
    assert set(made) < set(identities(folder))


def test_plain_concat_needs_no_plan(folder):
    assert len(tm.pack(folder, 8, overlap=3)[:]["input_ids"])
    assert not (folder / "plans").exists()


@pytest.mark.parametrize("options", PLANNED.values(), ids=PLANNED)
def test_a_flipped_bit_in_a_plan_never_gives_a_wrong_row(folder, quick_disk, options):
    """Any one bit in any file of the plan: noticed when the view is made or read, and made good by packing again."""
    right = everything(tm.pack(folder, 8, **options))
    kept = {path: path.read_bytes() for path in plan_files(folder)}
    for path, raw in kept.items():
        for at in {*range(0, len(raw), max(1, len(raw) // 24)), len(raw) - 1}:
            path.write_bytes(raw[:at] + bytes([raw[at] ^ (1 << at % 8)]) + raw[at + 1 :])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it may say that it makes the plan again
                assert everything(tm.pack(folder, 8, **options)) == right
            assert path.read_bytes() == raw, f"byte {at} of {path.name} is still wrong"


@pytest.mark.parametrize("options", PLANNED.values(), ids=PLANNED)
@pytest.mark.parametrize("harm", ["half", "empty", "gone", "longer", "swapped"])
def test_a_plan_that_is_not_whole_is_made_again(folder, quick_disk, options, harm):
    right = everything(tm.pack(folder, 8, **options))
    other = everything(tm.pack(folder, 5, **options))
    kept = {path: path.read_bytes() for path in plan_files(folder)}
    for path, raw in kept.items():
        if harm == "gone":
            path.unlink()
        elif harm == "swapped":  # a sound file, but of another plan
            path.write_bytes(next((kept[p] for p in kept if p.suffixes == path.suffixes and kept[p] != raw), raw))
        else:
            path.write_bytes({"half": raw[: len(raw) // 2], "empty": b"", "longer": raw + raw[-8:]}[harm])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert everything(tm.pack(folder, 8, **options)) == right
            assert everything(tm.pack(folder, 5, **options)) == other
        for whole, content in kept.items():
            whole.write_bytes(content)


@pytest.mark.parametrize("options", PLANNED.values(), ids=PLANNED)
def test_the_plan_of_other_rows_is_not_taken_by_its_name(folder, options):
    """Every file of a sound plan, under the names of another one."""
    right = everything(tm.pack(folder, 8, **options))
    mine = plan_files(folder)
    tm.pack(folder, 5, **options)
    others = [path for path in plan_files(folder) if path not in mine]
    for path, other in zip(mine, others, strict=True):
        assert path.suffixes == other.suffixes
        path.write_bytes(other.read_bytes())
    assert everything(tm.pack(folder, 8, **options)) == right


@pytest.mark.parametrize("options", PLANNED.values(), ids=PLANNED)
def test_a_store_built_again_with_other_documents_has_another_plan(folder, options):
    before = everything(tm.pack(folder, 8, **options))
    plans = folder.parent / "plans"
    (folder / "plans").rename(plans)
    shutil.rmtree(folder)
    write_store(folder, spread(numbered([9, 2, 30, 8])), vocab_size=100, eos=0)
    plans.rename(folder / "plans")
    with_old_plans = everything(tm.pack(folder, 8, **options))
    shutil.rmtree(folder / "plans")
    assert with_old_plans == everything(tm.pack(folder, 8, **options)) != before


@pytest.mark.parametrize("options", PLANNED.values(), ids=PLANNED)
def test_what_a_killed_process_left_is_not_taken_for_a_plan(folder, options):
    """Half of each file under a temporary name, and data without its receipt: as if killed at any moment of writing."""
    right = everything(tm.pack(folder, 8, **options))
    kept = {path: path.read_bytes() for path in plan_files(folder)}
    for left in range(len(kept)):
        for path in plan_files(folder):
            path.unlink()
        for path, raw in list(kept.items())[:left]:
            path.write_bytes(raw[: len(raw) // 2])
        for path, raw in kept.items():
            path.with_name(f"{path.name}.4242.tmp").write_bytes(raw[: len(raw) // 2])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert everything(tm.pack(folder, 8, **options)) == right
        assert {path.name for path in kept} <= {path.name for path in plan_files(folder)}


@pytest.mark.parametrize("options", PLANNED.values(), ids=PLANNED)
def test_a_store_that_cannot_be_written_still_packs_and_says_so(folder, options):
    right = everything(tm.pack(folder, 8, **options))
    shutil.rmtree(folder / "plans")
    (folder / "plans").write_text("in the way")
    with pytest.warns(UserWarning, match="plan"):
        view = tm.pack(folder, 8, **options)
    assert everything(view) == right
    assert (folder / "plans").read_text() == "in the way"


@pytest.mark.parametrize("options", PLANNED.values(), ids=PLANNED)
def test_a_plan_that_fits_nowhere_is_made_in_memory(folder, tmp_path, monkeypatch, options):
    """Neither beside the store nor in the cache; a user without a home directory has no cache either. It says so in a line."""
    right = everything(tm.pack(folder, 8, **options))
    shutil.rmtree(folder / "plans")
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    with hooked(read_only(tmp_path)):
        with pytest.warns(
            UserWarning, match=r"^neither .*plans nor .*plans can be written; the plan is made in memory.*$"
        ):
            view = tm.pack(folder, 8, **options)
        assert everything(view) == right
        with pytest.warns(UserWarning, match="made in memory"):
            assert everything(pickle.loads(pickle.dumps(view))) == right  # noqa: S301
    assert not (folder / "plans").exists()
    assert not (tmp_path / "cache").exists()


def test_a_plan_that_only_meets_a_full_disk_is_not_made_in_memory(folder):
    """There is a remedy: the error names the file."""
    full = Faults(folder / "plans", 2, "ENOSPC")
    with hooked(full), pytest.raises(BuildError, match="plans: No space left on device"):
        tm.pack(folder, 8, strategy="best_fit")


def test_damage_to_the_store_is_not_hidden_by_a_plan(folder):
    """A plan that was kept does not stand in for shards that are gone."""
    tm.pack(folder, 8, strategy="best_fit")
    shutil.rmtree(folder / "shards")
    with pytest.raises(CorruptError):
        tm.pack(folder, 8, strategy="best_fit")[:]


# A store is all that packing needs.


def test_another_row_length_reads_no_source_and_runs_no_tokenizer(tmp_path, tokenizer_path, real_texts):
    """Sources gone, readers and engines impossible to import: two lengths, every strategy, splits, same rows."""
    source = tmp_path / "source"
    source.mkdir()
    for i, text in enumerate(real_texts[:6]):
        (source / f"{i}.txt").write_text(text[:2000], "utf-8")
    tm.build(str(source / "*.txt"), tokenizer_path, tmp_path / "store", format="text", workers=1)
    shutil.rmtree(source)
    script = textwrap.dedent(
        """
        import json, sys
        barred = ("tokenmill.reading", "tokenmill.encoding", "tokenmill.building",
                  "tokenizers", "gigatoken", "awkward", "tiktoken", "sentencepiece", "transformers", "torch",
                  "pyarrow", "matplotlib")
        for name in barred:
            sys.modules[name] = None
        import tokenmill as tm
        store = tm.open(sys.argv[1])
        out = []
        for seq_len in (64, 100):
            for strategy in ("concat", "best_fit", "pad", "windows"):
                view = tm.pack(store, seq_len, strategy=strategy, labels="shifted",
                               fields=("input_ids", "document_mask", "cu_seqlens"))
                part = view.split(a=0.5, b=0.5)["a"]
                out.append([seq_len, strategy, view[:]["input_ids"].tolist(), view.stats.as_dict()["fill"], len(part)])
        print(json.dumps(out))
        """
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(tmp_path / "store")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    store = tm.open(tmp_path / "store")
    assert len(store) == 6
    for seq_len, strategy, ids, fill, part in json.loads(done.stdout):
        view = tm.pack(store, seq_len, strategy=strategy)
        assert (view[:]["input_ids"].tolist(), view.stats.fill) == (ids, fill)
        assert len(view.split(a=0.5, b=0.5)["a"]) == part
        assert view.stats.tokens == store.num_tokens == view.stats.positions - view.stats.padding


def test_views_are_equal_if_their_rows_and_fields_are(store):
    view = tm.pack(store, 16)
    assert view == tm.pack(store, 16)
    assert hash(view) == hash(tm.pack(store, 16))
    assert view != tm.pack(store, 16, fields=["input_ids"])
    assert view != tm.pack(store, 8)
