"""Workers on other machines: tasks that take much longer than usual run a second time, and the first result counts."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from tokenmill.building.executors import stragglers
from tokenmill.building.executors.supervisor import SILENT_LIMIT_AT_START, Supervisor, Worker
from tokenmill.building.plan import Task
from tokenmill.building.task_context import TaskResult
from tokenmill.events import ShardDone, StageSeconds, WorkerDied
from tokenmill.reading.files import Piece, SourceFile

SIZE = 1 << 20
KILLED = -9


def task_of(number: int, size: int = SIZE) -> Task:
    file = SourceFile(f"file{number}.jsonl", size, "stat.0.0.0", "jsonl")
    return Task(id=f"{number:024x}", pieces=(Piece(file, nbytes=size),))


class Machines:
    """A host of workers that do what the test says."""

    def __init__(self, count: int, tasks: list[Task], *, is_remote: bool = True) -> None:
        self.sent: list[tuple[Worker, str]] = []
        self.killed: list[Worker] = []
        self.events: list[object] = []
        self.noted: list[str] = []
        self.pids = 0
        self.supervisor = Supervisor(count, self, self.events.append, is_remote=is_remote)
        self.supervisor.begin(None)
        self.supervisor.add(tasks, lambda task: False, lambda task, result: self.noted.append(task.id))

    def start_worker(self) -> Worker:
        self.pids += 1
        return Worker(self.pids)

    def send(self, worker: Worker, message: dict) -> None:
        self.sent.append((worker, json.loads(json.dumps(message))["task"]["id"]))

    def kill(self, worker: Worker) -> None:
        self.killed.append(worker)
        self.supervisor.worker_ended(worker, KILLED, "")

    def is_too_large(self, worker: Worker) -> bool:
        return False

    def get_ready(self) -> None:
        """All workers are ready, and have a task if there is one."""
        self.supervisor.assign()
        for worker in self.supervisor.workers:
            self.supervisor.receive(worker, "ready", worker.pid)
        self.supervisor.assign()

    def finish(self, worker: Worker) -> None:
        assert worker.running is not None
        task = worker.running.id
        self.supervisor.receive(worker, "free", task)
        self.answer(worker, task)
        self.supervisor.assign()

    def answer(self, worker: Worker, task: str) -> None:
        counts = dict.fromkeys(("documents", "tokens", "text_bytes", "source_bytes", "quarantined"), 1)
        shard = ShardDone(id=task, pid=worker.pid, seconds=StageSeconds(), **counts)
        result = TaskResult(shard=shard, contents=["a"], failed_files=[])
        self.supervisor.receive(worker, "result", {"task": task, **asdict(result)})

    def pass_time(self, seconds: int) -> None:
        """Seconds in which every worker shows that it is alive."""
        for _ in range(seconds):
            self.supervisor.time_passed(1.0)
            for worker in self.supervisor.workers:
                self.supervisor.receive(worker, "alive", True)
            self.supervisor.assign()

    def workers_of(self, task: Task) -> list[Worker]:
        return [worker for worker, given in self.sent if given == task.id]


def one_left(*, is_remote: bool = True, size: int = SIZE) -> tuple[Machines, Task, Worker, Worker]:
    """Two workers; all tasks but one are done, in 10 s each: the task that is left, its worker, and the idle one."""
    slow = task_of(9, size)
    machines = Machines(2, [slow, *(task_of(number, SIZE // 2) for number in range(4))], is_remote=is_remote)
    machines.get_ready()
    [busy] = machines.workers_of(slow)
    [idle] = [worker for worker in machines.supervisor.workers if worker is not busy]
    for _ in range(4):
        machines.pass_time(1)
        machines.finish(idle)
    assert machines.supervisor.is_busy
    assert idle.running is None
    return machines, slow, busy, idle


def test_a_late_task_runs_a_second_time_and_the_first_result_counts():
    machines, slow, busy, idle = one_left()
    machines.pass_time(int(stragglers.LEAST_SECONDS) - 5)
    assert machines.workers_of(slow) == [busy]
    machines.pass_time(5)
    assert machines.workers_of(slow) == [busy, idle]
    machines.finish(idle)
    assert machines.killed == [busy]
    assert machines.noted.count(slow.id) == 1
    assert not machines.supervisor.is_busy
    assert not [event for event in machines.events if isinstance(event, WorkerDied)]


def test_the_first_worker_may_still_be_the_first():
    machines, slow, busy, idle = one_left()
    machines.pass_time(30)
    machines.finish(busy)
    assert machines.killed == [idle]
    assert machines.noted.count(slow.id) == 1
    assert not machines.supervisor.is_busy


def test_a_second_result_is_dropped():
    """Of a worker that was making its shard durable already: it is not killed for that."""
    machines, slow, busy, idle = one_left()
    machines.pass_time(30)
    machines.supervisor.receive(busy, "free", slow.id)
    machines.finish(idle)
    assert not machines.killed
    machines.answer(busy, slow.id)
    assert machines.noted.count(slow.id) == 1


def test_a_task_runs_at_most_twice_at_a_time():
    slow = task_of(9)
    machines = Machines(4, [slow, *(task_of(number, SIZE // 2) for number in range(3))])
    machines.get_ready()
    for worker in machines.supervisor.workers[1:]:
        machines.finish(worker)
    machines.pass_time(100)
    assert len(machines.workers_of(slow)) == 2


def test_a_large_task_has_more_time():
    """The others took a second for half of SIZE: three times the usual time of sixteen times as much is 96 s."""
    machines, slow, _, _ = one_left(size=16 * SIZE)
    machines.pass_time(85)
    assert len(machines.workers_of(slow)) == 1
    machines.pass_time(20)
    assert len(machines.workers_of(slow)) == 2


@pytest.mark.parametrize("reason", ["local", "too little is known"])
def test_when_nothing_runs_twice(reason):
    """Workers on this machine are as fast as each other; and without finished tasks nobody knows what is usual."""
    if reason == "local":
        machines, slow, _, _ = one_left(is_remote=False)
    else:
        slow = task_of(9)
        machines = Machines(2, [slow, task_of(0, SIZE // 2)])
        machines.get_ready()
        machines.finish(machines.supervisor.workers[1])
    machines.pass_time(300)
    assert len(machines.workers_of(slow)) == 1


@pytest.mark.parametrize("first", [True, False])
def test_one_of_two_workers_at_a_task_dies(first):
    """The other one goes on, and nobody else gets the task."""
    machines, slow, busy, idle = one_left()
    machines.pass_time(30)
    dies, stays = (busy, idle) if first else (idle, busy)
    machines.supervisor.worker_ended(dies, KILLED, "", is_lost=True)
    machines.supervisor.assign()
    assert machines.workers_of(slow) == [busy, idle]
    machines.finish(stays)
    assert machines.noted.count(slow.id) == 1
    assert not machines.supervisor.is_busy


def test_a_lost_machine_blames_no_document():
    """A document that was being encoded on three machines that were lost is not suspected."""
    task = task_of(1)
    machines = Machines(1, [task])
    for _ in range(5):
        machines.get_ready()
        [worker] = machines.supervisor.workers
        machines.supervisor.receive(worker, "at", [4, 5])
        machines.supervisor.worker_ended(worker, KILLED, "", is_lost=True)
    machines.get_ready()
    machines.finish(machines.supervisor.workers[0])
    assert machines.noted == [task.id]
    assert machines.supervisor._crashes[task.id].history.poison == []


def test_a_worker_gets_a_task_when_it_is_ready():
    """One without a place holds up no task, and is waited for without a limit."""
    tasks = [task_of(number) for number in range(3)]
    machines = Machines(2, tasks)
    machines.supervisor.assign()
    first, second = machines.supervisor.workers
    second.is_placed = False
    assert machines.sent == []
    machines.supervisor.receive(first, "ready", 1)
    machines.supervisor.assign()
    for _ in tasks:
        for _ in range(int(SILENT_LIMIT_AT_START)):
            machines.supervisor.time_passed(1.0)
            machines.supervisor.receive(first, "at", None)
        machines.finish(first)
    assert machines.noted == [task.id for task in tasks]
    assert second in machines.supervisor.workers
    assert not machines.killed


def test_no_more_workers_than_tasks_are_started():
    machines = Machines(50, [task_of(number) for number in range(3)])
    for _ in range(3):
        machines.supervisor.assign()
    assert len(machines.supervisor.workers) == 3
