"""The values of a sample: groups of similar files, and blocks of documents with what they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from tokenmill.documents import Skip, Texts, text_array, text_offsets
from tokenmill.reading import Piece, SourceFile
from tokenmill.reading.formats import Entry


@dataclass(slots=True)
class Stratum:
    """Files of one kind: the sampled ones stand for the others. `rows` is their number of rows, if known."""

    files: list[SourceFile]
    nbytes: int
    entry: Entry
    opened: int = 0
    rows: int | None = None


@dataclass(slots=True)
class SampledBlock:
    """Some documents, and what they stand for: `covered` bytes on disk, `weight` times in the corpus.

    `spot` orders blocks as in the corpus. If the texts are `unfinished`, they are parts of one document.
    """

    stratum: int
    spot: tuple[str, int, int]
    weight: float
    covered: float
    file: SourceFile
    texts: Texts = field(default_factory=lambda: Texts(text_array([]), 0))
    first_row: Callable[[], int | None] = lambda: None  # of the texts, in the file; may read the file up to there
    byte: int | None = None  # where the texts start, for files that are entered at bytes
    documents: int | None = None  # how many documents to count, if not those of the texts
    counted: bool = False  # whether the rows and skips of the texts are counted in another block

    @property
    def whole(self) -> bool:
        """Whether the texts are whole documents."""
        return not self.texts.unfinished

    def place(self, document: int | None = None, skip: Skip | None = None) -> str:
        """Where a document or a skip is, for messages. Rows count from 0."""
        first_row = self.first_row() if self.whole else None
        if first_row is None:
            return f"{self.file.shown}, near byte {self.byte:,}" if self.byte else self.file.shown
        if document is not None:
            return f"{self.file.shown}, row {first_row + self.texts.row_of(document)}"
        return f"{self.file.shown}, row {first_row + (skip.row if skip else 0)}"


class Stretch(NamedTuple):
    """A piece that is read from its start to sample about `keep` bytes of text from it, or from its first `reach` bytes.

    It has `size` bytes on disk. If `rows` is given, it is the first rows of the piece only.
    """

    piece: Piece
    origin: SourceFile
    stratum: int
    weight: float
    size: float
    keep: int
    reach: int | None = None
    rows: int | None = None


def cut_small(texts: Texts, nbytes: int) -> Iterator[Texts]:
    """A block as smaller ones of about `nbytes`, if every row of it is a document; otherwise the block itself."""
    count = len(texts.values)
    step = max(1, count * nbytes // max(texts.nbytes, 1))
    if texts.skips or texts.unfinished or texts.rows != count or step >= count:
        yield texts
        return
    offsets, data = text_offsets(texts.values), memoryview(texts.values.buffers()[2] or b"")
    for low in range(0, count, step):
        own = offsets[low : low + step + 1]
        text = pa.py_buffer(bytes(data[own[0] : own[-1]]))  # a copy, so that the rest of the block can be freed
        buffers = [None, pa.py_buffer(own - own[0]), text]
        yield Texts(pa.Array.from_buffers(pa.large_string(), len(own) - 1, buffers), len(own) - 1)


def grid_length(texts: Texts) -> int:
    """The length of a block in a `Grid`: its text, and something for documents that are empty."""
    return texts.nbytes + len(texts.values)


def no_documents(stratum: int, file: SourceFile, weight: float, covered: float) -> SampledBlock:
    """A place that was read and has no document."""
    return SampledBlock(stratum, (file.path, 0, 0), weight, covered, file)
