"""The contract of executors: who runs tasks, and where.

An executor gets a `TaskContext` once and then tasks; each becomes a shard with a receipt. All of these are JSON values, so an
executor may run them anywhere that sees the same files. `tokenmill.testing.executors` is its conformance suite.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Protocol, Self

from tokenmill.building.document_sampler import Sample
from tokenmill.building.plan import Task
from tokenmill.building.progress import TaskEnded
from tokenmill.building.task_context import TaskContext, TaskResult
from tokenmill.events import DeviceLost, FileFailed, Listener

Failures = dict[str, list[dict[str, str]]]  # by task: {"file": ..., "error": ...}
Note = Callable[[Task, TaskResult], None]
Offer = Callable[[Sample], None]


class Executor(Protocol):
    """Runs tasks. Emits TaskAdvanced and MemoryUsed while it works, ShardDone and FileFailed as they happen.

    `processes` is how many tasks run at a time. `is_isolated`: a document that crashes the engine does not take this process
    with it; it is found and quarantined.
    """

    processes: int
    is_isolated: bool

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def start(self) -> None:
        """Start what takes time to start, such as worker processes. Optional: `run` starts what is missing."""

    def stop(self) -> None:
        """Abandon running tasks. No receipt is written after this returns. `run` may be called again."""

    def describe(self) -> str:
        """A few words for the user, such as "4 workers of at most 2.0 GB"."""
        ...

    def begin(self, context: TaskContext, offer: Offer | None) -> None:
        """Set what the following tasks need. `offer` gets a few documents for the spot check; it may raise."""

    def run(self, tasks: Iterable[Task], is_done: Callable[[Task], bool], note: Note) -> Failures:
        """Run tasks, calling `note` for each that becomes a shard. Returns the files that failed, by task.

        `is_done` says whether the shard of a task exists. Raises errors that a retry cannot fix, with their type.
        """
        ...


LONGEST_TICK = 1.0  # seconds that count between two looks, however long this process was stopped


class Ticker:
    """Measures the time for a supervisor."""

    def __init__(self) -> None:
        self._looked = time.monotonic()

    def seconds(self) -> float:
        """The time since the last look: timeouts restart after the computer slept."""
        looked, self._looked = self._looked, time.monotonic()
        return min(self._looked - looked, LONGEST_TICK)


class Outcomes:
    """What the tasks of one `run` became: notes finished ones, emits events, collects failed files."""

    def __init__(self, note: Note, emit: Listener) -> None:
        self._note, self._emit = note, emit
        self.failures: Failures = {}
        self._is_device_lost = False  # whether that was said

    def add(self, task: Task, result: TaskResult) -> None:
        if result.device_lost and not self._is_device_lost:
            self._is_device_lost = True
            self._emit(DeviceLost(why=result.device_lost))
        if result.failed_files:
            self.fail(task, result.failed_files)
        if result.shard is not None:
            self._note(task, result)
            self._emit(TaskEnded(task=task.id))
            self._emit(result.shard)

    def fail(self, task: Task, files: list[dict[str, str]]) -> None:
        self.failures[task.id] = files
        for entry in files:
            self._emit(FileFailed(file=entry["file"], error=entry["error"]))
