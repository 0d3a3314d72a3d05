"""One task: read, encode, write. The whole hot path is this loop.

Text comes in blocks; small files share a block. Whatever goes wrong is confined: a bad row is skipped and counted, a
broken file leaves no trace of itself in the shard, a document too long to cut is left out whole.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.batch import BLANK, BLOCK_BYTES, Skip, Texts, Tokens, merge_skips, text_bytes, text_offsets
from tokenmill.building.machine import release_memory, resident_bytes
from tokenmill.building.plan import Care, Task
from tokenmill.building.rows import first_rows, locate, nth_good, safely
from tokenmill.encoding import WHOLE_BYTES, Encoder, LongDocument, TooLong
from tokenmill.errors import DocumentError, InputError
from tokenmill.reading import Piece, Source, read_piece, rows_before, text_weight
from tokenmill.store import ShardWriter

CRASHED = "crashed the engine"
SUSPECT_PARTS = 16  # a block that killed a process is tried again in so many parts
SAMPLE_SECONDS = 0.5  # between samples for the reference
SAMPLE_DOCUMENTS = 4  # in a sample
SAMPLE_BYTES = 16 << 10  # of a document, at most,
LONG_SAMPLE_BYTES = 256 << 10  # or of the shortest, where all are longer


@dataclass(slots=True)
class _PieceCount:
    rows: int = 0
    documents: int = 0
    skips: list[Skip] = field(default_factory=list)


def encode_task(
    task: Task, source: Source, encoder: Encoder, shards: Path, **options: Any
) -> tuple[ShardWriter, dict[str, Any]]:
    """Everything of a task but making it durable: the writer to commit, and the receipt's facts."""
    writer = ShardWriter(shards, task.id, encoder.dtype)
    try:
        return writer, TaskRun(task, source, encoder, writer, **options).run()
    except BaseException:
        writer.discard()
        raise


class TaskRun:
    """Runs one task into one ShardWriter.

    `announce(low, high)` is called before documents [low, high) are encoded, and `announce(0, 0)` after, so that whoever
    watches this process knows where it was if it dies. `advance` gets what was done since: source bytes (about), text
    bytes, documents, tokens. Past `memory` bytes of this process the engine is loaded anew. `sample` gets some documents
    with what they became, for the reference: their number in the task, text and ids. With `refuse_specials` a document
    that holds a special token stops the build.
    """

    def __init__(
        self,
        task: Task,
        source: Source,
        encoder: Encoder,
        writer: ShardWriter,
        *,
        care: Care | None = None,
        block_bytes: int = BLOCK_BYTES,
        memory: int | None = None,
        announce: Callable[[int, int], None] = lambda low, high: None,
        advance: Callable[[int, int, int, int], None] = lambda *done: None,
        sample: Callable[[int, str, list[int]], None] | None = None,
        refuse_specials: bool = False,
    ) -> None:
        self.task, self.source, self.encoder, self.writer = task, source, encoder, writer
        self.care = care or Care()
        self.block_bytes = block_bytes
        self.memory, self.refreshed_at = memory, 0
        self._announce, self._advance = announce, advance
        self._sample, self._sampled = sample, float("-inf")
        self.refuse_specials, self.special_documents = refuse_specials, 0
        self.read_documents = (
            0  # by the reader: poison and failing files included, so that a number is always the same one
        )
        self.text_bytes = 0
        self.pending: list[_Documents] = []
        self.pending_bytes = 0
        self.long: _Long | None = None

    def run(self) -> dict[str, Any]:
        """Do the task. Returns the facts for the receipt; the writer is left ready to commit."""
        pieces: list[dict[str, Any]] = []
        failed: list[dict[str, str]] = []
        left = self.task.limit
        progress = _Progress(self)
        for piece in self.task.pieces:
            if left is not None and left <= 0:
                break
            progress.begin(piece)
            try:
                count = self._piece(piece, left, progress)
            except InputError as error:
                failed.append({"file": piece.file.shown, "error": str(error)})
                continue
            finally:
                progress.finish()
            pieces.append(_entry(piece, count))
            if left is not None:
                left -= count.rows - sum(skip.rows for skip in count.skips if skip.reason == BLANK)
        self._encode_pending()
        progress.finish()
        facts = {"pieces": pieces, "failed": failed, "text_bytes": self.text_bytes}
        return facts | ({"special_documents": self.special_documents} if self.special_documents else {})

    def _piece(self, piece: Piece, limit: int | None, progress: _Progress) -> _PieceCount:
        """Read a piece. Its text waits with other small pieces' until there is a block of it.

        Only once a piece fills a block by itself is it encoded before it was read to its end, and then from a mark to
        which a failing file is rolled back.
        """
        count = _PieceCount()
        enough = self.block_bytes * 3 // 4
        mine: list[_Documents] = []
        size = 0
        mark = None
        text_before, special_before = self.text_bytes, self.special_documents
        try:
            for texts in first_rows(safely(piece, read_piece(piece, self.source, self.block_bytes)), limit):
                if self.long is not None and texts.skips and texts.skips[0].row == 0:
                    self._abandon_long()  # the document that had begun turned out to be bad
                documents = self._account(texts, count, piece)
                is_long = documents.unfinished or self.long is not None or _longest(documents.values) > WHOLE_BYTES
                size += text_bytes(documents.values)
                mine.append(documents)
                if size < enough and not is_long:
                    continue
                if mark is None:
                    self._encode_pending()
                    mark, special_before = self.writer.mark(), self.special_documents
                if is_long:
                    self._encode(mine[:-1])
                    self._encode_long(documents, texts, count, piece)
                else:
                    self._encode(mine)
                mine, size = [], 0
                progress.update()
        except InputError:
            self.long = None
            if mark is not None:
                self.writer.rollback(mark)
            self.text_bytes, self.special_documents = text_before, special_before
            raise
        if mark is not None:
            self._encode(mine)
        else:
            self.pending += mine
            self.pending_bytes += size
            if self.pending_bytes >= enough:
                self._encode_pending()
        return count

    def _account(self, texts: Texts, count: _PieceCount, piece: Piece) -> _Documents:
        """Write rows and skips down. Returns the documents to encode."""
        values, skips, unfinished = texts.values, list(texts.skips), texts.unfinished
        first, finished = self.read_documents, len(texts.values) - texts.unfinished
        self.read_documents += finished
        numbers = np.arange(first, first + len(values))
        poison = [p - first for p in self.care.poison if first <= p < first + len(values)]
        if poison:
            ended = [p for p in poison if p < finished]
            skips = sorted([*skips, *(Skip(nth_good(p, skips), 1, CRASHED) for p in ended)])
            values = values.take(pa.array(np.delete(np.arange(len(values)), poison)))
            numbers = np.delete(numbers, poison)
            unfinished = unfinished and len(ended) == len(poison)
            finished -= len(ended)
        for skip in skips:
            self._skip(skip, count, piece)
        count.rows += texts.rows
        count.documents += finished
        self.text_bytes += text_bytes(values)
        return _Documents(values, numbers, first, unfinished)

    def _skip(self, skip: Skip, count: _PieceCount, piece: Piece) -> None:
        """Leave rows out, or stop at them if that was asked for. Row numbers are from the rows counted so far."""
        if skip.reason != BLANK and self.source.on_error == "raise":
            row = rows_before(piece, self.source) + count.rows + skip.row
            what = f"{skip.reason} ({skip.detail})" if skip.detail else skip.reason
            raise DocumentError(
                f"{piece.file.shown}, row {row}: {what}."
                " (Rows count from 0.) Mend it, or leave such documents out with --on-error quarantine"
            )
        count.skips.append(skip._replace(row=count.rows + skip.row))

    def _encode_pending(self) -> None:
        pending, self.pending, self.pending_bytes = self.pending, [], 0
        self._encode(pending)

    def _encode(self, blocks: list[_Documents]) -> None:
        blocks = [block for block in blocks if len(block.values)]
        if not blocks:
            return
        values = blocks[0].values if len(blocks) == 1 else pa.concat_arrays([block.values for block in blocks])
        numbers = np.concatenate([block.numbers for block in blocks])
        first, last = self.care.suspects
        suspicious = numbers[0] < last and first <= numbers[-1]
        step = max(1, (last - first) // SUSPECT_PARTS) if suspicious else len(values)
        for i in range(0, len(values), step):
            self._announce(int(numbers[i]), int(numbers[min(i + step, len(values)) - 1]) + 1)
            part = values.slice(i, step)
            tokens = self.encoder.encode(part)
            self.writer.append(tokens)
            self._mind_specials(numbers[i + np.asarray(tokens.special, np.int64)])
            self._take_sample(part, tokens, numbers[i:])
        self._announce(0, 0)
        self._mind_memory()

    def _mind_specials(self, numbers: npt.NDArray[np.int64]) -> None:
        """Count documents that hold special tokens; or stop at them, if that was asked for."""
        if len(numbers) and self.refuse_specials:
            raise DocumentError(
                f"{locate(self.task, self.source, int(numbers[0]))}: the text holds a special token. (Rows count from 0.)"
                " Encode such names as ordinary text with --specials text, or as their ids with --specials parse"
            )
        self.special_documents += len(numbers)

    def _take_sample(self, values: pa.LargeStringArray, tokens: Tokens, numbers: npt.NDArray[np.int64]) -> None:
        """Some documents for the reference to encode too, now and then. Which ones is chance, but always the same."""
        if self._sample is None or time.monotonic() - self._sampled < SAMPLE_SECONDS:
            return
        sizes = np.diff(text_offsets(values))
        fits = np.flatnonzero(sizes <= max(SAMPLE_BYTES, min(int(sizes.min()), LONG_SAMPLE_BYTES)))
        if not len(fits):
            return
        self._sampled = time.monotonic()
        chance = random.Random(f"{self.task.id} {numbers[0]}")
        for i in chance.sample(fits.tolist(), min(SAMPLE_DOCUMENTS, len(fits))):
            start = int(tokens.ends[i - 1]) if i else 0
            self._sample(int(numbers[i]), values[i].as_py(), tokens.ids[start : int(tokens.ends[i])].tolist())

    def _mind_memory(self) -> None:
        """Load the engine anew when its caches have outgrown this process's share, but not over and over."""
        if self.memory is not None and resident_bytes() > max(self.memory, self.refreshed_at * 5 // 4):
            self.encoder.refresh()
            release_memory()
            self.refreshed_at = resident_bytes()

    def _encode_long(self, documents: _Documents, texts: Texts, count: _PieceCount, piece: Piece) -> None:
        """Encode documents among which are some too long for one call, or a part of one."""
        for i, number in enumerate(documents.numbers.tolist()):
            one = documents.values.slice(i, 1)
            goes_on = documents.unfinished and i == len(documents.numbers) - 1
            if self.long is None and not goes_on and text_bytes(one) <= WHOLE_BYTES:
                self._encode([_Documents(one, documents.numbers[i : i + 1], number)])
                continue
            self._announce(number, number + 1)
            if self.long is None:
                self.long = _Long(self.encoder.long_document(), self.writer.mark())
            self.long.nbytes += text_bytes(one)
            self._feed(self.long, one, last=not goes_on)
            self._announce(0, 0)
            if not goes_on:
                refused, nbytes, special = self.long.refused, self.long.nbytes, self.long.document.special
                self.long = None
                if special and not refused:
                    self._mind_specials(documents.numbers[i : i + 1])
                if refused:
                    self.text_bytes -= nbytes
                    count.documents -= 1
                    row = nth_good(number - documents.first, list(texts.skips)) - texts.rows
                    self._skip(Skip(row, 1, "too large", refused), count, piece)

    def _feed(self, long: _Long, one: pa.LargeStringArray, last: bool) -> None:
        data = memoryview(one.view(pa.large_binary())[0].as_buffer())
        try:
            for start in range(0, 0 if long.refused else len(data), WHOLE_BYTES):
                ids = long.document.feed(bytes(data[start : start + WHOLE_BYTES]))
                self.writer.append(Tokens(ids, np.empty(0, np.int64)))
        except TooLong as error:
            self.writer.rollback(long.mark)
            long.refused = str(error)
        self._mind_memory()
        if last and not long.refused:
            ids = long.document.finish()
            self.writer.append(Tokens(ids, np.array([len(ids)])))

    def _abandon_long(self) -> None:
        assert self.long is not None
        self.writer.rollback(self.long.mark)
        self.text_bytes -= self.long.nbytes
        self.long = None


@dataclass(slots=True)
class _Documents:
    """Documents to encode, and their numbers in the task. `first` is the number their block began with."""

    values: pa.LargeStringArray
    numbers: npt.NDArray[np.int64]
    first: int
    unfinished: bool = False


@dataclass(slots=True)
class _Long:
    """The long document being encoded, and where the shard stood before it."""

    document: LongDocument
    mark: Any
    nbytes: int = 0
    refused: str = ""


class _Progress:
    """Tells the watcher what was done. Source bytes are guessed from text until a piece is done."""

    def __init__(self, run: TaskRun) -> None:
        self.run, self.left, self.ratio = run, 0, 1.0
        self.told = self._now()

    def begin(self, piece: Piece) -> None:
        self.left, self.ratio = piece.nbytes, piece.file.size / max(text_weight(piece.file), 1)

    def update(self) -> None:
        self._tell(min(self.left, int((self.run.text_bytes - self.told[0]) * self.ratio)))

    def finish(self) -> None:
        self._tell(self.left)

    def _tell(self, source_bytes: int) -> None:
        self.left -= source_bytes
        before, self.told = self.told, self._now()
        self.run._advance(source_bytes, *(now - then for now, then in zip(self.told, before, strict=True)))

    def _now(self) -> tuple[int, int, int]:
        return self.run.text_bytes, self.run.writer.documents, self.run.writer.tokens


def _entry(piece: Piece, count: _PieceCount) -> dict[str, Any]:
    """A piece in a receipt. What is not there is 0, None or empty."""
    entry: dict[str, Any] = {
        "file": piece.file.shown,
        "size": piece.file.size,
        "tag": piece.file.tag,
        "start": piece.start,
        "stop": piece.stop,
        "rows": count.rows,
        "documents": count.documents,
    }
    if count.skips:
        entry["skips"] = [list(skip) for skip in merge_skips(sorted(count.skips))]
    return entry


def _longest(values: pa.LargeStringArray) -> int:
    """Bytes of the longest document."""
    if text_bytes(values) <= WHOLE_BYTES:
        return text_bytes(values)
    return int(np.diff(text_offsets(values)).max())
