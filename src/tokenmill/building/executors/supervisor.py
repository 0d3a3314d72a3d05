"""Which worker gets which task, and what happens when a worker dies or makes no progress.

This module decides; `process_pool` and `ray_pool` act. It looks at no clock and starts no process itself: workers are
started, told and killed through `WorkerHost`, and time comes in through `time_passed`. So a test can run thousands of
schedules in a second.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Protocol

from tokenmill import errors
from tokenmill.building.document_sampler import Sample
from tokenmill.building.executors.base import Failures, Note, Offer, Outcomes
from tokenmill.building.executors.crashes import TASK_STRIKES, TaskCrashes
from tokenmill.building.executors.stragglers import TaskTimes
from tokenmill.building.plan import Task
from tokenmill.building.progress import TaskAdvanced, TaskEnded
from tokenmill.building.task_context import TaskResult
from tokenmill.events import DocumentCrashed, Listener, WorkerDied, WorkerRecycled, WorkerStuck

START_STRIKES = 3  # workers in a row that fail before they are ready
START_KILLS = 30  # the same, killed from outside
# Seconds without a sign of life. Workers send one every two seconds, unless a native call holds Python's lock.
SILENT_WARNING = 20.0
SILENT_LIMIT = 120.0
SILENT_LIMIT_AT_START = 300.0  # while libraries and the tokenizer are loaded
# Seconds without progress, though alive: reading, encoding or committing hangs.
STUCK_WARNING = 60.0
STUCK_LIMIT = 600.0
BLOCK_LIMIT = 120.0  # for a block of documents, once the time of others is known; or
BLOCK_FACTOR = 20  # times the slowest block so far, if that is more


@dataclass(eq=False)
class Worker:
    """A worker as its supervisor knows it."""

    pid: int
    is_placed: bool = True  # False as long as no machine has room for it
    ready: bool = False
    running: Task | None = None
    unfinished: dict[str, Task] = field(default_factory=dict)  # given to it, without a result yet
    at: tuple[int, int] | None = None  # documents of `running` that it is encoding
    piece: int | None = None  # of `running` that it is reading; known only after a crash
    retiring: bool = False
    silent: float = 0.0  # seconds since its last message
    stuck: float = 0.0  # seconds since its last progress
    was_named: bool = False  # as silent or stuck


class WorkerHost(Protocol):
    """What a supervisor does to workers."""

    def start_worker(self) -> Worker:
        """Start a worker that is ready some time later, when `Supervisor.begin` was called."""
        ...

    def send(self, worker: Worker, message: dict[str, Any]) -> None: ...

    def kill(self, worker: Worker) -> None:
        """End a worker. `Supervisor.worker_ended` is called afterwards."""

    def is_too_large(self, worker: Worker) -> bool:
        """Whether it uses more memory than its share."""
        ...


class Supervisor:
    """Keeps `count` workers busy until every task has a result or is given up.

    `is_remote`: the workers are on other machines, of which some may have no room yet, and some may be slow. Then a worker gets
    a task only when it is ready; and if there is no task left to give, a task that takes much longer than usual is given to
    an idle worker, too. The first result counts.
    """

    def __init__(self, count: int, host: WorkerHost, emit: Listener, *, is_remote: bool = False) -> None:
        self.count, self._host, self._emit, self._is_remote = count, host, emit, is_remote
        self._offer: Offer | None = None
        self.workers: list[Worker] = []
        self._queue: deque[Task] = deque()
        self._later: Iterator[Task] = iter(())  # tasks that are made when there is a worker for them
        self._crashes: dict[str, TaskCrashes] = {}
        self._died_unready = 0
        self._slowest_block: float | None = None  # seconds
        self._times = TaskTimes()

    def start(self) -> None:
        while len(self.workers) < self.count:
            self._start_worker()

    def begin(self, offer: Offer | None) -> None:
        """`offer` gets the documents that workers sample."""
        self._offer = offer

    def add(self, tasks: Iterable[Task], is_done: Callable[[Task], bool], note: Note) -> None:
        """Queue tasks, the largest first. Tasks of an iterator are taken one by one, each when there is a worker for it."""
        self._is_done, self._outcomes = is_done, Outcomes(note, self._emit)
        if isinstance(tasks, Iterator):
            self._later = tasks
            self._take_one()
        else:
            self._queue.extend(sorted(tasks, key=lambda task: -task.new_bytes))

    def _take_one(self) -> None:
        self._queue.extend(islice(self._later, 1))

    @property
    def is_busy(self) -> bool:
        return bool(self._queue) or any(worker.unfinished for worker in self.workers)

    @property
    def failures(self) -> Failures:
        return self._outcomes.failures

    def forget(self) -> None:
        """The workers are gone, and what was queued is not wanted any more."""
        self.workers = []
        self._times = TaskTimes()
        self._queue.clear()
        self._later = iter(())

    def assign(self) -> None:
        """Give a task to every worker that encodes nothing, and start workers for the tasks that are left."""
        for worker in self.workers:
            if self._queue and self._is_free(worker):
                self._give_task(worker)
        while self._needs_worker():
            worker = self._start_worker()
            if self._is_free(worker):
                self._give_task(worker)
        if not self._queue:
            self._take_one()  # while the workers are busy
        if not self._queue and self._is_remote:
            self._repeat_late_tasks()

    def _is_free(self, worker: Worker) -> bool:
        return worker.running is None and not worker.retiring and (worker.ready or not self._is_remote)

    def _needs_worker(self) -> bool:
        coming = sum(not worker.ready for worker in self.workers) if self._is_remote else 0  # each takes a task
        return len(self._queue) > coming and len(self.workers) < self.count

    def _repeat_late_tasks(self) -> None:
        """Give tasks that take much longer than usual to idle workers, too: one of each."""
        for worker in self.workers:
            if not self._is_free(worker) or worker.unfinished:
                continue
            running = [task for other in self.workers for task in other.unfinished.values()]
            workers_at = Counter(task.id for task in running)
            task = self._times.latest(task for task in running if workers_at[task.id] == 1)
            if task is None:
                return
            self._queue.append(task)
            self._give_task(worker)

    def _start_worker(self) -> Worker:
        worker = self._host.start_worker()
        self.workers.append(worker)
        return worker

    def _give_task(self, worker: Worker) -> None:
        """Give a worker the next task; or retire it, if it has grown too large."""
        if worker.ready and self._host.is_too_large(worker):
            self._emit(WorkerRecycled(pid=worker.pid))
            worker.retiring = True
            worker.silent = worker.stuck = 0.0
            # Its successor starts when it is gone, so that their memory does not add up.
            self._host.send(worker, {"stop": True})
            return
        task = self._queue.popleft()
        worker.running, worker.at, worker.piece = task, None, None
        worker.unfinished[task.id] = task
        self._times.begin(task)
        worker.silent = worker.stuck = 0.0
        crashes = self._crashes.get(task.id, TaskCrashes())
        has_idle_cores = sum(bool(other.running) for other in self.workers) + len(self._queue) < self.count
        self._host.send(
            worker, {"task": asdict(task), "crashes": asdict(crashes.history), "reads_ahead": has_idle_cores}
        )

    def receive(self, worker: Worker, kind: str, value: Any) -> None:
        """A message of a worker: worker.py lists them."""
        worker.silent = 0.0
        if kind != "alive":
            self._note_progress(worker, kind)
        match kind:
            case "ready":
                worker.pid, worker.ready, self._died_unready = value, True, 0
            case "reading":
                worker.piece = value
            case "at":
                worker.at = (value[0], value[1]) if value else None
            case "advanced":
                self._emit(TaskAdvanced(**value))
            case "sample" if self._offer is not None:
                self._offer(Sample(*value))
            case "free":
                worker.running, worker.at, worker.piece = None, None, None
            case "result":
                task = worker.unfinished.pop(value.pop("task"), None)
                if task is not None:  # else it was answered before
                    self._times.finish(task)
                    self._drop_copies(task)
                    self._outcomes.add(task, TaskResult.from_json(value))
            case "fatal":
                raise getattr(errors, value["type"], errors.BuildError)(value["message"])

    def _drop_copies(self, task: Task) -> None:
        """A task has its result, or is given up: no other worker need go on with it."""
        for worker in list(self.workers):
            had_it = worker.unfinished.pop(task.id, None) is not None
            if had_it and worker.running is not None and worker.running.id == task.id:
                worker.retiring = True
                self._host.kill(worker)

    def _note_progress(self, worker: Worker, kind: str) -> None:
        if kind == "at" and worker.at is not None:
            self._slowest_block = max(self._slowest_block or 0.0, worker.stuck)
        worker.stuck, worker.was_named = 0.0, False

    def time_passed(self, seconds: float) -> None:
        """Name workers that make no progress, and kill those that make none for too long.

        Pass at most a second at a time, whatever the clock says: timeouts restart after the computer slept.
        """
        self._times.time_passed(seconds)
        for worker in list(self.workers):
            if worker not in self.workers or not worker.is_placed:
                continue
            if worker.ready and not (worker.running or worker.unfinished or worker.retiring):
                continue  # it owes no answer
            worker.silent += seconds
            worker.stuck += seconds
            silent_limit = SILENT_LIMIT if worker.ready else SILENT_LIMIT_AT_START
            is_silent = worker.silent >= silent_limit
            if is_silent or worker.stuck >= self._stuck_limit(worker):
                self._say_stuck(worker, is_replaced=True)
                self._host.kill(worker)
            elif not worker.was_named and (worker.silent >= SILENT_WARNING or worker.stuck >= STUCK_WARNING):
                worker.was_named = True
                self._say_stuck(worker, is_replaced=False)

    def _stuck_limit(self, worker: Worker) -> float:
        if worker.at is None or self._slowest_block is None:
            return STUCK_LIMIT
        return max(BLOCK_LIMIT, BLOCK_FACTOR * self._slowest_block)

    def _say_stuck(self, worker: Worker, *, is_replaced: bool) -> None:
        files = [piece.file.shown for task in worker.unfinished.values() for piece in task.pieces[:1]]
        is_silent = worker.silent >= SILENT_WARNING
        seconds = worker.silent if is_silent else worker.stuck
        file = files[-1] if files else None
        self._emit(
            WorkerStuck(pid=worker.pid, seconds=seconds, is_silent=is_silent, file=file, is_replaced=is_replaced)
        )

    def worker_ended(self, worker: Worker, code: int, stderr: str, *, is_lost: bool = False) -> None:
        """A worker has ended: queue its unfinished tasks again, and record where it died.

        `is_lost`: it ended, or cannot be reached, because of its machine. Then it does not matter what it was encoding.
        """
        self.workers.remove(worker)
        lost = [task for task in worker.unfinished.values() if not self._is_done(task)]
        if not worker.retiring or lost:
            self._emit(WorkerDied(pid=worker.pid, code=code, at=worker.at))
        if not worker.ready:
            self._count_unready(code, stderr)
        for task in lost:
            self._emit(TaskEnded(task=task.id))
            if worker.ready:
                # With two unfinished tasks either may have caused it: next time each runs alone.
                is_suspect = len(lost) == 1 and task is worker.running and not is_lost
                self._record_crash(task, worker if is_suspect else None, code)
            if task.id in self._outcomes.failures:
                self._times.forget(task)
                self._drop_copies(task)
            elif not any(task.id in other.unfinished for other in self.workers):
                self._times.forget(task)
                self._queue.appendleft(task)

    def _count_unready(self, code: int, stderr: str) -> None:
        self._died_unready += 1
        if self._died_unready >= (START_STRIKES if code >= 0 else START_KILLS):
            raise errors.BuildError(
                f"{self._died_unready} workers in a row died before they were ready (exit {code}):\n{stderr[-1500:]}"
            )

    def _record_crash(self, task: Task, worker: Worker | None, code: int) -> None:
        crashes = self._crashes.setdefault(task.id, TaskCrashes())
        at, piece = (worker.at, worker.piece) if worker is not None else (None, None)
        decision = crashes.record(at, piece, code)
        if decision == "quarantine":
            self._emit(DocumentCrashed(task=task.id, document=crashes.history.poison[-1], code=code))
        elif decision == "give up":
            why = f"killed {TASK_STRIKES} workers (last exit {code}), at different places; is memory short?"
            self._outcomes.fail(task, [{"file": piece.file.shown, "error": why} for piece in task.pieces])
