"""Which running tasks take much longer than others of their size: a disk, a machine or a network that is slow or hangs.

Time comes in through `time_passed`, as in `supervisor`.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from tokenmill.building.plan import Task

FACTOR = 3  # times the median of the seconds per byte of finished tasks
LEAST_SECONDS = 20.0  # a task that has run for less is never late
LEAST_FINISHED = 3  # tasks, before anything is known about the usual time


class TaskTimes:
    """How long tasks have been running, and how long finished ones took per byte."""

    def __init__(self) -> None:
        self._running: dict[str, float] = {}
        self._per_byte: list[float] = []  # of finished tasks, sorted

    def begin(self, task: Task) -> None:
        """A task was given to a worker. A second worker that gets the same task does not begin it anew."""
        self._running.setdefault(task.id, 0.0)

    def time_passed(self, seconds: float) -> None:
        for task in self._running:
            self._running[task] += seconds

    def finish(self, task: Task) -> None:
        insort(self._per_byte, self._running.pop(task.id, 0.0) / max(task.new_bytes, 1))

    def forget(self, task: Task) -> None:
        """A task was lost with its worker, or given up."""
        self._running.pop(task.id, None)

    def latest(self, tasks: Iterable[Task]) -> Task | None:
        """The task that exceeds the usual time of its size the most, if one takes much longer than usual."""
        if len(self._per_byte) < LEAST_FINISHED:
            return None
        usual = self._per_byte[len(self._per_byte) // 2]
        late = {
            task.id: (self._running[task.id] - usual * task.new_bytes, task)
            for task in tasks
            if self._running.get(task.id, 0.0) >= max(LEAST_SECONDS, FACTOR * usual * task.new_bytes)
        }
        return max(late.values(), key=lambda each: each[0])[1] if late else None
