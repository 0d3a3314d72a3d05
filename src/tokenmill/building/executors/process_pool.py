"""Worker processes on this machine, supervised: started, fed, watched, replaced, and never waited for in vain.

A worker that dies is noticed at once, because its pipe closes. Its task is given to another. If a task dies in the same
block three times, the block is searched in ever smaller parts; the document that kills three more, alone, is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tokenmill import errors
from tokenmill.building.executors.base import Done, Executor, Failures, Note
from tokenmill.building.executors.in_process import InProcess
from tokenmill.building.machine import BLOCK_ROOM, resident_bytes, share_out
from tokenmill.building.plan import CrashHistory, Task
from tokenmill.building.spot_check import Sample
from tokenmill.encoding.engines import ONE_THREAD
from tokenmill.events import Advanced, DocumentCrashed, Listener, MemoryUsed, ShardDone, WorkerDied, WorkerRecycled
from tokenmill.formatting import human
from tokenmill.reading import text_weight

if TYPE_CHECKING:
    from tokenmill.building.request import BuildRequest
    from tokenmill.encoding import Tokenizer

SMALL_BYTES = 8 << 20  # less text than this is done before a worker would have started
STRIKES = 3  # deaths in one block before it is searched for the document; at one document, alone, before it is left out
TASK_STRIKES = 15  # deaths anywhere in a task before its files are given up
START_STRIKES = 3  # workers in a row that fail before they are ready
START_KILLS = 30  # the same, killed from outside


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    buffer: bytes = b""
    stderr: bytes = b""
    ready: bool = False
    running: Task | None = None
    unfinished: dict[str, Task] = field(default_factory=dict)  # given, and no receipt yet
    at: tuple[int, int] | None = None
    retiring: bool = False

    def send(self, message: dict[str, Any]) -> None:
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it died; its closed output says so


class ProcessPool:
    """A crew of processes. Start it early: they get ready while the work is still being planned."""

    def __init__(self, count: int, memory: int, emit: Listener) -> None:
        self.count, self.memory, self.emit = count, memory, emit
        self.processes = count
        self.offer: Callable[[Sample], None] | None = None
        self.selector = selectors.DefaultSelector()
        self.setup: dict[str, Any] | None = None
        self.workers: list[_Worker] = []
        self.queue: deque[Task] = deque()
        self.cares: dict[str, CrashHistory] = {}
        self.strikes: Counter[tuple[str, Any]] = Counter()
        self.failures: Failures = {}
        self.died_unready = 0

    def start(self) -> None:
        while len(self.workers) < self.count:
            self._start()

    def describe(self) -> str:
        return f"{self.count} {'worker' if self.count == 1 else 'workers'} of at most {human(self.memory)}"

    def __enter__(self) -> ProcessPool:
        return self

    def stop(self) -> None:
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.wait()
            self._close(worker)
        self.workers = []

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.selector.close()

    def _close(self, worker: _Worker) -> None:
        for pipe in (worker.process.stdin, worker.process.stdout, worker.process.stderr):
            assert pipe is not None
            if pipe in self.selector.get_map():
                self.selector.unregister(pipe)
            with contextlib.suppress(OSError):
                pipe.close()

    def begin(self, setup: dict[str, Any], offer: Callable[[Sample], None] | None) -> None:
        """Tell every worker, and every one to come, what the build is."""
        self.setup = {**setup, "memory": self.memory - BLOCK_ROOM, "sample": offer is not None}
        self.offer = offer
        for worker in self.workers:
            worker.send({"setup": self.setup})

    def run(self, tasks: Iterable[Task], is_done: Callable[[Task], bool], note: Note) -> Failures:
        """Do tasks, the largest first, and note each. Returns the files that failed, by task; raises what no retry can mend."""
        self.failures = {}
        self.is_done, self.note = is_done, note
        self.queue.extend(sorted(tasks, key=lambda task: -task.new_bytes))
        looked = 0.0
        while self.queue or any(worker.unfinished for worker in self.workers):
            self._assign()
            for key, _ in self.selector.select(timeout=0.5):
                if self.selector.get_map().get(key.fd) is key:  # not buried since by an event before it
                    worker, stream = key.data
                    self._read(worker, stream, key.fd)
            if time.monotonic() - looked > 0.25:
                looked = time.monotonic()
                self.emit(MemoryUsed(bytes=self.resident_bytes()))
        return self.failures

    def resident_bytes(self) -> int:
        return resident_bytes() + sum(resident_bytes(worker.process.pid) for worker in self.workers)

    def _start(self) -> None:
        environment = {**ONE_THREAD, **os.environ}  # what the user has set stays as it is
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tokenmill.building.executors.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        worker = _Worker(process)
        self.workers.append(worker)
        for stream in ("stdout", "stderr"):
            pipe = getattr(process, stream)
            os.set_blocking(pipe.fileno(), False)
            self.selector.register(pipe, selectors.EVENT_READ, (worker, stream))
        if self.setup is not None:
            worker.send({"setup": self.setup})

    def _read(self, worker: _Worker, stream: str, descriptor: int) -> None:
        data = b""
        try:
            while chunk := os.read(descriptor, 1 << 16):
                data += chunk
        except BlockingIOError:
            pass
        else:  # closed
            self.selector.unregister(descriptor)
            if stream == "stdout":
                self._handle(worker, data)
                self._buried(worker)
                return
        if stream == "stderr":
            worker.stderr = (worker.stderr + data)[-4000:]
        else:
            self._handle(worker, data)

    def _handle(self, worker: _Worker, data: bytes) -> None:
        *lines, worker.buffer = (worker.buffer + data).split(b"\n")
        for line in lines:
            self._message(worker, json.loads(line))

    def _message(self, worker: _Worker, message: dict[str, Any]) -> None:
        if "at" in message:
            worker.at = tuple(message["at"]) if message["at"] else None
        elif "did" in message:
            source, text, documents, tokens = message["did"]
            self.emit(Advanced(source_bytes=source, text_bytes=text, documents=documents, tokens=tokens))
        elif "sample" in message:
            if self.offer is not None:
                self.offer(Sample(*message["sample"]))
        elif "ready" in message:
            worker.ready, self.died_unready = True, 0
        elif "free" in message:
            worker.running, worker.at = None, None
        elif "done" in message:
            task = worker.unfinished.pop(message["done"])
            if message["failed_files"]:
                self.failures[task.id] = message["failed_files"]
            self.note(task, Done(message["shard"], message["contents"]))
            self.emit(ShardDone(id=message["shard"]))
        elif "failed" in message:
            del worker.unfinished[message["failed"]]
            self.failures[message["failed"]] = message["files"]
        elif "fatal" in message:
            kind = getattr(errors, message["fatal"]["type"], errors.BuildError)
            raise kind(message["fatal"]["message"])

    def _assign(self) -> None:
        """Tasks for every worker that encodes nothing, and workers for the tasks that are left."""
        for worker in self.workers:
            if worker.running is None and not worker.retiring and self.queue:
                self._give(worker)
        while self.queue and len(self.workers) < self.count:
            self._start()
            self._give(self.workers[-1])

    def _give(self, worker: _Worker) -> None:
        """The next task for a worker; or its leave, if it has grown too large."""
        if worker.ready and resident_bytes(worker.process.pid) > self.memory:
            self.emit(WorkerRecycled(pid=worker.process.pid))
            worker.retiring = True
            worker.send({"stop": True})  # its successor starts when it is gone, so that the two never add up
            return
        task = self.queue.popleft()
        worker.running, worker.at = task, None
        worker.unfinished[task.id] = task
        care = self.cares.get(task.id, CrashHistory())
        worker.send({"task": task.to_json(), "care": asdict(care)})

    def _buried(self, worker: _Worker) -> None:
        """A worker is gone: take its tasks back, and learn from where it died."""
        self.workers.remove(worker)
        code = worker.process.wait()
        assert worker.process.stderr is not None
        if worker.process.stderr in self.selector.get_map():
            self._read(worker, "stderr", worker.process.stderr.fileno())
        self._close(worker)
        lost = [task for task in worker.unfinished.values() if not self.is_done(task)]
        if not worker.retiring or lost:
            self.emit(WorkerDied(pid=worker.process.pid, code=code, at=worker.at))
        if not worker.ready:
            self.died_unready += 1
            if self.died_unready >= (START_STRIKES if code >= 0 else START_KILLS):
                raise errors.BuildError(
                    f"{self.died_unready} workers in a row died before they could start (exit {code}):\n"
                    + worker.stderr.decode(errors="replace")[-1500:]
                )
        suspect = worker.running if len(lost) == 1 and worker.ready else None
        for task in lost:
            if worker.ready:
                self._strike(task, worker.at if task is suspect else None, code)
            if task.id not in self.failures:
                self.queue.appendleft(task)

    def _strike(self, task: Task, at: tuple[int, int] | None, code: int) -> None:
        """Learn from a death. Where two tasks were in hand it may have been either's: next time each is done alone."""
        care = self.cares.setdefault(task.id, CrashHistory())
        care.alone = True
        self.strikes[task.id, "deaths"] += 1
        self.strikes[task.id, at] += at is not None
        if at is not None and at[1] - at[0] > 1 and care.suspects[0] <= at[0] < at[1] <= care.suspects[1]:
            care.suspects = at  # narrower: the search goes on
        elif self.strikes[task.id, at] >= STRIKES and at is not None:
            if at[1] - at[0] > 1:
                care.suspects = at
            else:
                care.poison.append(at[0])
                care.suspects = (0, 0)
                self.emit(DocumentCrashed(task=task.id, document=at[0], code=code))
            self.strikes[task.id, "deaths"] = self.strikes[task.id, at] = 0
        elif self.strikes[task.id, "deaths"] >= TASK_STRIKES:
            why = f"killed {TASK_STRIKES} workers (last exit {code}), in no one place; is memory short?"
            self.failures[task.id] = [{"file": piece.file.shown, "error": why} for piece in task.pieces]


def executor_for(
    asked: BuildRequest, emit: Listener, tokenizer: Tokenizer | None = None, weight: int | None = None
) -> Executor:
    """Workers, unless the work (`weight` bytes of text, or all of the source) is done before they would have started.

    For a slow tokenizer every core helps, however small the input; unless it lives in this process alone. Where the tokenizer
    is not known yet, it is taken for a fast one.
    """
    count, share = share_out(asked.workers, asked.memory)
    if weight is None:
        weight = sum(map(text_weight, asked.source.files)) + (SMALL_BYTES if asked.source.streams else 0)
    slow = tokenizer is not None and tokenizer.definition.reference == "python"
    live = tokenizer.live if tokenizer is not None and slow else None
    small = asked.workers is None and weight < SMALL_BYTES and not slow
    if asked.workers == 0 or asked.is_trial or small or (tokenizer is not None and slow and tokenizer.engine == "live"):
        return InProcess(share, emit, live)
    return ProcessPool(count, share, emit)
