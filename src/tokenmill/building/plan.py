"""Source -> tasks. A pure function of the source and the options, never of the number of workers.

A task makes one shard. If the contents of its pieces are known, its id is a digest of them and of everything else its tokens
depend on: that is the shard's name, and a receipt of that name means it is done. Otherwise the id stands for the files as they
were listed, and the shard gets its name after they have been read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tokenmill.reading import Piece, Source, SourceFile, split_many, text_weight
from tokenmill.store.manifest import TRIAL, VERSION
from tokenmill.store.shard import RECEIPT_VERSION

MOST_SHARDS = 8  # times `shard_bytes`: a group ends here in any case, for files that all begin alike
FILE_COST = 4096  # bytes of text that opening a file counts for: limits the number of tiny files in a group


@dataclass(frozen=True, slots=True)
class Limit:
    """Where a trial stops: rows of input, documents and tokens left. None is no limit."""

    rows: int | None = None
    documents: int | None = None
    tokens: int | None = None

    @property
    def reached(self) -> bool:
        return any(left is not None and left <= 0 for left in (self.rows, self.documents, self.tokens))

    @property
    def reads_all(self) -> bool:
        """Whether the input is read to its end, unless there are enough tokens before."""
        return self.rows is None and self.documents is None

    def less(self, rows: int, documents: int, tokens: int) -> Limit:
        """What is left after this much."""
        used = (rows, documents, tokens)
        left = (self.rows, self.documents, self.tokens)
        return Limit(*(None if limit is None else limit - done for limit, done in zip(left, used, strict=True)))


@dataclass(frozen=True, slots=True)
class Task:
    """Pieces, in order, that become one shard. `known`: the id is the shard's name."""

    id: str
    pieces: tuple[Piece, ...]
    known: bool = True
    limit: Limit | None = None

    @property
    def nbytes(self) -> int:
        return sum(piece.nbytes for piece in self.pieces)

    @property
    def new_bytes(self) -> int:
        """Bytes to read: pieces that are copied from a finished shard do not count."""
        return sum(piece.nbytes for piece in self.pieces if piece.held is None)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Task:
        pieces = tuple(
            Piece(**{**piece, "file": SourceFile(*piece["file"]), "held": piece["held"] and tuple(piece["held"])})
            for piece in body["pieces"]
        )
        limit = Limit(**body["limit"]) if body["limit"] else None
        return cls(body["id"], pieces, body["known"], limit)


def build_key(options: dict[str, Any]) -> str:
    """A digest of what tokens depend on beside the content of the input. How the input is read is part of its content."""
    decides = ("tokenizer", "tokenizers", "special_tokens", "bos", "eos", "shard_bytes", *TRIAL)
    return _digest([VERSION, RECEIPT_VERSION, {name: options[name] for name in decides}])


def task_of(pieces: tuple[Piece, ...], key: str, limit: Limit | None = None) -> Task:
    """The task of some pieces. `key` is the build key. How much of a file a trial will read is not known in advance."""
    contents = [piece.content for piece in pieces]
    if limit is None and None not in contents:
        return Task(shard_name(key, contents), pieces)
    listed = [
        content or [p.file.path, p.file.size, p.file.tag, p.start, p.stop]
        for p, content in zip(pieces, contents, strict=True)
    ]
    return Task(_digest([key, listed, asdict(limit) if limit else None]), pieces, known=False, limit=limit)


def shard_name(key: str, contents: Any) -> str:
    """The name of the shard that is made from these contents with this build key."""
    return _digest([key, contents])


def groups(source: Source, shard_bytes: int, head: Callable[[SourceFile], str]) -> Iterator[tuple[Piece, ...]]:
    """The pieces of each task, in the order of the documents: large files in pieces, small ones together.

    A group of small files ends after a file whose head (`head(file)`) hashes below its weight in `shard_bytes`. So groups are
    about that large, and adding, changing, renaming or removing a file moves no border of other groups.
    """
    large = [file for file in source.files if text_weight(file) >= shard_bytes]
    splits = split_many(large, source, shard_bytes)
    group: list[Piece] = []
    weight = 0
    for file in source.files:
        if text_weight(file) >= shard_bytes:
            if group:
                yield tuple(group)
                group, weight = [], 0
            for piece in next(splits):
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
