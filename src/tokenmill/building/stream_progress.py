"""How far streaming datasets were read: a line per segment, beside the shards, until the store is published.

A build that was killed goes on from there, instead of reading the dataset from its start. What a line says counts only if the
segments before it have their shards, and if the dataset is defined as it was.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tokenmill.building.build_plan import BuildPlan
from tokenmill.io import disk
from tokenmill.io.atomic import canonical, writing
from tokenmill.io.checked_lines import CheckedLines, read_lines
from tokenmill.reading import Piece, SourceFile
from tokenmill.reading.files import Stream
from tokenmill.reading.resuming import ResumePoint, identity

FILE = "streams.jsonl"


class SegmentRead(NamedTuple):
    """A segment that was read: its file, which is gone, its content, and where to go on after it."""

    file: SourceFile
    content: str
    resume: ResumePoint | None

    @property
    def piece(self) -> Piece:
        return Piece(self.file, nbytes=self.file.size, content=self.content)


@dataclass(slots=True)
class StreamProgress:
    """The segments of one stream, as they were read by earlier builds and are read by this one."""

    plan: BuildPlan
    stream: Stream
    key: str | None = field(init=False)  # of the stream and the options it is read with; None: nothing is noted
    _number: int = 0  # of segments so far
    _last: str | None = None  # content of the last of them
    _lines: CheckedLines | None = None

    def __post_init__(self) -> None:
        plan, dataset = self.plan, identity(self.stream.data) if self.plan.limit is None else None
        decides = [plan.build_key, plan.source._options(), self.stream.name, dataset]
        self.key = hashlib.sha256(canonical(decides)).hexdigest()[:32] if dataset is not None else None

    def earlier(self) -> list[SegmentRead]:
        """The segments that earlier builds read, from the first on."""
        if self.key is None:
            return []
        lines = read_lines(self.plan.folder / FILE)
        by_number = {line["number"]: line for line in lines if line["key"] == self.key}
        found: list[SegmentRead] = []
        last = None
        while (line := by_number.get(len(found))) is not None and line["after"] == last:
            last = line["content"]
            resume = ResumePoint(**line["resume"]) if line["resume"] is not None else None
            found.append(SegmentRead(SourceFile(**line["file"]), last, resume))
        return found

    def add(self, read: SegmentRead, *, is_new: bool) -> None:
        """The next segment of the stream. A new one is noted; another was noted by an earlier build."""
        if is_new and self.key is not None:
            path = self.plan.folder / FILE
            with writing(path):
                self._lines = self._lines or CheckedLines(path)
                self._lines.append({"key": self.key, "number": self._number, "after": self._last, **_as_record(read)})
        self._number, self._last = self._number + 1, read.content

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()
            self._lines = None


def forget(plan: BuildPlan) -> None:
    """Remove what was noted: the store is published."""
    disk.unlink(plan.folder / FILE)


def _as_record(read: SegmentRead) -> dict[str, Any]:
    resume = read.resume._asdict() if read.resume is not None else None
    return {"file": read.file._replace(path="")._asdict(), "content": read.content, "resume": resume}
