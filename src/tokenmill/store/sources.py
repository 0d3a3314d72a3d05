"""sources.json: the input file of each piece of the shards. Receipts name no files, so renaming a file changes no shard."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any

from tokenmill.errors import CorruptError
from tokenmill.io import disk
from tokenmill.store.checksums import repair_hint
from tokenmill.store.shard import sealed, unsealed

SOURCES = "sources.json"
VERSION = 1


class Sources:
    """The input files in order, the number of pieces of each file, and the number of pieces in each shard."""

    def __init__(self, files: list[str], pieces: list[int], shards: list[int]) -> None:
        self.files, self.pieces, self.shards = files, pieces, shards
        self._piece_ends = list(accumulate(pieces))
        self._shard_starts = [0, *accumulate(shards)]

    def names(self, shard: int) -> list[str]:
        """The file of each piece of a shard."""
        first, last = self._shard_starts[shard : shard + 2]
        return [self.files[bisect_right(self._piece_ends, piece)] for piece in range(first, last)]

    def as_bytes(self) -> bytes:
        return sealed(
            {"id": SOURCES, "version": VERSION, "files": self.files, "pieces": self.pieces, "shards": self.shards}
        )


def read_sources(path: Path) -> Sources:
    """Read and check sources.json. Costs about a microsecond per file."""
    try:
        raw = disk.read_bytes(path)
    except OSError as error:
        raise CorruptError(f"{path}: {error.strerror}; {repair_hint(path.parent)}") from error
    body = unsealed(raw, SOURCES, VERSION)
    sources = None if body is None else _sources_in(body)
    if sources is None:
        raise CorruptError(f"{path} is damaged; {repair_hint(path.parent)}")
    return sources


def _sources_in(body: dict[str, Any]) -> Sources | None:
    """None if the lists are missing, of other types, or contradict each other."""
    try:
        files, pieces, shards = body["files"], body["pieces"], body["shards"]
        agree = sum(pieces) == sum(shards) and len(files) == len(pieces)
        return Sources(files, pieces, shards) if agree and all(isinstance(name, str) for name in files) else None
    except (KeyError, TypeError):
        return None


class RowCounter:
    """The row of its file at which each piece of a store starts, for pieces that come in order."""

    def __init__(self) -> None:
        self._file, self._row = "", 0

    def start_of(self, file: str) -> int:
        return self._row if file == self._file else 0

    def add(self, file: str, rows: int) -> int:
        """Count the next piece. Returns the row at which it starts."""
        start = self.start_of(file)
        self._file, self._row = file, start + rows
        return start
