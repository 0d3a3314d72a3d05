"""Accounting of a running task: counts per piece, seconds by stage, and reports of how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tokenmill.building.plan import Task
from tokenmill.building.progress import TaskAdvanced
from tokenmill.documents import Skip, merge_skips
from tokenmill.events import StageSeconds
from tokenmill.reading import Piece, text_weight
from tokenmill.store.shard import ShardWriter

REPORT_SECONDS = 0.1  # between two reports of a running task

Stage = Literal["read", "parse", "encode", "write"]


@dataclass(slots=True)
class PieceCounts:
    """What became of one piece: its entry in the receipt."""

    rows: int = 0
    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0
    special_documents: int = 0
    skips: list[Skip] = field(default_factory=list)
    content: str | None = None

    def entry(self) -> dict[str, Any]:
        """The entry. It says what the piece held, never what its file is called."""
        entry: dict[str, Any] = {
            "content": self.content,
            "rows": self.rows,
            "documents": self.documents,
            "tokens": self.tokens,
            "text_bytes": self.text_bytes,
        }
        if self.special_documents:
            entry["special_documents"] = self.special_documents
        if self.skips:
            entry["skips"] = [list(skip) for skip in merge_skips(sorted(self.skips))]
        return entry

    @classmethod
    def from_entry(cls, entry: dict[str, Any]) -> PieceCounts:
        counts = {name: entry[name] for name in ("rows", "documents", "tokens", "text_bytes", "content")}
        skips = [Skip(*skip) for skip in entry.get("skips", ())]
        return cls(**counts, special_documents=entry.get("special_documents", 0), skips=skips)


class StageClock:
    """Seconds by stage. `lap` adds the time since the last lap to a stage: one look at the clock per stage and block."""

    def __init__(self) -> None:
        self._seconds: dict[Stage, float] = {"read": 0.0, "parse": 0.0, "encode": 0.0, "write": 0.0}
        self._last = time.perf_counter()

    def lap(self, stage: Stage) -> None:
        now = time.perf_counter()
        self._seconds[stage] += now - self._last
        self._last = now

    def move(self, seconds: float, source: Stage, target: Stage) -> None:
        """Time that was measured as part of one stage belongs to another."""
        self._seconds[source] -= seconds
        self._seconds[target] += seconds

    def totals(self, *, sync: float) -> StageSeconds:
        return StageSeconds(
            **{stage: round(seconds, 4) for stage, seconds in self._seconds.items()}, sync=round(sync, 4)
        )


class TaskProgress:
    """Reports what a task has done. Source bytes are estimated from text bytes until a piece is read to its end."""

    def __init__(self, task: Task, writer: ShardWriter, send: Callable[[TaskAdvanced], None]) -> None:
        self._task, self._writer, self._send = task.id, writer, send
        self._source_bytes = self._text_bytes = 0  # of the pieces before
        self._counts, self._nbytes, self._ratio = PieceCounts(), 0, 1.0
        self._sent = time.monotonic()

    def begin(self, piece: Piece, counts: PieceCounts) -> None:
        """`counts` are those of the piece, filled in while it is read."""
        self._counts, self._nbytes = counts, piece.nbytes if piece.held is None else 0
        self._ratio = piece.file.size / max(text_weight(piece.file), 1)

    def update(self) -> None:
        """Report, if the last report is not too recent."""
        if time.monotonic() - self._sent > REPORT_SECONDS:
            self.report()

    def finish(self, *, text_bytes: int) -> None:
        """The piece is over. `text_bytes` of it are in the shard: 0 for a file that failed."""
        self._source_bytes += self._nbytes
        self._text_bytes += text_bytes
        self._counts, self._nbytes = PieceCounts(), 0
        self.update()

    def report(self) -> TaskAdvanced:
        self._sent = time.monotonic()
        estimate = int(self._counts.text_bytes * self._ratio)
        advanced = TaskAdvanced(
            task=self._task,
            source_bytes=self._source_bytes + min(self._nbytes, estimate),
            text_bytes=self._text_bytes + self._counts.text_bytes,
            documents=self._writer.documents,
            tokens=self._writer.tokens,
        )
        self._send(advanced)
        return advanced
