"""Slices of a build into one folder."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

import tokenmill as tm
from tokenmill.building.slices import Slice
from tokenmill.errors import LockedError, UsageError
from tokenmill.io.lock import build_lock

OPTIONS = {"workers": 0, "shard_bytes": "20KB", "progress": "quiet"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, real_texts):
    folder = tmp_path_factory.mktemp("sliced")
    for number, text in enumerate(real_texts[:40]):
        (folder / f"{number:02d}.txt").write_text(text[:15_000])
    return folder


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    store = tm.build(corpus, "demo", tmp_path_factory.mktemp("whole") / "store", **OPTIONS)
    assert store.num_shards > 8
    return store


def build(corpus, out, number, count, **options):
    return tm.build(corpus, "demo", out, slice=f"{number}/{count}", **{**OPTIONS, **options})


@pytest.mark.parametrize("seed", range(3))
def test_slices_in_any_order_make_the_store_once(corpus, whole, tmp_path, seed):
    order = random.Random(seed).sample(range(5), 5)
    results = [build(corpus, tmp_path / "store", number, 5) for number in order]
    assert results[:-1] == [None] * 4
    assert results[-1].fingerprint == whole.fingerprint
    assert results[-1].verify() == []
    assert not (tmp_path / "store" / "slices").exists()


def test_slices_are_disjoint_and_each_shard_is_made_once(corpus, whole, tmp_path):
    made: list[str] = []

    def note(event):
        if type(event).__name__ == "ShardDone":
            made.append(event.id)

    for number in range(3):
        build(corpus, tmp_path / "store", number, 3, progress=note)
    assert sorted(made) == sorted(whole._manifest.shard_ids)


def test_slices_at_the_same_time(corpus, whole, tmp_path):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: build(corpus, tmp_path / "store", number, 4), range(4)))
    assert tm.build(corpus, "demo", tmp_path / "store", **OPTIONS).fingerprint == whole.fingerprint


def test_a_slice_that_is_run_again_does_nothing_twice(corpus, whole, tmp_path):
    build(corpus, tmp_path / "store", 0, 2)
    receipts = {path: path.stat().st_mtime_ns for path in (tmp_path / "store" / "shards").glob("*.json")}
    assert build(corpus, tmp_path / "store", 0, 2) is None
    assert receipts == {path: path.stat().st_mtime_ns for path in (tmp_path / "store" / "shards").glob("*.json")}
    with pytest.raises(tm.errors.StoreError, match="interrupted"):
        tm.open(tmp_path / "store")
    assert build(corpus, tmp_path / "store", 1, 2).fingerprint == whole.fingerprint
    assert build(corpus, tmp_path / "store", 1, 2).fingerprint == whole.fingerprint  # up to date


def test_a_lost_slice_is_made_up_by_a_build_without_slices(corpus, whole, tmp_path):
    build(corpus, tmp_path / "store", 2, 3)
    assert tm.build(corpus, "demo", tmp_path / "store", **OPTIONS).fingerprint == whole.fingerprint


def test_a_file_that_fails_is_tried_again_by_the_last_slice_and_then_named(corpus, tmp_path):
    for path in corpus.iterdir():
        (tmp_path / "corpus" / path.name).parent.mkdir(exist_ok=True)
        (tmp_path / "corpus" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "corpus" / "bad.jsonl.gz").write_bytes(b"not gzip" * 10)
    results = [build(tmp_path / "corpus", tmp_path / "store", number, 3) for number in range(3)]
    assert results[:2] == [None, None]
    assert [entry["file"] for entry in results[2].failed] == [str(tmp_path / "corpus" / "bad.jsonl.gz")]


def test_slices_of_another_input_do_not_count(corpus, tmp_path):
    build(corpus, tmp_path / "store", 0, 2)
    (tmp_path / "more.txt").write_text("one more file")
    assert build([*sorted(corpus.iterdir()), tmp_path / "more.txt"], tmp_path / "other", 1, 2) is None


def test_a_build_that_is_not_a_slice_excludes_slices(corpus, tmp_path):
    with build_lock(tmp_path / "store"), pytest.raises(LockedError):
        build(corpus, tmp_path / "store", 0, 2)


@pytest.mark.parametrize("text", ["2/2", "-1/2", "1", "a/b", "1/0", ""])
def test_a_slice_is_a_number_below_the_count(text):
    with pytest.raises(UsageError, match="slice"):
        Slice.parse(text)


def test_slices_need_a_place_and_whole_builds(corpus, tmp_path):
    with pytest.raises(UsageError, match="needs -o"):
        tm.build(corpus, "demo", slice="0/2", **OPTIONS)
    with pytest.raises(UsageError, match="whole builds"):
        build(corpus, tmp_path / "store", 0, 2, max_rows=3)
    with pytest.raises(UsageError, match="whole builds"):
        build(iter(["text"]), tmp_path / "store", 0, 2)
