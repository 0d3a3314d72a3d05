"""Blocks that are read in a thread, for builds with more cores than tasks: the same blocks, errors and ends."""

from __future__ import annotations

import gzip
import json
import threading
from dataclasses import asdict

import pytest

import tokenmill as tm
from tokenmill.building.executors.supervisor import Supervisor, Worker
from tokenmill.building.task_rows import read_ahead
from tokenmill.errors import InputError
from tokenmill.events import ShardDone
from tokenmill.testing.executors import plan_work, write_corpus


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def numbers(count: int, log: list[int], error: BaseException | None = None):
    try:
        for number in range(count):
            log.append(number)
            yield number
        if error is not None:
            raise error
    finally:
        log.append(-1)


def test_the_same_blocks():
    log: list[int] = []
    assert list(read_ahead(numbers(100, log))) == list(range(100))
    assert log == [*range(100), -1]


def test_an_error_comes_after_the_blocks_before_it():
    seen, log = [], []
    with pytest.raises(InputError, match="broken"):
        seen.extend(read_ahead(numbers(5, log, InputError("broken"))))
    assert seen == list(range(5))


def test_who_has_enough_stops_the_reading():
    """No more than one block is ready and one in the making, and the file is closed."""
    log: list[int] = []
    blocks = read_ahead(numbers(10**9, log))
    assert [next(blocks) for _ in range(3)] == [0, 1, 2]
    blocks.close()
    assert log[-1] == -1
    assert len(log) <= 3 + 2 + 1


class Host:
    """A host of workers that notes what is sent to them."""

    def __init__(self) -> None:
        self.sent: list[dict] = []

    def start_worker(self) -> Worker:
        return Worker(len(self.sent))

    def send(self, worker: Worker, message: dict) -> None:
        self.sent.append(message)

    def is_too_large(self, worker: Worker) -> bool:
        return False


@pytest.mark.parametrize(("tasks", "expected"), [(1, [True]), (2, [False, False]), (3, [False, False])])
def test_only_where_cores_are_idle(tmp_path, tasks, expected):
    write_corpus(tmp_path / "corpus")
    work = plan_work(tmp_path / "corpus", tmp_path / "out")
    host = Host()
    supervisor = Supervisor(2, host, lambda event: None)
    supervisor.add(work.tasks[:tasks], lambda task: False, lambda task, result: None)
    supervisor.assign()
    assert [message["reads_ahead"] for message in host.sent] == expected


@pytest.mark.parametrize("is_cut", [False, True])
def test_one_compressed_file(tmp_path, tokenizer_path, is_cut):
    """A single file with two workers gives what it gives with one; cut short, it fails by name."""
    rows = [json.dumps({"text": f"document {i} " + "some words " * 300}) for i in range(2000)]
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(rows).encode(), 1))
    options = {"engine": "gigatoken", "progress": "quiet"}
    if is_cut:
        path.write_bytes(path.read_bytes()[:-5000])
        with pytest.raises(tm.errors.InputError, match=r"no document in .*a\.jsonl\.gz"):
            tm.build(path, tokenizer_path, tmp_path / "store", workers=2, **options)
        return
    alone = tm.build(path, tokenizer_path, tmp_path / "alone", workers=1, **options)
    done: list[ShardDone] = []
    options["progress"] = lambda event: done.append(event) if isinstance(event, ShardDone) else None
    assert tm.build(path, tokenizer_path, tmp_path / "store", workers=2, **options).fingerprint == alone.fingerprint
    [shard] = done
    assert all(seconds >= 0 for seconds in asdict(shard.seconds).values())
