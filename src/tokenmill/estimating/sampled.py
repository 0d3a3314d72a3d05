"""The values of a survey: strata of files, blocks of sampled documents, and heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tokenmill.documents import Texts, text_array
from tokenmill.reading import SourceFile
from tokenmill.reading.formats import Entry


@dataclass(slots=True, eq=False)
class Stratum:
    """Files of one kind: the sampled ones stand for the others. `rows` is the number of rows of each, if known."""

    entry: Entry
    files: list[SourceFile] = field(default_factory=list)
    opened: int = 0
    rows: dict[str, int] | None = None  # by path
    is_one_document: bool = False  # whether each of the files is

    @property
    def nbytes(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(slots=True)
class SampledBlock:
    """Some documents, and what they stand for: `covered` bytes on disk, `weight` times in the corpus.

    `spot` orders the blocks of a file. If the texts are `unfinished`, they are parts of one document; then `share` is their
    share of the one document of the file, or 0 for a part of a long record, whose other parts are in other blocks.
    """

    stratum: Stratum
    file: SourceFile
    weight: float
    covered: float
    spot: tuple[int, int] = (0, 0)
    texts: Texts = field(default_factory=lambda: Texts(text_array([]), 0))
    first_row: Callable[[], int | None] = lambda: None  # of the texts, in the file; may read the file up to there
    byte: int | None = None  # where the texts start, for files that are entered at bytes
    documents: int | None = None  # how many documents to count, if not those of the texts
    share: float = 0.0
    continues: bool = False  # whether the first of the texts is part of a document that began in an earlier block
    counted: bool = False  # whether the rows and skips of the texts are counted in another block

    @property
    def whole(self) -> bool:
        """Whether the texts are whole documents."""
        return not self.texts.unfinished

    def place(self, row: int) -> str:
        """Where a row of the texts is, for messages. Rows count from 0."""
        first_row = self.first_row() if self.whole else None
        if first_row is not None:
            return f"{self.file.shown}, row {first_row + row}"
        return f"{self.file.shown}, near byte {self.byte:,}" if self.byte else self.file.shown


class Head(NamedTuple):
    """A file, or a part of one, of which only the start was read: `consumed` of its `size` bytes on disk."""

    stratum: Stratum
    file: SourceFile
    consumed: float
    size: float
