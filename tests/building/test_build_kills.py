"""Killed, crashed, interrupted: the build that is run again ends with the same store, and leaves nobody behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from build_helpers import shard_files, temporary_files, wait_until, worker_processes, write_random_words

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.errors import TokenizerError
from tokenmill.io.checked_lines import read_lines
from tokenmill.store.manifest import read_manifest

HARD_LIMIT = 60.0  # seconds after which anything still running is a hang

DRIVER = """
import sys
import tokenmill as tm
source, tokenizer, out, workers, *memory = sys.argv[1:]
store = tm.build(
    source,
    tokenizer,
    out,
    workers=int(workers),
    shard_bytes="16KB",
    progress="quiet",
    memory=(memory or [None])[0],
    engine="gigatoken",
)
print(store.fingerprint)
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """Some 90 tasks: four files in pieces and a group of small ones. About a second of work."""
    folder = tmp_path_factory.mktemp("corpus")
    write_random_words(folder, 500)
    for number in range(5):
        (folder / f"small{number}.jsonl").write_text(f'{{"text": "small {number}"}}\n{{bad\n')
    return folder


@pytest.fixture(scope="module")
def undisturbed(corpus, tokenizer_path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "store"
    tm.build(corpus, tokenizer_path, folder, workers=0, shard_bytes="16KB", progress="quiet")
    return folder


@contextmanager
def running(*arguments: object, site: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A Python in a process group of its own, of which nothing outlives this block. `site` holds a sitecustomize.py."""
    path = [str(site)] if site is not None else []
    path += filter(None, [os.environ.get("PYTHONPATH")])
    process = subprocess.Popen(
        [sys.executable, "-W", "always::ResourceWarning", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=HARD_LIMIT)


def members(group: int) -> list[int]:
    """The living processes of a group."""
    found = []
    for process in psutil.process_iter(["pid", "status"]):
        try:
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except ProcessLookupError:
            pass
    return found


def receipts(store: Path) -> dict[str, tuple[int, int]]:
    """Every receipt there is: which file it is, and when it was written."""
    found = {}
    for path in (store / "shards").glob("*.json"):
        found[path.name] = (path.stat().st_ino, path.stat().st_mtime_ns)
    return found


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Let it run to its end, which must come by itself."""
    out, err = process.communicate(timeout=HARD_LIMIT)
    return process.returncode, out, err


# The build is killed.


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.stress)])
def test_fifty_kills(corpus, undisturbed, tokenizer_path, tmp_path, kills):
    """Killed at many moments and run again each time: nothing is done twice, and the store is as if nothing had happened.

    Half the kills hit the whole process group, half only the supervisor, whose workers must then end by themselves.
    """
    draw = random.Random(kills)
    stores = iter(range(100))
    store = tmp_path / str(next(stores))
    for kill in range(kills):
        before = receipts(store)
        with running("-c", DRIVER, corpus, tokenizer_path, store, 2) as build:
            moment = time.monotonic() + draw.uniform(0.05, 1.0)
            ended = wait_until(lambda: build.poll() is not None or time.monotonic() > moment)  # noqa: B023
            assert ended
            with suppress(ProcessLookupError):
                os.killpg(build.pid, signal.SIGKILL) if kill % 2 else build.kill()
            assert wait_until(lambda: not members(build.pid), 15), "workers outlived their supervisor"
        after = receipts(store)
        assert {name: after.get(name) for name in before} == before
        if (store / "manifest.json").exists() and read_manifest(store).complete:
            assert read_manifest(store).fingerprint == tm.open(undisturbed).fingerprint
            store = tmp_path / str(next(stores))

    before = receipts(store)
    with running("-c", DRIVER, corpus, tokenizer_path, store, 2) as build:
        code, out, err = finish(build)
        assert not members(build.pid)
    assert (code, err) == (0, "")
    assert out.strip() == tm.open(undisturbed).fingerprint
    after = receipts(store)
    assert {name: after[name] for name in before} == before
    assert shard_files(store) == shard_files(undisturbed)
    assert temporary_files(store) == []
    assert tm.open(store).verify() == []


# Workers are killed.


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.stress)])
def test_twenty_killed_workers(corpus, undisturbed, tokenizer_path, tmp_path, proved, kills):
    """Workers killed from outside are replaced: the build ends by itself, with the same store, and blames no document."""
    draw = random.Random(20)
    killed = rounds = 0
    while killed < kills:
        rounds += 1
        assert rounds < 20, "builds end before a worker can be killed"
        store = tmp_path / str(rounds)
        with running("-c", DRIVER, corpus, tokenizer_path, store, 2) as build:
            here = 0
            while here < 4 and build.poll() is None:
                moment = time.monotonic() + draw.uniform(0.1, 0.6)
                wait_until(lambda: build.poll() is not None or time.monotonic() > moment)  # noqa: B023
                workers = [pid for pid in members(build.pid) if pid != build.pid]
                if workers and build.poll() is None:
                    os.kill(draw.choice(workers), signal.SIGKILL)
                    here += 1
            code, out, err = finish(build)
            assert not members(build.pid)
        killed += here
        assert code == 0, err
        assert out.strip() == tm.open(undisturbed).fingerprint
        assert read_manifest(store).quarantined == read_manifest(undisturbed).quarantined
        assert temporary_files(store) == []
        assert "ResourceWarning" not in err


def test_a_template_that_is_killed_before_it_tells_of_a_worker(corpus, undisturbed, tokenizer_path, tmp_path, proved):
    """The worker that nobody knows of ends. Another one gets its pipes, and they do not take each other's messages."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(f"""
import os, signal, sys, time
if any(word.startswith("tokenmill.building.executors.worker_template") for word in sys.orig_argv):
    fork = os.fork
    def fork_and_die():
        pid = fork()
        if pid:
            try:
                os.close(os.open({str(tmp_path / "died")!r}, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return pid
            time.sleep(0.3)  # the worker is at its first line
            os.kill(os.getpid(), signal.SIGKILL)
        return pid
    os.fork = fork_and_die
""")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    arguments = [sys.executable, "-c", DRIVER, corpus, tokenizer_path, tmp_path / "store", "2"]
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, env=environment, timeout=60)
    assert (tmp_path / "died").exists()
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == tm.open(undisturbed).fingerprint


@pytest.mark.stress
def test_a_worker_that_dies_after_it_was_retired(corpus, undisturbed, tokenizer_path, tmp_path):
    """A worker is retired for its size while it still makes its last shard durable, and dies at that: no hang.

    Every worker is larger than it may be, and so retired after a task. The first to commit waits until its successor has had
    time to do everything else, and then dies.
    """
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(f"""
import os, sys, time
if any(word.startswith("tokenmill.building.executors.worker") for word in sys.orig_argv):
    from tokenmill.building.executors.worker import _WorkerProcess
    from tokenmill.store.shard import ShardWriter
    run = _WorkerProcess.run
    def heavy(self, loaded):
        self.ballast = b"x" * (400 << 20)
        run(self, loaded)
    _WorkerProcess.run = heavy
    commit = ShardWriter.commit
    def slowly(self, *name, **facts):
        try:
            os.close(os.open({str(tmp_path / "once")!r}, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return commit(self, *name, **facts)
        deadline = time.monotonic() + 6
        while time.monotonic() < deadline:
            time.sleep(0.05)
        os._exit(9)
    ShardWriter.commit = slowly
""")
    source = tmp_path / "in"
    source.mkdir()
    for number in (0, 1):
        lines = (corpus / "0.jsonl").read_text().splitlines(True)[number * 100 : number * 100 + 18]
        (source / f"{number}.jsonl").write_text("".join(lines))
    arguments = ("-c", DRIVER, source, tokenizer_path, tmp_path / "store", 1, "336MiB")
    with running(*arguments, site=tmp_path / "site") as build:
        assert wait_until(lambda: build.poll() is not None, 25), "the build hangs"
        code, out, err = finish(build)
    assert code == 0, err
    reference = tm.build(source, tokenizer_path, tmp_path / "other", workers=0, shard_bytes="16KB", progress="quiet")
    assert reference.num_shards == 2
    assert out.strip() == reference.fingerprint


@pytest.mark.stress
def test_workers_that_die_at_every_commit(corpus, tokenizer_path, tmp_path):
    """A task that can be encoded but never made durable is given up in the end; the build does not try for ever."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text("""
import os, sys, threading
if any(word.startswith("tokenmill.building.executors.worker") for word in sys.orig_argv):
    from tokenmill.store.shard import ShardWriter
    def die(self, *name, **facts):
        threading.Event().wait(0.2)  # by now the supervisor has heard that the task is encoded
        os._exit(9)
    ShardWriter.commit = die
""")
    store = tmp_path / "store"
    arguments = ("-c", DRIVER, corpus / "small0.jsonl", tokenizer_path, store, 1)
    with running(*arguments, site=tmp_path / "site") as build:
        # Fifteen workers, one after the other.
        assert wait_until(lambda: build.poll() is not None, 3 * HARD_LIMIT), "the build tries for ever"
        finish(build)
    assert not read_manifest(store).complete


# A document crashes the engine.

CRASH = "sudden-death-marker"

CRASHING = f"""
import os, signal, sys
if any(word.startswith("tokenmill.building.executors.worker") for word in sys.orig_argv):
    import pyarrow.compute as pc
    from tokenmill.encoding.engines import GigatokenEngine
    encode = GigatokenEngine.encode
    def crash(self, values):
        if len(values) and pc.any(pc.match_substring(values, {CRASH!r})).as_py():
            os.kill(os.getpid(), signal.SIGSEGV)
        return encode(self, values)
    GigatokenEngine.encode = crash
"""


def crashing_site(folder: Path) -> Path:
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(CRASHING)
    return folder


BIG_SHARDS = DRIVER.replace('"16KB"', '"32MB"')


def check_crashes(source: Path, tokenizer_path: Path, tmp_path: Path, poison: list[tuple[str, int]]) -> None:
    """Build with an engine that crashes; what differs from a build with one that does not is just the poison."""
    reference = tm.build(source, tokenizer_path, tmp_path / "reference", workers=0, progress="quiet")
    expected = [
        (place, ids.tolist())
        for place, ids in zip(map(reference.locate, range(len(reference))), reference, strict=True)
        if tuple(place) not in poison
    ]
    assert len(expected) == len(reference) - len(poison)
    store_path = tmp_path / "store"
    arguments = ("-c", BIG_SHARDS, source, tokenizer_path, store_path, 2)
    with running(*arguments, site=crashing_site(tmp_path / "site")) as build:
        code, _, err = finish(build)
    assert code == 0, err
    store = tm.open(store_path)
    assert [store.locate(i) for i in range(len(store))] == [place for place, _ in expected]
    assert all(store[i].tolist() == ids for i, (_, ids) in enumerate(expected))
    lines = [json.loads(line) for line in (store_path / "quarantine.jsonl").read_bytes().splitlines()]
    crashed = [(line["file"], line["row"]) for line in lines if line["reason"] == "crashed the engine"]
    assert crashed == poison
    assert read_manifest(store_path).quarantined["crashed the engine"] == len(poison)
    others = [line for line in lines if line["reason"] != "crashed the engine"]
    assert others == [json.loads(line) for line in (tmp_path / "reference/quarantine.jsonl").read_bytes().splitlines()]
    assert store.verify() == []


@pytest.mark.stress
def test_documents_that_crash_the_engine(corpus, tokenizer_path, tmp_path):
    """They alone are left out, with their file and row: two in different blocks of a file, one among small files."""
    source = tmp_path / "in"
    source.mkdir()
    text = (corpus / "0.jsonl").read_text()
    large = [json.dumps({"text": text[i : i + 20_000]}) + "\n" for i in range(0, 320_000, 20_000)] * 25  # two blocks
    large[11] = json.dumps({"text": f"before {CRASH} after"}) + "\n"
    large[380] = json.dumps({"text": CRASH}) + "\n"
    (source / "b-large.jsonl").write_text("".join(large))
    for number in range(4):
        (source / f"a-small{number}.jsonl").write_text(f'\n{{bad\n{{"text": "good {number}"}}\n\n{{"text": "more"}}\n')
    (source / "a-small2.jsonl").write_text(f'\n{{bad\n{{"text": "x"}}\n\n{{"text": "{CRASH}"}}\n{{"text": "y"}}\n')
    poison = [
        (str(source / "a-small2.jsonl"), 4),
        (str(source / "b-large.jsonl"), 11),
        (str(source / "b-large.jsonl"), 380),
    ]
    check_crashes(source, tokenizer_path, tmp_path, poison)


@pytest.mark.stress
def test_neighbours_that_crash_the_engine(tokenizer_path, tmp_path):
    """Two in a row in one block, the first and last of their file, with bad rows around."""
    source = tmp_path / "in"
    source.mkdir()
    good, bad = json.dumps({"text": "good " * 20}) + "\n", json.dumps({"text": f"x {CRASH}"}) + "\n"
    (source / "a.jsonl").write_text(good * 3)
    (source / "b.jsonl").write_text(bad + bad + "{bad\n\n" + good * 3 + bad)
    (source / "c.jsonl").write_text(good)
    check_crashes(source, tokenizer_path, tmp_path, [(str(source / "b.jsonl"), row) for row in (0, 1, 7)])


# A worker cannot even start.


def test_workers_that_cannot_start(corpus, tokenizer_path, tmp_path):
    """When no worker gets as far as being ready, the build says so, with what they said, and does not hang."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text("""
import os, sys
if any(word.startswith("tokenmill.building.executors.worker") for word in sys.orig_argv):
    os.write(2, b"no engine on this machine")
    os._exit(7)
""")
    arguments = ("-c", DRIVER, corpus, tokenizer_path, tmp_path / "store", 2)
    with running(*arguments, site=tmp_path / "site") as build:
        assert wait_until(lambda: build.poll() is not None, 20), "the build hangs"
        code, _, err = finish(build)
        assert not members(build.pid)
    assert code == 1
    assert "BuildError" in err
    assert "no engine on this machine" in err


def test_a_tokenizer_that_vanishes_before_the_workers_read_it(corpus, tokenizer_path, tmp_path):
    """What a worker cannot load is an error of the build, that names the file."""
    kept = tmp_path / "store/tokenizer/tokenizer.json"

    def vanish(event):
        if event.name == "planned":
            kept.unlink()

    with pytest.raises(TokenizerError, match=str(kept)):
        tm.build(corpus, tokenizer_path, tmp_path / "store", workers=2, shard_bytes="16KB", progress=vanish)
    assert not worker_processes()


# The build is interrupted.


@pytest.mark.parametrize("moment", ["early", "midway"])
def test_ctrl_c(corpus, undisturbed, tokenizer_path, tmp_path, capsys, moment):
    """Exit 130, a message that says how to go on, nobody left behind; and that is how it goes on."""
    store = tmp_path / "store"
    command = ["build", str(corpus), "-t", str(tokenizer_path), "-o", str(store), "--shard-bytes", "16KB"]
    with running("-m", "tokenmill.cli", *command, "--workers", "2") as build:
        if moment == "early":  # the workers are still starting
            begun = wait_until(lambda: len(members(build.pid)) > 1 or build.poll() is not None)
        else:
            begun = wait_until(lambda: len(receipts(store)) > 5 or build.poll() is not None)
        assert begun
        assert build.poll() is None
        os.killpg(build.pid, signal.SIGINT)
        code, out, err = finish(build)
        assert wait_until(lambda: not members(build.pid), 10)
    assert code in (130, -signal.SIGINT), err  # the latter if it comes while Python compiles text, as for a dataclass
    assert out == ""
    assert "Finished shards are kept: run the command again to resume" in err
    assert "Traceback" not in err
    if (store / "events.jsonl").exists():  # before a manifest was written nothing is left behind, not even the folder
        assert list(read_lines(store / "events.jsonl"))[-1]["event"] == "stopped"

    before = receipts(store)
    assert bool(before) == (moment == "midway")
    capsys.readouterr()
    assert main([*command, "--workers", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fingerprint"] == tm.open(undisturbed).fingerprint
    after = receipts(store)
    assert {name: after[name] for name in before} == before
    assert shard_files(store) == shard_files(undisturbed)
    assert temporary_files(store) == []


def test_terminated(corpus, undisturbed, tokenizer_path, tmp_path):
    """SIGTERM, as a job scheduler sends it, to the build alone: its workers end too, and the next run goes on."""
    store = tmp_path / "store"
    with running("-c", DRIVER, corpus, tokenizer_path, store, 2) as build:
        assert wait_until(lambda: len(receipts(store)) > 5 or build.poll() is not None)
        build.terminate()
        finish(build)
        assert wait_until(lambda: not members(build.pid), 10), "workers outlived their supervisor"
    before = receipts(store)
    options = {"workers": 0, "engine": "gigatoken", "shard_bytes": "16KB", "progress": "quiet"}
    assert tm.build(corpus, tokenizer_path, store, **options).fingerprint == tm.open(undisturbed).fingerprint
    assert {name: receipts(store)[name] for name in before} == before


CRASHING_READER = f"""
import os, signal, sys
if any(word.startswith("tokenmill.building.executors.worker") for word in sys.orig_argv):
    from tokenmill.reading.formats import jsonl
    parse = jsonl.jsonl_texts
    def crash(data, source):
        if {CRASH!r}.encode() in data:
            os.kill(os.getpid(), signal.SIGSEGV)
        return parse(data, source)
    jsonl.jsonl_texts = crash
"""


@pytest.mark.stress
def test_a_file_that_crashes_its_reader(tokenizer_path, tmp_path):
    """It fails by name, in the end, and takes no document of its neighbours with it."""
    data, site = tmp_path / "data", tmp_path / "site"
    data.mkdir()
    site.mkdir()
    (site / "sitecustomize.py").write_text(CRASHING_READER)
    good = "".join(json.dumps({"text": f"good {i} " + "word " * 400}) + "\n" for i in range(3000))
    (data / "a.jsonl").write_text(good)
    (data / "b.jsonl").write_text(good + json.dumps({"text": CRASH}) + "\n")
    with running("-c", DRIVER, data, tokenizer_path, tmp_path / "store", 2, site=site) as build:
        code, _, err = finish(build)
    assert code == 0, err
    with pytest.warns(UserWarning, match="not complete"):
        store = tm.open(tmp_path / "store")
    assert [entry["file"] for entry in store.failed] == [str(data / "b.jsonl")]
    assert store._manifest.quarantined == {}
    assert len(store) == 3000
    assert {store.locate(i).file for i in range(len(store))} == {str(data / "a.jsonl")}


def test_code_in_the_current_folder_is_not_run(corpus, undisturbed, tokenizer_path, tmp_path):
    """A corpus may hold queue.py or tokenizers.py; a build started beside them must not import them."""
    for name in ("queue.py", "signal.py", "tokenizers.py", "tokenmill.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'RUN')!r}, 'w')\nraise SystemExit('imported')\n")
    code = "import sys; sys.path = [p for p in sys.path if p]; from tokenmill.cli import main; sys.exit(main(sys.argv[1:]))"
    command = ["build", str(corpus), "-t", str(tokenizer_path), "-o", "store", "--workers", "2", "-q"]
    ran = subprocess.run(
        [sys.executable, "-P", "-c", code, *command, "--shard-bytes", "16KB"],
        cwd=tmp_path,
        capture_output=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert not (tmp_path / "RUN").exists()
    assert tm.open(tmp_path / "store").fingerprint == tm.open(undisturbed).fingerprint


@pytest.mark.parametrize("turns", [1, pytest.param(5, marks=pytest.mark.stress)])
def test_many_builds_at_once_in_a_new_folder(corpus, undisturbed, tokenizer_path, tmp_path, turns):
    """One builds; the others wait for it, take nothing away from it, and open what it built."""
    code = """
import sys, tokenmill as tm
tm.build(sys.argv[1], sys.argv[2], sys.argv[3], workers=0, shard_bytes="16KB", engine="gigatoken", progress="quiet")
print("built")
"""
    arguments = [sys.executable, "-c", code, str(corpus), str(tokenizer_path)]
    for turn in range(turns):
        store = tmp_path / f"store{turn}"
        builds = [subprocess.Popen([*arguments, str(store)], stdout=subprocess.PIPE, text=True) for _ in range(4)]
        assert [build.communicate(timeout=120)[0].strip() for build in builds] == ["built"] * 4
        assert [line["event"] for line in read_lines(store / "events.jsonl")].count("finished") == 1
        assert tm.open(store).fingerprint == tm.open(undisturbed).fingerprint
        assert temporary_files(store) == []
