"""Source -> tasks: pure, and blind to workers. The same source and options always give the same tasks.

A task makes one shard. Where the contents of its pieces are known, its id is a digest of them and of everything else its
tokens depend on: that is the shard's name, and a receipt of that name means done. Where they are not, the id stands for the
files as they were found, and the shard gets its name once they have been read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from tokenmill.reading import Piece, Source, SourceFile, split, text_weight
from tokenmill.store.manifest import TRIAL, VERSION
from tokenmill.store.shard import RECEIPT_VERSION

MOST_SHARDS = 8  # times `shard_bytes`: where a group ends whatever it draws, as files do not that begin alike
FILE_COST = 4096  # what opening a file is worth, in bytes of text: keeps groups of tiny files at a sane number


@dataclass(frozen=True, slots=True)
class Limit:
    """Where a trial stops: after so many rows of input, documents or tokens. None is no limit."""

    rows: int | None = None
    documents: int | None = None
    tokens: int | None = None

    @property
    def reached(self) -> bool:
        return any(left is not None and left <= 0 for left in (self.rows, self.documents, self.tokens))

    def less(self, rows: int, documents: int, tokens: int) -> Limit:
        """What is left of it."""
        gone = (rows, documents, tokens)
        left = (self.rows, self.documents, self.tokens)
        return Limit(*(None if limit is None else limit - done for limit, done in zip(left, gone, strict=True)))


@dataclass(frozen=True, slots=True)
class Task:
    """Some pieces, in order, that become one shard. `known`: its id is the shard's name."""

    id: str
    pieces: tuple[Piece, ...]
    known: bool = True
    limit: Limit | None = None

    @property
    def nbytes(self) -> int:
        return sum(piece.nbytes for piece in self.pieces)

    @property
    def new_bytes(self) -> int:
        """Of what has to be read."""
        return sum(piece.nbytes for piece in self.pieces if piece.held is None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Task:
        pieces = tuple(
            Piece(**{**piece, "file": SourceFile(*piece["file"]), "held": piece["held"] and tuple(piece["held"])})
            for piece in body["pieces"]
        )
        limit = Limit(**body["limit"]) if body["limit"] else None
        return cls(body["id"], pieces, body["known"], limit)


@dataclass(slots=True)
class CrashHistory:
    """What earlier crashes taught about a task. Documents are counted within the task, as they are read."""

    poison: list[int] = field(default_factory=list)  # these are left out
    suspects: tuple[int, int] = (0, 0)  # among these is one that kills the process: encode them in small parts
    alone: bool = False  # make the shard durable before taking another task, so that a death has one cause


def making(options: dict[str, Any]) -> str:
    """What tokens depend on beside the content of the input, which says for itself how it is read."""
    decides = ("tokenizer", "special_tokens", "bos", "eos", "shard_bytes", *TRIAL)
    return _digest([VERSION, RECEIPT_VERSION, {name: options[name] for name in decides}])


def task_of(pieces: tuple[Piece, ...], made: str, limit: Limit | None = None) -> Task:
    """The task of some pieces. What a trial will read of a file is never known before."""
    contents = [piece.content for piece in pieces]
    if limit is None and None not in contents:
        return Task(shard_name(made, contents), pieces)
    found = [
        content or [p.file.path, p.file.size, p.file.tag, p.start, p.stop]
        for p, content in zip(pieces, contents, strict=True)
    ]
    return Task(_digest([made, found, asdict(limit) if limit else None]), pieces, False, limit)


def shard_name(made: str, contents: Any) -> str:
    """The name of the shard that is made from these contents, in this way."""
    return _digest([made, contents])


def groups(source: Source, shard_bytes: int, head: Callable[[SourceFile], str]) -> Iterator[tuple[Piece, ...]]:
    """The pieces of each task, in the order of the documents: large files in pieces, small ones together.

    A group of small files ends after a file whose own head says so, with a chance of its weight in `shard_bytes`. So groups
    are about that large; adding, changing or removing a file moves no other group's borders, and no name matters.
    """
    group: list[Piece] = []
    weight = 0
    for file in source.files:
        if text_weight(file) >= shard_bytes:
            if group:
                yield tuple(group)
                group, weight = [], 0
            for piece in split(file, source, shard_bytes):
                yield (piece,)
            continue
        group.append(Piece(file, nbytes=file.size))
        weight += text_weight(file)
        if _ends_group(file, shard_bytes, head(file)) or weight > MOST_SHARDS * shard_bytes:
            yield tuple(group)
            group, weight = [], 0
    if group:
        yield tuple(group)


def _ends_group(file: SourceFile, shard_bytes: int, head: str) -> bool:
    drawn = int.from_bytes(hashlib.sha256(head.encode()).digest()[:8], "big")
    return drawn * shard_bytes < (text_weight(file) + FILE_COST) << 64


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:24]
