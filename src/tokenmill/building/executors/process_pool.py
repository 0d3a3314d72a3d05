"""Worker processes on this machine: started, read from, written to, killed. `supervisor` decides what they do.

A worker that dies is noticed at once, because its pipe closes. Its tasks are given to other workers. If workers die in the
same block of documents three times, the block is searched in ever smaller parts, and the document that kills three more
workers alone is left out; likewise a file whose reading kills three.
"""

from __future__ import annotations

import json
import os
import selectors
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from tokenmill.building.executors.base import Failures, Note, Offer, Ticker
from tokenmill.building.executors.launching import Launcher
from tokenmill.building.executors.supervisor import Supervisor, Worker
from tokenmill.building.executors.worker_process import STDERR_BYTES, WorkerProcess
from tokenmill.building.machine import Needs, proportional_bytes, reload_at, resident_bytes
from tokenmill.building.plan import Task
from tokenmill.building.progress import MemoryUsed
from tokenmill.building.task_context import TaskContext
from tokenmill.events import Listener
from tokenmill.formatting import human, some

MEMORY_SECONDS = 0.5  # between two measurements of memory
# Where so many workers have so much memory each, what only some documents need is loaded once for all, before they start.
PRELOAD_WORKERS, PRELOAD_MEMORY = 8, 1 << 30
KILL_SECONDS = 5.0  # to wait for a killed process; one that hangs in the kernel dies later


@dataclass(eq=False)
class _Process(Worker):
    """A worker with its process. Its process id is known when it is ready."""

    process: WorkerProcess = field(kw_only=True)
    buffer: bytes = b""  # of a message that has not arrived whole
    stderr: bytes = b""


class ProcessPool:
    """An executor of `count` worker processes that may use `memory` bytes each.

    `start` it early: workers load their libraries while the work is still being planned.
    """

    is_isolated = True

    def __init__(self, count: int, memory: int, emit: Listener, needs: Needs | None = None) -> None:
        self.processes = count
        self._memory, self._emit = memory, emit
        self._budget = (needs or Needs()).parent + count * memory
        self._selector = selectors.DefaultSelector()
        self._launcher = Launcher(self._selector, count)
        self._supervisor = Supervisor(count, self, emit)

    def start(self) -> None:
        self._supervisor.start()

    def describe(self) -> str:
        return f"{some(self.processes, 'worker')} of at most {human(self._memory)}"

    def __enter__(self) -> ProcessPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._selector.close()

    def stop(self) -> None:
        if self._launcher.is_starting:
            self._launcher.stop()  # so that all workers are known
        workers: list[Any] = list(self._supervisor.workers)
        for worker in workers:
            worker.process.kill()
        for worker in workers:
            worker.process.wait(KILL_SECONDS)
            self._close(worker)
        self._launcher.stop()
        self._supervisor.forget()

    def begin(self, context: TaskContext, offer: Offer | None) -> None:
        preload = self.processes >= PRELOAD_WORKERS and self._memory >= PRELOAD_MEMORY
        self._supervisor.begin(offer)
        self._launcher.begin(
            replace(context, memory=reload_at(self._memory), preload=preload, sample=offer is not None)
        )

    def run(self, tasks: Iterable[Task], is_done: Callable[[Task], bool], note: Note) -> Failures:
        """Run tasks, the largest first."""
        supervisor = self._supervisor
        supervisor.add(tasks, is_done, note)
        measured, ticker = 0.0, Ticker()
        while supervisor.is_busy:
            supervisor.assign()
            for key, _ in self._selector.select(timeout=0.5):
                if self._selector.get_map().get(key.fd) is not key:  # closed by an event before it
                    continue
                if key.data is self._launcher:
                    self._launcher.read_answer()
                else:
                    worker, stream = key.data
                    self._read(worker, stream, key.fd)
            supervisor.time_passed(ticker.seconds())
            now = time.monotonic()
            if now - measured > MEMORY_SECONDS:
                measured = now
                self._report_memory()
        return supervisor.failures

    def _report_memory(self) -> None:
        workers = self._supervisor.workers
        template = self._launcher.template_pid
        pids = [worker.pid for worker in workers if worker.ready] + ([] if template is None else [template])
        used = resident_bytes() + sum(map(proportional_bytes, pids))
        working = sum(worker.running is not None for worker in workers)
        self._emit(MemoryUsed(bytes=used, budget=self._budget, workers=working))

    # What the supervisor asks for.

    def start_worker(self) -> _Process:
        process = self._launcher.start()
        worker = _Process(0, process=process)
        for stream in ("stdout", "stderr"):
            pipe = getattr(process, stream)
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, (worker, stream))
        return worker

    def send(self, worker: Any, message: dict[str, Any]) -> None:
        worker.process.send(message)

    def kill(self, worker: Any) -> None:
        if not worker.process.is_started:
            self._launcher.stop()  # what hangs is the template; or the worker is known now
        worker.process.kill()
        self._end(worker)

    def is_too_large(self, worker: Worker) -> bool:
        return resident_bytes(worker.pid) > self._memory

    # Pipes.

    def _read(self, worker: _Process, stream: str, descriptor: int) -> None:
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
                self._supervisor.receive(worker, kind, value)
        if is_closed:
            self._end(worker)

    def _end(self, worker: _Process) -> None:
        """A worker has closed its output, or was killed."""
        code = worker.process.wait(KILL_SECONDS)
        if worker.process.stderr in self._selector.get_map():
            self._read(worker, "stderr", worker.process.stderr.fileno())
        self._close(worker)
        self._supervisor.worker_ended(worker, code, worker.stderr.decode(errors="replace"))

    def _close(self, worker: Any) -> None:
        for pipe in (worker.process.stdout, worker.process.stderr):
            if pipe in self._selector.get_map():
                self._selector.unregister(pipe)
        self._launcher.forget(worker.process)
        worker.process.close()
