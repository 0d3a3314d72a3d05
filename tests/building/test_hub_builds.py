"""Stores from datasets on the Hugging Face Hub: copied or streamed, followed when a branch moves, resumed after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hub_datasets import (  # noqa: F401
    TOKEN,
    as_the_hub,
    corpus,
    hub_of_module,
    jsonl,
    make_empty_hub,
    numbered,
    parquet,
    pauses,
    publish,
    write,
)
from hub_server import Hub

import tokenmill as tm
from tokenmill.building.cache.maintenance import list_stores, prune, remove, total_bytes
from tokenmill.building.downloads import Downloads
from tokenmill.building.source_text import source_row
from tokenmill.cli import main
from tokenmill.errors import BuildError, MismatchError, UnreachableError
from tokenmill.events import Explained, ShardDone
from tokenmill.store.lease import hold

OPTIONS = {"engine": "tokenizers", "workers": 0, "shard_bytes": 8 << 10, "progress": "quiet"}
NAME = "org/name"


@pytest.fixture
def hub(empty_hub):
    """A Hub with a dataset of four files, and an empty cache."""
    publish(empty_hub, NAME, numbered(4), lfs=True)
    return empty_hub


@pytest.fixture
def build(tokenizer_path):
    def run(out: Path | None = None, source: str = NAME, **options: object) -> tm.Store:
        return tm.build(source, tokenizer_path, out, **{**OPTIONS, **options})

    return run


def downloads(hub: Hub) -> list[str]:
    """The files that were downloaded as a whole: before that, the library asks for what is known about each."""
    return sorted(path.rpartition("/")[2] for method, path in hub.requests if method == "HEAD")


def file(number: int, count: int = 4) -> str:
    return f"train-{number:05}-of-{count:05}.jsonl"


def copies(folder: Path) -> list[Path]:
    return sorted((folder / "datasets").glob("org--name/datasets--org--name/blobs/*"))


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("lfs", [False, True])
def test_a_dataset_gives_the_store_of_the_same_files_in_a_folder(hub, tmp_path, build, streaming, lfs):
    files = {**numbered(3), "data/train-b.parquet": parquet(*(f"row {i} " * 50 for i in range(300)))}
    publish(hub, NAME, files, lfs=lfs)
    local = build(tmp_path / "local", str(write(tmp_path / "files", files)))
    store = build(tmp_path / "store", "hf://datasets/org/name/data", streaming=streaming)
    assert store.fingerprint == local.fingerprint
    assert len(store) == 360
    assert len(copies(tmp_path / "cache")) == (0 if streaming else 4)
    commit = hub.repos[f"datasets/{NAME}"].names["main"]
    assert store.locate(0).file == f"hf://datasets/org/name@{commit}/data/{file(0, 3)}"
    assert list(store.splits) == ["train"]
    (pinned,) = store._manifest.source["hub"]
    assert pinned == {"input": "hf://datasets/org/name/data", "dataset": NAME, "revision": "main", "commit": commit}


def test_workers_read_the_copies(hub, tmp_path, build):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_TOKEN", TOKEN)
        store = build(tmp_path / "store", workers=2)
    assert store.fingerprint == build(tmp_path / "again").fingerprint
    assert downloads(hub) == [file(number) for number in range(4)]
    assert {token for host, token in hub.tokens if host == hub.other_address} == {None}
    everything = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert TOKEN.encode() not in everything
    assert b"X-Amz-Signature" not in everything


def test_copies_are_reused_and_nothing_is_asked_twice(hub, tmp_path, build):
    build(tmp_path / "first")
    hub.requests.clear()
    build(tmp_path / "other", eos="none")
    build(tmp_path / "first")
    assert hub.bytes_asked() == []
    assert {path for _, path in hub.requests} == {"/api/datasets/org/name/revision/main"}


def test_a_trial_downloads_no_file(hub, tmp_path, build):
    assert len(build(tmp_path / "trial", max_documents=3)) == 3
    assert copies(tmp_path / "cache") == []


def test_copies_are_in_the_chosen_cache(hub, tmp_path, build):
    build(cache_dir=tmp_path / "mine")
    assert len(copies(tmp_path / "mine")) == 4
    assert copies(tmp_path / "cache") == []


def test_without_a_connection_what_is_cached_is_enough(hub, tmp_path, build, monkeypatch):
    first = build(tmp_path / "first")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert build(tmp_path / "other").fingerprint == first.fingerprint
    assert hub.requests == []
    with pytest.raises(UnreachableError, match=r"org/name@v2 is not in the cache, and HF_HUB_OFFLINE"):
        build(tmp_path / "third", revision="v2")


# A branch that moves.


def reasons_of(build, out: Path | None, **options: object) -> list[str]:
    said: list[str] = []
    build(out, progress=lambda event: said.extend(event.reasons) if isinstance(event, Explained) else None, **options)
    return said


@pytest.mark.parametrize("in_cache", [False, True])
def test_a_branch_that_moved_is_followed_and_only_what_changed_is_fetched(
    hub, tmp_path, build, tokenizer_path, capsys, in_cache
):
    out = None if in_cache else tmp_path / "store"
    build(out)
    repo = hub.repos[f"datasets/{NAME}"]
    old = repo.names["main"]
    new = repo.commit({**numbered(4), f"data/{file(1)}": corpus(7)}, "main")
    if in_cache:
        assert (
            main(["cache", "why", NAME, "-t", str(tokenizer_path), "--shard-bytes", "8KiB", "--engine", "tokenizers"])
            == 0
        )
        assert f"org/name: main has moved from {old[:7]} to {new[:7]}: 1 of 4 files" in capsys.readouterr().out
    hub.requests.clear()
    moved, cost = reasons_of(build, out)
    assert moved.startswith(f"org/name: main has moved from {old[:7]} to {new[:7]}: 1 of 4 files changed: hf://")
    assert cost.startswith("rebuilding 1 file")
    assert downloads(hub) == [file(1)]
    store = build(out)
    assert store._manifest.source["hub"][0]["commit"] == new
    assert f"@{new}/" in store.locate(0).file
    assert store.fingerprint == build(tmp_path / "anew", streaming=True).fingerprint


def test_a_branch_that_moved_without_a_change_of_the_files(hub, tmp_path, build):
    before = build(tmp_path / "store")
    new = hub.repos[f"datasets/{NAME}"].commit({**numbered(4), "README.md": b"more words"}, "main")
    hub.requests.clear()
    moved, cost = reasons_of(build, tmp_path / "store")
    assert moved.endswith(f"to {new[:7]}: no file changed")
    assert cost == "nothing to tokenize"
    assert [path for path in hub.bytes_asked() if "README" not in path] == []
    after = tm.open(tmp_path / "store")
    assert after.fingerprint == before.fingerprint
    assert after._manifest.source["hub"][0]["commit"] == new


def test_a_pinned_revision_stays(hub, tmp_path, build):
    repo = hub.repos[f"datasets/{NAME}"]
    repo.names["v1"] = repo.names["main"]
    first = build(tmp_path / "store", revision="v1")
    repo.commit({"data/train-00000-of-00001.jsonl": jsonl("new")}, "main")
    assert build(tmp_path / "store", revision="v1").fingerprint == first.fingerprint
    assert build(tmp_path / "other", "org/name@v1").fingerprint == first.fingerprint
    assert len(build(tmp_path / "main")) == 1
    with pytest.raises(MismatchError, match="revision: was v1, now v2"):
        build(tmp_path / "store", revision="v2", source="hf://datasets/org/name@main")


def test_a_store_is_repaired_from_the_commit_it_was_built_from(hub, tmp_path, build, capsys):
    store = build(tmp_path / "store")
    hub.repos[f"datasets/{NAME}"].commit({"data/train-00000-of-00001.jsonl": jsonl("new")}, "main")
    shard = next((tmp_path / "store" / "shards").glob("*.npy"))
    shard.write_bytes(b"\0" * shard.stat().st_size)
    assert main(["verify", str(tmp_path / "store"), "--repair"]) == 0
    repaired = tm.open(tmp_path / "store")
    assert repaired.verify() == []
    assert repaired._manifest.source == store._manifest.source


@pytest.mark.parametrize("streaming", [False, True])
def test_rows_are_shown_at_the_commit_of_the_store(hub, tmp_path, build, streaming):
    """From copies and by ranges."""
    repo = publish(hub, NAME, {"data/train.jsonl": b'{"text": "a"}\n\n{bad\n'})
    store = build(tmp_path / "store", streaming=streaming)
    repo.commit({"data/train.jsonl": b"new\n"}, "main")
    (entry,) = store.quarantine()
    assert source_row(store, entry["file"], entry["row"]).text == "{bad"


# Downloads.


def test_encoding_begins_before_the_last_file_was_downloaded(hub, tmp_path, build):
    shard_is_done = threading.Event()

    def hold_back(method: str, path: str) -> None:
        if method == "HEAD" and path.endswith(file(3)):
            assert shard_is_done.wait(30)

    hub.trouble = hold_back
    build(tmp_path / "store", progress=lambda event: shard_is_done.set() if isinstance(event, ShardDone) else None)
    assert downloads(hub).count(file(3)) == 1


def test_few_files_are_downloaded_before_they_are_wanted(hub, monkeypatch):
    too_many = threading.Event()
    begun: list[str] = []

    def copy(file, note) -> None:
        begun.append(file.path)
        if len(begun) > 3:
            too_many.set()

    monkeypatch.setattr("tokenmill.building.downloads.FILES_AHEAD", 2)
    monkeypatch.setattr("tokenmill.building.downloads.make_copy", copy)
    publish(hub, NAME, numbered(9), lfs=True)
    files = tm.read(NAME).files
    ahead = Downloads(files)
    assert not too_many.wait(0.1)
    ahead.wait_for(files[1])
    assert too_many.wait(30)
    ahead.stop()
    assert len(begun) == 4


def test_an_interrupted_build_goes_on_with_the_files_that_are_missing(hub, tmp_path, build):
    def stop(event: object) -> None:
        if isinstance(event, ShardDone):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "store", progress=stop)
    complete = {path.name for path in copies(tmp_path / "cache")}
    assert not any(name.endswith(".incomplete") for name in complete)
    hub.requests.clear()
    build(tmp_path / "store")
    assert len(downloads(hub)) == 4 - len(complete)
    assert len(copies(tmp_path / "cache")) == 4


@pytest.mark.parametrize("trouble", [429, 503, "drop", (429, {"Retry-After": "7"})])
@pytest.mark.parametrize("asked", ["HEAD", "GET"])
def test_a_download_in_trouble_goes_on(hub, tmp_path, build, pauses, asked, trouble):  # noqa: F811
    left = [trouble, trouble]
    downloading = threading.Event()

    def strike(method: str, path: str):
        if method == "HEAD":
            downloading.set()
        wanted = method == asked and downloading.is_set() and path.endswith(file(2))
        return left.pop() if left and wanted else None

    hub.trouble = strike
    assert len(build(tmp_path / "store")) == 80
    assert left == []


def test_a_copy_that_differs_from_its_checksum_is_downloaded_again(hub, tmp_path, build):
    store = build(tmp_path / "store")
    for copy in copies(tmp_path / "cache"):  # as if the machine had stopped before they were compared
        data = copy.read_bytes()
        copy.chmod(0o644)
        copy.write_bytes(data[:-2] + b" \n")
    hub.requests.clear()
    assert build(tmp_path / "other", force=True).fingerprint == store.fingerprint
    assert downloads(hub) == [file(number) for number in range(4)]


def test_a_server_that_sends_something_else_is_caught(hub, tmp_path, build):
    repo = hub.repos[f"datasets/{NAME}"]
    source = tm.read(NAME)
    files = repo.commits[repo.names["main"]]
    repo.commits[repo.names["main"]] = {name: data.replace(b"part", b"tart") for name, data in files.items()}
    with pytest.raises(BuildError, match=r"differs from what the Hub says it is"):
        build(tmp_path / "store", source)
    assert copies(tmp_path / "cache") == []


def test_after_a_kill_nothing_is_downloaded_or_encoded_twice(hub, tmp_path, build, tokenizer_path):
    shards = tmp_path / "store" / "shards"
    reached = threading.Event()

    def hold_back(method: str, path: str) -> str | None:
        if method != "HEAD" or not path.endswith(file(3)):
            return None
        reached.set()
        return "hang"

    hub.trouble = hold_back
    code = "import sys, tokenmill as tm; tm.build(sys.argv[1], sys.argv[2], sys.argv[3], **eval(sys.argv[4]))"
    arguments = [NAME, str(tokenizer_path), str(tmp_path / "store"), repr(OPTIONS)]
    with subprocess.Popen([sys.executable, "-c", code, *arguments], env=dict(os.environ)) as process:
        assert reached.wait(60)
        while len(list(shards.glob("*.json"))) < 6 and process.poll() is None:  # two of each file
            threading.Event().wait(0.02)
        process.send_signal(signal.SIGKILL)
    done = {path.name: path.stat().st_mtime_ns for path in shards.glob("*.json")}
    assert len(done) == 6
    hub.trouble = lambda method, path: None
    hub.requests.clear()
    store = build(tmp_path / "store")
    assert downloads(hub) == [file(3)]
    assert {
        name: time for name, time in ((p.name, p.stat().st_mtime_ns) for p in shards.glob("*.json")) if name in done
    } == done
    assert store.fingerprint == build(tmp_path / "anew").fingerprint


# The cache.


def test_the_cache_lists_and_removes_datasets_that_are_not_in_use(hub, tmp_path, build, capsys):
    build()
    root = tmp_path / "cache"
    nbytes = sum(map(len, numbered(4).values()))
    assert main(["cache", "list", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    (dataset,) = facts["datasets"]
    assert (dataset["name"], dataset["bytes"], dataset["files"]) == (NAME, nbytes, 4)
    assert len(facts["stores"]) == 1
    assert main(["cache", "list"]) == 0
    assert "4 files of the dataset on the Hugging Face Hub" in capsys.readouterr().out
    lease = hold(root / "datasets" / "org--name")
    assert [kept.name for kept in remove(root, [NAME]).in_use] == [NAME]
    assert [kept.name for kept in prune(root, 0).in_use] == [NAME]
    assert len(copies(root)) == 4
    del lease
    removal = prune(root, 0)
    assert [gone.name for gone in removal.removed] == [NAME]
    assert nbytes <= removal.freed < nbytes + 1000  # with what the library notes about its cache
    assert (copies(root), [one for one in list_stores(root) if one.is_dataset]) == ([], [])
    assert total_bytes(root) < nbytes


def test_a_dataset_is_in_use_while_a_store_is_built_from_it(hub, tmp_path, build):
    kept: list[str] = []

    def look(event: object) -> None:
        if isinstance(event, ShardDone):
            kept.extend(one.name for one in remove(tmp_path / "cache", [NAME]).in_use)

    build(tmp_path / "store", progress=look)
    assert kept[0] == NAME
    assert remove(tmp_path / "cache", [NAME]).in_use == []


def test_a_recipe_may_name_datasets(hub, tmp_path, tokenizer_path):
    sources = {"one": {"path": NAME, "split": "train"}, "two": {"path": "hf://datasets/org/name/data/*-00001-*"}}
    build = {"engine": "tokenizers", "workers": 0}
    recipe = tm.recipe({"sources": sources, "tokenizer": str(tokenizer_path), "build": build, "pack": {"seq_len": 64}})
    assert {name: len(store) for name, store in recipe.stores().items()} == {"one": 80, "two": 20}


def test_copies_in_the_cache_are_not_input(hub, tmp_path, build):
    """A folder that holds the cache, and data of its own in a folder of the same name."""
    build()
    write(tmp_path / "cache" / "datasets", {"mine.jsonl": jsonl("mine")})
    source = tm.read(tmp_path / "cache" / "datasets")
    assert any("datasets--org--name" in file.path for file in source.files)
    assert len(build(tmp_path / "store", source)) == 1
