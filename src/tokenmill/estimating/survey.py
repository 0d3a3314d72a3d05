"""A sample of a corpus, spread over all of it: which parts are read, and how much of the corpus each stands for.

Files that can be entered anywhere are cut into cells of about the same size, and cells are taken at even distances over all
of them, each at a place that is chance but always the same. Parquet and Arrow files are entered at row groups and batches.
Of compressed files, csv and Arrow streams only the head can be had, for a price that does not grow with the file.

    lines, JSON lines, separated text    cells: byte ranges
    plain text, a file a document        small files whole, ranges of large ones
    parquet, Arrow files                 row groups, batches; of each some blocks
    compressed, csv                      a head, laid down in a temporary folder, and then as above
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import numpy as np

from tokenmill.building.task_rows import safely
from tokenmill.documents import Skip, Texts, text_array
from tokenmill.errors import InputError
from tokenmill.estimating.blocks import Block, Stratum, Stretch, cut_small, line_row, nothing, table_row
from tokenmill.estimating.entering import (
    Head,
    Part,
    arrow_rows,
    copy_head,
    how_entered,
    next_record,
    parts_of,
    range_of,
)
from tokenmill.estimating.spread import GOLDEN, Grid, cell_count, cell_size, cells_of, golden, spread
from tokenmill.reading import Piece, Source, SourceFile, read_piece, text_weight

CELL_BYTES = (32 << 10, 256 << 10)  # of text that are read in one place, at least and at most
CELLS = 512  # places a sample is read from, about
ENOUGH_CELLS = 4  # of a file: what they cover is then taken to be in proportion to it; of fewer, all files together
MOST_FILES = 64  # files whose structure is looked at: parquet, Arrow, heads of large compressed files
MOST_SMALL_FILES = 2000  # small files that are opened
LEAST_PARTS = 16  # row groups or batches to look into, where there are so many
READ_BYTES = 256 << 20  # of text that is decompressed, or read and left out, so that the sample can be spread over it
HEAD_SECONDS = 0.05  # for a head, at least; all together may take half the time
THINNED_BYTES = 1 << 20  # of text, read at a time where most of it is left out
LARGE_TEXT = 256 << 10  # a file that is one document is read in ranges from this size on

T = TypeVar("T")
Visit = Callable[[], Iterator[Block]]


@dataclass
class Survey:
    """Reads a sample. `blocks()` gives it part after part; what is known besides is here once that is over.

    Whenever it is stopped, what came is spread over the whole.
    """

    source: Source
    sample_bytes: int
    seconds: float
    everything: bool = False  # read all of it
    strata: list[Stratum] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    heads: list[Head] = field(default_factory=list)
    files_read: set[str] = field(default_factory=set)
    stopped: bool = False

    def __enter__(self) -> Self:
        self.temporary = tempfile.TemporaryDirectory(prefix="tokenmill-")
        return self

    def __exit__(self, *_: object) -> None:
        self.temporary.cleanup()

    def blocks(self) -> Iterator[Block]:
        """The sample's blocks, in an order of which every beginning is spread over the corpus."""
        self.deadline = time.monotonic() + self.seconds
        self.cell = min(max(self.sample_bytes // CELLS, CELL_BYTES[0]), CELL_BYTES[1])
        groups: dict[tuple[object, ...], list[SourceFile]] = {}
        for file in self.source.files:
            groups.setdefault(self._kind(file), []).append(file)
        total = max(1, sum(map(text_weight, self.source.files)))
        visits: list[tuple[float, Visit]] = []
        for kind, files in groups.items():
            self.strata.append(Stratum(files, sum(file.size for file in files)))
            share = max(self.cell, self.sample_bytes * sum(map(text_weight, files)) // total)
            found = self._visits(kind, len(self.strata) - 1, share)
            visits += [(i * GOLDEN % 1, visit) for i, visit in enumerate(found)]
        visits.sort(key=lambda pair: pair[0])  # the first of each kind is first, and every prefix is spread evenly
        for order, visit in visits:
            if order and time.monotonic() > self.deadline:
                self.stopped = True
                return
            yield from visit()

    def _kind(self, file: SourceFile) -> tuple[object, ...]:
        """Files of which one tells about another. `cells`, `text`, `parts`, `head`: how they are entered."""
        how = how_entered(file, self.source)
        return how, file.format, file.codec, how == "text" and file.size >= LARGE_TEXT

    def _visits(self, kind: tuple[object, ...], stratum: int, share: int) -> Iterator[Visit]:
        if self.everything:
            return (partial(self._whole, file, stratum) for file in self.strata[stratum].files)
        if kind[1] == "text" and self.source.separator is None:
            self.strata[stratum].rows = len(self.strata[stratum].files)
        if kind[0] in ("cells", "text"):
            return self._cell_visits(stratum, share)
        return self._part_visits(stratum, share) if kind[0] == "parts" else self._head_visits(stratum, share)

    def _whole(self, file: SourceFile, stratum: int) -> Iterator[Block]:
        """All of a file, or nothing of one that breaks: a build leaves it out too."""
        found, rows = list(self._reading(file, read_piece(Piece(file), self.source))), 0
        for texts in found if file.shown not in self.failed else ():
            at = partial(int, rows)
            yield Block(
                stratum,
                (file.path, 0, rows),
                1.0,
                0.0,
                texts.values,
                texts.rows,
                texts.skips,
                file,
                at,
                whole=not texts.unfinished,
            )
            rows += texts.rows

    # Files that can be entered anywhere.

    def _cell_visits(self, stratum: int, share: int) -> Iterator[Visit]:
        files = [file for file in self.strata[stratum].files if file.size]
        total = sum(file.size for file in files)
        if not total:
            return
        cell = self._cell_bytes(files[0])
        mean = sum(file.size * cell_size(file, cell) for file in files) / total  # of those that will be chosen
        count = max(1, min(int(share / mean), MOST_SMALL_FILES))
        self.strata[stratum].looked_at = len(files)
        for (i, number), hits in cells_of(files, cell, count).items():
            weight = total / count * hits / cell_size(files[i], cell)
            yield partial(self._cell, files[i], files[i], number, stratum, weight, 1.0)

    def _cell_bytes(self, file: SourceFile) -> int:
        """A cell is a range of records, or of one large text; a small text is a cell."""
        return LARGE_TEXT if how_entered(file, self.source) == "text" and file.size < LARGE_TEXT else self.cell

    def _cell(
        self, file: SourceFile, origin: SourceFile, cell: int, stratum: int, weight: float, scale: float
    ) -> Iterator[Block]:
        """A cell of a file, which is the head of `origin` or that file itself. `scale`: its bytes on disk."""
        size, count = file.size, cell_count(file, self._cell_bytes(file))
        start, stop = size * cell // count, size * (cell + 1) // count
        spot = origin.path, cell, 0
        if how_entered(file, self.source) == "text" and file.size >= LARGE_TEXT:
            for passage in self._reading(origin, range_of(file, start, stop)):
                values = text_array([passage])
                yield Block(
                    stratum, spot, weight, (stop - start) * scale, values, 0, (), origin, byte=start, whole=False
                )
            return
        piece = Piece(file, start, stop) if count > 1 else Piece(file)
        found = list(self._reading(origin, read_piece(piece, self.source, self.cell)))
        if origin.shown in self.failed:
            yield nothing(stratum, origin, weight, (stop - start) * scale)
            return
        first = next_record(file, self.source, start) if count > 1 else 0
        covered = (next_record(file, self.source, stop) - first if count > 1 else size) * scale
        text, rows = sum(texts.nbytes for texts in found), 0
        for texts in found:
            part = covered * texts.nbytes / text if text else covered / len(found)
            at = partial(line_row, file, self.source, first, rows)
            yield Block(
                stratum,
                spot,
                weight,
                part,
                texts.values,
                texts.rows,
                texts.skips,
                origin,
                at,
                first,
                not texts.unfinished,
            )
            rows += texts.rows
        if not found:  # its records begin elsewhere
            yield nothing(stratum, origin, weight, covered)

    # Tables.

    def _part_visits(self, stratum: int, share: int) -> Iterator[Visit]:
        """Row groups and batches of some files, in proportion to the text in them."""
        chosen = self._some_files(stratum, MOST_FILES)
        parts: list[tuple[SourceFile, int, float, Part]] = []
        rows: int | None = 0
        for file, stands_for in chosen:
            footer = self._try(file, partial(parts_of, file, self.source))
            if footer is None:
                yield partial(iter, [nothing(stratum, file, stands_for / max(file.size, 1), file.size)])
                continue
            whole = sum(part.text for part in footer)
            for number, part in enumerate(footer):
                parts.append((file, number, stands_for * part.text / whole, part))
                rows = None if rows is None or part.rows is None else rows + part.rows
        if len(chosen) == len(self.strata[stratum].files):
            self.strata[stratum].rows = rows
        if not parts:
            return
        weights = np.array([part[2] for part in parts])
        mean, room = max(1.0, sum(part.text for *_, part in parts) / len(parts)), self._room(share)
        count = max(min(LEAST_PARTS, len(parts)), min(int(room / mean), share // self.cell))
        for i, hits in spread(weights, count, f"parts {stratum}").items():
            file, number, _, part = parts[i]
            keep = max(self.cell, hits * share // count)
            weight = float(weights.sum()) / count * hits / part.nbytes
            piece = Piece(file, number, number + 1)
            stretch = Stretch(piece, file, stratum, weight, part.nbytes, keep, hits * room // count)
            yield partial(self._thinned, stretch)

    def _thinned(self, stretch: Stretch) -> Iterator[Block]:
        """Blocks out of what can only be read from its start, in proportion to their text; and all rows, counted.

        A huge row group is read up to the stretch's reach only.
        """
        origin, start = stretch.origin, stretch.piece.start
        grid: Grid[tuple[int, Texts]] = Grid(
            self.cell, max(1, stretch.keep // self.cell), f"{os.path.basename(origin.path)} {start}"
        )
        rows = documents = 0
        skips: dict[str, Skip] = {}
        cut = False
        blocks = read_piece(stretch.piece, self.source, THINNED_BYTES)
        for texts in self._reading(origin, (small for block in blocks for small in cut_small(block, self.cell))):
            grid.add((rows, texts), _measure(texts))
            for skip in texts.skips:
                seen = skips.get(skip.reason, skip._replace(row=rows + skip.row, rows=0))
                skips[skip.reason] = seen._replace(rows=seen.rows + skip.rows)
            rows, documents = rows + texts.rows, documents + len(texts.values) - texts.unfinished
            if stretch.reach is not None:
                cut = grid.length > max(stretch.reach, stretch.keep) or time.monotonic() > self.deadline
            if cut or (stretch.rows is not None and rows >= stretch.rows):
                break
        found = [] if origin.shown in self.failed else grid.chosen()
        done = stretch.done(rows) if cut else 1.0
        if stretch.reach is not None:
            self.heads.append(Head(origin, grid.length, round(grid.length / done), stretch.size * done, stretch.size))
        weight, size = stretch.weight / done, stretch.size * done
        yield replace(
            nothing(stretch.stratum, origin, weight, 0.0 if found else size),
            rows=rows,
            skips=list(skips.values()),
            row=partial(table_row, stretch.piece, 0),
            documents=documents if found else 0,
        )
        for (row, texts), share in found:
            part = _measure(texts) / grid.length
            yield Block(
                stretch.stratum,
                (origin.path, start, row),
                weight * share / part,
                size * part,
                texts.values,
                texts.rows,
                texts.skips,
                origin,
                partial(table_row, stretch.piece, row),
                documents=0,
                counted=True,
            )

    # Streams, of which only the head can be had.

    def _head_visits(self, stratum: int, share: int) -> Iterator[Visit]:
        files = self.strata[stratum].files
        mean = max(1, sum(map(text_weight, files)) // len(files))
        chosen = self._some_files(stratum, min(max(MOST_FILES, share // mean), MOST_SMALL_FILES))
        reach = max(self.cell, self._room(share) // max(1, len(chosen)))
        for file, stands_for in chosen:
            yield partial(self._head, file, stratum, stands_for, max(self.cell, share // len(chosen)), reach)

    def _head(self, file: SourceFile, stratum: int, stands_for: float, share: int, reach: int) -> Iterator[Block]:
        """The head of a file, laid down where it can be entered anywhere."""
        if file.format == "arrow":
            walked = self._try(file, partial(arrow_rows, file, reach))
            if walked is not None:
                rows, consumed = walked
                self.heads.append(Head(file, consumed, file.size, consumed, file.size))
                stretch = Stretch(Piece(file), file, stratum, stands_for / consumed, consumed, share, rows=rows)
                yield from self._thinned(stretch)
            return
        until = time.monotonic() + max(HEAD_SECONDS, self.seconds / 2 * share / self.sample_bytes)
        path = Path(self.temporary.name) / str(len(self.heads))
        head = self._try(file, partial(copy_head, file, path, reach, until))
        if head is None:
            yield nothing(stratum, file, stands_for / max(file.size, 1), file.size)
            return
        self.heads.append(head)
        if not head.copied:
            return
        laid = file._replace(path=str(path), size=head.copied, codec=None, name=file.shown)
        scale = file.size / head.text
        if how_entered(laid, self.source) == "head":
            size = head.copied * scale
            yield from self._thinned(Stretch(Piece(laid), file, stratum, stands_for / size, size, share))
            return
        cell = self._cell_bytes(laid)
        cells = cell_count(laid, cell)
        count = max(1, min(share // cell, cells)) if cells > 1 else 1
        found: list[Block] = []
        drawn = 0
        for order, ((_, number), hits) in enumerate(golden(cells_of([laid], cell, count))):
            if order and time.monotonic() > self.deadline:
                break
            found += self._cell(laid, file, number, stratum, float(hits), scale)
            drawn += hits
        covered = sum(block.weight * block.covered for block in found)
        if count < ENOUGH_CELLS or not covered:
            covered = drawn * cell_size(laid, cell) * scale
        for block in found:  # together they stand for the whole file
            yield replace(block, weight=block.weight * stands_for / covered)

    # What they share.

    def _room(self, share: int) -> int:
        """Text that may be read for a share of the sample, in all its files together."""
        return int(max(READ_BYTES, self.sample_bytes) * share / self.sample_bytes)

    def _some_files(self, stratum: int, most: int) -> list[tuple[SourceFile, float]]:
        """Some files, in proportion to their size, each with the bytes it stands for; all of them if they are few."""
        files = [file for file in self.strata[stratum].files if file.size or file.codec]
        if len(files) > most:
            sizes = np.array([file.size for file in files], float)
            hits = spread(sizes, most, f"files {stratum}")
            chosen = [(files[i], float(sizes.sum()) / most * count) for i, count in hits.items()]
        else:
            chosen = [(file, float(file.size)) for file in files]
        self.strata[stratum].looked_at = len(chosen)
        return chosen

    def _reading(self, file: SourceFile, found: Iterator[T]) -> Iterator[T]:
        """Read on until a file's end or its failure, which is kept."""
        self.files_read.add(file.path)
        try:
            yield from safely(Piece(file), found)  # type: ignore[arg-type, misc]
        except InputError as error:
            self.failed[file.shown] = str(error)

    def _try(self, file: SourceFile, make: Callable[[], T]) -> T | None:
        """What is made of a file; None where it fails, which is kept."""
        self.files_read.add(file.path)
        try:
            return make()
        except InputError as error:
            self.failed[file.shown] = str(error)
            return None


def _measure(texts: Texts) -> int:
    """What a block weighs among others: its text, and something for documents that have none."""
    return texts.nbytes + len(texts.values)
