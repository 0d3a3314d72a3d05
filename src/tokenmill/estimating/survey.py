"""Reading a sample that is spread over a whole corpus, and how much of the corpus each part of it stands for.

How a file is sampled depends on how its format can be entered:

    lines, JSON lines, separated text    cells: byte ranges, evenly spaced over all files
    plain text, a document per file      small files as a whole, byte ranges of large ones
    parquet and Arrow files              row groups and record batches; some blocks of each
    compressed files, csv                the head, copied to a temporary folder, which is then sampled as above
    Arrow streams                        the first record batches

Points are random within evenly spaced intervals, and the same every time.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np

from tokenmill.documents import BLOCK_BYTES, Skip, Texts, text_array
from tokenmill.errors import InputError
from tokenmill.estimating.heads import Head, copy_head
from tokenmill.estimating.sample import SampledBlock, Stratum, Stretch, cut_small, grid_length, no_documents
from tokenmill.estimating.spread import GOLDEN, Grid, cell_count, cell_size, cells_of, golden, spread
from tokenmill.reading import Piece, Source, SourceFile, read_piece, rows_before, text_weight
from tokenmill.reading.codecs import reading
from tokenmill.reading.formats import Entry, Part, get_format
from tokenmill.reading.utf8 import whole_characters

CELL_BYTES = (32 << 10, 256 << 10)  # least and most text that is read in one place
CELLS = 512  # places that a sample is read from, about
ENOUGH_CELLS = (
    4  # of one file, to trust the share of it that they cover; with fewer, cells are taken to be of equal size
)
MOST_FILES = 64  # opened of parquet, Arrow and large compressed files
MOST_SMALL_FILES = 2000  # opened of other files
LEAST_PARTS = 16  # row groups or batches to look into, if there are as many
READ_BYTES = 256 << 20  # of text that is decompressed or read past to spread the sample
HEAD_SECONDS = 0.05  # least time for a head; all together may take half the time
THINNED_BYTES = 1 << 20  # of text, read at a time where most of it is left out
LARGE_TEXT = 256 << 10  # a file that is one document is sampled in ranges from this size on
COUNTED_BYTES, COUNTED_PARTS = 256 << 20, 1000  # the row of a finding is found if no more than this comes before it

Visit = Callable[[], Iterator[SampledBlock]]


@dataclass
class Survey:
    """Reads a sample. `blocks()` yields it; the other attributes are complete afterwards.

    Whenever reading stops, the blocks so far are spread over the whole corpus.
    """

    source: Source
    sample_bytes: int
    seconds: float
    everything: bool = False  # read the whole corpus
    strata: list[Stratum] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # the error message per file
    heads: list[Head] = field(default_factory=list)
    files_read: set[str] = field(default_factory=set)
    stopped: bool = False  # because the time was up

    def __enter__(self) -> Self:
        self.temporary = tempfile.TemporaryDirectory(prefix="tokenmill-")
        return self

    def __exit__(self, *_: object) -> None:
        self.temporary.cleanup()

    def blocks(self) -> Iterator[SampledBlock]:
        """The blocks of the sample, ordered so that every prefix is spread over the corpus."""
        self.deadline = time.monotonic() + self.seconds
        self.cell = min(max(self.sample_bytes // CELLS, CELL_BYTES[0]), CELL_BYTES[1])
        groups: dict[tuple[object, ...], list[SourceFile]] = {}
        for file in self.source.files:
            entry = self._entry(file)
            kind = entry, file.format, file.codec, entry == "document" and file.size >= LARGE_TEXT
            groups.setdefault(kind, []).append(file)
        total = max(1, sum(map(text_weight, self.source.files)))
        visits: list[tuple[float, Visit]] = []
        for files in groups.values():
            self.strata.append(Stratum(files, sum(file.size for file in files), self._entry(files[0])))
            share = max(self.cell, self.sample_bytes * sum(map(text_weight, files)) // total)
            visits += [(i * GOLDEN % 1, visit) for i, visit in enumerate(self._visits(len(self.strata) - 1, share))]
        visits.sort(key=lambda pair: pair[0])  # the first visit of each stratum comes first
        for order, visit in visits:
            if order and time.monotonic() > self.deadline:
                self.stopped = True
                return
            yield from visit()

    def _visits(self, number: int, share: int) -> Iterator[Visit]:
        stratum = self.strata[number]
        if self.everything:
            return (partial(self._whole, file, number) for file in stratum.files)
        if get_format(stratum.files[0].format).one_document(self.source):
            stratum.rows = len(stratum.files)
        if stratum.entry in ("records", "document"):
            return self._cell_visits(number, share)
        return self._part_visits(number, share) if stratum.entry == "parts" else self._head_visits(number, share)

    def _whole(self, file: SourceFile, stratum: int) -> Iterator[SampledBlock]:
        """All of a file; nothing of a broken one, which a build leaves out too."""
        row = 0
        for texts in self._read_blocks(file, Piece(file), BLOCK_BYTES) or ():
            yield SampledBlock(stratum, (file.path, 0, row), 1.0, 0.0, file, texts, partial(int, row))
            row += texts.rows

    # Files that can be entered at any byte.

    def _cell_visits(self, stratum: int, share: int) -> Iterator[Visit]:
        files = [file for file in self.strata[stratum].files if file.size]
        total = sum(file.size for file in files)
        if not total:
            return
        cell = self._cell_bytes(files[0])
        mean = sum(file.size * cell_size(file, cell) for file in files) / total  # of the cells that will be drawn
        count = max(1, min(int(share / mean), MOST_SMALL_FILES))
        self.strata[stratum].opened = len(files)
        for (i, number), hits in cells_of(files, cell, count).items():
            weight = total / count * hits / cell_size(files[i], cell)
            yield partial(self._cell, files[i], files[i], number, stratum, weight, 1.0)

    def _cell_bytes(self, file: SourceFile) -> int:
        """The size of a cell: a range of records or of one large text. A small text is one cell."""
        return LARGE_TEXT if self._entry(file) == "document" and file.size < LARGE_TEXT else self.cell

    def _cell(
        self, file: SourceFile, origin: SourceFile, cell: int, stratum: int, weight: float, scale: float
    ) -> Iterator[SampledBlock]:
        """A cell of a file. The file is `origin` itself or a copy of its head, with `scale` bytes of it per byte."""
        count = cell_count(file, self._cell_bytes(file))
        start, stop = file.size * cell // count, file.size * (cell + 1) // count
        block = SampledBlock(stratum, (origin.path, cell, 0), weight, (stop - start) * scale, origin)
        if self._entry(file) == "document" and file.size >= LARGE_TEXT:
            passage = self._passage(file, start, stop, origin)
            if passage is not None:
                yield replace(block, texts=passage, byte=start)
            return
        blocks = self._read_blocks(origin, Piece(file, start, stop) if count > 1 else Piece(file), self.cell)
        if blocks is None:
            yield no_documents(stratum, origin, weight, block.covered)
            return
        first, covered = 0, file.size * scale
        if count > 1:
            first = self._record_start(file, start)
            covered = (self._record_start(file, stop) - first) * scale
        if not blocks:  # the cell lies within one record
            yield no_documents(stratum, origin, weight, covered)
        text, row = sum(texts.nbytes for texts in blocks), 0
        for texts in blocks:
            part = covered * texts.nbytes / text if text else covered / len(blocks)
            first_row = partial(self._row, Piece(file, first), row)
            yield replace(block, covered=part, texts=texts, first_row=first_row, byte=first)
            row += texts.rows

    def _passage(self, file: SourceFile, start: int, stop: int, origin: SourceFile) -> Texts | None:
        """A range of a file that is one document, cut at whole characters; None if it is not UTF-8."""
        with self._noting_failure(origin):
            with open(file.path, "rb") as raw:
                raw.seek(start)
                data = raw.read(stop - start)
            low = next((i for i in range(min(4, len(data))) if data[i] & 0xC0 != 0x80), 0) if start else 0
            high = whole_characters(data) if stop < file.size else len(data)
            try:
                return Texts(text_array([data[low:high].decode()]), 0, unfinished=True)
            except UnicodeDecodeError as error:
                at = start + low + error.start
                reason = f"invalid UTF-8 at byte {at:,}; a build leaves such a document out"
                raise InputError(f"{file.shown}: {reason}") from error
        return None

    def _record_start(self, file: SourceFile, at: int) -> int:
        return get_format(file.format).record_start(file, self.source, at)

    # Tables.

    def _part_visits(self, stratum: int, share: int) -> Iterator[Visit]:
        """Row groups and batches of some files, in proportion to their text."""
        files = self._some_files(stratum, MOST_FILES)
        parts: list[tuple[SourceFile, int, float, Part]] = []
        for file, stands_for in files:
            found = self._parts(file)
            if found is None:
                yield partial(iter, [no_documents(stratum, file, stands_for / max(file.size, 1), file.size)])
                continue
            text = sum(part.text for part in found)
            parts += [(file, i, stands_for * part.text / text, part) for i, part in enumerate(found)]
        if len(files) == len(self.strata[stratum].files):
            rows = [part.rows for *_, part in parts]
            self.strata[stratum].rows = None if None in rows else sum(count or 0 for count in rows)
        if not parts:
            return
        weights = np.array([weight for _, _, weight, _ in parts])
        mean, reach = max(1.0, sum(part.text for *_, part in parts) / len(parts)), self._reach(share)
        count = max(min(LEAST_PARTS, len(parts)), min(int(reach / mean), share // self.cell))
        for i, hits in spread(weights, count, f"parts {stratum}").items():
            file, number, _, part = parts[i]
            keep = max(self.cell, hits * share // count)
            weight = float(weights.sum()) / count * hits / part.nbytes
            piece = Piece(file, number, number + 1)
            stretch = Stretch(piece, file, stratum, weight, part.nbytes, keep, hits * reach // count)
            yield partial(self._thinned, stretch)

    def _parts(self, file: SourceFile) -> list[Part] | None:
        with self._noting_failure(file):
            return get_format(file.format).parts(file, self.source)
        return None

    def _thinned(self, stretch: Stretch) -> Iterator[SampledBlock]:
        """Sample what can only be read from its start: some blocks, in proportion to their text, and the count of rows."""
        origin, start = stretch.origin, stretch.piece.start
        seed = f"{os.path.basename(origin.path)} {start}"
        thinned = _Thinned(Grid(self.cell, max(1, stretch.keep // self.cell), seed))
        self._fill(thinned, stretch)
        chosen = [] if origin.shown in self.failed else thinned.grid.chosen()
        length = thinned.grid.length
        share = self._share_read(stretch, thinned.rows) if thinned.cut else 1.0
        if stretch.reach is not None:
            self.heads.append(Head(origin, length, round(length / share), stretch.size * share, stretch.size))
        weight, size = stretch.weight / share, stretch.size * share
        block = no_documents(stretch.stratum, origin, weight, 0.0 if chosen else size)
        yield replace(
            block,
            texts=Texts(text_array([]), thinned.rows, list(thinned.skips.values())),
            first_row=partial(self._row, stretch.piece, 0),
            documents=thinned.documents if chosen else 0,
        )
        for (row, texts), stands_for in chosen:
            part = grid_length(texts) / length
            yield replace(
                block,
                spot=(origin.path, start, row),
                weight=weight * stands_for / part,
                covered=size * part,
                texts=texts,
                first_row=partial(self._row, stretch.piece, row),
                documents=0,
                counted=True,
            )

    def _fill(self, thinned: _Thinned, stretch: Stretch) -> None:
        """Read a stretch to its end; of a huge row group no more than its reach."""
        with self._noting_failure(stretch.origin):
            for block in read_piece(stretch.piece, self.source, THINNED_BYTES):
                for texts in cut_small(block, self.cell):
                    thinned.add(texts)
                    if stretch.reach is not None:
                        too_far = thinned.grid.length > max(stretch.reach, stretch.keep)
                        thinned.cut = too_far or time.monotonic() > self.deadline
                    if thinned.cut or (stretch.rows is not None and thinned.rows >= stretch.rows):
                        return

    def _share_read(self, stretch: Stretch, rows: int) -> float:
        """The share of the rows of a part that was read."""
        file, start = stretch.piece.file, stretch.piece.start
        total = rows_before(Piece(file, start + 1), self.source) - rows_before(Piece(file, start), self.source)
        return min(1.0, rows / max(1, total))

    # Files of which only the head can be read.

    def _head_visits(self, stratum: int, share: int) -> Iterator[Visit]:
        files = self.strata[stratum].files
        mean = max(1, sum(map(text_weight, files)) // len(files))
        chosen = self._some_files(stratum, min(max(MOST_FILES, share // mean), MOST_SMALL_FILES))
        reach = max(self.cell, self._reach(share) // max(1, len(chosen)))
        for file, stands_for in chosen:
            yield partial(self._head, file, stratum, stands_for, max(self.cell, share // len(chosen)), reach)

    def _head(
        self, file: SourceFile, stratum: int, stands_for: float, share: int, reach: int
    ) -> Iterator[SampledBlock]:
        """A sample of the head of a file: of its first rows if they can be counted, else of a copy."""
        with self._noting_failure(file):
            head_rows = get_format(file.format).head_rows(file, reach)
            if head_rows is None:
                until = time.monotonic() + max(HEAD_SECONDS, self.seconds / 2 * share / self.sample_bytes)
                path = Path(self.temporary.name) / str(len(self.heads))
                head = copy_head(file, path, reach, until)
            else:
                rows, consumed = head_rows
                head = Head(file, consumed, file.size, consumed, file.size)
        if file.shown in self.failed:
            yield no_documents(stratum, file, stands_for / max(file.size, 1), file.size)
            return
        self.heads.append(head)
        if head_rows is not None:
            yield from self._thinned(
                Stretch(Piece(file), file, stratum, stands_for / consumed, consumed, share, rows=rows)
            )
        elif head.copied:
            copy = file._replace(path=str(path), size=head.copied, codec=None, name=file.shown)
            if self._entry(copy) == "head":
                size = head.copied * file.size / head.text
                yield from self._thinned(Stretch(Piece(copy), file, stratum, stands_for / size, size, share))
            else:
                yield from self._copied_cells(copy, head, stratum, stands_for, share)

    def _copied_cells(
        self, copy: SourceFile, head: Head, stratum: int, stands_for: float, share: int
    ) -> Iterator[SampledBlock]:
        """Cells of the copy of a head, which together stand for `stands_for` bytes on disk."""
        scale = head.file.size / head.text
        cell = self._cell_bytes(copy)
        cells = cell_count(copy, cell)
        count = max(1, min(share // cell, cells)) if cells > 1 else 1
        blocks: list[SampledBlock] = []
        drawn = 0
        for order, ((_, number), hits) in enumerate(golden(cells_of([copy], cell, count))):
            if order and time.monotonic() > self.deadline:
                break
            blocks += self._cell(copy, head.file, number, stratum, float(hits), scale)
            drawn += hits
        covered = sum(block.weight * block.covered for block in blocks)
        if count < ENOUGH_CELLS or not covered:
            covered = drawn * cell_size(copy, cell) * scale
        for block in blocks:
            yield replace(block, weight=block.weight * stands_for / covered)

    # What they share.

    def _entry(self, file: SourceFile) -> Entry:
        return "head" if file.codec else get_format(file.format).entry(file, self.source)

    def _reach(self, share: int) -> int:
        """How much text may be read for a share of the sample, in all files together."""
        return int(max(READ_BYTES, self.sample_bytes) * share / self.sample_bytes)

    def _some_files(self, stratum: int, most: int) -> list[tuple[SourceFile, float]]:
        """Up to `most` files, in proportion to their size, each with the bytes it stands for."""
        files = [file for file in self.strata[stratum].files if file.size or file.codec]
        if len(files) > most:
            sizes = np.array([file.size for file in files], float)
            hits = spread(sizes, most, f"files {stratum}")
            chosen = [(files[i], float(sizes.sum()) / most * count) for i, count in hits.items()]
        else:
            chosen = [(file, float(file.size)) for file in files]
        self.strata[stratum].opened = len(chosen)
        return chosen

    def _read_blocks(self, origin: SourceFile, piece: Piece, block_bytes: int) -> list[Texts] | None:
        """The documents of a piece; None if reading it fails."""
        with self._noting_failure(origin):
            return list(read_piece(piece, self.source, block_bytes))
        return None

    def _row(self, piece: Piece, after: int) -> int | None:
        """The number of the row `after` rows after the start of a piece; None if too much comes before to count."""
        if piece.start > (COUNTED_PARTS if self._entry(piece.file) == "parts" else COUNTED_BYTES):
            return None
        try:
            return rows_before(piece, self.source) + after
        except InputError:
            return None

    @contextmanager
    def _noting_failure(self, file: SourceFile) -> Iterator[None]:
        """Count a file as read, and note the error if that fails."""
        self.files_read.add(file.path)
        try:
            with reading(file):
                yield
        except InputError as error:
            self.failed[file.shown] = str(error)


@dataclass
class _Thinned:
    """A sample of the blocks of a stretch, and the counts of all of it."""

    grid: Grid[tuple[int, Texts]]
    rows: int = 0
    documents: int = 0
    skips: dict[str, Skip] = field(default_factory=dict)
    cut: bool = False  # the stretch was not read to its end

    def add(self, texts: Texts) -> None:
        self.grid.add((self.rows, texts), grid_length(texts))
        for skip in texts.skips:
            first = self.skips.get(skip.reason, skip._replace(row=self.rows + skip.row, rows=0))
            self.skips[skip.reason] = first._replace(rows=first.rows + skip.rows)
        self.rows += texts.rows
        self.documents += len(texts.values) - texts.unfinished
