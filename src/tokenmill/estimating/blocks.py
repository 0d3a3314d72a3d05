"""What a sample is made of: blocks of documents, each with what it stands for and where it lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from tokenmill.building.task_rows import good_rows
from tokenmill.documents import Skip, Texts, text_array, text_offsets
from tokenmill.estimating.entering import COUNTED_PARTS, part_rows, row_at
from tokenmill.reading import Piece, Source, SourceFile


@dataclass(slots=True)
class Stratum:
    """Files of one kind: what is found in some of them stands for the others. `rows` where they are known without reading."""

    files: list[SourceFile]
    nbytes: int
    looked_at: int = 0
    rows: int | None = None


@dataclass(slots=True)
class Block:
    """Some documents, and what they stand for: `covered` bytes on disk, `weight` times in the corpus.

    With `whole` False the values are parts of one document. `spot` says where it lies, in the order of the corpus.
    """

    stratum: int
    spot: tuple[str, int, int]
    weight: float
    covered: float
    values: pa.LargeStringArray
    rows: int
    skips: Sequence[Skip]
    file: SourceFile
    row: Callable[[], int | None] = lambda: None  # of its first row
    byte: int | None = None
    whole: bool = True
    documents: int | None = None  # where they are not as many as the values,
    counted: bool = False  # since these rows and documents were counted elsewhere

    def place(self, document: int | None = None, skip: Skip | None = None) -> str:
        """Where a document or a skip is, for people. Rows count from 0."""
        base = self.row() if self.whole else None
        if base is None:
            return f"{self.file.shown}, near byte {self.byte:,}" if self.byte else self.file.shown
        if document is not None:
            return f"{self.file.shown}, row {base + good_rows(Texts(self.values, self.rows, self.skips))[document]}"
        return f"{self.file.shown}, row {base + (skip.row if skip else 0)}"


class Stretch(NamedTuple):
    """What is read from its start: about `keep` bytes of text are taken out of it, or out of the first `reach`.

    It is the piece, `size` bytes of the file; or its first `rows` rows.
    """

    piece: Piece
    origin: SourceFile
    stratum: int
    weight: float
    size: float
    keep: int
    reach: int | None = None
    rows: int | None = None

    def done(self, rows: int) -> float:
        """The share of it that so many rows are."""
        whole = part_rows(self.piece.file, self.piece.start, self.piece.start + 1) if self.rows is None else self.rows
        return min(1.0, rows / max(1, whole))


def cut_small(texts: Texts, nbytes: int) -> Iterator[Texts]:
    """A block in smaller ones, where every row is a document."""
    count = len(texts.values)
    step = max(1, count * nbytes // max(texts.nbytes, 1))
    if texts.skips or texts.unfinished or texts.rows != count or step >= count:
        yield texts
        return
    bounds, data = text_offsets(texts.values), memoryview(texts.values.buffers()[2] or b"")
    for low in range(0, count, step):
        own = bounds[low : low + step + 1]
        text = pa.py_buffer(bytes(data[own[0] : own[-1]]))  # a copy: it is kept, and the others are not
        buffers = [None, pa.py_buffer(own - own[0]), text]
        yield Texts(pa.Array.from_buffers(pa.large_string(), len(own) - 1, buffers), len(own) - 1)


def line_row(file: SourceFile, source: Source, byte: int, after: int) -> int | None:
    """The row so many after the one that begins at a byte; None where that is too far to count."""
    first = row_at(file, source, byte)
    return None if first is None else first + after


def table_row(piece: Piece, after: int) -> int | None:
    """The row so many after the first of a part."""
    if piece.start > COUNTED_PARTS:
        return None
    return after + (part_rows(piece.file, 0, piece.start) if piece.start else 0)


def nothing(stratum: int, file: SourceFile, weight: float, covered: float) -> Block:
    """A place that was looked at and held no document."""
    return Block(stratum, (file.path, 0, 0), weight, covered, text_array([]), 0, (), file)
