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
PART = 100_000  # characters of a document that is too long for one block: each part is measured as a document


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

    def save(self, path: Path, part: range) -> None:
        """Write documents as JSON lines."""
        with open(path, "w", encoding="utf-8") as out:
            for number in part:
                out.write(json.dumps({"text": self.texts[number]}, ensure_ascii=False) + "\n")


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
    """The documents of files. One that is too long for a block comes in parts."""
    from tokenmill.reading import Piece, read_piece

    for file in files:
        goes_on = False
        for block in read_piece(Piece(file), source):
            texts = block.values.to_pylist()
            if block.unfinished and not goes_on:
                print(f"{file.shown}: a long document is measured in parts of {PART:,} characters", file=sys.stderr)
            if block.unfinished or goes_on:
                texts = [text[start : start + PART] for text in texts for start in range(0, len(text), PART)]
            yield texts
            goes_on = block.unfinished
