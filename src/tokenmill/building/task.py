"""One task: read, encode, write. The whole hot path is this loop.

Text comes in blocks; small files share a block. Whatever goes wrong is confined: a bad row is skipped and counted, a
broken file leaves no trace of itself in the shard, a document too long to cut is left out whole.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.building.machine import release_memory, resident_bytes
from tokenmill.building.plan import CrashHistory, Limit, Task
from tokenmill.building.task_rows import first_rows, locate, nth_good, safely
from tokenmill.documents import BLANK, BLOCK_BYTES, Skip, Texts, Tokens, merge_skips, text_bytes, text_offsets
from tokenmill.encoding import WHOLE_BYTES, Encoder, LongDocument, TooLong
from tokenmill.errors import DocumentError, InputError
from tokenmill.reading import Piece, Source, content_hasher, read_piece, rows_before, text_weight
from tokenmill.store import PieceReader, ShardWriter

CRASHED = "crashed the engine"
NO_ENDS = np.empty(0, np.int64)
SUSPECT_PARTS = 16  # a block that killed a process is tried again in so many parts
SAMPLE_SECONDS = 0.5  # between samples for the reference
SAMPLE_DOCUMENTS = 4  # in a sample
SAMPLE_BYTES = 16 << 10  # of a document, at most,
LONG_SAMPLE_BYTES = 256 << 10  # or of the shortest, where all are longer


@dataclass(slots=True)
class _PieceCount:
    rows: int = 0
    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0
    special_documents: int = 0
    skips: list[Skip] = field(default_factory=list)
    content: str | None = None


class Enough(Exception):
    """A trial has its tokens, with so many documents of this task."""

    def __init__(self, documents: int) -> None:
        self.documents = documents


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
        care: CrashHistory | None = None,
        block_bytes: int = BLOCK_BYTES,
        memory: int | None = None,
        announce: Callable[[int, int], None] = lambda low, high: None,
        advance: Callable[[int, int, int, int], None] = lambda *done: None,
        sample: Callable[[int, str, list[int]], None] | None = None,
        refuse_specials: bool = False,
    ) -> None:
        self.task, self.source, self.encoder, self.writer = task, source, encoder, writer
        self.care = care or CrashHistory()
        self.block_bytes = block_bytes
        self.memory, self.refreshed_at = memory, 0
        self._announce, self._advance = announce, advance
        self._sample, self._sampled = sample, float("-inf")
        self.refuse_specials = refuse_specials
        # By the reader: poison and failing files included, so that a number is always the same one.
        self.read_documents = 0
        self.text_bytes = 0
        self.contents: list[str | None] = []
        self.failed: list[dict[str, str]] = []
        self.most_tokens: int | None = None
        self.held: dict[str, PieceReader | None] = {}
        self.pending: list[_Documents] = []
        self.pending_bytes = 0
        self.long: _Long | None = None

    def run(self, documents: int | None = None) -> dict[str, Any]:
        """Do the task, or its first `documents`. Returns the facts for the receipt; the writer is left ready to commit."""
        counts: list[_PieceCount] = []
        left = self.task.limit
        if documents is not None:
            assert left is not None
            left = replace(left, documents=documents, tokens=None)
        self.most_tokens = left.tokens if left else None
        progress = _Progress(self)
        for piece in self.task.pieces:
            if left is not None and left.reached:
                break
            progress.begin(piece)
            try:
                count = self._copied(piece) or self._piece(piece, left, progress)
            except InputError as error:
                self.failed.append({"file": piece.file.shown, "error": str(error)})
                self.contents.append(None)
                continue
            finally:
                progress.finish()
            self.contents.append(count.content)
            counts.append(count)
            if left is not None:
                blank = sum(skip.rows for skip in count.skips if skip.reason == BLANK)
                left = left.less(count.rows - blank, count.documents, 0)
        self._encode_pending()
        progress.finish()
        self.contents += [None] * (len(self.task.pieces) - len(self.contents))
        special = sum(count.special_documents for count in counts)
        facts: dict[str, Any] = {
            "pieces": list(map(_entry, counts)),
            "text_bytes": sum(count.text_bytes for count in counts),
        }
        return facts | ({"special_documents": special} if special else {})

    def _copied(self, piece: Piece) -> _PieceCount | None:
        """A piece whose tokens are in a finished shard, taken from there; None where it has to be read after all."""
        if piece.held is None:
            return None
        path, number = piece.held
        if path not in self.held:
            self.held[path] = PieceReader.open(Path(path), self.writer.columns)
        shard = self.held[path]
        if shard is None:
            return None
        self._encode_pending()
        entry = shard.pieces[number]
        self.writer.append(shard.tokens(number))
        known = {name: entry[name] for name in ("rows", "documents", "tokens", "text_bytes", "content")}
        skips = [Skip(*skip) for skip in entry.get("skips", ())]
        return _PieceCount(**known, special_documents=entry.get("special_documents", 0), skips=skips)

    def _piece(self, piece: Piece, limit: Limit | None, progress: _Progress) -> _PieceCount:
        """Read a piece. Its text waits with other small pieces' until there is a block of it.

        Only once a piece fills a block by itself is it encoded before it was read to its end, and then from a mark to
        which a failing file is rolled back.
        """
        count = _PieceCount()
        enough = self.block_bytes * 3 // 4
        mine: list[_Documents] = []
        size = 0
        mark = None
        text_before = self.text_bytes
        content = content_hasher(piece, self.source)
        try:
            for texts in first_rows(safely(piece, read_piece(piece, self.source, self.block_bytes, content)), limit):
                if self.long is not None and texts.skips and texts.skips[0].row == 0:
                    self._abandon_long(count)  # the document that had begun turned out to be bad
                documents = self._account(texts, count, piece)
                is_long = documents.unfinished or self.long is not None or _longest(documents.values) > WHOLE_BYTES
                size += text_bytes(documents.values)
                mine.append(documents)
                if size < enough and not is_long:
                    continue
                if mark is None:
                    self._encode_pending()
                    mark = self.writer.mark()
                if is_long:
                    self._encode(mine[:-1])
                    self._encode_long(documents, texts, count, piece)
                else:
                    self._encode(mine)
                mine, size = [], 0
                progress.update()
            count.content = content.digest
            if piece.content not in (None, content.digest):
                raise InputError(f"{piece.file.shown}: changed while it was being read; run the build again")
        except InputError:
            self.long = None
            if mark is not None:
                self.writer.rollback(mark)
            self.text_bytes = text_before
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
        count.text_bytes += text_bytes(values)
        return _Documents(values, numbers, first, count, unfinished)

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
        block_ends = np.cumsum([len(block.values) for block in blocks])
        for i in range(0, len(values), step):
            self._announce(int(numbers[i]), int(numbers[min(i + step, len(values)) - 1]) + 1)
            part = values.slice(i, step)
            tokens = self.encoder.encode(part)
            self._mind_limit(tokens)
            self.writer.append(tokens)
            special = i + np.asarray(tokens.special, np.int64)
            self._mind_specials(numbers[special])
            for block in np.searchsorted(block_ends, special, "right").tolist():
                blocks[block].count.special_documents += 1
            self._share_out(blocks, block_ends, i, tokens)
            self._take_sample(part, tokens, numbers[i:])
        self._announce(0, 0)
        self._mind_memory()

    @staticmethod
    def _share_out(blocks: list[_Documents], block_ends: npt.NDArray[np.int64], first: int, tokens: Tokens) -> None:
        """Count the tokens of documents from `first` on to the pieces they are of."""
        ends = np.concatenate(([0], tokens.ends))
        low = first
        for block in range(int(np.searchsorted(block_ends, first, "right")), len(blocks)):
            high = min(int(block_ends[block]), first + len(tokens.ends))
            blocks[block].count.tokens += int(ends[high - first] - ends[low - first])
            low = high

    def _mind_limit(self, tokens: Tokens) -> None:
        """Stop a trial that has its tokens: the document that goes beyond is not part of it."""
        if self.most_tokens is not None and self.writer.tokens + len(tokens.ids) > self.most_tokens:
            fit = int(np.searchsorted(tokens.ends, self.most_tokens - self.writer.tokens, "right"))
            raise Enough(self.writer.documents + fit)

    def _mind_specials(self, numbers: npt.NDArray[np.int64]) -> None:
        """Stop at documents that hold special tokens, if that was asked for."""
        if len(numbers) and self.refuse_specials:
            raise DocumentError(
                f"{locate(self.task, self.source, int(numbers[0]))}: the text holds a special token. (Rows count from 0.)"
                " Encode such names as ordinary text with --special-tokens text, or as their ids with --special-tokens parse"
            )

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
                self._encode([_Documents(one, documents.numbers[i : i + 1], number, count)])
                continue
            self._announce(number, number + 1)
            if self.long is None:
                self.long = _Long(self.encoder.long_document(), self.writer.mark())
            self.long.nbytes += text_bytes(one)
            before = self.writer.tokens
            self._feed(self.long, one, last=not goes_on)
            count.tokens += self.writer.tokens - before
            self._announce(0, 0)
            if not goes_on:
                refused, nbytes, special = self.long.refused, self.long.nbytes, self.long.document.special
                self.long = None
                if special and not refused:
                    self._mind_specials(documents.numbers[i : i + 1])
                    count.special_documents += 1
                if refused:
                    self.text_bytes -= nbytes
                    count.text_bytes -= nbytes
                    count.documents -= 1
                    row = nth_good(number - documents.first, list(texts.skips)) - texts.rows
                    self._skip(Skip(row, 1, "too large", refused), count, piece)

    def _feed(self, long: _Long, one: pa.LargeStringArray, last: bool) -> None:
        data = memoryview(one.view(pa.large_binary())[0].as_buffer())
        try:
            for start in range(0, 0 if long.refused else len(data), WHOLE_BYTES):
                self._append_long(Tokens(long.document.feed(bytes(data[start : start + WHOLE_BYTES])), NO_ENDS))
        except TooLong as error:
            self.writer.rollback(long.mark)
            long.refused = str(error)
        self._mind_memory()
        if last and not long.refused:
            ids = long.document.finish()
            self._append_long(Tokens(ids, np.array([len(ids)])))

    def _append_long(self, tokens: Tokens) -> None:
        if self.most_tokens is not None and self.writer.tokens + len(tokens.ids) > self.most_tokens:
            raise Enough(self.writer.documents)
        self.writer.append(tokens)

    def _abandon_long(self, count: _PieceCount) -> None:
        assert self.long is not None
        held = self.writer.tokens
        self.writer.rollback(self.long.mark)
        count.tokens -= held - self.writer.tokens
        count.text_bytes -= self.long.nbytes
        self.text_bytes -= self.long.nbytes
        self.long = None


@dataclass(slots=True)
class _Documents:
    """Documents to encode, and their numbers in the task. `first` is the number their block began with."""

    values: pa.LargeStringArray
    numbers: npt.NDArray[np.int64]
    first: int
    count: _PieceCount  # of the piece they are of
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
        self.left = 0 if piece.held else piece.nbytes
        self.ratio = piece.file.size / max(text_weight(piece.file), 1)

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


def _entry(count: _PieceCount) -> dict[str, Any]:
    """A piece in a receipt: what it held and what became of it, never what it was called."""
    entry: dict[str, Any] = {
        "content": count.content,
        "rows": count.rows,
        "documents": count.documents,
        "tokens": count.tokens,
        "text_bytes": count.text_bytes,
    }
    if count.special_documents:
        entry["special_documents"] = count.special_documents
    if count.skips:
        entry["skips"] = [list(skip) for skip in merge_skips(sorted(count.skips))]
    return entry


def _longest(values: pa.LargeStringArray) -> int:
    """Bytes of the longest document."""
    if text_bytes(values) <= WHOLE_BYTES:
        return text_bytes(values)
    return int(np.diff(text_offsets(values)).max())
