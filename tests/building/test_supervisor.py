"""The supervisor of worker processes in thousands of made-up schedules, and with real workers that are stopped or die."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from dataclasses import asdict, dataclass, field

import psutil
import pytest

import tokenmill as tm
from tokenmill.building.executors import supervisor as supervising
from tokenmill.building.executors.supervisor import Supervisor, Worker
from tokenmill.building.plan import Task
from tokenmill.building.task import TaskOptions, TaskRunner
from tokenmill.building.task_context import CrashHistory, TaskContext, TaskResult
from tokenmill.events import ShardDone, WorkerDied, WorkerStuck
from tokenmill.testing.executors import Work, plan_work, write_corpus

SEEDS = 20
MANY_SEEDS = 2000
KILLED = -9


@dataclass(eq=False)
class PretendedWorker(Worker):
    """A worker of a simulation: messages come in, answers go out later, in steps."""

    inbox: list[dict] = field(default_factory=list)
    outbox: list[tuple[str, object]] = field(default_factory=list)
    stopped: bool = False
    died: int | None = None


class Simulation:
    """Workers without processes, and a clock that goes as fast as it likes.

    Tasks really run, in this process, so that there is a store at the end. Everything else is drawn: which worker goes on
    next, whether it dies (before it is ready, at a block, between receipt and answer), stops for good, is slow, answers twice
    or has grown too large.
    """

    def __init__(self, work: Work, seed: int, faults: int, *, is_remote: bool = False) -> None:
        self.work, self.draw, self.faults = work, random.Random(seed), faults
        self.noted: list[str] = []
        self.events: list[object] = []
        self.pids = 0
        self.runner = TaskRunner(work.context)
        self.supervisor = Supervisor(self.draw.randint(1, 4), self, self.events.append, is_remote=is_remote)

    # What a supervisor asks of its host.

    def start_worker(self) -> PretendedWorker:
        self.pids += 1
        return PretendedWorker(self.pids, outbox=[("ready", self.pids)])

    def send(self, worker: PretendedWorker, message: dict) -> None:
        worker.inbox.append(json.loads(json.dumps(message)))

    def kill(self, worker: PretendedWorker) -> None:
        self.supervisor.worker_ended(worker, KILLED, "")

    def is_too_large(self, worker: Worker) -> bool:
        return self.fault(0.1)

    # What happens.

    def fault(self, share: float) -> bool:
        """Whether one of the faults that are left happens now."""
        if self.faults and self.draw.random() < share:
            self.faults -= 1
            return True
        return False

    def run(self) -> None:
        supervisor = self.supervisor
        supervisor.start()
        supervisor.begin(None)
        supervisor.add(self.work.tasks, self.work.has_receipt, lambda task, result: self.noted.append(task.id))
        for _ in range(20_000):
            if not supervisor.is_busy:
                return
            supervisor.assign()
            if supervisor.workers:
                self.step(self.draw.choice(supervisor.workers))
            supervisor.time_passed(self.draw.random())
        raise AssertionError("the build does not end")

    def step(self, worker: PretendedWorker) -> None:
        if worker.stopped:
            return
        if self.fault(0.05):
            worker.stopped = True
        elif self.fault(0.1):
            self.supervisor.worker_ended(worker, self.draw.choice([KILLED, -6, 70]) if worker.ready else KILLED, "")
        elif worker.outbox:
            kind, value = worker.outbox.pop(0)
            self.supervisor.receive(worker, kind, json.loads(json.dumps(value)))
        elif worker.inbox:
            self.work_on(worker, worker.inbox.pop(0))
        else:
            self.supervisor.receive(worker, "alive", True)

    def work_on(self, worker: PretendedWorker, message: dict) -> None:
        if "stop" in message:
            self.supervisor.worker_ended(worker, 0, "")
        elif "task" in message:
            task, crashes = Task.from_json(message["task"]), CrashHistory.from_json(message["crashes"])
            answers: list[tuple[str, object]] = []
            options = TaskOptions(
                crashes=crashes, announce=lambda first, last: answers.append(("at", [first, last] if last else None))
            )
            encoded = self.runner.encode(task, options)
            if self.fault(0.1):
                encoded.writer.discard()  # it dies before the shard is durable
                worker.outbox += answers[:-1]
                worker.stopped = True
                return
            result = ("result", {"task": task.id, **asdict(self.runner.commit(encoded))})
            if self.fault(0.1):
                worker.outbox += answers
                worker.stopped = True  # the receipt is there, and nobody hears of it
                return
            late = self.draw.random() < 0.3
            worker.outbox += [*answers, *([("free", task.id), result] if late else [result, ("free", task.id)])]
            if self.fault(0.1):
                worker.outbox.append(result)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated") / "corpus"
    write_corpus(folder)
    return folder


@pytest.fixture(scope="module")
def undisturbed(corpus, tmp_path_factory):
    """The files of a build that nothing happened to."""
    work = plan_work(corpus, tmp_path_factory.mktemp("undisturbed"))
    simulation = Simulation(work, 0, 0)
    simulation.run()
    return work.files()


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(MANY_SEEDS, marks=pytest.mark.stress)])
@pytest.mark.parametrize("is_remote", [False, True])
def test_any_schedule_gives_the_same_store_and_ends(corpus, undisturbed, tmp_path, seeds, is_remote):
    """Workers that die, stop, finish late, answer twice, in any order; remote ones may run a task twice."""
    died = stuck = 0
    for seed in range(seeds):
        work = plan_work(corpus, tmp_path / f"{seed}")
        simulation = Simulation(work, seed, random.Random(seed).randint(0, 12), is_remote=is_remote)
        simulation.run()
        assert work.files() == undisturbed, f"seed {seed}"
        assert len(simulation.noted) == len(set(simulation.noted)), f"seed {seed}: a task was noted twice"
        assert not simulation.supervisor.failures, f"seed {seed}"
        shutil.rmtree(tmp_path / f"{seed}")
        died += sum(isinstance(event, WorkerDied) for event in simulation.events)
        stuck += sum(isinstance(event, WorkerStuck) and event.is_replaced for event in simulation.events)
    assert died > seeds
    assert stuck > seeds / (
        8 if is_remote else 4
    )  # a task that runs elsewhere, too, often ends before its first worker


class Quiet:
    """A host whose workers never answer by themselves."""

    def __init__(self) -> None:
        self.killed: list[int] = []
        self.sent: list[dict] = []
        self.count = 0

    def start_worker(self) -> Worker:
        self.count += 1
        return Worker(self.count)

    def send(self, worker: Worker, message: dict) -> None:
        self.sent.append(message)

    def kill(self, worker: Worker) -> None:
        self.killed.append(worker.pid)
        self.supervisor.worker_ended(worker, KILLED, "")

    def is_too_large(self, worker: Worker) -> bool:
        return False


@pytest.fixture
def quiet(corpus, tmp_path):
    """A supervisor of one worker that is ready and has a task."""
    host, events = Quiet(), []
    host.supervisor = supervisor = Supervisor(1, host, events.append)
    work = plan_work(corpus, tmp_path / "work")
    supervisor.begin(None)
    supervisor.add(work.tasks[:1], lambda task: False, lambda task, result: None)
    supervisor.assign()
    [worker] = supervisor.workers
    supervisor.receive(worker, "ready", worker.pid)
    return supervisor, worker, host, events


def pass_time(supervisor: Supervisor, seconds: float, worker: Worker | None = None, **message) -> None:
    """A second at a time; `worker` gives a sign of life, or sends another message, every second."""
    for _ in range(int(seconds)):
        supervisor.time_passed(1.0)
        if worker is not None and worker in supervisor.workers:
            for kind, value in (message or {"alive": True}).items():
                supervisor.receive(worker, kind, value)


def test_a_silent_worker_is_named_and_then_replaced(quiet):
    supervisor, worker, host, events = quiet
    pass_time(supervisor, supervising.SILENT_WARNING - 1)
    assert not events
    pass_time(supervisor, 2)
    [event] = events
    assert (event.pid, event.is_silent, event.is_replaced) == (worker.pid, True, False)
    assert event.file.endswith(".jsonl")
    pass_time(supervisor, supervising.SILENT_LIMIT - supervising.SILENT_WARNING)
    assert host.killed == [worker.pid]
    assert [type(event) for event in events[1:]][:2] == [WorkerStuck, WorkerDied]
    supervisor.assign()
    assert "task" in host.sent[-1]  # another worker has it


def test_a_worker_that_lives_and_makes_no_progress_is_replaced_too(quiet):
    """Its disk may hang: it gets more time, but not for ever."""
    supervisor, worker, host, events = quiet
    pass_time(supervisor, supervising.STUCK_LIMIT - 1, worker)
    assert [(event.is_silent, event.is_replaced) for event in events] == [(False, False)]
    pass_time(supervisor, 2, worker)
    assert host.killed == [worker.pid]


def test_slow_progress_is_progress(quiet):
    supervisor, worker, host, events = quiet
    for block in range(30):
        supervisor.receive(worker, "at", [block, block + 1])
        pass_time(supervisor, supervising.STUCK_WARNING - 2, worker)
        supervisor.receive(worker, "at", None)
    assert not host.killed
    assert not events


def test_a_block_gets_a_multiple_of_what_others_took(quiet):
    supervisor, worker, host, _ = quiet
    supervisor.receive(worker, "at", [0, 1])
    pass_time(supervisor, 10, worker)
    supervisor.receive(worker, "at", None)
    supervisor.receive(worker, "at", [1, 2])
    allowed = supervising.BLOCK_FACTOR * 10
    assert supervising.BLOCK_LIMIT < allowed < supervising.STUCK_LIMIT
    pass_time(supervisor, allowed - 2, worker)
    assert not host.killed
    pass_time(supervisor, 4, worker)
    assert host.killed == [worker.pid]


def test_idle_workers_owe_no_answer(quiet):
    supervisor, worker, host, events = quiet
    result = TaskResult(shard=None, contents=[None], failed_files=[])
    supervisor.receive(worker, "result", {"task": worker.running.id, **asdict(result)})
    supervisor.receive(worker, "free", "")
    pass_time(supervisor, 10 * supervising.STUCK_LIMIT)
    assert not host.killed
    assert not events


def test_a_file_whose_reading_ends_its_workers_fails_alone(quiet, corpus, tmp_path):
    """After the first death pieces are announced; the third at the same piece is enough."""
    supervisor, worker, host, _ = quiet
    task = worker.running
    for death in range(4):
        [worker] = supervisor.workers
        supervisor.receive(worker, "ready", worker.pid)
        if death:
            assert host.sent[-1]["crashes"]["alone"]
            supervisor.receive(worker, "reading", 0)
        supervisor.worker_ended(worker, -6, "")
        supervisor.assign()
    [[piece, error]] = host.sent[-1]["crashes"]["deadly_pieces"]
    assert piece == 0
    assert "reading it ended 3 processes (last exit -6)" in error
    assert task.id not in supervisor.failures


def test_the_other_files_of_a_task_are_read(corpus, tmp_path):
    """What is known of deadly files reaches the task, which reads all others."""
    work = plan_work(corpus, tmp_path / "work")
    task = next(task for task in work.tasks if len(task.pieces) > 2)
    runner = TaskRunner(TaskContext(**asdict(work.context)))
    announced: list[int | None] = []
    crashes = CrashHistory(deadly_pieces=[(1, "it is deadly")], alone=True)
    result = runner.commit(runner.encode(task, TaskOptions(crashes=crashes, announce_piece=announced.append)))
    assert result.failed_files == [
        {"file": task.pieces[1].file.shown, "error": f"{task.pieces[1].file.shown}: it is deadly"}
    ]
    assert [content is None for content in result.contents] == [i == 1 for i in range(len(task.pieces))]
    assert [number for number in announced if number is not None] == [i for i in range(len(task.pieces)) if i != 1]


def test_stopped_workers_do_not_hold_a_build(tokenizer_path, tmp_path, monkeypatch):
    """SIGSTOP, as a hung disk or engine would: they are named, replaced, and the store is that of an undisturbed build."""
    corpus = tmp_path / "corpus.jsonl"  # of many shards, so that the workers have tasks when they are stopped
    corpus.write_text("".join(json.dumps({"text": f"document {i} " + "word " * 300}) + "\n" for i in range(400)))
    monkeypatch.setattr(supervising, "SILENT_WARNING", 3.0)
    monkeypatch.setattr(supervising, "SILENT_LIMIT", 5.0)
    options = {"workers": 2, "engine": "reference", "shard_bytes": "2KB"}
    stopped: list[int] = []
    seen: list[object] = []

    def listen(event) -> None:
        seen.append(event)
        # Both, because one that has sent its result and is stopped before it asks for more holds nothing up.
        if isinstance(event, ShardDone) and len(stopped) < 2 and event.pid not in stopped:
            stopped.append(event.pid)
            os.kill(event.pid, signal.SIGSTOP)

    store = tm.build(corpus, tokenizer_path, tmp_path / "store", progress=listen, **options)
    for pid in stopped:
        replaced = [event for event in seen if isinstance(event, WorkerStuck) and event.pid == pid]
        assert [event.is_replaced for event in replaced] == [False, True]
        assert not psutil.pid_exists(pid)
    assert len(stopped) == 2
    plain = tm.build(corpus, tokenizer_path, tmp_path / "plain", workers=0, progress="quiet", shard_bytes="2KB")
    assert store.fingerprint == plain.fingerprint
