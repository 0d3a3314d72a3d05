"""Text that is not in files, as tasks: each segment of it becomes a shard, and is removed from disk when the shard is durable."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.building.build_plan import BuildPlan
from tokenmill.building.plan import Limit, Task, task_of
from tokenmill.building.stream_progress import SegmentRead, StreamProgress, forget
from tokenmill.errors import MismatchError
from tokenmill.events import Listener
from tokenmill.formatting import some
from tokenmill.io import disk
from tokenmill.io.atomic import writing
from tokenmill.option_types import option_name
from tokenmill.reading import Piece, content_of
from tokenmill.reading.files import Stream
from tokenmill.store.columns import ColumnSpec
from tokenmill.store.reuse import PieceReader, link_shard

if TYPE_CHECKING:
    from tokenmill.reading.spool import Segment, Spool

logger = logging.getLogger("tokenmill")

TRIAL_SEGMENT = 1 << 20  # bytes; a trial takes little from a stream


class _Segment(NamedTuple):
    """A segment of a stream as a piece, with its content unless it is for a trial. `is_here`: its file is on disk."""

    piece: Piece
    is_here: bool = True


@dataclass(slots=True)
class StreamTasks:
    """The tasks of the streams of a source. Segments are read when they are asked for, in this process."""

    plan: BuildPlan
    emit: Listener
    left: Limit | None = None  # of a trial
    files: int = 0
    nbytes: int = 0
    _segments: Iterator[_Segment] = field(init=False)
    _spooled: dict[str, Path] = field(default_factory=dict)  # task -> its segment
    _seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._segments = self._read()

    @property
    def folder(self) -> Path:
        return self.plan.folder / "spool"

    def size_of_first(self) -> int | None:
        """Bytes of the first segment, which is read now; None if there are more."""
        some = [segment for _, segment in zip(range(2), self._segments, strict=False)]
        self._segments = chain(some, self._segments)
        return sum(segment.piece.nbytes for segment in some) if len(some) < 2 else None

    def pieces(self) -> Iterator[tuple[Piece, ...]]:
        """For a trial: one piece after the other. Set `left` between two."""
        for segment in self._segments:
            yield (segment.piece,)

    def tasks(self, found: list[Task], columns: tuple[ColumnSpec, ...]) -> Iterator[Task]:
        """The tasks that have to be done. All are added to `found`, in order, also those whose shards exist."""
        for piece, is_here in self._segments:
            task = task_of((piece,), self.plan.build_key)
            found.append(task)
            if task.id in self._seen or self._has_shard(task, columns):
                if is_here:
                    disk.unlink(Path(piece.file.path))
                self._check_start(task, task.id, found[0])
            else:
                self._spooled[task.id] = Path(piece.file.path)
                yield task
            self._seen.add(task.id)

    def done(self, task: Task, shard: str, first: Task) -> None:
        """The shard of a task is durable: its segment is not needed any more."""
        if path := self._spooled.pop(task.id, None):
            disk.unlink(path)
        self._check_start(task, shard, first)

    def _check_start(self, task: Task, shard: str, first: Task) -> None:
        """Compare the first shard with the published store: a long stream need not be read to its end for that."""
        if task.id == first.id and not self.plan.source.files:
            self.check_kept([shard], is_whole=False)

    def check_kept(self, shards: list[str], *, is_whole: bool) -> None:
        """Raise MismatchError if these shards are another text than the published store: if they lack more than half of its
        documents; or, of the first shard alone, if it has none of those that the store begins with."""
        published, bucket = self.plan.prior.published, self.plan.prior.bucket
        was = published.shard_ids[: None if is_whole else 2] if published is not None else []
        dropped = set(was) - set(shards)
        if published is None or len(dropped) * 2 <= len(was):
            return
        old, new = (_signatures(self.plan, published.columns, names) for names in (dropped, set(shards) - set(was)))
        lost = len(old) - int(np.isin(old, new).sum())
        if lost * 2 > published.documents if is_whole else len(new) and len(old) == lost > 0:
            raise MismatchError(
                f"{self.plan.folder if bucket is None else bucket.url} has another text: {some(published.documents, 'document')},"
                f" {some(published.tokens, 'token')}, {f'{lost:,} of which are' if is_whole else 'the first of which are'} not in"
                f" {self.plan.source._streams[0].name}. Choose another folder, or replace them with {option_name('force', True)}"
            )

    def finish(self) -> None:
        """The store is published."""
        forget(self.plan)

    def _read(self) -> Iterator[_Segment]:
        from tokenmill.reading.spool import Spool

        size = self.plan.options["shard_bytes"]
        if self.plan.limit is not None:
            size = min(size, TRIAL_SEGMENT)
        with writing(self.folder):
            spool = Spool(self.plan.source, self.folder, size, self._rows_wanted, self.emit)
            for stream in self.plan.source._streams:
                stream.begin()
                for segment in self._segments_of(stream, spool):
                    self.files += 1
                    self.nbytes += segment.piece.nbytes
                    yield segment

    def _segments_of(self, stream: Stream, spool: Spool) -> Iterator[_Segment]:
        """The segments of a stream. Those that an earlier build has encoded are not read again where that is possible."""
        progress = StreamProgress(self.plan, stream)
        encoded, segments = self._resumed(stream, spool, progress)
        for read in encoded:
            progress.add(read, is_new=False)
            yield _Segment(read.piece, is_here=False)
        with closing(progress):
            for file, resume in segments:
                piece = Piece(file, nbytes=file.size)
                if self.plan.limit is None:
                    read = SegmentRead(file, content_of(piece, self.plan.source), resume)
                    progress.add(read, is_new=True)
                    piece = read.piece
                yield _Segment(piece)

    def _resumed(
        self, stream: Stream, spool: Spool, progress: StreamProgress
    ) -> tuple[list[SegmentRead], Iterator[Segment]]:
        """The segments that need not be read, and those after them.

        The last segment that has a shard is read nevertheless. If it is not the same as before, the state did not lead to where
        that build was, or the dataset has changed: all of it is read.
        """
        encoded = list(takewhile(self._is_encoded, progress.earlier()))
        while len(encoded) > 1 and encoded[-2].resume is None:
            encoded.pop()
        if len(encoded) > 1:
            try:
                segments = spool.segments(stream, encoded[-2].resume)
                again = next(segments)
                piece = Piece(again.file, nbytes=again.file.size)
                if content_of(piece, self.plan.source) == encoded[-1].content:
                    return encoded[:-1], chain([again], segments)
            except Exception:  # the dataset does not understand the state; what else is wrong shows when it is read
                logger.debug("%s cannot be read on from a state", stream.name, exc_info=True)
        return [], spool.segments(stream)

    def _is_encoded(self, read: SegmentRead) -> bool:
        return self.plan.has_shard(task_of((read.piece,), self.plan.build_key), self.plan.shards)

    def _rows_wanted(self) -> int | None:
        limits = (self.left.rows, self.left.documents) if self.left is not None else ()
        return min((limit for limit in limits if limit is not None), default=None)

    def _has_shard(self, task: Task, columns: tuple[ColumnSpec, ...]) -> bool:
        """Whether the shard of a task exists, in the folder of the build or in a store that can lend it."""
        plan = self.plan
        if plan.has_shard(task, plan.shards):
            return True
        donor = next((donor for donor in plan.prior.donors if plan.has_shard(task, donor)), None)
        if donor is not None:
            link_shard(donor, plan.shards, task.id, columns)
        return donor is not None


def _signatures(plan: BuildPlan, columns: tuple[ColumnSpec, ...], shards: Iterable[str]) -> npt.NDArray[np.uint64]:
    """A number for each document of shards, from its length and the sum of its ids. Damaged shards are left out."""
    found = [np.zeros(0, np.uint64)]
    for shard in shards:
        if plan.prior.bucket is not None:
            plan.prior.bucket.pull_columns([shard])
        if reader := PieceReader.open(plan.shards / shard, columns):
            for tokens in map(reader.tokens, range(len(reader.pieces))):
                lengths = np.diff(tokens.ends, prepend=0)
                starts, numbers = tokens.ends - lengths, lengths.astype(np.uint64) << np.uint64(40)
                numbers[lengths > 0] += np.add.reduceat(tokens.ids, starts[lengths > 0], dtype=np.uint64)
                found.append(numbers)
    return np.concatenate(found)
