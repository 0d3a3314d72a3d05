"""One task, from files to a durable shard: read, encode, write, commit. The hot path is the loop in `TaskRun`.

Text comes in blocks; small files share a block. Errors are confined: a bad row is skipped and counted, a broken file leaves
nothing in the shard, a document that is too long is left out whole.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.building.block_encoder import Announce, BlockEncoder, Documents, EngineMemory, Enough, ShardOutput
from tokenmill.building.document_sampler import DocumentSampler, Sample
from tokenmill.building.long_document import LongDocuments
from tokenmill.building.plan import Limit, Task, shard_name
from tokenmill.building.progress import TaskAdvanced
from tokenmill.building.source_index import Journal
from tokenmill.building.task_context import CrashHistory, TaskContext, TaskResult
from tokenmill.building.task_counts import PieceCounts, StageClock, TaskProgress
from tokenmill.building.task_rows import first_rows, locate, read_ahead, safely
from tokenmill.documents import BLANK, BLOCK_BYTES, Skip, Texts, text_array, text_bytes
from tokenmill.encoding.definition import load_definition
from tokenmill.encoding.encoder import Encoder
from tokenmill.errors import DocumentError, EncodingError, InputError, TokenizerError
from tokenmill.events import ShardDone
from tokenmill.option_types import option_name
from tokenmill.python_sources import source_texts
from tokenmill.reading import Piece, Source, content_hasher, read_piece, rows_before
from tokenmill.store.bucket import StoreBucket
from tokenmill.store.reuse import PieceReader
from tokenmill.store.shard import ShardWriter, is_done, read_receipt

CRASHED = "crashed the engine"
WARM_UP_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """How to run a task, and who wants to know about it.

    `announce(first, last)` is called before documents [first, last) are encoded, and `announce(0, 0)` afterwards, so that
    a supervisor knows where this process was if it dies. `report` gets what the task has done so far, at most ten times a
    second and at the end. `offer` gets a few documents with their ids for the spot check.
    """

    crashes: CrashHistory = field(default_factory=CrashHistory)
    block_bytes: int = BLOCK_BYTES
    memory: int | None = None  # bytes this process may use before the engine is reloaded
    reads_ahead: bool = False  # in a thread: for when there are more cores than tasks
    refuse_special_tokens: bool = False  # a document that holds a special token stops the build
    announce: Announce = lambda first, last: None
    announce_piece: Callable[[int | None], None] | None = None  # called before a piece is read, with None after it
    report: Callable[[TaskAdvanced], None] = lambda advanced: None
    offer: Callable[[Sample], None] | None = None


@dataclass(slots=True)
class EncodedTask:
    """A task that is encoded and written, but not durable yet."""

    task: Task
    writer: ShardWriter
    facts: dict[str, Any]  # for the receipt
    contents: list[str | None]  # digest of each piece; None for one that was not read to its end
    failed: list[dict[str, str]]  # files that could not be read, and why
    done: TaskAdvanced
    clock: StageClock
    by_reference: int  # documents that the engine has left to the reference

    def quarantined(self) -> dict[str, int]:
        """How many documents were left out, by reason. Blank rows do not count."""
        reasons: Counter[str] = Counter()
        for piece in self.facts["pieces"]:
            for _, count, reason, _ in piece.get("skips", ()):
                if reason != BLANK:
                    reasons[reason] += count
        return dict(reasons)

    def commit(self, build_key: str, journal: Journal, bucket: StoreBucket | None = None) -> str:
        """Make it durable, also in a bucket. Returns the shard's name; a finished shard of that name stays as it is."""
        journal.note(self.task, self.contents)
        name = self.task.id
        if not self.task.known or self.failed:
            contents: Any = [piece["content"] for piece in self.facts["pieces"]]
            if self.task.limit is not None:  # files were not read to their end: the name stands for the output
                contents = [asdict(self.task.limit), self.facts, self.writer.finish()]
            name = shard_name(build_key, contents)
            receipt = read_receipt(self.writer.folder, name)
            if receipt is not None and is_done(self.writer.folder, receipt):
                self.writer.discard()
                return name
        push = None
        if bucket is not None:
            push = partial(bucket.push_shard, seen=journal.line(self.task, self.contents))
        self.writer.commit(name, push, **self.facts)
        return name


class TaskRunner:
    """This process, ready to run the tasks of a build. Loads the tokenizer. `live` is a tokenizer object to use instead."""

    def __init__(self, context: TaskContext, live: Any = None) -> None:
        self.context = context
        self._shards = Path(context.shards)
        self._source = Source(files=(), inputs=(), **context.reading)
        sys.path += [entry for entry in context.python_path if entry not in sys.path]
        self._bucket = StoreBucket(context.bucket, self._shards.parent) if context.bucket is not None else None
        if self._bucket is not None:
            self._bucket.pull_files(context.tokenizer_files)
        definition = load_definition(Path(context.tokenizer), context.python_class)
        if definition is None:
            raise TokenizerError(f"{context.tokenizer}: the files of the tokenizer are gone; run the build again")
        self._encoder = Encoder(definition, **context.encoder, live=live)
        self._journal = Journal(Path(context.journals), context.reading_key, context.listed_at)

    def warm_up(self) -> None:
        """Encode some text that every machine has, so that the engine has loaded what it needs and knows common words.

        No thread is left when this returns.
        """
        with ThreadPoolExecutor(1) as loader:
            if self.context.preload:
                loader.submit(self._encoder.engine.preload)
            until = time.monotonic() + WARM_UP_SECONDS
            for text in source_texts():
                with suppress(EncodingError):
                    self._encoder.encode(text_array([text]))
                if time.monotonic() > until:
                    return

    def encode(self, task: Task, options: TaskOptions) -> EncodedTask:
        """Everything but making the shard durable. Memory and special tokens are handled as the context says."""
        context = self.context
        options = replace(options, memory=context.memory, refuse_special_tokens=context.refuse_special_tokens)
        if self._encoder.engine.traits.device != "cpu":  # while the device works, the next block can be read
            options = replace(options, reads_ahead=True)
        return encode_task(task, self._source, self._encoder, self._shards, options)

    def commit(self, encoded: EncodedTask) -> TaskResult:
        """Make the shard durable. Safe to call from another thread while the next task is encoded."""
        if encoded.failed and not encoded.facts["pieces"]:  # no file could be read: there is nothing to commit
            encoded.writer.discard()
            return TaskResult(shard=None, contents=encoded.contents, failed_files=encoded.failed)
        began = time.perf_counter()
        documents, tokens = encoded.writer.documents, encoded.writer.tokens
        reasons = encoded.quarantined()
        shard = ShardDone(
            id=encoded.commit(self.context.build_key, self._journal, self._bucket),
            documents=documents,
            tokens=tokens,
            text_bytes=encoded.done.text_bytes,
            source_bytes=encoded.done.source_bytes,
            quarantined=sum(reasons.values()),
            by_reference=encoded.by_reference,
            reasons=reasons,
            pid=os.getpid(),
            seconds=encoded.clock.totals(sync=time.perf_counter() - began),
        )
        lost = self._encoder.device_lost
        return TaskResult(shard=shard, contents=encoded.contents, failed_files=encoded.failed, device_lost=lost)


def encode_task(
    task: Task, source: Source, encoder: Encoder, shards: Path, options: TaskOptions | None = None
) -> EncodedTask:
    """Read, encode and write a task; `commit` of the result makes it durable. An error leaves no file behind."""
    options, clock, by_reference = options or TaskOptions(), StageClock(), encoder.left_to_reference
    writer = ShardWriter(shards, task.id, encoder.dtype)
    try:
        run = TaskRun(task, source, encoder, writer, options, clock)
        try:
            facts = run.run(task.limit)
        except Enough as enough:  # once more, up to the last document that fits
            writer.discard()
            writer = ShardWriter(shards, task.id, encoder.dtype)
            run = TaskRun(task, source, encoder, writer, options, clock)
            assert task.limit is not None
            facts = {**run.run(replace(task.limit, documents=enough.documents, tokens=None)), "stopped": True}
        by_reference = encoder.left_to_reference - by_reference
        return EncodedTask(task, writer, facts, run.contents, run.failed, run.progress.report(), clock, by_reference)
    except BaseException:
        writer.discard()
        raise


class TaskRun:
    """Runs one task into one ShardWriter, which is left ready to commit.

    `contents` and `failed` say what became of the pieces.
    """

    def __init__(
        self, task: Task, source: Source, encoder: Encoder, writer: ShardWriter, options: TaskOptions, clock: StageClock
    ) -> None:
        self._task, self._source, self._writer, self._options = task, source, writer, options
        self.contents: list[str | None] = []
        self.failed: list[dict[str, str]] = []
        self.progress = TaskProgress(task, writer, options.report)
        self._clock = clock
        self._output = ShardOutput(writer, clock)
        self._blocks = BlockEncoder(
            encoder,
            self._output,
            crashes=options.crashes,
            announce=options.announce,
            memory=EngineMemory(encoder, options.memory),
            sampler=DocumentSampler(task.id, options.offer) if options.offer is not None else None,
            found_special=self._found_special,
        )
        self._long = LongDocuments(self._blocks)
        self._pending: list[Documents] = []  # of small pieces that were read to their end
        self._pending_bytes = 0
        self._held: dict[str, PieceReader | None] = {}
        # Every document read, left-out ones and those of failing files included, so that its number never changes.
        self._documents_read = 0

    def run(self, limit: Limit | None) -> dict[str, Any]:
        """Run the task, as far as `limit` goes. Returns the facts for the receipt."""
        counts: list[PieceCounts] = []
        self._output.max_tokens = limit.tokens if limit else None
        deadly = dict(self._options.crashes.deadly_pieces)
        for number, piece in enumerate(self._task.pieces):
            if limit is not None and limit.reached:
                break
            if number in deadly:
                self._fail(piece, f"{piece.file.shown}: {deadly[number]}")
                continue
            self._announce_piece(number)
            piece_counts = self._run_piece(piece, limit)
            self._announce_piece(None)
            if piece_counts is None:
                continue
            counts.append(piece_counts)
            if limit is not None:
                blank = sum(skip.rows for skip in piece_counts.skips if skip.reason == BLANK)
                limit = limit.less(piece_counts.rows - blank, piece_counts.documents, 0)
        self._encode_pending()
        self.contents += [None] * (len(self._task.pieces) - len(self.contents))
        facts: dict[str, Any] = {
            "pieces": [piece_counts.entry() for piece_counts in counts],
            "text_bytes": sum(piece_counts.text_bytes for piece_counts in counts),
        }
        special = sum(piece_counts.special_documents for piece_counts in counts)
        return facts | ({"special_documents": special} if special else {})

    def _run_piece(self, piece: Piece, limit: Limit | None) -> PieceCounts | None:
        """Copy or read a piece. None if its file failed."""
        counts = self._copy(piece)
        if counts is None:
            counts, text_read = PieceCounts(), 0
            self.progress.begin(piece, counts)
            try:
                self._read(piece, limit, counts)
                text_read = counts.text_bytes
            except InputError as error:
                self._fail(piece, str(error))
                return None
            finally:
                self.progress.finish(text_bytes=text_read)
        self.contents.append(counts.content)
        return counts

    def _fail(self, piece: Piece, error: str) -> None:
        self.failed.append({"file": piece.file.shown, "error": error})
        self.contents.append(None)

    def _announce_piece(self, number: int | None) -> None:
        if self._options.announce_piece is not None:
            self._options.announce_piece(number)

    def _copy(self, piece: Piece) -> PieceCounts | None:
        """Copy a piece from a finished shard. None if there is none, so that it has to be read."""
        if piece.held is None:
            return None
        path, number = piece.held
        if path not in self._held:
            self._held[path] = PieceReader.open(Path(path), self._writer.columns)
        shard = self._held[path]
        if shard is None:
            return None
        self._encode_pending()
        self._writer.append(shard.tokens(number))
        self._clock.lap("write")
        return PieceCounts.from_entry(shard.pieces[number])

    def _read(self, piece: Piece, limit: Limit | None, counts: PieceCounts) -> None:
        """Read a piece. Its text waits with that of other small pieces until there is a block of it.

        A piece that fills a block by itself is encoded before it was read to its end. If it fails later, the shard is rolled
        back to where it began.
        """
        content = content_hasher(piece, self._source)
        blocks = safely(piece, read_piece(piece, self._source, self._options.block_bytes, content))
        if self._options.reads_ahead:
            blocks = read_ahead(blocks)
        waiting: list[Documents] = []
        size, mark = 0, None
        try:
            for texts in first_rows(blocks, limit):
                self._clock.lap("read")
                if self._long.is_open and texts.skips and texts.skips[0].row == 0:
                    self._long.abandon(counts)  # the document that had begun is bad
                documents = self._count(texts, counts, piece)
                is_long = self._long.is_needed(documents)
                waiting.append(documents)
                size += text_bytes(documents.values)
                if size < self._enough and not is_long:
                    continue
                if mark is None:
                    self._encode_pending()
                    mark = self._writer.mark()
                if is_long:
                    self._blocks.encode(waiting[:-1])
                    self._encode_long(documents, texts, piece)
                else:
                    self._blocks.encode(waiting)
                waiting, size = [], 0
                self.progress.update()
            self._clock.lap("read")
            if not self._options.reads_ahead:  # else reading and parsing take no time of this thread but what it waited
                self._clock.move(content.parse_seconds, "read", "parse")
            counts.content = _checked(content.digest, piece)
        except InputError:
            self._long.forget()
            if mark is not None:
                self._writer.rollback(mark)
            raise
        if mark is not None:
            self._blocks.encode(waiting)
        else:
            self._add_pending(waiting, size)

    @property
    def _enough(self) -> int:
        """Bytes of text that are worth a call of the engine."""
        return self._options.block_bytes * 3 // 4

    def _add_pending(self, documents: list[Documents], size: int) -> None:
        self._pending += documents
        self._pending_bytes += size
        if self._pending_bytes >= self._enough:
            self._encode_pending()

    def _encode_pending(self) -> None:
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        self._blocks.encode(pending)

    def _count(self, texts: Texts, counts: PieceCounts, piece: Piece) -> Documents:
        """Count rows and skips of a block. Returns the documents to encode, without those that crash the engine."""
        values, skips, unfinished = texts.values, list(texts.skips), texts.unfinished
        first, finished = self._documents_read, len(texts.values) - texts.unfinished
        self._documents_read += finished
        numbers = np.arange(first, first + len(values))
        crashing = [p - first for p in self._options.crashes.poison if first <= p < first + len(values)]
        if crashing:
            ended = [p for p in crashing if p < finished]
            skips = sorted([*skips, *(Skip(texts.row_of(p), 1, CRASHED) for p in ended)])
            values = values.take(pa.array(np.delete(np.arange(len(values)), crashing)))
            numbers = np.delete(numbers, crashing)
            unfinished = unfinished and len(ended) == len(crashing)
            finished -= len(ended)
        for skip in skips:
            self._skip(skip, counts, piece)
        counts.rows += texts.rows
        counts.documents += finished
        counts.text_bytes += text_bytes(values)
        return Documents(values, numbers, first, counts, unfinished)

    def _skip(self, skip: Skip, counts: PieceCounts, piece: Piece) -> None:
        """Count rows that are left out, or stop at them with on_error="raise". `skip.row` counts from `counts.rows`."""
        if skip.reason != BLANK and self._source.on_error == "raise":
            row = rows_before(piece, self._source) + counts.rows + skip.row
            what = f"{skip.reason} ({skip.detail})" if skip.detail else skip.reason
            raise DocumentError(
                f"{piece.file.shown}, row {row}: {what}."
                " (Rows count from 0.) Fix it, or leave such documents out with"
                f" {option_name('on_error', 'quarantine')}"
            )
        counts.skips.append(skip._replace(row=counts.rows + skip.row))

    def _encode_long(self, documents: Documents, texts: Texts, piece: Piece) -> None:
        """Encode a block with a long document. One that is too long is skipped; its row is counted already."""
        for number, why in self._long.encode(documents):
            row = texts.row_of(number - documents.first) - texts.rows
            self._skip(Skip(row, 1, "too large", why), documents.counts, piece)

    def _found_special(self, number: int) -> None:
        if self._options.refuse_special_tokens:
            raise DocumentError(
                f"{locate(self._task, self._source, number)}: the text holds a special token. (Rows count from 0.)"
                f" Encode such names as ordinary text with {option_name('special_tokens', 'text')}, or as their ids with"
                f" {option_name('special_tokens', 'parse')}"
            )


def _checked(content: str | None, piece: Piece) -> str | None:
    """The digest of what was read, if it is what the plan expects."""
    if piece.content not in (None, content):
        raise InputError(f"{piece.file.shown}: changed while it was being read; run the build again")
    return content
