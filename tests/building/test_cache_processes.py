"""Many processes and one cache: one of them builds, the others wait; whoever is killed, the rest get the same store.

TEST_ROUNDS says how many rounds of processes there are (4; `make stress` has 50).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from build_helpers import leftovers
from cache_world import SETTLED_SECONDS

import tokenmill as tm
from tokenmill.cli import main

pytestmark = pytest.mark.usefixtures("alone")

ROUNDS = int(os.environ.get("TEST_ROUNDS", "4"))
MANY = ROUNDS > 4
ASKING = 8 if MANY else 4  # processes
DEATHS = (4 if MANY else 2) * ROUNDS
HARD_LIMIT = 60.0  # seconds after which anything still running is a hang
GO_ON = 10.0  # seconds in which another process goes on where one was killed; it is well below one on an idle machine

# Forked from one Python, which saves their start; each is a process of its own that says what it got in one line.
ASK = """
import json, os, sys
sys.modules["torch"] = None  # quicker to start, and batches are the same
import tokenmill as tm
import tokenmill.building.cache.store_cache, tokenmill.building.task, tokenmill.loading
asks = json.loads(sys.argv[1])
def ask(source, tokenizer, load=None, **options):
    events = []
    if load is not None:
        loader = tm.load(source, 2, tokenizer=tm.load_tokenizer(tokenizer, "reference"), seq_len=32, **load)
        return {"batches": [loader.batch(step)["input_ids"].tolist() for step in range(8)]}
    store = tm.build(source, tokenizer, engine="reference", progress=lambda e: events.append(e.name), **options)
    return {
        "path": str(store.path),
        "fingerprint": store.fingerprint,
        "documents": sum(1 for _ in store),
        "damage": list(map(str, store.verify())),
        "file": store.locate(0).file,
        "built": "finished" in events,
        "waited": "waiting" in events,
    }
children = []
for number, asked in enumerate(asks):
    children.append(os.fork())
    if not children[-1]:
        try:
            said = {"number": number, **ask(**asked)}
        except BaseException as error:
            said = {"number": number, "error": f"{type(error).__name__}: {error}"}
        os.write(1, json.dumps(said).encode() + b"\\n")
        os._exit(0)
for child in children:
    os.waitpid(child, 0)
"""


def written(folder: Path, files: int, documents: int, seed: int = 3) -> Path:
    """JSON lines of words that nobody has seen before, so that an engine has to work for them; 700 bytes a document."""
    draw = random.Random(seed)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(1, 9))) for _ in range(5000)]
    folder.mkdir(parents=True)
    for number in range(files):
        texts = (" ".join(draw.choices(words, k=110)) for _ in range(documents))
        (folder / f"{number}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@contextmanager
def asking(*asks: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """One process for each, all at once, in a group of which nothing outlives this block."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", ASK, json.dumps(asks, default=str)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=HARD_LIMIT)


def answers(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """What each of them said that lived to say it, in the order in which they were asked."""
    out, err = process.communicate(timeout=HARD_LIMIT)
    assert process.returncode == 0, err
    said = sorted(map(json.loads, out.splitlines()), key=lambda one: one["number"])
    assert [one["error"] for one in said if "error" in one] == []
    return said


def wait_for(what, gone):
    """What is found in the end; None where the processes were gone before."""
    deadline = time.monotonic() + HARD_LIMIT
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        if gone():
            return None
        time.sleep(0.005)
    raise AssertionError("nobody goes on")


def builder(cache: Path, others: list[int]) -> int | None:
    """The process that holds the lock of the only entry."""
    for lock in (cache / "builds").glob("*/.lock"):
        holder = lock.read_text()
        if holder and int(holder) not in others:
            return int(holder)
    return None


def receipts(cache: Path) -> dict[str, int]:
    """Shards that are done; by inode, which tells one that was kept from one that was made again."""
    found = {}
    for path in (*cache.glob("builds/*/store/shards/*.json"), *cache.glob("stores/*/shards/*.json")):
        with suppress(FileNotFoundError):
            found[path.name] = path.stat().st_ino
    return found


# --- the same store -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpora(tmp_path_factory, tokenizer_path) -> dict[int, tuple[Path, str, int]]:
    """By number of workers: a corpus, and what its store must be."""
    found = {}
    for workers, documents in ((0, 200), (2, 300)):
        folder = written(tmp_path_factory.mktemp("corpus") / str(workers), 3, documents)
        out = tmp_path_factory.mktemp("right") / "store"
        right = tm.build(folder, tokenizer_path, out, shard_bytes="16KB", workers=0, engine="reference")
        found[workers] = (folder, right.fingerprint, right.num_shards)
    return found


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_processes_that_ask_at_once(workers, kills, corpora, tokenizer_path, tmp_path, monkeypatch, capsys):
    """One builds. Where it is killed in the middle, another goes on from there; all that are left get one whole store."""
    corpus, right, shards = corpora[workers]
    ask = {"source": corpus, "tokenizer": tokenizer_path, "workers": workers, "shard_bytes": "16KB"}
    draw = random.Random(workers + kills)
    rounds = len(range(workers + kills, ROUNDS, 4))
    began, done, turns, killed, longest = time.monotonic(), 0, 0, 0, 0.0
    while done < rounds:
        cache = tmp_path / f"cache{turns}"
        turns += 1
        assert turns < 10 + 3 * rounds, "builds end before they can be killed"
        monkeypatch.setenv("TOKENMILL_CACHE", str(cache))
        moments = sorted(draw.sample(range(1, shards // 2), draw.choice([1, 1, 2]))) if kills else []
        with asking(*[ask] * ASKING) as process:
            dead, kept, waits = killed_at(moments, cache, process)
            said = answers(process)
        done += len(dead) == len(moments)
        killed += len(dead)
        longest = max(longest, *waits, 0.0)
        assert longest < GO_ON
        assert len(said) == ASKING - len(dead)
        assert {one["fingerprint"] for one in said} == {right}
        assert [one["damage"] for one in said] == [[]] * len(said)
        assert sum(one["built"] for one in said) == 1
        (store,) = (cache / "stores").iterdir()
        assert {one["path"] for one in said} == {str(store)}
        found = receipts(cache)
        assert {name: found[name] for name in kept} == kept  # nothing is done twice
        assert len(found) == shards
        assert leftovers(cache) == []
    if rounds > 1:
        seconds = time.monotonic() - began
        with capsys.disabled():
            print(
                f"\n{turns} rounds of {ASKING} processes, workers={workers}: {killed} kills, {seconds:.0f} s,"
                f" others went on within {longest:.2f} s"
            )


def killed_at(
    moments: list[int], cache: Path, process: subprocess.Popen[str]
) -> tuple[list[int], dict[str, int], list[float]]:
    """Kill whoever builds when so many shards are done: who that was, the shards there were, and how long until the next.

    It is stopped before it is killed, to see that there was still something to do; a build that was faster is let go.
    """
    dead: list[int] = []
    kept: dict[str, int] = {}
    waits: list[float] = []

    def ended() -> bool:
        return process.poll() is not None

    for moment in moments:
        wait_for(lambda: len(receipts(cache)) >= moment, ended)  # noqa: B023
        holder = wait_for(lambda: builder(cache, dead), ended)
        if holder is None:
            break
        with suppress(ProcessLookupError):
            os.kill(holder, signal.SIGSTOP)
        if (cache / "stores").exists():
            with suppress(ProcessLookupError):
                os.kill(holder, signal.SIGCONT)
            break
        kept |= receipts(cache)
        os.kill(holder, signal.SIGKILL)
        struck = time.monotonic()
        dead.append(holder)
        assert wait_for(lambda: builder(cache, dead), ended)
        waits.append(time.monotonic() - struck)
    return dead, kept, waits


# --- other stores ---------------------------------------------------------------------------------------------------------


def test_the_same_content_in_two_folders(cache, tokenizer_path, tmp_path):
    """One store, whoever comes first; and each knows it by the names of its own files."""
    folders = [written(tmp_path / name, 2, 20) for name in ("here", "there")]
    asks = [{"source": folders[number % 2], "tokenizer": tokenizer_path, "workers": 0} for number in range(6)]
    with asking(*asks) as process:
        said = answers(process)
    (store,) = (cache / "stores").iterdir()
    assert [one["path"] for one in said] == [str(store)] * 6
    assert [one["file"] for one in said] == [str(folders[number % 2] / "0.jsonl") for number in range(6)]
    assert [one["documents"] for one in said] == [40] * 6
    assert leftovers(cache) == []


def test_one_who_is_there_first_while_another_puts_its_store_away(cache, tokenizer_path, tmp_path, monkeypatch):
    """Two entries, the same content: right before a store is put where it stays, another process puts the same one there."""
    folders = [written(tmp_path / name, 1, 20) for name in ("here", "there")]
    replace, others = os.replace, iter(folders[1:])

    def late(old, new):
        if Path(old).name == "store" and (folder := next(others, None)) is not None:
            ask = {"source": folder, "tokenizer": tokenizer_path, "workers": 0}
            with asking(ask) as process, suppress(subprocess.TimeoutExpired):  # it may have to wait for this one
                process.wait(1.5)
        replace(old, new)

    monkeypatch.setattr(os, "replace", late)
    store = tm.build(folders[0], tokenizer_path, workers=0, engine="reference", progress="quiet")
    (place,) = (cache / "stores").iterdir()
    assert store.path == place
    assert store.verify() == []
    assert store.locate(0).file == str(folders[0] / "0.jsonl")


def test_two_tokenizers_at_once(cache, tokenizer_path, tmp_path):
    corpus = written(tmp_path / "corpus", 2, 15)
    specs = [tokenizer_path, "bytes"]
    with asking(*({"source": corpus, "tokenizer": specs[number % 2], "workers": 0} for number in range(6))) as process:
        said = answers(process)
    for number, spec in enumerate(specs):
        right = tm.build(corpus, spec, tmp_path / f"right{number}", workers=0, engine="reference")
        assert {one["fingerprint"] for one in said[number::2]} == {right.fingerprint}
    assert len(list((cache / "stores").iterdir())) == 2
    assert leftovers(cache) == []


def test_ranks_that_load_the_same_text(cache, tokenizer_path, tmp_path):
    """As under torchrun: four processes, four parts of the same batches, one store."""
    corpus = written(tmp_path / "corpus", 2, 10)
    ask = {"source": str(corpus), "tokenizer": tokenizer_path}
    with asking(*({**ask, "load": {"rank": rank, "world_size": 4}} for rank in range(4))) as process:
        said = answers(process)
    one = tm.load(corpus, 8, tokenizer=tm.load_tokenizer(tokenizer_path, "reference"), seq_len=32, prefetch=0)
    for step in range(8):
        rows = [row for rank in said for row in rank["batches"][step]]
        assert rows == one.batch(step)["input_ids"].tolist()
    assert len(list((cache / "stores").iterdir())) == 1
    assert leftovers(cache) == []


# --- killed at any moment ---------------------------------------------------------------------------------------------------

# Builds that die before or after their nth change of the file system; the moments that are tried go round and round.
DIE = """
import json, os, shutil, signal, sys
import tokenmill as tm
import tokenmill.building.cache.store_cache, tokenmill.building.task
corpus, tokenizer, begun, folder, rounds = sys.argv[1:]

def build(cache, die_at=0):
    changes = documents = 0
    def counting(change):
        def counted(*arguments, **options):
            nonlocal changes
            changes += 1
            if 2 * changes == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return change(*arguments, **options)
            finally:
                if 2 * changes + 1 == die_at:
                    os.kill(os.getpid(), signal.SIGKILL)
        return counted
    def heard(event):
        nonlocal documents
        documents = event.documents if event.name == "progress" else documents
    for name in ("rename", "replace", "link", "mkdir", "unlink", "rmdir", "fsync"):
        setattr(os, name, counting(getattr(os, name)))
    options = dict(engine="reference", workers=0, shard_bytes="2KB", cache_dir=cache, progress=heard)
    store = tm.build(corpus, tokenizer, **options)
    damage = list(map(str, store.verify()))
    return {"changes": changes, "fingerprint": store.fingerprint, "damage": damage, "documents": documents}

def in_a_child(*arguments):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = build(*arguments)
        except BaseException as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        os.write(write, json.dumps(said).encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return json.loads(said) if said else None

shutil.copytree(begun, folder + "/whole")
moments = 2 * in_a_child(folder + "/whole")["changes"] + 2
for turn in range(int(rounds)):
    die_at = 2 + turn * 7919 % (moments - 2)  # a prime: all of them in the end, and soon some from everywhere
    cache = f"{folder}/{turn}"
    shutil.copytree(begun, cache)
    died = in_a_child(cache, die_at)
    print(json.dumps({"die_at": die_at, "died": died, "then": in_a_child(cache), "again": in_a_child(cache)}), flush=True)
"""


def test_killed_at_any_change_of_the_file_system(tokenizer_path, tmp_path):
    """A corpus grew, and its build dies: the next finishes it, and the one after that finds nothing to do."""
    corpus = written(tmp_path / "corpus", 3, 6)
    ask = {"engine": "reference", "workers": 0, "shard_bytes": "2KB", "progress": "quiet"}
    tm.build(corpus, tokenizer_path, cache_dir=tmp_path / "begun", **ask)
    (corpus / "3.jsonl").write_text('{"text": "one"}\n' * 12)
    right = tm.build(corpus, tokenizer_path, tmp_path / "right", **ask).fingerprint
    run = [sys.executable, "-c", DIE, *map(str, (corpus, tokenizer_path, tmp_path / "begun", tmp_path, DEATHS))]
    done = subprocess.run(run, capture_output=True, text=True, timeout=10 * HARD_LIMIT)
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(said) == DEATHS
    assert [one["died"] for one in said] == [None] * len(said)
    for turn, one in enumerate(said):
        then, again = one["then"], one["again"]
        assert (then.get("error"), again.get("error")) == (None, None), one
        assert (then["fingerprint"], then["damage"]) == (again["fingerprint"], again["damage"]) == (right, []), one
        assert then["documents"] <= 12, one
        assert again["documents"] == 0, one
        assert not list((tmp_path / str(turn)).glob("builds/*/store")), one
        assert len(list((tmp_path / str(turn)).glob("stores/*/manifest.json"))) == 2, one


# --- stores that are held ---------------------------------------------------------------------------------------------------

HOLD = """
import os, sys
import tokenmill as tm
from tokenmill.packing import pack
store = tm.build(sys.argv[1], sys.argv[2], engine="reference", workers=0, progress="quiet")
what = {"store": store, "view": pack(store, 16), "documents": iter(store)}[sys.argv[3]]
if os.fork():
    os._exit(0)  # the child goes on, with what it has of its parent
del store
print("held", flush=True)
sys.stdin.read()
print(sum(1 for _ in what))
"""


@pytest.mark.parametrize("what", ["store", "view", "documents"])
def test_what_a_forked_child_holds_is_not_pruned(cache, tokenizer_path, tmp_path, what):
    """Nor removed; not until the last process that has it, or a view of it, has ended."""
    corpus = written(tmp_path / "corpus", 1, 50)
    run = [sys.executable, "-c", HOLD, str(corpus), str(tokenizer_path), what]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        (store,) = (cache / "stores").iterdir()
        codes = [main(["cache", *verb]) for verb in (["prune", "--max-size", "1KB"], ["remove", store.name])]
        there = store.exists()
        said = process.communicate(timeout=HARD_LIMIT)[0]
    rows = tm.pack(store, 16) if what == "view" else tm.open(store)
    assert (codes, there, said.strip()) == ([0, 1], True, str(len(rows)))
    del rows
    assert main(["cache", "prune", "--max-size", "1KB"]) == 0
    assert list((cache / "stores").iterdir()) == []


def test_pruned_at_the_very_moment_it_is_found(cache, tokenizer_path, tmp_path, monkeypatch):
    """A store that was looked at and then went is not handed out: it is held first, or made again."""
    corpus = written(tmp_path / "corpus", 1, 50)
    written_at = time.time()
    while time.time() < written_at + SETTLED_SECONDS:  # its file is known by how it looks from then on
        time.sleep(0.05)
    ask = {"workers": 0, "engine": "reference", "progress": "quiet"}
    tm.build(corpus, tokenizer_path, **ask)
    scandir, prune = os.scandir, [sys.executable, "-m", "tokenmill.cli", "cache", "prune", "--max-size", "1KB"]
    pruned: list[int] = []

    def looked_at(path=".") -> Any:
        if "stores" not in str(path) or not str(path).endswith("shards") or pruned:
            return scandir(path)
        with scandir(path) as entries:
            found = list(entries)
        for entry in found:
            entry.stat()  # an entry remembers that
        pruned.append(subprocess.run(prune, capture_output=True, timeout=HARD_LIMIT).returncode)
        return nullcontext(found)

    monkeypatch.setattr(os, "scandir", looked_at)
    store = tm.build(corpus, tokenizer_path, **ask)
    assert pruned == [0]
    assert len(list(store)) == 50
    assert store.verify() == []
