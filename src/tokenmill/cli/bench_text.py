"""The text that `tokenmill bench` measures with: documents of the files given, and evenly chosen parts for slow methods."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenmill.reading import Source
    from tokenmill.reading.files import SourceFile

MOST_BYTES = 128_000_000  # of the text of the files given
MOST_DEMO_BYTES = 40_000_000  # of Python's own source files
LEAST_FILES = 100  # of many files, some are left out before only the beginning of each is read


@dataclass(frozen=True, slots=True)
class BenchText:
    """Documents, and the size of each in bytes."""

    texts: list[str]
    sizes: list[int]

    @property
    def num_bytes(self) -> int:
        return sum(self.sizes)

    def part(self, most_bytes: float) -> range:
        """The numbers of evenly chosen documents, of about `most_bytes` at most. Of two parts, the larger has the smaller."""
        step = 1
        while step < len(self.texts) and sum(self.sizes[::step]) > most_bytes:
            step *= 2
        return range(0, len(self.texts), step)

    def save(self, path: Path) -> None:
        """Write the documents as JSON lines."""
        with open(path, "w", encoding="utf-8") as out:
            for text in self.texts:
                out.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


def read_text(source: Source, num_docs: int | None, most_bytes: int) -> BenchText:
    """The first documents of a source if a number is given, else all, or about `most_bytes` from all over it."""
    if num_docs is not None:
        texts = list(islice(chain.from_iterable(_blocks(source, source.files)), num_docs))
    else:
        texts = list(_spread(source, most_bytes))
    return BenchText(texts, [len(text.encode()) for text in texts])


def _spread(source: Source, most_bytes: int) -> Iterator[str]:
    """All documents, or some of the files and of each the beginning: as much as is in proportion to its size."""
    total = sum(file.size for file in source.files)
    step = max(1, min(math.ceil(total / most_bytes), len(source.files) // LEAST_FILES))
    files = source.files[::step]
    total = sum(file.size for file in files)
    for file in files:
        share = file.size if total <= most_bytes else most_bytes * file.size / total
        taken = 0
        for text in chain.from_iterable(_blocks(source, [file])):
            if taken >= max(share, 1) and total > most_bytes:
                break
            yield text
            taken += len(text)


def _blocks(source: Source, files: Iterable[SourceFile]) -> Iterator[list[str]]:
    """The documents of files, except those too long for one block."""
    from tokenmill.reading import Piece, read_piece

    for file in files:
        begun = False
        for block in read_piece(Piece(file), source):
            yield [] if block.unfinished else block.values.to_pylist()[begun:]
            if begun and not block.unfinished:
                print(f"{file.shown}: a document is too long to measure, and left out", file=sys.stderr)
            begun = block.unfinished
