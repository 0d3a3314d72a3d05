"""What a cache must not get wrong where two things look alike, or where one has what another takes away.

Files that are equal, or were written within one tick of a clock; stores that are held, damaged, shared or of another version;
data beside the cache itself.
"""

from __future__ import annotations

import gzip
import json
import mmap
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from build_helpers import CachedBuilds, write_jsonl

import tokenmill as tm
from tokenmill.building import plan, source_index
from tokenmill.building.source_index import SETTLING
from tokenmill.cli import main
from tokenmill.reading import codecs, discover

SECOND = 10**9
LONG_AFTER = 100 * SECOND  # nanoseconds after which nobody doubts how a file looks


def lines(word: str, count: int = 30) -> list[str]:
    return [f"{word}, line {i:03}: {'some words ' * 4}" for i in range(count)]


def left_alone(*paths: Path) -> Any:
    """The source as it looks to one who comes long after its files were written."""
    source = tm.read(*paths)
    return replace(source, _looked_at=source._looked_at + LONG_AFTER)


@pytest.fixture
def ask(tmp_path, tokenizer_path) -> CachedBuilds:
    return CachedBuilds(tmp_path / "cache", tokenizer_path)


@pytest.fixture
def listed(ask, capsys) -> Callable[[], dict[str, dict[str, Any]]]:
    """What `cache list` tells, by name."""

    def names() -> dict[str, dict[str, Any]]:
        capsys.readouterr()
        assert ask.command("list", "--json") == 0
        return {one["name"]: one for one in json.loads(capsys.readouterr().out)["stores"]}

    return names


def damage(store: tm.Store, shard: int = 0) -> Path:
    """Turn the last bit of a shard's ids over, in the file that is there."""
    path = store.path / "shards" / f"{store._manifest.shard_ids[shard]}.npy"
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))
    return path


def ids_of(store: tm.Store) -> list[list[int]]:
    return [ids.tolist() for ids in store]


def names_of(store: tm.Store) -> dict[str, Any]:
    """Everything that tells which file a document was in."""
    left_out = (store.path / "quarantine.jsonl").read_text().splitlines()
    return {
        "locations": [tuple(store.locate(i)) for i in range(len(store))],
        "pieces": [[piece["file"] for piece in store._pieces(shard)] for shard in range(store.num_shards)],
        "sources": json.loads((store.path / "sources.json").read_bytes())["files"],
        "rows": store._manifest.row_starts,
        "left out": [(entry["file"], entry["row"]) for entry in map(json.loads, left_out)],
    }


# --- files that look alike ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["cache", "folder"])
def test_what_was_written_in_the_same_tick_stays_in_doubt(ask, reference, tmp_path, where, monkeypatch):
    """A clock so coarse that a file written twice looks as if it was once. A later look at it does not make it believed."""
    monkeypatch.setattr(source_index, "SETTLING", SETTLING)
    tick = 1_600_000_000 * SECOND
    for module in (discover, codecs):
        monkeypatch.setattr(module, "tag_of", lambda info: f"stat.{tick}.{info.st_ino}.{tick}")
    path, out = tmp_path / "a.txt", None if where == "cache" else tmp_path / "out"

    def seen(after: int) -> str:
        store = ask(replace(tm.read(path), _looked_at=tick + after), out)
        return reference.decode(store[0].tolist()[:-1])

    path.write_text("hello cat")
    assert seen(SECOND // 2) == "hello cat"
    path.write_text("hello dog")
    assert [seen(LONG_AFTER), seen(2 * LONG_AFTER)] == ["hello dog", "hello dog"]


@pytest.mark.parametrize("where", ["cache", "folder"])
def test_a_change_through_a_memory_map(ask, reference, tmp_path, where, monkeypatch):
    """The second write to a mapped page does not change the time stamp. Such a file is read again while that may be so."""
    monkeypatch.setattr(source_index, "SETTLING", SETTLING)
    path, out = tmp_path / "a.txt", None if where == "cache" else tmp_path / "out"
    path.write_text("hello cat")

    def seen() -> str:
        source = tm.read(path)
        store = ask(replace(source, _looked_at=source._looked_at + 30 * SECOND), out)
        return reference.decode(store[0].tolist()[:-1])

    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[6:9] = b"dog"
        assert seen() == "hello dog"
        before = os.stat(path)
        mapped[6:9] = b"fox"
        assert os.stat(path).st_mtime_ns == before.st_mtime_ns
        assert seen() == "hello fox"


def test_equal_files_keep_their_names(ask, tmp_path):
    """Known by their content before they are encoded, because there was one of their size: one shard, two files."""
    data = tmp_path / "data"
    texts = {word: lines(word) for word in ("one", "two")}
    for name, word in (("a", "one"), ("b", "two"), ("c", "two")):
        write_jsonl(data / f"{name}.jsonl", texts[word])
        with open(data / f"{name}.jsonl", "a") as out:
            out.write("not json\n")
        if name == "a":
            ask(data, shard_bytes="1KiB")
    store = ask(data, shard_bytes="1KiB")
    assert len(set(store._manifest.shard_ids)) < store.num_shards
    scratch = ask(data, shard_bytes="1KiB", cache_dir=tmp_path / "other")
    assert (store.fingerprint, names_of(store)) == (scratch.fingerprint, names_of(scratch))
    rows = [(str(data / f"{name}.jsonl"), row) for name in "abc" for row in range(30)]
    assert names_of(store)["locations"] == rows
    assert names_of(store)["left out"] == [(str(data / f"{name}.jsonl"), 30) for name in "abc"]


def test_equal_broken_files_are_both_named(ask, tmp_path):
    chance = random.Random(1)

    def packed(rows: int) -> bytes:
        texts = [f"{chance.getrandbits(120):030x}" for _ in range(rows)]
        return gzip.compress("".join(json.dumps({"text": text}) + "\n" for text in texts).encode(), mtime=0)

    good, longer = packed(60), packed(80)
    for name, content in (("a", good), ("b", longer[: len(good)]), ("c", longer[: len(good)])):
        (tmp_path / f"{name}.jsonl.gz").write_bytes(content)
        if name == "a":
            ask(tmp_path / "*.gz", shard_bytes="1KiB")
    for _ in range(2):
        store = ask(tmp_path / "*.gz", shard_bytes="1KiB")
        assert [entry["file"] for entry in store.failed] == [str(tmp_path / f"{name}.jsonl.gz") for name in "bc"]
        assert (len(store), {store.locate(i).file for i in range(60)}) == (60, {str(tmp_path / "a.jsonl.gz")})


@pytest.mark.parametrize("differ", [False, True])
def test_files_that_begin_alike_are_not_one_shard(ask, tmp_path, differ):
    """Where no file's head ends a group, its size does."""
    for i in range(200):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / f"data/{i:03}.txt").write_text("# a licence " * 400 + (f"{i:03}" if differ else "000"))
    store = ask(tmp_path / "data", shard_bytes="64KiB")
    held = [store._receipt_of(shard)["text_bytes"] for shard in range(store.num_shards)]
    assert 1 < store.num_shards < 20
    assert max(held) <= 9 * 64 * 1024
    assert [store.locate(i).file for i in range(200)] == [str(tmp_path / f"data/{i:03}.txt") for i in range(200)]


# --- data beside the cache ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["cache_dir", "environment", "environment and out"])
def test_data_below_the_root_of_the_cache(ask, reference, tmp_path, where, monkeypatch):
    """It is read; what the cache keeps beside it is not."""
    root, options = tmp_path / "scratch", {"cache_dir": None}
    write_jsonl(root / "mine/a.jsonl", ["first"])
    write_jsonl(root / "b.jsonl", ["second"])
    (root / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n")
    for name in ("stores", "builds", "proofs", "tokenizers", "speeds", "plans"):
        write_jsonl(root / name / "own/kept.json", ["not data"])
    if where == "cache_dir":
        options = {"cache_dir": root}
    else:
        monkeypatch.setenv("TOKENMILL_CACHE", str(root))
    out = tmp_path / "out" if where == "environment and out" else None
    for source, texts in ((root, ["second", "first"]), (root / "mine", ["first"])):
        for _ in range(2):  # the second time the first one's store and lists are there
            store = ask(source, out and out / str(len(texts)), **options)
            assert [reference.decode(ids[:-1]) for ids in ids_of(store)] == texts
            assert (store.complete, store._manifest.quarantined) == (True, {})


# --- repair ---------------------------------------------------------------------------------------------------------------------


def test_a_listing_is_that_of_the_published_store(ask, tmp_path):
    """A build that was stopped between publishing and saving its listing leaves the listing of the store before."""
    write_jsonl(tmp_path / "data/a.jsonl", lines("a"))
    ask(left_alone(tmp_path / "data"), tmp_path / "out")
    write_jsonl(tmp_path / "data/b.jsonl", lines("b"))

    def interrupt(event):
        if event.name == "finished":
            raise InterruptedError

    with pytest.raises(InterruptedError):
        tm.build(left_alone(tmp_path / "data"), ask.tokenizer, out=tmp_path / "out", progress=interrupt, **ask.options)
    (tmp_path / "data/b.jsonl").unlink()
    assert len(ask(left_alone(tmp_path / "data"), tmp_path / "out")) == 30


def test_a_trial_names_the_engine_that_encoded_it(ask, tmp_path):
    """Not the one of an earlier trial in the same folder."""
    write_jsonl(tmp_path / "data/a.jsonl", ["some text", "and more"])
    first = ask(tmp_path / "data", tmp_path / "out", max_documents=2, engine="gigatoken")
    write_jsonl(tmp_path / "data/a.jsonl", ["other text", "and more"])
    second = ask(tmp_path / "data", tmp_path / "out", max_documents=2, engine="tokenizers")
    assert [store._manifest.tokenizer["engine"] for store in (first, second)] == ["gigatoken", "tokenizers"]


def test_linked_shards_are_durable_before_they_are_published(ask, tmp_path, monkeypatch):
    for word in ("one", "two"):
        write_jsonl(tmp_path / f"data/{word}.jsonl", lines(word))
    ask(tmp_path / "data", shard_bytes="1KiB")
    steps = []
    link, fsync, replace = os.link, os.fsync, os.replace

    def linked(source, target, **options):
        if Path(target).parent.name == "shards":
            steps.append("link")
        link(source, target, **options)

    def synced(descriptor):
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/shards"):
            steps.append("sync")
        fsync(descriptor)

    def replaced(source, target):
        if str(target).endswith("manifest.json"):
            steps.append("publish")
        replace(source, target)

    monkeypatch.setattr(os, "link", linked)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    ask(tmp_path / "data/one.jsonl", shard_bytes="1KiB")
    assert ask.documents == 0
    last_link = len(steps) - steps[::-1].index("link")
    assert "sync" in steps[last_link : steps.index("publish", last_link)]


@pytest.mark.parametrize("shard_bytes", ["1KiB", "32MB"])
def test_a_repair_keeps_what_failed(ask, tmp_path, shard_bytes, capsys):
    """It is no part of what is mended, and the next build tries it again."""
    data = tmp_path / "data"
    for name in "ac":
        write_jsonl(data / f"{name}.jsonl", lines(name))
    (data / "b.jsonl").write_text("[\n{}\n")
    store = ask(left_alone(data), shard_bytes=shard_bytes)
    failed, right = store.failed, ids_of(store)
    assert [entry["file"] for entry in failed] == [str(data / "b.jsonl")]
    damage(store)
    assert main(["verify", str(store.path), "--repair"]) == 0
    with pytest.warns(UserWarning, match="not complete"):
        again = tm.open(store.path)
    assert (again.complete, again.failed, again.verify(), ids_of(again)) == (False, failed, [], right)
    mended = write_jsonl(data / "b.jsonl", lines("b"))
    whole = ask(left_alone(data), shard_bytes=shard_bytes)
    assert (whole.complete, len(whole)) == (True, 90)
    assert 0 < ask.read <= mended.stat().st_size


def test_a_repair_leaves_other_stores_alone(ask, tmp_path, capsys):
    """They may have the same file, by a link."""
    data = tmp_path / "data"
    for name in "ab":
        write_jsonl(data / f"{name}.jsonl", lines(name))
    store = ask(data, shard_bytes="1KiB")
    write_jsonl(data / "c.jsonl", lines("c"))
    grown = ask(data, shard_bytes="1KiB")
    right = (store.path / "shards" / f"{store._manifest.shard_ids[0]}.npy").read_bytes()
    path = damage(store)
    shared = grown.path / "shards" / path.name
    assert os.path.samefile(path, shared)
    harmed = shared.read_bytes()
    (data / "c.jsonl").unlink()
    assert main(["verify", str(store.path), "--repair"]) == 0
    assert (store.verify(), path.read_bytes()) == ([], right)
    assert shared.read_bytes() == harmed


def test_a_store_that_holds_a_shard_twice(ask, tmp_path, capsys):
    for name in "ab":
        write_jsonl(tmp_path / f"data/{name}.jsonl", lines("the same"))
    store = ask(tmp_path / "data", shard_bytes="1KiB")
    right = ids_of(store)
    assert len(set(store._manifest.shard_ids)) < store.num_shards
    assert main(["verify", str(store.path), "--reencode", "60"]) == 0
    damage(store)
    assert main(["verify", str(store.path)]) == 3
    assert main(["verify", str(store.path), "--repair"]) == 0
    assert (store.verify(), ids_of(tm.open(store.path))) == ([], right)


@pytest.mark.parametrize("where", ["cache", "folder"])
@pytest.mark.parametrize("what", ["tokenizer", "sources.json", "quarantine.jsonl"])
@pytest.mark.parametrize("look", ["as it was", "rehash"])
def test_what_was_deleted_from_a_store_is_there_again(ask, tmp_path, where, what, look):
    """After the next build, which tokenizes nothing for it."""
    data, out = write_jsonl(tmp_path / "a.jsonl", ["one", "two"]), None if where == "cache" else tmp_path / "out"
    store = ask(left_alone(data), out)
    gone = store.path / what
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    again = ask(left_alone(data), out, rehash=look == "rehash")
    assert (again.path, again.fingerprint, again.verify()) == (store.path, store.fingerprint, [])
    assert gone.exists()
    assert (ask.documents, again.locate(1).file) == (0, str(data))


# --- stores that are in use -----------------------------------------------------------------------------------------------------


def test_an_open_store_is_not_pruned(ask, tmp_path, capsys):
    path = ask(write_jsonl(tmp_path / "a.jsonl", ["one", "two"])).path
    store = tm.open(path)
    assert ask.command("prune", "--max-size", "1KB") == 0
    assert (ask.store_names, len(ids_of(store))) == ([path.name], 2)
    del store
    assert ask.command("prune", "--max-size", "1KB") == 0
    assert ask.store_names == []


def test_force_takes_no_store_from_those_who_use_it(ask, tmp_path, capsys):
    data = write_jsonl(tmp_path / "a.jsonl", ["one", "two"])
    store = ask(data)
    ask(data, force=True)
    assert ask.documents == 2
    assert ask.command("prune", "--max-size", "1KB") == 0
    assert (ask.store_names, len(ids_of(store))) == ([store.path.name], 2)


def test_a_run_keeps_the_names_of_its_documents(ask, tmp_path, capsys):
    """Also when the same inputs became another store, and that is gone."""
    data = write_jsonl(tmp_path / "a.jsonl", ["one"])
    store = ask(data)
    write_jsonl(data, ["two"])
    newer = ask(data).path.name
    assert newer != store.path.name
    assert ask.command("remove", newer) == 0
    assert store.locate(0) == (str(data), 0)


def test_remove_all_names_what_is_in_use(ask, tmp_path, capsys):
    """And removes everything else, whatever comes first."""
    held = [ask(write_jsonl(tmp_path / f"{i}.jsonl", [f"text {i}"])) for i in range(4)]
    kept = held.pop(2)
    others = [store.path.name for store in held]
    held.clear()
    assert ask.command("remove", "--all") == 1
    said = capsys.readouterr().err
    assert kept.path.name in said
    assert not [name for name in others if name in said]
    assert ask.store_names == [kept.path.name]
    assert len(ids_of(kept)) == 1


# --- what one build has to do with another --------------------------------------------------------------------------------------


def test_an_engine_that_was_asked_for_once(ask, tmp_path):
    """Neither other text nor more of the same is bound to it."""
    data = tmp_path / "data"
    write_jsonl(data / "a.jsonl", lines("a"))
    other = write_jsonl(tmp_path / "other.jsonl", lines("other"))
    ask(data, engine="reference", shard_bytes="1KiB")
    write_jsonl(data / "b.jsonl", lines("b"))
    for source in (other, data):
        scratch = ask(source, engine="auto", shard_bytes="1KiB", cache_dir=tmp_path / f"for {source.name}")
        store = ask(source, engine="auto", shard_bytes="1KiB")
        assert store._manifest.tokenizer["engine"] == scratch._manifest.tokenizer["engine"]
        assert store.fingerprint == scratch.fingerprint


@pytest.mark.parametrize("what", ["build", "why"])
def test_a_look_into_stores_is_no_use_of_them(ask, listed, tmp_path, what):
    """Else what nobody needs would never be the longest unused."""
    stores = [ask(write_jsonl(tmp_path / f"{i}.jsonl", lines(f"text {i}"))).path for i in range(2)]
    for days, store in enumerate(stores, 1):
        os.utime(store / ".used", (SECOND + days, SECOND + days))
    other = write_jsonl(tmp_path / "other.jsonl", lines("text 9"))
    if what == "build":
        ask(other)
        assert ask.documents == 30
    else:
        assert ask.command("why", str(other), "-t", str(ask.tokenizer)) == 0
    assert [listed()[store.name]["used"] for store in stores] == [SECOND + 1, SECOND + 2]
    ask(tmp_path / "0.jsonl")
    assert [listed()[store.name]["used"] > 1.5e9 for store in stores] == [True, False]


@pytest.mark.parametrize("version", ["VERSION", "RECEIPT_VERSION"])
def test_another_version_is_another_store(ask, tmp_path, version, monkeypatch):
    """In a cache that two releases share neither takes the other's place."""
    data = write_jsonl(tmp_path / "a.jsonl", ["one", "two"])
    store = ask(left_alone(data))
    before = (store.path / "manifest.json").stat().st_ino
    with monkeypatch.context() as patch:
        patch.setattr(plan, version, 99)
        other = ask(left_alone(data))
        assert (other.path != store.path, ask.documents) == (True, 2)
        assert not set(other._manifest.shard_ids) & set(store._manifest.shard_ids)
    assert len(ask.store_names) == 2
    again = ask(left_alone(data))
    assert (again.path, ask.documents, (again.path / "manifest.json").stat().st_ino) == (store.path, 0, before)


# --- the command ----------------------------------------------------------------------------------------------------------------


def test_folders_that_are_no_stores(ask, listed, tmp_path, capsys):
    """Without a manifest, or of a release that has other names: they are told of, checked past, and pruned."""
    one, two = (ask(write_jsonl(tmp_path / f"{i}.jsonl", [f"text {i}"])).path for i in range(2))
    (one / "manifest.json").unlink()
    foreign = ask.cache / "stores" / ("a" * 24)
    foreign.mkdir()
    (foreign / "large").write_bytes(bytes(3_000_000))
    os.utime(foreign / "large", (SECOND, SECOND))
    (ask.cache / "builds/a file").write_text("of nobody")
    names = [one.name, two.name, foreign.name]
    assert sorted(listed()) == sorted(names)
    assert listed()[foreign.name]["bytes"] >= 3_000_000
    assert ask.command("verify", "--json") == 3
    found = json.loads(capsys.readouterr().out)["stores"]
    assert {name: bool(damages) for name, damages in found.items()} == dict(
        zip(names, (True, False, True), strict=True)
    )
    assert "manifest.json" in found[one.name][0]
    assert ask.command("prune", "--max-size", "2MB") == 0
    assert sorted(ask.store_names) == sorted(names[:2])
    assert ask.command("remove", one.name) == 0
    assert ask.command("verify") == 0


def test_a_command_whose_store_nobody_would_have(ask, tmp_path, capsys):
    """It is over when it has built: a cache that cannot be written is an error there. A program gets its tokens."""
    data = write_jsonl(tmp_path / "a.jsonl", ["one", "two"])
    ask.cache.write_text("no folder")
    how = ["-t", str(ask.tokenizer), "--engine", "reference", "--cache-dir", str(ask.cache), "--json", "--quiet"]
    code = main(["build", str(data), *how])
    said = capsys.readouterr()
    assert (code, said.out) == (1, "")
    assert str(ask.cache) in said.err
    assert "--cache-dir" in said.err
    assert " -o" in said.err
    with pytest.warns(UserWarning, match="cannot be kept"):
        assert len(ask(data)) == 2
