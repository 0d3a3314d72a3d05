"""Source -> tasks: pure, and blind to workers. The same source and options always give the same tasks.

A task makes one shard. Its id is a digest of everything its tokens depend on, so a receipt with that id means done:
there is nothing else to ask when resuming, appending, or sharing the work out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from tokenmill.reading import Piece, Source, SourceFile, split, text_weight

FILE_COST = 4096  # what opening a file is worth, in bytes of text: keeps groups of tiny files at a sane number


@dataclass(frozen=True, slots=True)
class Task:
    """Some pieces, in order, that become one shard."""

    id: str
    pieces: tuple[Piece, ...]
    limit: int | None = None

    @property
    def nbytes(self) -> int:
        return sum(piece.nbytes for piece in self.pieces)

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "limit": self.limit, "pieces": [asdict(piece) for piece in self.pieces]}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Task:
        pieces = tuple(Piece(**{**piece, "file": SourceFile(**piece["file"])}) for piece in body["pieces"])
        return cls(body["id"], pieces, body["limit"])


@dataclass(slots=True)
class Care:
    """What earlier crashes taught about a task. Documents are counted within the task, as they are read."""

    poison: list[int] = field(default_factory=list)  # these are left out
    suspects: tuple[int, int] = (0, 0)  # among these is one that kills the process: encode them in small parts
    alone: bool = False  # make the shard durable before taking another task, so that a death has one cause


def plan(source: Source, options: dict[str, Any], shard_bytes: int) -> list[Task]:
    """The tasks of a build, in the order of the documents."""
    key = json.dumps(options, sort_keys=True)
    return [Task(_task_id(key, pieces), pieces) for pieces in _groups(source, shard_bytes)]


def limited(task: Task, limit: int) -> Task:
    """A task that stops after so many rows; another id, since it makes another shard."""
    return Task(_task_id(f"{limit} of {task.id}", task.pieces), task.pieces, limit)


def _groups(source: Source, shard_bytes: int) -> Iterator[tuple[Piece, ...]]:
    """Large files in pieces, small ones together.

    A group of small files ends after a file whose own name says so, with a chance of its weight in `shard_bytes`. So
    groups are about that large, and adding, changing or removing a file moves no other group's borders.
    """
    group: list[Piece] = []
    for file in source.files:
        if text_weight(file) >= shard_bytes:
            if group:
                yield tuple(group)
                group = []
            for piece in split(file, source, shard_bytes):
                yield (piece,)
            continue
        group.append(Piece(file, nbytes=file.size))
        if _ends_group(file, shard_bytes):
            yield tuple(group)
            group = []
    if group:
        yield tuple(group)


def _ends_group(file: SourceFile, shard_bytes: int) -> bool:
    drawn = int.from_bytes(hashlib.sha256(file.key.encode("utf-8", "surrogateescape")).digest()[:8], "big")
    return drawn * shard_bytes < (text_weight(file) + FILE_COST) << 64


def _task_id(key: str, pieces: tuple[Piece, ...]) -> str:
    what = [[p.file.key if p.file.spooled else p.file.path, p.file.size, p.file.tag, p.start, p.stop] for p in pieces]
    return hashlib.sha256(json.dumps([key, what]).encode()).hexdigest()[:24]
