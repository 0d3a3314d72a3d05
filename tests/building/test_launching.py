"""Workers forked from a template: it has one thread, may die, and where it cannot be forked workers start by themselves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from build_helpers import TEMPLATE, temporary_files, worker_processes

import tokenmill as tm
from tokenmill.building.executors import launching, worker_process
from tokenmill.cli import main
from tokenmill.errors import BuildError
from tokenmill.events import Event, ShardDone


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for number in range(6):
        rows = [json.dumps({"text": f"document {i} of file {number} " + "some words " * i}) for i in range(60)]
        (folder / f"{number}.jsonl").write_text("\n".join(rows))
    return folder


@pytest.fixture(scope="module")
def expected(corpus, tokenizer_path, tmp_path_factory) -> str:
    store = tm.build(corpus, tokenizer_path, tmp_path_factory.mktemp("out") / "s", workers=0, **OPTIONS)
    return store.fingerprint


OPTIONS = {"shard_bytes": "8KB", "engine": "gigatoken", "progress": "quiet"}


def forbidden(*_: object, **__: object) -> int:
    raise PermissionError(1, "Operation not permitted")


def templates() -> list[psutil.Process]:
    """The template of this process, if there is one."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.ZombieProcess):  # another child that has ended
            if TEMPLATE in child.cmdline():
                found.append(child)
    return found


def build(corpus: Path, tokenizer_path: Path, out: Path, at_shard=lambda number: None, **options: object) -> tm.Store:
    """A build by two workers that calls `at_shard` with the number of each finished shard."""
    done = []

    def listen(event: Event) -> None:
        if isinstance(event, ShardDone):
            done.append(event)
            at_shard(len(done))

    store = tm.build(corpus, tokenizer_path, out, **{**OPTIONS, "workers": 2, "progress": listen, **options})
    assert temporary_files(out) == []
    assert templates() == worker_processes() == []
    return store


@pytest.mark.parametrize("engine", ["gigatoken", "reference"])
def test_a_template_has_one_thread(corpus, expected, tokenizer_path, tmp_path, engine):
    """Only such a process can be forked safely. Its workers are copies of it, so they load nothing."""
    seen = []

    def look(number: int) -> None:
        if number == 1:
            [template] = templates()
            seen.append((template.num_threads(), [worker.ppid() == template.pid for worker in worker_processes()]))

    store = build(corpus, tokenizer_path, tmp_path / "store", look, engine=engine)
    assert store.fingerprint == expected
    [(threads, are_forked)] = seen
    assert threads == 1
    assert are_forked
    assert all(are_forked)


@pytest.mark.parametrize(("lives", "is_alone"), [(0.1, True), (60, False)])
def test_a_template_waits_for_a_thread_that_is_ending(lives, is_alone):
    """The kernel counts a thread for a moment after it was joined; a fork then is as safe as a moment later."""
    code = (
        "import threading, time; from tokenmill.building.executors import worker_template as template\n"
        f"threading.Thread(target=time.sleep, args=({lives},), daemon=True).start()\n"
        "print(template._is_alone(), flush=True)"
    )
    environment = {**os.environ, **worker_process.TEMPLATE_ENVIRONMENT}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == str(is_alone)


def test_a_template_that_is_killed(corpus, expected, tokenizer_path, tmp_path):
    """Its workers go on. For those that die afterwards, there is another template."""
    orphans: list[psutil.Process] = []

    def kill(number: int) -> None:
        if number == 1:
            orphans.extend(worker_processes())
            [template] = templates()
            template.kill()
        elif number in (2, 3) and orphans:
            with suppress(psutil.NoSuchProcess):
                orphans.pop().kill()

    assert build(corpus, tokenizer_path, tmp_path / "store", kill).fingerprint == expected


@pytest.mark.parametrize("why", ["threads", "system", "container", "engine"])
def test_where_nothing_can_be_forked(corpus, expected, tokenizer_path, tmp_path, monkeypatch, why):
    """A library that starts a thread, another system, an engine that must not be forked: workers load everything themselves."""
    if why == "threads":
        in_templates(
            monkeypatch,
            tmp_path,
            "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
        )
    elif why == "system":
        monkeypatch.setattr(worker_process.sys, "platform", "sunos")
    elif why == "container":
        monkeypatch.setattr(os, "pidfd_open", forbidden)
    else:
        from tokenmill.encoding.engines import GigatokenEngine
        from tokenmill.encoding.engines.base import EngineTraits

        monkeypatch.setattr(GigatokenEngine, "traits", EngineTraits(can_fork=False))
    parents = []

    def look(number: int) -> None:
        if number == 1:
            parents.extend(worker.ppid() for worker in worker_processes())

    assert build(corpus, tokenizer_path, tmp_path / "store", look).fingerprint == expected
    assert set(parents) == {os.getpid()}


def test_a_template_that_crashes(corpus, tokenizer_path, tmp_path, monkeypatch):
    """An engine that cannot be loaded: the build says how its process ended, and what it said."""
    in_templates(monkeypatch, tmp_path, "import os\nos.write(2, b'no such instruction')\nos.abort()")
    monkeypatch.setattr(launching, "START_KILLS", 4)
    with pytest.raises(BuildError, match=rf"died 4 times \(exit -{signal.SIGABRT}\):\nno such instruction"):
        build(corpus, tokenizer_path, tmp_path / "store")
    assert templates() == worker_processes() == []


def in_templates(monkeypatch: pytest.MonkeyPatch, folder: Path, code: str) -> None:
    """Have every template run some code before it begins."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(f"import sys\nif {TEMPLATE!r} in sys.orig_argv:\n    exec({code!r})\n")
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_template_that_was_started_early(corpus, expected, tokenizer_path, tmp_path, workers):
    """It is the one that workers are forked from; where there is no more than one worker, it ends."""
    worker_process.drop_template()  # that of a command which ended before it was needed
    worker_process.prepare_template()
    [early] = templates()
    parents = []
    store = build(
        corpus,
        tokenizer_path,
        tmp_path / "store",
        lambda number: parents.extend(worker.ppid() for worker in worker_processes()),
        workers=workers,
    )
    assert store.fingerprint == expected
    assert set(parents) == {0: set(), 1: {os.getpid()}, 2: {early.pid}}[workers]
    assert worker_process.take_template() is None


@pytest.mark.parametrize(
    ("arguments", "is_early"),
    [
        (["big.jsonl", "-o", "new"], True),
        (["folder", "-o", "new", "--workers", "3"], True),
        (["small.jsonl", "-o", "new"], False),
        (["missing.jsonl", "-o", "new"], False),
        (["big.jsonl"], False),
        (["big.jsonl", "-o", "folder"], False),
        (["big.jsonl", "-o", "new", "--workers", "1"], False),
        (["big.jsonl", "-o", "new", "--max-documents", "5"], False),
    ],
)
def test_when_a_template_is_started_early(tmp_path, monkeypatch, arguments, is_early):
    """Only for a build that surely has workers."""
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    for name, size in (("folder/a.jsonl", 5), ("folder/b.jsonl", 5), ("big.jsonl", 9), ("small.jsonl", 1)):
        Path(name).write_bytes(b"x" * (size << 20))
    started: list[None] = []
    monkeypatch.setattr(worker_process, "prepare_template", lambda: started.append(None))
    monkeypatch.setattr("tokenmill.building.machine.usable_cores", lambda: 2)
    monkeypatch.setattr("tokenmill.building.api.build_store", forbidden)
    with pytest.raises(PermissionError):
        main(["build", *arguments, "-t", "bytes"])
    assert started == [None] * is_early
