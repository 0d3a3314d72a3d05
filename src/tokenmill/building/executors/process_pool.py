"""Worker processes on this machine, supervised: started, given tasks, watched, replaced.

A worker that dies is noticed at once, because its pipe closes. Its tasks are given to other workers. If workers die in the
same block of documents three times, the block is searched in ever smaller parts, and the document that kills three more
workers alone is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tokenmill import errors
from tokenmill.building.document_sampler import Sample
from tokenmill.building.executors.base import Failures, Note, Offer, Outcomes
from tokenmill.building.executors.crashes import TASK_STRIKES, TaskCrashes
from tokenmill.building.machine import BLOCK_MEMORY, PARENT_BYTES, resident_bytes
from tokenmill.building.plan import Task
from tokenmill.building.progress import MemoryUsed, TaskAdvanced, TaskEnded
from tokenmill.building.task_context import TaskContext, TaskResult
from tokenmill.encoding.engines.base import ONE_THREAD
from tokenmill.events import DocumentCrashed, Listener, WorkerDied, WorkerRecycled
from tokenmill.formatting import human, some

START_STRIKES = 3  # workers in a row that fail before they are ready
START_KILLS = 30  # the same, killed from outside
MEMORY_SECONDS = 0.25  # between two measurements of memory
STDERR_BYTES = 4000  # of the standard error of a worker that are kept for an error message


@dataclass
class _Worker:
    """A worker process as its supervisor knows it."""

    process: subprocess.Popen[bytes]
    buffer: bytes = b""  # of a message that has not arrived whole
    stderr: bytes = b""
    ready: bool = False
    running: Task | None = None
    unfinished: dict[str, Task] = field(default_factory=dict)  # given to it, without a result yet
    at: tuple[int, int] | None = None  # documents of `running` that it is encoding
    retiring: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, message: dict[str, Any]) -> None:
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it died, and the end of its output shows that


class ProcessPool:
    """An executor of `count` worker processes that may use `memory` bytes each.

    `start` it early: workers load their libraries while the work is still being planned.
    """

    is_isolated = True

    def __init__(self, count: int, memory: int, emit: Listener) -> None:
        self.processes = count
        self._memory, self._emit = memory, emit
        self._offer: Offer | None = None
        self._context: TaskContext | None = None
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        self._queue: deque[Task] = deque()
        self._crashes: dict[str, TaskCrashes] = {}
        self._died_unready = 0

    def start(self) -> None:
        while len(self._workers) < self.processes:
            self._start_worker()

    def describe(self) -> str:
        return f"{some(self.processes, 'worker')} of at most {human(self._memory)}"

    def __enter__(self) -> ProcessPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._selector.close()

    def stop(self) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.wait()
            self._close_pipes(worker)
        self._workers = []
        self._queue.clear()

    def begin(self, context: TaskContext, offer: Offer | None) -> None:
        """Send the context to every worker, and later to those that are still to be started."""
        self._context = replace(context, memory=self._memory - BLOCK_MEMORY, sample=offer is not None)
        self._offer = offer
        for worker in self._workers:
            worker.send({"context": asdict(self._context)})

    def run(self, tasks: Iterable[Task], is_done: Callable[[Task], bool], note: Note) -> Failures:
        """Run tasks, the largest first."""
        self._is_done, self._outcomes = is_done, Outcomes(note, self._emit)
        self._queue.extend(sorted(tasks, key=lambda task: -task.new_bytes))
        measured = 0.0
        while self._queue or any(worker.unfinished for worker in self._workers):
            self._assign()
            for key, _ in self._selector.select(timeout=0.5):
                if self._selector.get_map().get(key.fd) is key:  # not closed by an event before it
                    worker, stream = key.data
                    self._read(worker, stream, key.fd)
            if time.monotonic() - measured > MEMORY_SECONDS:
                measured = time.monotonic()
                self._report_memory()
        return self._outcomes.failures

    def _report_memory(self) -> None:
        used = resident_bytes() + sum(resident_bytes(worker.pid) for worker in self._workers)
        budget = PARENT_BYTES + self.processes * self._memory
        working = sum(worker.running is not None for worker in self._workers)
        self._emit(MemoryUsed(bytes=used, budget=budget, workers=working))

    # Workers: started, read from, closed.

    def _start_worker(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tokenmill.building.executors.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**ONE_THREAD, **os.environ},  # what the user has set takes precedence
        )
        worker = _Worker(process)
        self._workers.append(worker)
        for stream in ("stdout", "stderr"):
            pipe = getattr(process, stream)
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, (worker, stream))
        if self._context is not None:
            worker.send({"context": asdict(self._context)})

    def _read(self, worker: _Worker, stream: str, descriptor: int) -> None:
        """Take what a worker has written. The end of its standard output is the end of the worker."""
        data, is_closed = b"", False
        try:
            while chunk := os.read(descriptor, 1 << 16):
                data += chunk
            is_closed = True
            self._selector.unregister(descriptor)
        except BlockingIOError:
            pass
        if stream == "stderr":
            worker.stderr = (worker.stderr + data)[-STDERR_BYTES:]
            return
        *lines, worker.buffer = (worker.buffer + data).split(b"\n")
        for line in lines:
            for kind, value in json.loads(line).items():
                self._receive(worker, kind, value)
        if is_closed:
            self._on_exit(worker)

    def _close_pipes(self, worker: _Worker) -> None:
        for pipe in (worker.process.stdin, worker.process.stdout, worker.process.stderr):
            assert pipe is not None
            if pipe in self._selector.get_map():
                self._selector.unregister(pipe)
            with contextlib.suppress(OSError):
                pipe.close()

    def _receive(self, worker: _Worker, kind: str, value: Any) -> None:
        """A message of a worker: worker.py lists them."""
        match kind:
            case "ready":
                worker.ready, self._died_unready = True, 0
            case "at":
                worker.at = (value[0], value[1]) if value else None
            case "advanced":
                self._emit(TaskAdvanced(**value))
            case "sample" if self._offer is not None:
                self._offer(Sample(*value))
            case "free":
                worker.running, worker.at = None, None
            case "result":
                task = worker.unfinished.pop(value.pop("task"))
                self._outcomes.add(task, TaskResult.from_json(value))
            case "fatal":
                raise getattr(errors, value["type"], errors.BuildError)(value["message"])

    # Tasks: assigned, and taken back from workers that died.

    def _assign(self) -> None:
        """Give a task to every worker that encodes nothing, and start workers for the tasks that are left."""
        for worker in self._workers:
            if worker.running is None and not worker.retiring and self._queue:
                self._give_task(worker)
        while self._queue and len(self._workers) < self.processes:
            self._start_worker()
            self._give_task(self._workers[-1])

    def _give_task(self, worker: _Worker) -> None:
        """Give a worker the next task; or retire it, if it has grown too large."""
        if worker.ready and resident_bytes(worker.pid) > self._memory:
            self._emit(WorkerRecycled(pid=worker.pid))
            worker.retiring = True
            worker.send({"stop": True})  # its successor starts when it is gone, so that their memory does not add up
            return
        task = self._queue.popleft()
        worker.running, worker.at = task, None
        worker.unfinished[task.id] = task
        crashes = self._crashes.get(task.id, TaskCrashes())
        worker.send({"task": asdict(task), "crashes": asdict(crashes.history)})

    def _on_exit(self, worker: _Worker) -> None:
        """A worker has ended: queue its unfinished tasks again, and record where it died."""
        self._workers.remove(worker)
        code = worker.process.wait()
        assert worker.process.stderr is not None
        if worker.process.stderr in self._selector.get_map():
            self._read(worker, "stderr", worker.process.stderr.fileno())
        self._close_pipes(worker)
        lost = [task for task in worker.unfinished.values() if not self._is_done(task)]
        if not worker.retiring or lost:
            self._emit(WorkerDied(pid=worker.pid, code=code, at=worker.at))
        if not worker.ready:
            self._count_unready(worker, code)
        for task in lost:
            self._emit(TaskEnded(task=task.id))
            if worker.ready:
                # With two unfinished tasks either may have caused it: next time each runs alone.
                is_suspect = len(lost) == 1 and task is worker.running
                self._record_crash(task, worker.at if is_suspect else None, code)
            if task.id not in self._outcomes.failures:
                self._queue.appendleft(task)

    def _count_unready(self, worker: _Worker, code: int) -> None:
        self._died_unready += 1
        if self._died_unready >= (START_STRIKES if code >= 0 else START_KILLS):
            raise errors.BuildError(
                f"{self._died_unready} workers in a row died before they were ready (exit {code}):\n"
                + worker.stderr.decode(errors="replace")[-1500:]
            )

    def _record_crash(self, task: Task, at: tuple[int, int] | None, code: int) -> None:
        crashes = self._crashes.setdefault(task.id, TaskCrashes())
        decision = crashes.record(at)
        if decision == "quarantine":
            self._emit(DocumentCrashed(task=task.id, document=crashes.history.poison[-1], code=code))
        elif decision == "give up":
            why = f"killed {TASK_STRIKES} workers (last exit {code}), at different places; is memory short?"
            self._outcomes.fail(task, [{"file": piece.file.shown, "error": why} for piece in task.pieces])
