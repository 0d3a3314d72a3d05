"""The log of a store, events.jsonl: every event of every build in this folder, one checksummed JSON line each.

The log of one build grows with the logarithm of its length. The first thousand events of a kind get a line each, then every
second one, every fourth, and so on: a build of ten days has some 10,000 progress lines, about 5 MB. Nothing is lost of shards:
a line of several (`shards_done`) has their sums, and the last progress before the end always has a line. A process that is
killed loses the shards of the line it had not written yet; receipts, not the log, say what is done.
"""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from tokenmill import events
from tokenmill.building.progress import FINAL
from tokenmill.events import Event
from tokenmill.io.atomic import writing
from tokenmill.io.checked_lines import CheckedLines

EVENTS = "events.jsonl"
LINES = 1000  # of one kind of event, before every second one is left out; and so on


class EventLog:
    """A listener that appends events to a file. `run` is the id of this build on each of its lines."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self.run = secrets.token_hex(6)
        self._strides: defaultdict[type[Event], _Stride] = defaultdict(_Stride)
        self._progress: events.Progress | None = None  # the last one, if it has no line
        self._shards: list[events.ShardDone] = []  # without a line yet
        with writing(path):
            self._lines = CheckedLines(path)

    def __call__(self, event: Event) -> None:
        if isinstance(event, FINAL):
            self._flush()
        is_due = self._strides[type(event)].is_due()
        if isinstance(event, events.ShardDone):
            self._shards.append(event)
            if is_due:
                self._write_shards()
            return
        if isinstance(event, events.Progress):
            self._progress = None if is_due else event
        if is_due:
            self._write(event)

    def close(self) -> None:
        with suppress(OSError):
            self._lines.close()

    def _flush(self) -> None:
        if self._shards:
            self._write_shards()
        if self._progress is not None:
            self._write(self._progress)
            self._progress = None

    def _write_shards(self) -> None:
        shards, self._shards = self._shards, []
        self._write(shards[0] if len(shards) == 1 else _summed(shards))

    def _write(self, event: Event) -> None:
        header = {"v": events.VERSION, "run": self.run, "time": round(self._clock(), 3)}
        with writing(self._path):
            self._lines.append({**header, **event.as_record()})


class _Stride:
    """Which events of one kind get a line: each of the first LINES, then every second, every fourth, ..."""

    def __init__(self) -> None:
        self.step, self.skipped, self.lines = 1, 0, 0

    def is_due(self) -> bool:
        self.skipped += 1
        if self.skipped < self.step:
            return False
        self.skipped = 0
        self.lines += 1
        if self.lines % LINES == 0:
            self.step *= 2
        return True


def _summed(shards: list[events.ShardDone]) -> events.ShardsDone:
    counts = ("documents", "tokens", "text_bytes", "source_bytes", "quarantined")
    stages = [stage.name for stage in fields(events.StageSeconds)]
    return events.ShardsDone(
        shards=len(shards),
        seconds=events.StageSeconds(
            **{stage: round(sum(getattr(shard.seconds, stage) for shard in shards), 4) for stage in stages}
        ),
        **{name: sum(getattr(shard, name) for shard in shards) for name in counts},
    )
