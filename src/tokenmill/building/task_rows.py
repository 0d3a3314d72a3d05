"""The rows of a task's pieces: read with errors attributed to files, limited, sampled, and found again by document."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from typing import NamedTuple

from tokenmill.building.plan import Limit, Task
from tokenmill.documents import BLANK, Skip, Texts
from tokenmill.errors import InputError, UnreachableError
from tokenmill.reading import Piece, Source, read_piece, rows_before

READ_AHEAD_PATIENCE = 0.2  # seconds between two looks whether the blocks are still wanted


class Block(NamedTuple):
    """Rows of a piece. `number` is the number of their first document in the task, `row` their first row in the piece."""

    piece: Piece
    number: int
    row: int
    texts: Texts


def blocks(task: Task, source: Source) -> Iterator[Block]:
    """Read the rows of a task again, in the order and with the document numbers they were encoded in."""
    number = 0
    for piece in task.pieces:
        if piece.held is not None:
            continue  # it was not read, so its documents have no numbers
        row = 0
        try:
            for texts in first_rows(safely(piece, read_piece(piece, source)), task.limit):
                yield Block(piece, number, row, texts)
                number += len(texts.values) - texts.unfinished
                row += texts.rows
        except InputError:
            continue


def locate(task: Task, source: Source, number: int) -> str:
    """Where document `number` of a task came from, as "file, row n". Reads the task again, so for errors only."""
    for block in blocks(task, source):
        inside = number - block.number
        finished = len(block.texts.values) - block.texts.unfinished  # an unfinished one may still turn out to be bad
        if 0 <= inside < finished:
            row = rows_before(block.piece, source) + block.row + block.texts.row_of(inside)
            return f"{block.piece.file.shown}, row {row}"
    return f"document {number} of shard {task.id}"


def safely(piece: Piece, blocks: Iterator[Texts]) -> Generator[Texts]:
    """Turn whatever a library raises while reading into an InputError of that file, so that it does not end the build."""
    while True:
        try:
            texts = next(blocks)
        except StopIteration:
            return
        except (InputError, UnreachableError):
            raise
        except Exception as error:
            raise InputError(f"{piece.file.shown}: {type(error).__name__}: {str(error)[:300]}") from error
        yield texts


def read_ahead(blocks: Generator[Texts]) -> Generator[Texts]:
    """The same blocks, read in another thread while the caller works on the one before."""
    ready: queue.Queue[Texts | BaseException | None] = queue.Queue(maxsize=1)
    is_over = threading.Event()

    def put(item: Texts | BaseException | None) -> bool:
        while not is_over.is_set():
            with suppress(queue.Full):
                ready.put(item, timeout=READ_AHEAD_PATIENCE)
                return True
        return False

    def read() -> None:
        try:
            with closing(blocks):
                for texts in blocks:
                    if not put(texts):
                        return
            put(None)
        except BaseException as error:  # the caller raises it
            put(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        is_over.set()
        reader.join()


def first_rows(blocks: Iterator[Texts], limit: Limit | None) -> Iterator[Texts]:
    """Blocks up to a limit of rows or documents. Blank rows do not count."""
    if limit is None or limit.reads_all:
        yield from blocks
        return
    rows = sys.maxsize if limit.rows is None else limit.rows
    documents = sys.maxsize if limit.documents is None else limit.documents
    for texts in blocks:
        blank = sum(skip.rows for skip in texts.skips if skip.reason == BLANK)
        finished = len(texts.values) - texts.unfinished
        if texts.rows - blank > rows or finished > documents:
            yield _cut(texts, rows, documents)
            return
        rows, documents = rows - (texts.rows - blank), documents - finished
        yield texts
        if (rows == 0 or documents == 0) and not texts.unfinished:
            return


def _cut(texts: Texts, rows: int, documents: int) -> Texts:
    """The first rows of a block: at most `rows` that are not blank, and at most `documents`."""
    skip_of = {row: skip for skip in texts.skips for row in range(skip.row, skip.row + skip.rows)}
    rows_taken = documents_taken = 0
    skips: list[Skip] = []
    while rows > 0 and documents_taken < documents and rows_taken < texts.rows:
        skip = skip_of.get(rows_taken)
        if skip is None:
            documents_taken += 1
        else:
            skips.append(skip._replace(row=rows_taken, rows=1))
        rows -= skip is None or skip.reason != BLANK
        rows_taken += 1
    return Texts(texts.values.slice(0, documents_taken), rows_taken, skips)


def good_rows(texts: Texts) -> list[int]:
    """The rows of a block that gave documents, in order. An unfinished document is not among them."""
    skipped = {row for skip in texts.skips for row in range(skip.row, skip.row + skip.rows)}
    return [row for row in range(texts.rows) if row not in skipped]
