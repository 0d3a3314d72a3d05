"""Text that is not in files, as tasks: each segment of it becomes a shard, and is removed from disk when the shard is durable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from tokenmill.building.build_plan import BuildPlan
from tokenmill.building.plan import Limit, Task, task_of
from tokenmill.io import disk
from tokenmill.io.atomic import writing
from tokenmill.reading import Piece, SourceFile, content_of
from tokenmill.store.columns import ColumnSpec
from tokenmill.store.reuse import link_shard

TRIAL_SEGMENT = 1 << 20  # bytes; a trial takes little from a stream


@dataclass(slots=True)
class StreamTasks:
    """The tasks of the streams of a source. Segments are read when they are asked for, in this process."""

    plan: BuildPlan
    left: Limit | None = None  # of a trial
    files: int = 0
    nbytes: int = 0
    _segments: Iterator[SourceFile] = field(init=False)
    _spooled: dict[str, Path] = field(default_factory=dict)  # task -> its segment
    _seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._segments = self._read()

    @property
    def folder(self) -> Path:
        return self.plan.folder / "spool"

    def size_of_first(self) -> int | None:
        """Bytes of the first segment, which is read now; None if there are more."""
        some = [file for _, file in zip(range(2), self._segments, strict=False)]
        self._segments = chain(some, self._segments)
        return sum(file.size for file in some) if len(some) < 2 else None

    def pieces(self) -> Iterator[tuple[Piece, ...]]:
        """For a trial: one piece after the other. Set `left` between two."""
        for file in self._segments:
            yield (Piece(file, nbytes=file.size),)

    def tasks(self, found: list[Task], columns: tuple[ColumnSpec, ...]) -> Iterator[Task]:
        """The tasks that have to be done. All are added to `found`, in order, also those whose shards exist."""
        for file in self._segments:
            piece = Piece(file, nbytes=file.size)
            piece = replace(piece, content=content_of(piece, self.plan.source))
            task = task_of((piece,), self.plan.build_key)
            found.append(task)
            if task.id in self._seen or self._has_shard(task, columns):
                disk.unlink(Path(file.path))
            else:
                self._spooled[task.id] = Path(file.path)
                yield task
            self._seen.add(task.id)

    def done(self, task: Task) -> None:
        """The shard of a task is durable: its segment is not needed any more."""
        if path := self._spooled.pop(task.id, None):
            disk.unlink(path)

    def _read(self) -> Iterator[SourceFile]:
        from tokenmill.reading.spool import segments

        size = self.plan.options["shard_bytes"]
        if self.plan.limit is not None:
            size = min(size, TRIAL_SEGMENT)
        with writing(self.folder):
            for file in segments(self.plan.source, self.folder, size, self._rows_wanted):
                self.files += 1
                self.nbytes += file.size
                yield file

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
