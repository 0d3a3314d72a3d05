"""How far a build is: one Progress event per second, summed up from what executors report many times a second."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tokenmill import events
from tokenmill.events import Event, Listener

PROGRESS_SECONDS = 1.0  # between two Progress events
RATE_SECONDS = 10.0  # over which rates are measured


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAdvanced(Event):
    """For the aggregator only: what a running task has done so far."""

    task: str
    source_bytes: int
    text_bytes: int
    documents: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnded(Event):
    """For the aggregator only: forget what a task has reported. If it made a shard, ShardDone follows with its counts."""

    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUsed(Event):
    """For the aggregator only: resident memory of all processes, what they may use, and how many workers have a task."""

    bytes: int
    budget: int
    workers: int


INTERNAL = (TaskAdvanced, TaskEnded, MemoryUsed)
FINAL = (events.Finished, events.UpToDate, events.SliceDone, events.Stopped)
COUNTS = ("source_bytes", "text_bytes", "documents", "tokens")  # of work done


class Aggregator:
    """A listener in front of the public ones: passes public events on and turns internal ones into Progress events.

    Progress is sent when an event arrives a second or more after the last one. Executors report several times a second, so
    that is about once a second; a single task without reports for longer delays it.
    """

    def __init__(self, listener: Listener, clock: Callable[[], float] = time.monotonic) -> None:
        self._listener, self._clock = listener, clock
        self._started: float | None = None
        self._total = self._shards = self._shards_done = self._quarantined = 0
        self._done = dict.fromkeys(COUNTS, 0)  # by finished tasks
        self._running: dict[str, TaskAdvanced] = {}
        self._memory = MemoryUsed(bytes=0, budget=0, workers=0)
        self._failed: set[str] = set()
        self._samples: deque[tuple[float, dict[str, int]]] = deque()  # what was done by a point in time

    def __call__(self, event: Event) -> None:
        if isinstance(event, events.FileFailed):
            if event.file in self._failed:  # a file in several pieces may fail in each
                return
            self._failed.add(event.file)
        self._update(event)
        if isinstance(event, FINAL) and self._started is not None:
            self._listener(self._progress())
            self._started = None
        if not isinstance(event, INTERNAL):
            self._listener(event)
        if not isinstance(event, TaskEnded) and self._is_due():  # the work of the task is missing until ShardDone
            self._listener(self._progress())

    def _update(self, event: Event) -> None:
        match event:
            case TaskAdvanced():
                self._running[event.task] = event
            case TaskEnded():
                self._running.pop(event.task, None)
            case MemoryUsed():
                self._memory = event
            case events.Planned():
                self._shards, self._shards_done = event.shards, event.done
            case events.Started():
                self._started, self._total = self._clock(), event.source_bytes
                self._samples = deque([(self._started, dict.fromkeys(COUNTS, 0))])
            case events.ShardDone():
                self._done = self._done_with([event])
                self._shards_done += 1
                self._quarantined += event.quarantined

    def _is_due(self) -> bool:
        return self._started is not None and self._clock() - self._samples[-1][0] >= PROGRESS_SECONDS

    def _done_with(self, tasks: Iterable[TaskAdvanced | events.ShardDone]) -> dict[str, int]:
        """The counts of finished tasks and of these."""
        done = dict(self._done)
        for task in tasks:
            for name in COUNTS:
                done[name] += getattr(task, name)
        return done

    def _progress(self) -> events.Progress:
        assert self._started is not None
        now, done = self._clock(), self._done_with(self._running.values())
        self._samples.append((now, done))
        while len(self._samples) > 2 and now - self._samples[1][0] >= RATE_SECONDS:
            self._samples.popleft()
        seconds, left = now - self._started, self._total - done["source_bytes"]
        has_rate = done["source_bytes"] and self._total
        return events.Progress(
            seconds=round(seconds, 3),
            total_source_bytes=self._total,
            source_bytes_per_second=self._rate("source_bytes"),
            text_bytes_per_second=self._rate("text_bytes"),
            tokens_per_second=self._rate("tokens"),
            memory_bytes=self._memory.bytes,
            memory_budget=self._memory.budget,
            workers=self._memory.workers,
            shards_done=self._shards_done,
            shards=self._shards,
            failed_files=len(self._failed),
            quarantined=self._quarantined,
            eta_seconds=round(left * seconds / done["source_bytes"], 1) if has_rate else None,
            **done,
        )

    def _rate(self, name: str) -> float:
        """Of one count, per second. Never negative, although the work of a worker that died is subtracted."""
        (began, before), (ended, after) = self._samples[0], self._samples[-1]
        return round(max(0, after[name] - before[name]) / max(ended - began, 1e-9), 1)
