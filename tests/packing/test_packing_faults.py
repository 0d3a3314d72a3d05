"""What goes wrong around packing: threads, few file descriptors, forged receipts, litter, odd numbers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from packing_reference import numbered, spread, write_store

import tokenmill as tm
from tokenmill.errors import CorruptError, UsageError
from tokenmill.store.shard import sealed, unsealed


@pytest.fixture
def folder(tmp_path):
    return write_store(tmp_path / "store", spread(numbered([5, 0, 12, 1, 8, 30, 3, 7] * 20), [40, 90]))


def test_threads_that_pack_the_same_new_plan_all_get_it(folder):
    """Each writes under a name of its own; the last to finish replaces what is equal."""
    found: list = []
    begin = threading.Barrier(6)

    def packs():
        begin.wait()
        try:
            found.append(tm.pack(folder, 8, strategy="best_fit")[:]["input_ids"].tolist())
        except Exception as error:
            found.append(error)

    for _ in range(5):
        for path in (folder / "plans").glob("*"):
            path.unlink()
        threads = [threading.Thread(target=packs) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 30
    assert all(one == found[0] for one in found), [one for one in found if isinstance(one, Exception)][:1]
    assert not list((folder / "plans").glob("*.tmp"))


def test_threads_that_read_rows_while_maps_are_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("tokenmill.store.store.OPEN_COLUMNS", 4)
    documents = numbered([9] * 60)
    view = tm.pack(write_store(tmp_path / "store", spread(documents, range(2, 60, 2))), 6)
    right = view[:]["input_ids"].tolist()
    failed: list = []

    def reads(seed):
        rng = np.random.default_rng(seed)
        for _ in range(60):
            rows = rng.integers(0, len(view), 16)
            got = view.rows(rows)["input_ids"].tolist()
            if got != [right[row] for row in rows]:
                failed.append(rows)

    threads = [threading.Thread(target=reads, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_one_batch_may_touch_more_shards_than_files_may_be_open(tmp_path):
    write_store(tmp_path / "store", spread(numbered([3] * 200), range(1, 200)))
    code = (
        "import resource, sys, tokenmill as tm\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n"
        "view = tm.pack(sys.argv[1], 3)\n"
        "print(view.rows(range(len(view)))['input_ids'].sum())"
    )
    run = [sys.executable, "-c", code, str(tmp_path / "store")]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert int(done.stdout) == sum(int(document.sum()) for document in tm.open(tmp_path / "store"))


def test_without_a_home_the_store_will_do(folder):
    environment = {key: value for key, value in os.environ.items() if key not in ("HOME", "TOKENMILL_CACHE")}
    code = (
        "import os, pathlib, sys\n"
        "def gone(*_): raise RuntimeError('Could not determine home directory.')\n"
        "pathlib.Path.home = gone\n"
        "import tokenmill as tm; print(len(tm.pack(sys.argv[1], 8, strategy='pad')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    assert int(done.stdout) == len(tm.pack(folder, 8, strategy="pad"))


@pytest.mark.parametrize(
    "rows",
    [[2**64 - 1], [2**63], [2**64], [-(2**70)], np.array([2**64 - 1], np.uint64), range(10**6, 10**6 + 3), (-1000,)],
    ids=str,
)
def test_row_numbers_never_wrap(folder, rows):
    with pytest.raises(IndexError, match="out of range: the view has"):
        tm.pack(folder, 8).rows(rows)


@pytest.mark.parametrize("rows", [[[0], [1, 2]], [[0, 1]], [0.5], ["a"], [None], 3, "01", [True]], ids=str)
def test_what_is_no_list_of_row_numbers_is_refused(folder, rows):
    with pytest.raises(UsageError, match="whole numbers"):
        tm.pack(folder, 8).rows(rows)


def test_borders_that_int32_cannot_count_are_refused(folder):
    view = tm.pack(folder, 2**20, strategy="pad", fields="cu_seqlens")
    assert view.rows([0] * 3)["cu_seqlens"][-1] == 3 * 2**20
    with pytest.raises(UsageError, match="cu_seqlens"):
        view.rows([0] * 2048)


def test_numpys_numbers_are_numbers(folder):
    assert tm.pack(folder, np.int64(8), strategy="pad", buckets=np.array([2, 4])).buckets[0][0] == 2
    assert len(tm.pack(folder, 8, stride=np.uint8(3))) == len(tm.pack(folder, 8, stride=3))
    parts = tm.pack(folder, 8).split(a=np.float32(0.5), b=np.float64(0.5), seed=np.int64(3))
    same = tm.pack(folder, 8).split(a=0.5, b=0.5, seed=3)
    assert {name: len(view) for name, view in parts.items()} == {name: len(view) for name, view in same.items()}
    with pytest.raises(UsageError, match="stride"):
        tm.pack(folder, 8, strategy="best_fit", stride=np.array([1, 2]))


def test_rows_longer_than_any_corpus(folder):
    view = tm.pack(folder, 2**31 - 1, strategy="best_fit")
    assert view.stats.rows == 1
    assert view.stats.tokens == sum(map(len, tm.open(folder)))


def test_columns_without_a_receipt_are_swept_when_they_are_old(folder):
    tm.pack(folder, 8, strategy="pad")
    (receipt,) = (folder / "plans").glob("*.json")
    receipt.unlink()
    orphans = list((folder / "plans").glob("*.npy"))
    assert orphans
    tm.pack(folder, 9, strategy="pad")
    assert all(path.exists() for path in orphans)  # it may be on its way
    for path in orphans:
        os.utime(path, (time.time() - 10**5,) * 2)
    tm.pack(folder, 10, strategy="pad")
    assert not any(path.exists() for path in orphans)
    assert len(list((folder / "plans").glob("*.json"))) == 2


@pytest.mark.parametrize("counts", [[3], [-1, 41], ["40"], []], ids=str)
def test_a_receipt_that_disagrees_with_the_manifest_splits_nothing(folder, counts):
    path = folder / "shards" / f"{0:024x}.json"
    receipt = unsealed(path.read_bytes(), path.stem)
    receipt["pieces"] = [{"file": "corpus.txt", "rows": 1, "documents": count} for count in counts]
    path.write_bytes(sealed(receipt))
    for arguments in ({"a": 0.5}, {"by": "folder", "a": "corpus"}):
        with pytest.raises(CorruptError, match=path.stem):
            tm.pack(folder, 8).split(**arguments)


def test_files_that_begin_alike_do_not_fall_on_one_side(tmp_path):
    """A thousand files whose first document is empty: a tenth of their documents is still a tenth."""
    rng = np.random.default_rng(0)
    files = [(f"{i}.txt", [[], *([int(i) % 90 + 1] * int(n) for n in rng.integers(1, 200, 9))]) for i in range(1000)]
    view = tm.pack(write_store(tmp_path / "store", [files]), 64)
    for seed in range(4):
        share = view.split(train=0.9, eval=0.1, seed=seed)["eval"].stats.documents / 10_000
        assert 0.07 < share < 0.13, seed


def test_a_folder_above_all_files_is_not_what_a_split_means(tmp_path):
    """The corpus lies in a folder that is called train, too."""
    files = [(f"/mnt/train/corpus/{name}/a.txt", [[1, 2, 3]] * count) for name, count in (("train", 5), ("eval", 3))]
    view = tm.pack(write_store(tmp_path / "store", [files]), 4, split="all")
    parts = view.split(by="folder", train="train", eval="./eval")
    assert {name: part.stats.documents for name, part in parts.items()} == {"train": 5, "eval": 3}
    assert view.split(by="folder", all="mnt/train")["all"].stats.documents == 8
