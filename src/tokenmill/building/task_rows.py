"""The rows of a task's pieces: read with care, the first so many, and which row a document came from."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from typing import NamedTuple

from tokenmill.building.plan import Limit, Task
from tokenmill.documents import BLANK, Skip, Texts
from tokenmill.errors import InputError
from tokenmill.reading import Piece, Source, read_piece, rows_before

SAMPLE_BYTES = 16 << 20
SAMPLE_PIECES = 8
SAMPLE_BLOCK = 1 << 20


class Block(NamedTuple):
    """Some rows of a piece: `number` is that of their first document in the task, `row` their first row in the piece."""

    piece: Piece
    number: int
    row: int
    texts: Texts


def blocks(task: Task, source: Source) -> Iterator[Block]:
    """A task's rows once more, in the order and with the numbers they were encoded in."""
    number = 0
    for piece in task.pieces:
        if piece.held is not None:
            continue  # not read, so its documents had no numbers
        row = 0
        try:
            for texts in first_rows(safely(piece, read_piece(piece, source)), task.limit):
                yield Block(piece, number, row, texts)
                number += len(texts.values) - texts.unfinished
                row += texts.rows
        except InputError:
            continue


def corpus_sample(tasks: list[Task], source: Source) -> list[str]:
    """Some 16 MB of documents from all over a corpus, for engines to be compared on. Reads the head of a few pieces."""
    pieces = [piece for task in tasks for piece in task.pieces]
    count = min(len(pieces), SAMPLE_PIECES)
    spread = [pieces[i * len(pieces) // count] for i in range(count)]
    texts: list[str] = []
    for piece in spread:
        held = 0
        try:
            for found in safely(piece, read_piece(piece, source, SAMPLE_BLOCK)):
                if found.unfinished:
                    break
                # A huge document would be all of the sample, and a minute's work for the slowest engine.
                some = [text for text in found.values.to_pylist() if len(text) <= SAMPLE_BLOCK]
                texts += some
                held += sum(map(len, some))
                if held >= SAMPLE_BYTES // len(spread):
                    break
        except InputError:
            continue
    return texts


def corpus_key(tasks: list[Task]) -> str:
    """Stands for a corpus: its tasks go by what their files hold, or by how they were found."""
    return hashlib.sha256(" ".join(task.id for task in tasks).encode()).hexdigest()[:32]


def locate(task: Task, source: Source, number: int) -> str:
    """Where document `number` of a task came from, in words. Reads the task again: for errors only."""
    for block in blocks(task, source):
        inside = number - block.number
        if 0 <= inside < len(block.texts.values) - block.texts.unfinished:  # one that began may turn out to be bad
            row = rows_before(block.piece, source) + block.row + nth_good(inside, list(block.texts.skips))
            return f"{block.piece.file.shown}, row {row}"
    return f"document {number} of shard {task.id}"


def safely(piece: Piece, blocks: Iterator[Texts]) -> Iterator[Texts]:
    """Whatever a library raises while reading is that file's failure, not the build's."""
    while True:
        try:
            texts = next(blocks)
        except StopIteration:
            return
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{piece.file.shown}: {type(error).__name__}: {str(error)[:300]}") from error
        yield texts


def first_rows(blocks: Iterator[Texts], limit: Limit | None) -> Iterator[Texts]:
    """Blocks up to so many rows that are documents or were meant to be, or so many documents."""
    if limit is None or (limit.rows is None and limit.documents is None):
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
    """The first rows of a block, up to so many that are not blank and so many documents."""
    gone = {row: skip for skip in texts.skips for row in range(skip.row, skip.row + skip.rows)}
    kept_rows = kept = 0
    skips: list[Skip] = []
    while rows > 0 and kept < documents and kept_rows < texts.rows:
        skip = gone.get(kept_rows)
        if skip is None:
            kept += 1
        else:
            skips.append(skip._replace(row=kept_rows, rows=1))
        rows -= skip is None or skip.reason != BLANK
        kept_rows += 1
    return Texts(texts.values.slice(0, kept), kept_rows, skips)


def good_rows(texts: Texts) -> list[int]:
    """The rows of a block that gave its documents, in order; one that goes on is not among them."""
    gone = {row for skip in texts.skips for row in range(skip.row, skip.row + skip.rows)}
    return [row for row in range(texts.rows) if row not in gone]


def nth_good(n: int, skips: list[Skip]) -> int:
    """The row of the n-th document of a block."""
    row = n
    for skip in sorted(skips):
        if skip.row > row:
            break
        row += skip.rows
    return row
