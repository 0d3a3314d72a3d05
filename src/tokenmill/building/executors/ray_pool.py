"""Workers on the nodes of a Ray cluster, under the same supervisor as those of `process_pool`.

Each worker is an actor (see `ray_actor`) that has one worker process on its node and passes JSON lines through. So a crash
of the engine, exit codes and standard error arrive as from a worker on this machine. A thread of this process always has one
call of `receive` waiting at every actor; there is no call per document.

An actor that does not answer for `LOST_SECONDS`, or that Ray says is dead, is lost: its tasks are given to others. It may go on
for a while, and finish a task a second time. That is harmless: a shard is named by its content and written atomically.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tokenmill import __version__
from tokenmill.building.executors.base import LONGEST_TICK, Failures, Note, Offer, Ticker
from tokenmill.building.executors.ray_actor import KILL_SECONDS, RayWorker
from tokenmill.building.executors.ray_cluster import RayCluster
from tokenmill.building.executors.supervisor import Supervisor, Worker
from tokenmill.building.executors.worker_process import KILLED
from tokenmill.building.machine import PARENT_BYTES, reload_at, resident_bytes
from tokenmill.building.plan import Task
from tokenmill.building.progress import MemoryUsed
from tokenmill.building.task_context import TaskContext
from tokenmill.errors import BuildError
from tokenmill.events import Listener
from tokenmill.formatting import first_names, human, some
from tokenmill.io import disk
from tokenmill.io.atomic import temporary_path, writing

POLL_SECONDS = 5.0  # an actor that has nothing to say answers after this time
LOST_SECONDS = 20.0  # without an answer
REPORT_SECONDS = 0.5  # between two reports of memory
GROWTH_SECONDS = 10.0  # between two looks at the size of the cluster
# Ray kills an actor that does not react within this time.
FORCED_SECONDS = 6.0
# Calls of an actor that may wait at the same time: one for lines, one for a pipe that is full, one that ends it. Messages stay in
# order although calls may overtake each other: the supervisor sends one, and waits for what the worker says to it.
ACTOR_THREADS = 4


@dataclass(eq=False, kw_only=True)
class _Remote(Worker):
    """A worker with its actor. Its process id is known when it is ready."""

    actor: Any
    is_placed: bool = False
    unanswered: float = 0.0  # seconds since the last answer of its actor
    resident: int = 0  # bytes, as its actor last said


class RayPool:
    """An executor of workers on a Ray cluster. `workers` and `memory` are the user's options; see `RayCluster.share_out`.

    `most` limits the number of workers that nobody asked for: there is not enough text for more.
    """

    is_isolated = True

    def __init__(
        self,
        emit: Listener,
        *,
        address: str | None = None,
        workers: int | str | None = None,
        memory: str | int | None = None,
        most: int | None = None,
    ) -> None:
        self._cluster = RayCluster(address)
        count, self._memory = self._cluster.share_out(workers, memory)
        self.processes = count if workers is not None or most is None else min(count, most)
        self._most = most if workers is None and memory is None else self.processes
        self._emit = emit
        self._supervisor = Supervisor(self.processes, self, emit, is_remote=True)
        self._context: str | None = None
        self._mark: Path | None = None
        self._answers: queue.SimpleQueue[tuple[_Remote, Any]] = queue.SimpleQueue()  # of actors; not looked at yet
        self._poller = _Poller(self._answers.put)
        ray = self._cluster.ray
        self._actor_class = ray.remote(
            num_cpus=1,
            memory=self._memory,
            max_restarts=0,  # the supervisor starts others
            max_concurrency=ACTOR_THREADS,
        )(RayWorker)

    def start(self) -> None:
        self._supervisor.start()

    def describe(self) -> str:
        nodes = some(self._cluster.nodes(), "node")
        return f"{some(self.processes, 'Ray worker')} on {nodes}, of at most {human(self._memory)}"

    def __enter__(self) -> RayPool:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self._poller.close()
            self._cluster.close()

    def stop(self) -> None:
        """Kill all workers: each actor kills its process, then Ray the actor. One that does not react, Ray kills by force."""
        workers: list[Any] = self._supervisor.workers
        self._poller.forget(workers)
        # An actor that has not answered yet has no task.
        has_ended = self._end_processes([worker for worker in workers if worker.is_placed])
        for worker in workers:
            self._kill_actor(worker)
        if not has_ended:
            time.sleep(FORCED_SECONDS)
        self._supervisor.forget()
        self._remove_mark()

    def begin(self, context: TaskContext, offer: Offer | None) -> None:
        self._remove_mark()
        self._mark = self._write_mark(Path(context.shards).absolute().parent) if context.bucket is None else None
        context = replace(
            context,
            shards=os.path.abspath(context.shards),
            tokenizer=os.path.abspath(context.tokenizer),
            journals=os.path.abspath(context.journals),
            memory=reload_at(self._memory),
            sample=offer is not None,
        )
        self._context = json.dumps({"begin": asdict(context)})
        self._supervisor.begin(offer)
        for worker in self._supervisor.workers:
            self._tell_context(worker)

    def run(self, tasks: Iterable[Task], is_done: Callable[[Task], bool], note: Note) -> Failures:
        """Run tasks, the largest first."""
        supervisor = self._supervisor
        supervisor.add(tasks, is_done, note)
        reported = grown = time.monotonic()
        ticker = Ticker()
        while supervisor.is_busy:
            supervisor.assign()
            with suppress(queue.Empty):
                self._take(*self._answers.get(timeout=REPORT_SECONDS))
                while True:
                    self._take(*self._answers.get_nowait())
            supervisor.time_passed(ticker.seconds())
            now = time.monotonic()
            if now - reported > REPORT_SECONDS:
                reported = now
                self._report_memory()
            if now - grown > GROWTH_SECONDS:
                grown = now
                self._grow()
        return supervisor.failures

    def _report_memory(self) -> None:
        workers: list[Any] = self._supervisor.workers
        used = resident_bytes() + sum(worker.resident for worker in workers)
        working = sum(worker.running is not None for worker in workers)
        self._emit(MemoryUsed(bytes=used, budget=PARENT_BYTES + self.processes * self._memory, workers=working))

    def _grow(self) -> None:
        """Use nodes that have joined, unless the user has said how many workers there are. One that left is waited for."""
        cores = self._cluster.cores()
        self.processes = max(self.processes, cores if self._most is None else min(cores, self._most))
        self._supervisor.count = self.processes

    # What the supervisor asks for.

    def start_worker(self) -> _Remote:
        setup = json.dumps({"version": __version__, "folder": os.getcwd()})
        worker = _Remote(0, actor=self._actor_class.remote(setup))
        self._poller.add(worker)
        if self._context is not None:
            self._tell_context(worker)
        return worker

    def _tell_context(self, worker: Any) -> None:
        worker.actor.begin.remote(self._context, str(self._mark or ""))

    def send(self, worker: Any, message: dict[str, Any]) -> None:
        worker.actor.send.remote(json.dumps(message))

    def kill(self, worker: Worker) -> None:
        self._end_processes([worker])
        self._end(worker, KILLED, "")

    def is_too_large(self, worker: Any) -> bool:
        return bool(worker.resident > self._memory)

    # Actors.

    def _take(self, worker: _Remote, answer: Any) -> None:
        """An answer of an actor; or an exception, if it is lost."""
        if worker not in self._supervisor.workers:
            return
        if isinstance(answer, BaseException):
            self._lose(worker, answer)
            return
        worker.is_placed, worker.resident = True, answer["bytes"]
        for line in answer["lines"]:
            for kind, value in json.loads(line).items():
                if kind == "result" and value["failed_files"]:
                    self._check_input(worker, value)
                self._supervisor.receive(worker, kind, value)
                if worker not in self._supervisor.workers:
                    return
        if answer["code"] is not None:
            self._end(worker, answer["code"], answer["stderr"])

    def _lose(self, worker: _Remote, error: BaseException) -> None:
        if "failed to import on the worker" in str(error) or "ModuleNotFoundError" in str(error):
            raise BuildError(
                f"a node of the Ray cluster cannot import tokenmill: install tokenmill {__version__} and what this process"
                f" has installed on all nodes.\n{error}"
            )
        self._end(worker, KILLED, str(error), is_lost=True)

    def _end(self, worker: Any, code: int, stderr: str, *, is_lost: bool = False) -> None:
        self._poller.forget([worker])
        self._kill_actor(worker)
        self._supervisor.worker_ended(worker, code, stderr, is_lost=is_lost)

    def _end_processes(self, workers: list[Any]) -> bool:
        """Have actors kill their worker processes. Whether all have answered, or are dead themselves."""
        asked = [worker.actor.end.remote() for worker in workers]
        return not asked or not self._cluster.ray.wait(asked, num_returns=len(asked), timeout=KILL_SECONDS + 1.0)[1]

    def _kill_actor(self, worker: Any) -> None:
        with suppress(Exception):  # it is dead already
            self._cluster.ray.kill(worker.actor)

    def _check_input(self, worker: Any, result: dict[str, Any]) -> None:
        """A file that this process sees and the node of a worker does not is no failure of the file."""
        failed = {entry["file"] for entry in result["failed_files"]}
        pieces = worker.unfinished[result["task"]].pieces if result["task"] in worker.unfinished else ()
        paths = [piece.file.path for piece in pieces if piece.file.shown in failed and os.path.exists(piece.file.path)]
        if not paths:
            return
        node, missing = "", []
        with suppress(Exception):  # it was lost meanwhile
            asked = worker.actor.missing.remote(json.dumps(paths))
            node, missing = json.loads(self._cluster.ray.get(asked, timeout=LOST_SECONDS))
        if missing:
            raise BuildError(
                f"node {node} does not see {first_names(missing)}, which this process sees: put the input on a file"
                " system that all nodes share, and name it by absolute paths"
            )

    def _write_mark(self, folder: Path) -> Path:
        """Write a file by which a node knows that it sees the folder. Its name is one that is cleaned up after a crash."""
        mark = temporary_path(folder / "seen")
        with writing(mark), disk.open_to_write(mark) as out:
            disk.sync(out)
        return mark

    def _remove_mark(self) -> None:
        if self._mark is not None:
            disk.unlink(self._mark)
            self._mark = None


class _Poller:
    """A thread that always has one call of `receive` waiting at each actor, and hands on every answer, or an exception.

    It goes on while a build is planned or its caller is busy. So actors know that their driver lives, and it knows that they do.
    """

    def __init__(self, hand_on: Callable[[tuple[_Remote, Any]], None]) -> None:
        self._hand_on = hand_on
        self._workers: set[_Remote] = set()
        self._lock = threading.Lock()
        self._done: queue.SimpleQueue[tuple[_Remote, Future[str]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def add(self, worker: _Remote) -> None:
        with self._lock:
            self._workers.add(worker)
        self._poll(worker)

    def forget(self, workers: Iterable[_Remote]) -> None:
        with self._lock:
            self._workers -= set(workers)

    def close(self) -> None:
        self._done.put(None)
        self._thread.join()

    def _poll(self, worker: _Remote) -> None:
        future: Future[str] = worker.actor.receive.remote(POLL_SECONDS).future()
        future.add_done_callback(lambda done: self._done.put((worker, done)))

    def _run(self) -> None:
        looked = time.monotonic()
        while True:
            try:
                item = self._done.get(timeout=LONGEST_TICK)
                if item is None:
                    return
                self._take(*item)
            except queue.Empty:
                pass
            now = time.monotonic()
            if now - looked >= LONGEST_TICK:
                looked = now
                self._find_lost()

    def _take(self, worker: _Remote, done: Future[str]) -> None:
        if worker not in self._workers:
            return
        try:
            answer = json.loads(done.result())
        except Exception as error:
            self._lose(worker, error)
            return
        worker.unanswered = 0.0
        worker.is_placed = True
        if answer["code"] is None:
            self._poll(worker)
        else:
            self.forget([worker])
        self._hand_on((worker, answer))

    def _find_lost(self) -> None:
        """Called about once a second."""
        with self._lock:
            workers = [worker for worker in self._workers if worker.is_placed]
        for worker in workers:
            worker.unanswered += LONGEST_TICK
            if worker.unanswered >= LOST_SECONDS:
                self._lose(worker, TimeoutError(f"no answer for {LOST_SECONDS:.0f} s"))

    def _lose(self, worker: _Remote, error: BaseException) -> None:
        self.forget([worker])
        self._hand_on((worker, error))
