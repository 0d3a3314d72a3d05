"""How far a build is: one Progress event per second, summed up from what executors report many times a second."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

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
FINAL = (events.Finished, events.UpToDate, events.Stopped)


@dataclass(slots=True)
class Counts:
    """Work done."""

    source_bytes: int = 0
    text_bytes: int = 0
    documents: int = 0
    tokens: int = 0

    def add(self, other: Counts | TaskAdvanced | events.ShardDone) -> None:
        self.source_bytes += other.source_bytes
        self.text_bytes += other.text_bytes
        self.documents += other.documents
        self.tokens += other.tokens


@dataclass(slots=True)
class _Sample:
    """What was done by a point in time; rates are differences between two of these."""

    time: float
    counts: Counts = field(default_factory=Counts)


class Aggregator:
    """A listener in front of the public ones: passes public events on and turns internal ones into Progress events.

    Progress is sent when an event arrives a second or more after the last one. Executors report several times a second, so
    that is about once a second; a single task without reports for longer delays it.
    """

    def __init__(self, listener: Listener, clock: Callable[[], float] = time.monotonic) -> None:
        self._listener, self._clock = listener, clock
        self._started: float | None = None
        self._total = self._shards = self._shards_done = self._quarantined = 0
        self._done = Counts()  # by finished tasks
        self._running: dict[str, TaskAdvanced] = {}
        self._memory = MemoryUsed(bytes=0, budget=0, workers=0)
        self._failed: set[str] = set()
        self._samples: deque[_Sample] = deque()

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
        if self._is_due() and not isinstance(
            event, TaskEnded
        ):  # between TaskEnded and ShardDone its work would be missing
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
                self._samples = deque([_Sample(self._started)])
            case events.ShardDone():
                self._done.add(event)
                self._shards_done += 1
                self._quarantined += event.quarantined

    def _is_due(self) -> bool:
        return self._started is not None and self._clock() - self._samples[-1].time >= PROGRESS_SECONDS

    def _progress(self) -> events.Progress:
        assert self._started is not None
        now = _Sample(self._clock())
        now.counts.add(self._done)
        for advanced in self._running.values():
            now.counts.add(advanced)
        self._samples.append(now)
        while len(self._samples) > 2 and now.time - self._samples[1].time >= RATE_SECONDS:
            self._samples.popleft()
        seconds = now.time - self._started
        source_bytes = now.counts.source_bytes
        left = self._total - source_bytes
        return events.Progress(
            seconds=round(seconds, 3),
            source_bytes=source_bytes,
            total_source_bytes=self._total,
            text_bytes=now.counts.text_bytes,
            documents=now.counts.documents,
            tokens=now.counts.tokens,
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
            eta_seconds=round(left * seconds / source_bytes, 1) if source_bytes and self._total else None,
        )

    def _rate(self, name: str) -> float:
        """Of one count, per second. Never negative, although the work of a worker that died is subtracted."""
        first, last = self._samples[0], self._samples[-1]
        done: int = getattr(last.counts, name) - getattr(first.counts, name)
        return round(max(0, done) / max(last.time - first.time, 1e-9), 1)
