"""Documents that are imported: looked at, and written into shards; each shard is made durable while the next one is written."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.building.publish import ShardEntry
from tokenmill.documents import Tokens
from tokenmill.formatting import percent
from tokenmill.io.atomic import canonical, digest
from tokenmill.store.shard import ShardWriter

REMEMBERED = 1 << 22  # documents, by 64 bits each
PLACES = 9
MIX = np.uint64(0x9E3779B97F4A7C15)


class Audit:
    """How many documents begin with bos, end with eos and repeat an earlier one, and how many ids are unused.

    About 2 ns per token. Documents of 8 ids or more are the same if their length, the sum of their ids and the ids
    at 9 places are; shorter ones do not count. Of more than some million documents a few repeats are not seen: memory is bounded.
    """

    def __init__(self, vocab_size: int | None, bos: int | None, eos: int | None) -> None:
        self._bos, self._eos = bos, eos
        self._is_used = np.zeros(vocab_size or 0, np.bool_)
        self._known = np.zeros(REMEMBERED, np.uint64)
        self.documents = self.with_bos = self.with_eos = self.repeated = self.tokens = 0

    def add(self, ids: npt.NDArray[Any], ends: npt.NDArray[np.int64], *, is_open: bool) -> None:
        """Look at ids and the documents that end in them; `is_open`: they begin within one. Empty documents do not count."""
        bounds = np.concatenate((np.zeros(1, np.int64), ends, np.full(1, len(ids))))
        begins = bounds[:-1][np.diff(bounds) > 0][is_open:]
        self.tokens += len(ids)
        self.documents += len(begins)
        self.with_bos += int((ids[begins] == self._bos).sum())
        self.with_eos += int((ids[ends[np.diff(ends, prepend=0) > 0] - 1] == self._eos).sum())
        if len(whole := begins[begins < bounds[-2]]):
            self._look_for(ids[: bounds[-2]], whole)
        if len(self._is_used) and not (is_known := self._is_used.take(ids, mode="clip")).all():
            self._is_used[ids[~is_known]] = True

    def _look_for(self, ids: npt.NDArray[Any], begins: npt.NDArray[np.int64]) -> None:
        steps = np.diff(begins, append=len(ids)) - 1
        keys = np.add.reduceat(ids, begins, dtype=np.uint64) * MIX ^ steps.astype(np.uint64)
        for place in range(PLACES):
            at = begins + steps * place // (PLACES - 1)
            keys = (keys ^ keys >> np.uint64(29)) * MIX + ids[at].astype(np.uint64)
        keys = keys[steps >= PLACES - 2]
        keys, count = np.unique(keys), len(keys)
        slots = (keys >> np.uint64(32)) % np.uint64(REMEMBERED)
        self.repeated += count - int((self._known[slots] != keys).sum())
        self._known[slots] = keys

    def facts(self) -> dict[str, Any]:
        """For the manifest, when all is read."""
        counts = {name: getattr(self, name) for name in ("documents", "with_bos", "with_eos", "repeated")}
        return {**counts, "unused_ids": int((~self._is_used).sum()) if len(self._is_used) else None}

    def suspicions(self, files: int, largest: int) -> Iterator[str]:
        """What is seldom so in tokens that are what they are taken for."""
        whole, vocabulary = self.documents, len(self._is_used)
        few = max(files, whole // 100)
        bos, eos, repeated = (
            f"{percent(n, whole)} of its documents" for n in (self.with_bos, self.with_eos, self.repeated)
        )
        if self._eos is not None and whole and (not self.with_eos or self.with_eos < whole - few):
            yield f"{eos} end with eos {self._eos}: is it another eos, tokenizer or dtype?"
        if few < self.with_bos < whole - few:
            yield f"{bos} begin with bos {self._bos}, the others do not"
        if self.repeated > 0.3 * whole:
            yield f"{repeated} repeat an earlier one"
        if largest >= 1 << 24 or self.tokens >= 100 * vocabulary > 200 * (largest + 1):
            yield f"its largest id is {largest:,} of {vocabulary or 'unknown'}: is it another tokenizer, dtype or byte order?"


class ImportedShards:
    """Writes documents into shards of about `size` tokens, or of the given numbers of documents."""

    def __init__(self, folder: Path, dtype: np.dtype[Any], size: int, counts: list[int] | None) -> None:
        self._folder, self._dtype, self._size = folder, dtype, size
        self._counts = list(counts) if counts is not None else None
        self._writer: ShardWriter | None = None
        self._pieces: list[tuple[str, int, int]] = []  # of the shard: file, documents, tokens
        self._committer = ThreadPoolExecutor(1)
        self._commits: list[Future[ShardEntry]] = []
        self._file, self.is_open = "", False
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
            self.is_open = len(ids[:stop]) > (int(ends[count - 1]) if count else 0) or (not count and self.is_open)
            ids, ends = ids[stop:], ends[count:] - stop
            if not self.is_open and self._is_full(writer):
                self._commit()

    def end(self) -> None:
        """The file ends, and with it a document that has not ended yet."""
        if self.is_open:
            writer = self._current()
            self._append(writer, np.empty(0, self._dtype), np.zeros(1, np.int64))
            self.is_open = False
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
            name = digest(canonical(["import", len(self._commits)]))[:24]
            self._writer = ShardWriter(self._folder, name, self._dtype)
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
