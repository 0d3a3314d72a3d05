"""Documents that are imported, written into shards; each shard is made durable while the next one is written."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.building.publish import ShardEntry
from tokenmill.documents import Tokens
from tokenmill.io.atomic import canonical, digest
from tokenmill.store.shard import ShardWriter


class ImportedShards:
    """Writes documents into shards of about `size` tokens, or of the given numbers of documents."""

    def __init__(self, folder: Path, dtype: np.dtype[Any], size: int, counts: list[int] | None) -> None:
        self._folder, self._dtype, self._size = folder, dtype, size
        self._counts = list(counts) if counts is not None else None
        self._writer: ShardWriter | None = None
        self._pieces: list[tuple[str, int, int]] = []  # of the shard: file, documents, tokens
        self._committer = ThreadPoolExecutor(1)
        self._commits: list[Future[ShardEntry]] = []
        self._file, self._is_open = "", False
        self.tokens = 0  # of the file so far

    def begin(self, file: str) -> None:
        self._file, self.tokens = file, 0

    def add(self, ids: npt.NDArray[Any], ends: npt.NDArray[np.int64]) -> None:
        self.tokens += len(ids)
        while len(ids) or len(ends):
            self._commit_empty()
            writer = self._current()
            count = self._fitting(writer, ends)
            stop = (
                int(ends[count - 1]) if count and (count < len(ends) or self._fills(writer, ends, count)) else len(ids)
            )
            self._append(writer, ids[:stop], ends[:count])
            self._is_open = len(ids[:stop]) > (int(ends[count - 1]) if count else 0) or (not count and self._is_open)
            ids, ends = ids[stop:], ends[count:] - stop
            if not self._is_open and self._is_full(writer):
                self._commit()

    def end(self) -> None:
        """The file ends, and with it a document that has not ended yet."""
        if self._is_open:
            writer = self._current()
            self._append(writer, np.empty(0, self._dtype), np.zeros(1, np.int64))
            self._is_open = False
            if self._is_full(writer):
                self._commit()

    def finish(self) -> list[ShardEntry]:
        if self._writer is not None:
            self._commit()
        self._commit_empty()
        self._committer.shutdown()
        return [commit.result() for commit in self._commits]

    def discard(self) -> None:
        self._committer.shutdown(cancel_futures=True)
        if self._writer is not None:
            self._writer.discard()

    def _commit_empty(self) -> None:
        """Shards without a document, all of whose rows were left out, are part of what a store was."""
        while self._counts and not self._counts[0] and self._writer is None:
            self._current()
            self._commit()

    def _current(self) -> ShardWriter:
        if self._writer is None:
            self._writer = ShardWriter(
                self._folder, digest(canonical(["import", len(self._commits)]))[:24], self._dtype
            )
        return self._writer

    def _fitting(self, writer: ShardWriter, ends: npt.NDArray[np.int64]) -> int:
        """How many of these documents go into the shard."""
        if self._counts:
            return min(len(ends), self._counts[0] - writer.documents)
        room = self._size - writer.tokens
        return min(len(ends), int(ends.searchsorted(room, "left")) + 1)

    def _fills(self, writer: ShardWriter, ends: npt.NDArray[np.int64], count: int) -> bool:
        if self._counts:
            return writer.documents + count >= self._counts[0]
        return writer.tokens + int(ends[count - 1]) >= self._size

    def _is_full(self, writer: ShardWriter) -> bool:
        return writer.documents >= self._counts[0] if self._counts else writer.tokens >= self._size

    def _append(self, writer: ShardWriter, ids: npt.NDArray[Any], ends: npt.NDArray[np.int64]) -> None:
        writer.append(Tokens(ids, ends))
        if self._pieces and self._pieces[-1][0] == self._file:
            _, documents, tokens = self._pieces.pop()
        else:
            documents = tokens = 0
        self._pieces.append((self._file, documents + len(ends), tokens + len(ids)))

    def _commit(self) -> None:
        """Make the shard durable in another thread, while the next one is written."""
        assert self._writer is not None
        if self._counts:
            self._counts.pop(0)
        number, writer, pieces = len(self._commits), self._writer, self._pieces
        if number:
            self._commits[-1].result()
        self._commits.append(self._committer.submit(_committed, number, writer, pieces))
        self._writer, self._pieces = None, []


def _committed(number: int, writer: ShardWriter, pieces: list[tuple[str, int, int]]) -> ShardEntry:
    content = digest(canonical([number, writer.finish()]))
    facts: dict[str, Any] = {
        "text_bytes": 0,
        "pieces": [
            {"content": content, "rows": documents, "documents": documents, "tokens": tokens, "text_bytes": 0}
            for _, documents, tokens in pieces
        ],
    }
    receipt = writer.commit(content[:24], **facts)
    return ShardEntry(content[:24], [file for file, _, _ in pieces], receipt)
