"""Input from and stores in a bucket, with an object store in memory."""

from __future__ import annotations

import glob
import json
import os
import pickle
import re
import shutil
import threading

import numpy as np
import pytest

import tokenmill as tm
from remote.conftest import put
from tokenmill.errors import (
    CorruptError,
    InputError,
    LockedError,
    MismatchError,
    MissingInputError,
    MissingStoreError,
    UnreachableError,
    UsageError,
)
from tokenmill.io import object_store
from tokenmill.io.object_file import PART_BYTES, ObjectFile
from tokenmill.store.bucket import StoreBucket, _at_once

SHARD = "100KB"


def build(source, out, **options):
    return tm.build(source, "demo", out, workers=0, shard_bytes=SHARD, progress="quiet", **options)


@pytest.fixture(scope="module")
def local(corpus, tmp_path_factory):
    return build(corpus, tmp_path_factory.mktemp("local") / "store")


def test_the_same_store_from_a_folder_and_from_a_bucket(bucket, corpus, local, tmp_path):
    put(f"{bucket}/corpus", corpus)
    store = build(f"{bucket}/corpus", tmp_path / "store")
    assert store.fingerprint == local.fingerprint
    assert store.locate(0).file == f"{bucket}/corpus/packed.jsonl.gz"
    again = build(f"{bucket}/corpus", tmp_path / "store")
    assert again.fingerprint == store.fingerprint


def test_another_text_into_the_same_bucket(bucket):
    """The columns of both are fetched to compare them; the store stays as it is."""
    texts = [f"text {i} of many, {'word ' * (i % 50)}" for i in range(3000)]
    first = build(texts, f"{bucket}/store", engine="reference")
    assert first.num_shards > 2
    for other in ([f"else {i}" for i in range(3000)], texts[:300]):
        with pytest.raises(MismatchError, match=rf"^{bucket}/store has another text: 3,000 documents"):
            build(other, f"{bucket}/store", engine="reference")
        assert tm.open(f"{bucket}/store").fingerprint == first.fingerprint
    grown = build(["new", *texts, "more"], f"{bucket}/store", engine="reference")
    assert len(grown) == 3002
    assert grown.verify() == []


def test_globs_and_single_objects(bucket, corpus, tmp_path):
    put(f"{bucket}/corpus", corpus)
    by_glob = tm.read(f"{bucket}/**/*.parquet")
    assert [file.path for file in by_glob.files] == [f"{bucket}/corpus/part{i}.parquet" for i in range(2)]
    one_level = tm.read(f"{bucket}/corpus/small/00?.txt")
    assert len(one_level.files) == 10
    single = tm.read(f"{bucket}/corpus/plain.jsonl")
    assert [file.size for file in single.files] == [(corpus / "plain.jsonl").stat().st_size]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://memory/nothing", "no object at or below s3://memory/nothing"),
        ("s3://memory/*.parquet", "no object matches"),
        ("ftp://host/file.txt", "cannot read ftp:// URLs"),
        ("https://user:word@host/file.txt", "user name or password"),
        ("https://host/file.txt?X-Amz-Signature=abc", "signed"),
        ("https://host/folder/", "does not list its files"),
    ],
)
def test_urls_that_cannot_be_read(bucket, url, message):
    error = MissingInputError if message.startswith("no ") else UsageError
    with pytest.raises(error, match=message.replace("*", r"\*")) as raised:
        tm.read(url)
    assert "word" not in str(raised.value).replace("password", "")
    assert "abc" not in str(raised.value)


def test_an_object_that_changes_after_it_was_listed_is_named(bucket, corpus, tmp_path):
    put(bucket, corpus)
    source = tm.read(f"{bucket}/plain.jsonl")
    object_store.write(f"{bucket}/plain.jsonl", (corpus / "plain.jsonl").read_bytes()[:-100])
    with pytest.raises(InputError, match=r"plain\.jsonl: changed since it was listed"):
        build(source, tmp_path / "store")


def test_a_server_that_fails_stops_the_build_and_is_no_failed_file(bucket, corpus, tmp_path, monkeypatch):
    put(bucket, corpus)
    source, read = tm.read(f"{bucket}/plain.jsonl"), object_store.read

    def fail(url, start=0, *rest):
        if start > 200_000:
            raise UnreachableError(f"{url}: the server answered 503")
        return read(url, start, *rest)

    monkeypatch.setattr(object_store, "read", fail)
    monkeypatch.setattr("tokenmill.io.object_file.PART_BYTES", 50_000)
    with pytest.raises(UnreachableError, match="503"):
        build(source, tmp_path / "store")
    monkeypatch.setattr(object_store, "read", read)
    assert not build(source, tmp_path / "store").failed


def test_reading_in_any_order_gives_the_bytes(bucket):
    data = np.random.default_rng(0).bytes(3 * PART_BYTES + 12_345)
    object_store.write(f"{bucket}/data", data)
    info = object_store.stat(f"{bucket}/data")
    with ObjectFile(info.url, info.size, info.tag) as file:
        file.expect([(0, PART_BYTES // 2), (PART_BYTES, 2 * PART_BYTES + 17)])
        places = np.random.default_rng(1)
        for _ in range(200):
            start = int(places.integers(0, len(data) + 10))
            size = int(places.integers(0, PART_BYTES))
            file.seek(start)
            assert file.read(size) == data[start : start + size]
            assert file.tell() == min(start + size, max(start, len(data)))
        file.seek(-5, os.SEEK_END)
        assert file.read() == data[-5:]


def test_a_store_in_a_bucket_is_the_same_and_up_to_date(bucket, corpus, local, own_cache):
    store = build(corpus, f"{bucket}/store")
    assert store.fingerprint == local.fingerprint
    assert repr(store).startswith("Store('s3://memory/store'")
    events = []
    again = tm.build(corpus, "demo", f"{bucket}/store", workers=0, shard_bytes=SHARD, progress=events.append)
    assert {type(event).__name__ for event in events} <= {
        "Begun",
        "Comparing",
        "UpToDate",
    }  # the files are only seconds old
    assert events[-1].path == f"{bucket}/store"
    assert again.fingerprint == local.fingerprint
    assert not os.listdir(own_cache / "uploads")


def test_a_copy_of_all_objects_is_a_store_in_a_folder(bucket, corpus, local, tmp_path, own_cache):
    build(corpus, f"{bucket}/store")
    for each in object_store.listing(f"{bucket}/store"):
        path = tmp_path / "copy" / each.url.removeprefix(f"{bucket}/store/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(object_store.read(each.url))
    copy = tm.open(tmp_path / "copy")
    assert copy.verify() == []
    assert copy.fingerprint == local.fingerprint


def test_documents_rows_batches_and_exports_are_those_of_the_folder(bucket, corpus, local, tmp_path, own_cache, alone):
    build(corpus, f"{bucket}/store")
    size = sum(map(os.path.getsize, glob.glob(f"{local.path}/shards/*.npy")))
    store = tm.open(f"{bucket}/store", shard_cache=size // 10)
    assert len(store) == len(local)
    assert all(np.array_equal(mine, theirs) for mine, theirs in zip(store, local, strict=True))
    assert store.text(3) == local.text(3)
    assert store.locate(3) == local.locate(3)
    for strategy in ("concat", "best_fit"):
        mine, theirs = (
            tm.load(each, seq_len=128, batch_size=8, epochs=2, strategy=strategy) for each in (store, local)
        )
        for one, other in zip(mine, theirs, strict=True):
            assert all(np.array_equal(one[name], other[name]) for name in other)
        kept = sum(map(os.path.getsize, glob.glob(f"{own_cache}/mirrors/*/shards/*.npy")))
        largest = max(map(os.path.getsize, glob.glob(f"{local.path}/shards/*.npy")))
        assert kept <= max(size // 10, largest)
    assert tm.open(f"{bucket}/store").verify() == []
    for name, each in (("mine", f"{bucket}/store"), ("theirs", local)):
        tm.export(each, tmp_path / name, format="nanogpt")
    assert (tmp_path / "mine" / "train.bin").read_bytes() == (tmp_path / "theirs" / "train.bin").read_bytes()
    copy = pickle.loads(pickle.dumps(store))  # noqa: S301
    assert copy.url == store.url
    assert np.array_equal(copy[5], local[5])


def test_what_is_interrupted_is_continued_from_the_bucket_alone(bucket, corpus, local, own_cache, monkeypatch):
    push, pushed = StoreBucket.push_shard, []

    def push_some(self, receipt, seen):
        if len(pushed) == 7:
            raise UnreachableError("the server is gone")
        pushed.append(receipt["id"])
        push(self, receipt, seen)

    monkeypatch.setattr(StoreBucket, "push_shard", push_some)
    with pytest.raises(UnreachableError):
        build(corpus, f"{bucket}/store")
    with pytest.raises(MissingStoreError):
        tm.open(f"{bucket}/store")
    made = []

    def push_rest(self, receipt, seen):
        made.append(receipt["id"])
        push(self, receipt, seen)

    monkeypatch.setattr(StoreBucket, "push_shard", push_rest)
    store = build(corpus, f"{bucket}/store")
    assert store.fingerprint == local.fingerprint
    assert len(set(pushed)) == 7
    assert not set(made) & set(pushed)
    assert sorted(made + pushed) == sorted(set(store._manifest.shard_ids))


def test_an_added_file_costs_its_own_shards(bucket, corpus, tmp_path, own_cache, monkeypatch):
    shutil.copytree(corpus, tmp_path / "corpus")
    build(tmp_path / "corpus", f"{bucket}/store")
    (tmp_path / "corpus" / "small" / "003a.txt").write_text("one more document")
    made, push = [], StoreBucket.push_shard
    monkeypatch.setattr(
        StoreBucket, "push_shard", lambda self, receipt, seen: (made.append(receipt["id"]), push(self, receipt, seen))
    )
    store = build(tmp_path / "corpus", f"{bucket}/store")
    assert len(made) == 1
    assert store.fingerprint == build(tmp_path / "corpus", tmp_path / "local").fingerprint
    assert store.verify() == []


def test_of_two_builds_one_publishes_and_the_other_says_so(bucket, corpus, own_cache, monkeypatch):
    publish = StoreBucket.publish

    def after_another(self, manifest):
        monkeypatch.setattr(StoreBucket, "publish", publish)
        build(corpus, f"{bucket}/store")
        publish(self, manifest)

    monkeypatch.setattr(StoreBucket, "publish", after_another)
    with pytest.raises(LockedError, match=r"another build finished s3://memory/store.*the same tokens"):
        build(corpus, f"{bucket}/store")
    assert tm.open(f"{bucket}/store").verify() == []


def test_damage_in_the_bucket_is_found_and_repaired_by_the_next_build(bucket, corpus, local, own_cache, capsys):
    from tokenmill.cli import main

    store = build(corpus, f"{bucket}/store")
    shard = store._manifest.shard_ids[2]
    data = bytearray(object_store.read(f"{bucket}/store/shards/{shard}.npy"))
    data[len(data) // 2] ^= 1
    object_store.write(f"{bucket}/store/shards/{shard}.npy", bytes(data))
    assert [damage.shard for damage in tm.open(f"{bucket}/store").verify()] == [shard]
    assert main(["verify", f"{bucket}/store", "--repair"]) == 3
    assert "rerun the build of the store to recreate them" in capsys.readouterr().out
    assert build(corpus, f"{bucket}/store").fingerprint == local.fingerprint
    assert tm.open(f"{bucket}/store").verify() == []


def test_a_forged_manifest_does_not_lead_out_of_the_mirror(bucket, corpus, own_cache):
    from tokenmill.io.atomic import digest
    from tokenmill.store.manifest import SEAL

    build(corpus, f"{bucket}/store")
    body = object_store.read(f"{bucket}/store/manifest.json")
    forged = body[: body.rfind(SEAL)].replace(b'"sources.json"', b'"../../out.json"')
    object_store.write(f"{bucket}/store/manifest.json", forged + SEAL + f'"{digest(forged)}"\n}}\n'.encode())
    with pytest.raises(CorruptError, match="outside the store"):
        tm.open(f"{bucket}/store")


def test_a_write_with_a_condition_has_one_winner(bucket):
    tag = object_store.write_if(f"{bucket}/one", b"first", None)
    with pytest.raises(object_store.ConditionError):
        object_store.write_if(f"{bucket}/one", b"second", None)
    newer = object_store.write_if(f"{bucket}/one", b"second", tag)
    with pytest.raises(object_store.ConditionError):
        object_store.write_if(f"{bucket}/one", b"third", tag)
    assert newer != tag
    assert object_store.read(f"{bucket}/one") == b"second"


def test_a_missing_object_is_an_input_error_that_names_it(bucket, corpus, tmp_path):
    put(bucket, corpus)
    source = tm.read(f"{bucket}/part0.parquet", f"{bucket}/plain.jsonl")
    object_store.delete([f"{bucket}/part0.parquet"])
    store = build(source, tmp_path / "store")
    assert [entry["file"] for entry in store.failed] == [f"{bucket}/part0.parquet"]
    assert "no such object" in store.failed[0]["error"]
    with pytest.raises(InputError, match="no such object"):
        list(tm.reading.read_piece(tm.reading.Piece(source.files[0]), source))


def test_a_worker_on_another_machine_needs_nothing_but_the_bucket(
    bucket, corpus, local, tmp_path, own_cache, monkeypatch
):
    from dataclasses import replace

    from tokenmill.building.executors import in_process

    runner = in_process.TaskRunner

    def elsewhere(context, live=None):
        """The same task runner, with a folder of its own in which there is nothing."""
        there = tmp_path / "elsewhere"
        return runner(
            replace(context, shards=str(there / "shards"), tokenizer=str(there / "tokenizer"), journals=str(there)),
            live,
        )

    monkeypatch.setattr(in_process, "TaskRunner", elsewhere)
    assert build(corpus, f"{bucket}/store").fingerprint == local.fingerprint
    assert tm.open(f"{bucket}/store").verify() == []


def test_the_store_below_its_own_input_is_no_input(bucket, tmp_path, own_cache):
    for number in range(3):
        object_store.write(f"{bucket}/own/{number}.txt", b"some text %d" % number)
    for _ in range(2):
        assert len(build(f"{bucket}/own", f"{bucket}/own/store")) == 3
    source = tm.read(f"{bucket}/own")
    assert [file.path for file in source.files] == [f"{bucket}/own/{number}.txt" for number in range(3)]
    assert (f"{bucket}/own/store", "a token store") in source.ignored


def test_a_place_with_other_objects_is_refused(bucket, corpus, own_cache):
    object_store.write(f"{bucket}/other/readme.txt", b"not a store")
    with pytest.raises(UsageError, match=r"other objects in it \(readme\.txt\)"):
        build(corpus / "plain.jsonl", f"{bucket}/other")


def test_journals_do_not_stay_in_the_bucket(bucket, corpus, own_cache):
    build(corpus, f"{bucket}/store")
    assert [each.url for each in object_store.listing(f"{bucket}/store/seen")] == []


def test_damage_does_not_get_into_the_mirror(bucket, corpus, local, own_cache):
    store = build(corpus, f"{bucket}/store")
    url = f"{bucket}/store/shards/{store._manifest.shard_ids[0]}.npy"
    good = object_store.read(url)
    for bad in (good[:-1] + bytes([good[-1] ^ 1]), good[:-2]):
        object_store.write(url, bad)
        with pytest.raises(CorruptError, match=f"{url} is damaged"):
            tm.open(f"{bucket}/store")[0]
    object_store.write(url, good)
    assert np.array_equal(tm.open(f"{bucket}/store")[0], local[0])


def test_a_pickled_store_makes_its_own_mirror(bucket, corpus, local, own_cache):
    pickled = pickle.dumps(build(corpus, f"{bucket}/store"))
    shutil.rmtree(own_cache / "mirrors")
    copy = pickle.loads(pickled)  # noqa: S301
    assert np.array_equal(copy[7], local[7])
    assert copy.locate(7) == local.locate(7)


def test_another_opening_does_not_change_the_limit(bucket, corpus, own_cache):
    build(corpus, f"{bucket}/store")
    store = tm.open(f"{bucket}/store", shard_cache="1GB")
    tm.open(f"{bucket}/store")
    assert (store.path / ".url").read_text() == f"{bucket}/store\n1000000000\n"


@pytest.mark.parametrize("url", ["s3://key:secret@memory/store", "s3://memory/store?X-Amz-Signature=secret"])
def test_urls_of_stores_with_secrets_are_refused(bucket, url):
    with pytest.raises(UsageError) as raised:
        tm.open(url)
    assert "secret" not in str(raised.value)


def test_only_builds_write_to_buckets(bucket, corpus, local, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="exports are written to a folder"):
        tm.export(local, f"{bucket}/export", format="nanogpt")
    with pytest.raises(UsageError, match="into a folder"):
        tm.import_tokens("train.bin", f"{bucket}/import")
    with pytest.raises(UsageError, match="S3:// URLs"):
        build(corpus / "plain.jsonl", "S3://memory/store")
    assert list(tmp_path.iterdir()) == []


def test_the_first_failed_request_ends_the_others():
    calls = []

    def fail(item):
        calls.append(item)
        threading.Event().wait(0.02)  # for an answer
        raise UnreachableError("away")

    with pytest.raises(UnreachableError):
        _at_once(fail, range(1000))
    assert len(calls) < 200


def shards_in(url: str) -> set[str]:
    return {each.url.rpartition("/")[2][:24] for each in object_store.listing(f"{url}/shards")}


def old_and_new(bucket, corpus, tmp_path) -> tm.Store:
    """A store of which one shard was replaced by another."""
    shutil.copytree(corpus, tmp_path / "changed")
    build(tmp_path / "changed", f"{bucket}/store")
    (tmp_path / "changed" / "small" / "003.txt").write_text("another text")
    return build(tmp_path / "changed", f"{bucket}/store")


def test_shards_that_a_store_no_longer_has_are_removed_from_the_bucket(bucket, corpus, tmp_path, own_cache, capsys):
    from tokenmill.cli import main

    store = old_and_new(bucket, corpus, tmp_path)
    listed, before = set(store._manifest.shard_ids), shards_in(f"{bucket}/store")
    for name in ("shards/notes.txt", "shards/notes.npy", f"{'a' * 24}.npy"):
        object_store.write(f"{bucket}/store/{name}", b"of somebody else")
    (old,) = before - listed
    arguments = ["cache", "prune", "--bucket", f"{bucket}/store", "--json"]
    assert main([*arguments, "--dry-run"]) == 0
    would = json.loads(capsys.readouterr().out)
    assert would["removed"] == [old]
    assert shards_in(f"{bucket}/store") >= before
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out) == {**would, "dry_run": False}
    assert would["freed"] > 0
    names = {each.url.removeprefix(f"{bucket}/store/") for each in object_store.listing(f"{bucket}/store")}
    assert {"shards/notes.txt", "shards/notes.npy", f"{'a' * 24}.npy"} <= names
    assert {name[7:31] for name in names if name.startswith("shards/") and "notes" not in name} == listed
    assert tm.open(f"{bucket}/store").verify() == []
    assert main(["cache", "prune", "--bucket", f"{bucket}/store"]) == 0
    assert "removed 0 shards, 0 B" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give --max-size SIZE for the cache, or --bucket URL"),
        (["--max-size", "1GB", "--bucket", "s3://memory/store"], "give --max-size SIZE for the cache, or --bucket URL"),
        (["--bucket", "folder/store"], "folder/store is not in a bucket"),
        (["--bucket", "http://host/store"], "http://host/store is not in a bucket"),
        (["--bucket", "s3://memory/nothing"], "no token store at s3://memory/nothing"),
    ],
)
def test_what_cannot_be_pruned_is_said(bucket, capsys, arguments, says):
    from tokenmill.cli import main

    assert main(["cache", "prune", *arguments]) != 0
    assert says in capsys.readouterr().err


def test_shards_are_not_removed_while_a_build_may_use_them(bucket, corpus, tmp_path, own_cache, monkeypatch):
    from tokenmill.building.cache.maintenance import prune_bucket

    store = old_and_new(bucket, corpus, tmp_path)
    url, push, said = f"{bucket}/store", StoreBucket.push_shard, []

    def prune_first(self, receipt, seen):
        """When nothing but the log says that a build runs, and then when a part of a shard is there."""
        object_store.write(f"{url}/shards/{receipt['id']}.npy", b"begun")
        with pytest.raises(LockedError, match="runs or was interrupted") as caught:
            prune_bucket(url)
        said.append(caught.value)
        push(self, receipt, seen)
        raise UnreachableError("the server is gone")

    monkeypatch.setattr(StoreBucket, "push_shard", prune_first)
    (tmp_path / "changed" / "small" / "003.txt").write_text("a third text")
    with pytest.raises(UnreachableError):
        build(tmp_path / "changed", url)
    assert len(said) == 1
    monkeypatch.setattr("tokenmill.building.cache.maintenance.ABANDONED_SECONDS", 0.0)
    with pytest.raises(LockedError, match="finish it first"):
        prune_bucket(url)  # what it was made from is still noted
    monkeypatch.setattr(StoreBucket, "push_shard", push)
    store = build(tmp_path / "changed", url)
    assert len(prune_bucket(url)[0]) == 2
    assert shards_in(url) == set(store._manifest.shard_ids)
    assert store.verify() == []


def test_mirrors_that_were_not_used_are_pruned(bucket, corpus, own_cache, capsys):
    from tokenmill.cli import main

    used, unused = (build(corpus, f"{bucket}/{name}") for name in ("used", "unused"))
    tokens = [len(list(each)) for each in (used, unused)]
    folders, name = [used.path, unused.path], unused.name
    del unused
    for folder in folders:
        os.utime(folder / ".used", (1.0, 1.0))
    assert main(["cache", "prune", "--max-size", "1B", "--json", "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == [name]
    assert all(folder.exists() for folder in folders)
    assert main(["cache", "prune", "--max-size", "1B", "--dry-run"]) == 0
    assert re.search(
        rf"{name}   .*, used \d+ days ago\n    \d+ files of the store in a bucket", capsys.readouterr().out
    )
    assert main(["cache", "prune", "--max-size", "1B"]) == 0
    said = capsys.readouterr()
    assert "removed 0 stores, 1 mirror, " in said.out
    assert f"{used.name} is in use by another process and is kept" in said.err
    assert [folder.exists() for folder in folders] == [True, False]
    assert [len(list(used)), len(list(tm.open(name)))] == tokens, "fetched again"


def test_a_mirror_that_does_not_say_of_what(bucket, corpus, own_cache):
    """After a power failure the file with its URL may be empty. The mirror is made again when it is opened, and can be pruned."""
    from tokenmill.building.cache.maintenance import prune

    folder = build(corpus, f"{bucket}/store").path
    (folder / ".url").write_text("")
    assert tm.open(f"{bucket}/store").url == f"{bucket}/store"
    (folder / ".url").write_text("")
    assert [each.name for each in prune(own_cache, 1).removed] == [folder.name]
    assert not folder.exists()


def test_mirrors_are_pruned_without_a_connection(bucket, corpus, own_cache, monkeypatch):
    """Also those of earlier versions, that nobody has marked as used, and those that a kill has left incomplete."""
    from tokenmill.building.cache.maintenance import prune

    folder = build(corpus, f"{bucket}/store").path
    for name in (".used", "manifest.json"):
        (folder / name).unlink()
    monkeypatch.setattr(object_store, "download", lambda *_: pytest.fail("a request"))
    assert [each.path for each in prune(own_cache, 1, dry_run=True).removed] == [folder]
    assert [each.path for each in prune(own_cache, 1).removed] == [folder]
    assert not folder.exists()


def test_an_object_of_that_name_comes_before_a_glob(bucket):
    for name in ("a[1].txt", "a1.txt", "b?.txt", "bc.txt"):
        object_store.write(f"{bucket}/{name}", b"text")
    assert [file.path for file in tm.read(f"{bucket}/a[1].txt").files] == [f"{bucket}/a[1].txt"]
    assert [file.path for file in tm.read(f"{bucket}/b?.txt").files] == [f"{bucket}/b?.txt"]
    assert [file.path for file in tm.read(f"{bucket}/a?.txt").files] == [f"{bucket}/a1.txt"]


def test_the_size_of_a_store_is_that_of_its_shards(bucket, corpus, local, own_cache):
    from tokenmill.store.facts import info

    build(corpus, f"{bucket}/store")
    assert info(f"{bucket}/store")["disk_bytes"] == sum(map(os.path.getsize, glob.glob(f"{local.path}/shards/*.npy")))


def test_the_cache_lists_how_much_the_mirrors_take(bucket, corpus, own_cache, capsys):
    from tokenmill.cli import main

    list(build(corpus, f"{bucket}/store"))
    assert main(["cache", "list", "--json"]) == 0
    kept = sum(map(os.path.getsize, glob.glob(f"{own_cache}/mirrors/*/shards/*.npy")))
    assert json.loads(capsys.readouterr().out)["mirrors"] == kept > 0
