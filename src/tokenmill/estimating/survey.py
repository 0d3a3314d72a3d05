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
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from tokenmill.documents import BLOCK_BYTES, Skip, Texts, text_array, text_offsets
from tokenmill.errors import InputError
from tokenmill.estimating.heads import copy_head
from tokenmill.estimating.sampled import Head, SampledBlock, Stratum
from tokenmill.estimating.separated import has_separator
from tokenmill.estimating.spread import Grid, cell_count, cell_size, cells_of, golden, spread
from tokenmill.reading import Piece, Source, SourceFile, read_piece, rows_before, text_weight
from tokenmill.reading.codecs import open_input, reading
from tokenmill.reading.formats import REGISTERED, Entry, Part, get_format
from tokenmill.reading.formats.base import CutShort
from tokenmill.reading.utf8 import whole_characters

CELL_BYTES = (32 << 10, 256 << 10)  # least and most text that is read in one place
CELLS = 512  # places that a sample is read from, about
ENOUGH_CELLS = 4  # of one file, to trust the share of it that they cover; fewer are taken to be of equal size
MOST_FILES = 64  # opened of parquet, Arrow and large compressed files
MOST_SMALL_FILES = 2000  # opened of other files
LEAST_PARTS = 16  # row groups or batches to look into, if there are as many
READ_BYTES = 256 << 20  # of text that is decompressed or read past to spread the sample
HEAD_SECONDS = 0.05  # least time for a head; all together may take half the time
THINNED_BYTES = 1 << 20  # of text, read at a time where most of it is left out
LARGE_TEXT = 256 << 10  # a file that is one document is sampled in ranges from this size on
SOUGHT_BYTES = 64 << 20  # of all text files, in which their separator is looked for
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
    unseparated: list[SourceFile] = field(default_factory=list)  # texts without the separator, which may be misspelled
    stopped: bool = False  # because the time was up
    _entries: dict[str, Entry] = field(default_factory=dict)  # by path

    def __enter__(self) -> Self:
        self.temporary = tempfile.TemporaryDirectory(prefix="tokenmill-")
        return self

    def __exit__(self, *_: object) -> None:
        self.temporary.cleanup()

    def blocks(self) -> Iterator[SampledBlock]:
        """The blocks of the sample, ordered so that every prefix is spread over the corpus."""
        self.deadline = time.monotonic() + self.seconds
        self.cell = min(max(self.sample_bytes // CELLS, CELL_BYTES[0]), CELL_BYTES[1])
        strata: dict[tuple[object, ...], Stratum] = {}
        for file in self.source.files:
            entry = self._entry(file)
            kind = entry, file.format, file.codec, entry == "document" and file.size >= LARGE_TEXT
            is_one = entry == "document" or get_format(file.format).one_document(self.source)
            strata.setdefault(kind, Stratum(entry, is_one_document=is_one)).files.append(file)
        self.strata = list(strata.values())
        total = max(1, sum(map(text_weight, self.source.files)))
        visits: list[tuple[float, Visit]] = []
        for stratum in self.strata:
            share = max(self.cell, self.sample_bytes * sum(map(text_weight, stratum.files)) // total)
            visits += golden(self._visits(stratum, share))
        visits.sort(key=lambda pair: pair[0])  # the first visit of each stratum comes first
        for order, visit in visits:
            if order and time.monotonic() > self.deadline:
                self.stopped = True
                return
            yield from visit()

    def _visits(self, stratum: Stratum, share: int) -> Iterator[Visit]:
        if self.everything:
            return (partial(self._whole, stratum, file) for file in stratum.files)
        if stratum.is_one_document:
            stratum.rows = {file.path: 1 for file in stratum.files}
        if stratum.entry in ("records", "document"):
            return self._cell_visits(stratum, share)
        return self._part_visits(stratum, share) if stratum.entry == "parts" else self._head_visits(stratum, share)

    def _whole(self, stratum: Stratum, file: SourceFile) -> Iterator[SampledBlock]:
        """All of a file; nothing of a broken one, which a build leaves out too."""
        row, continues = 0, False
        for texts in self._read_blocks(file, Piece(file), BLOCK_BYTES) or ():
            first_row = partial(self._row, Piece(file), row)
            yield SampledBlock(stratum, file, 1.0, 0.0, (0, row), texts, first_row, continues=continues)
            row, continues = row + texts.rows, texts.unfinished

    # Files that can be entered at any byte.

    def _cell_visits(self, stratum: Stratum, share: int) -> Iterator[Visit]:
        files = [file for file in stratum.files if file.size]
        total = stratum.nbytes
        if not total:
            return
        cell = self._cell_bytes(files[0])
        mean = sum(file.size * cell_size(file, cell) for file in files) / total  # of the cells that will be drawn
        count = max(1, min(int(share / mean), MOST_SMALL_FILES))
        stratum.opened = len(files)
        for (i, number), hits in cells_of(files, cell, count).items():
            weight = total / count * hits / cell_size(files[i], cell)
            yield partial(self._cell, SampledBlock(stratum, files[i], weight, 0.0), files[i], number, 1.0)

    def _cell_bytes(self, file: SourceFile) -> int:
        """The size of a cell: a range of records or of one large text. A small text is one cell."""
        return LARGE_TEXT if self._entry(file) == "document" and file.size < LARGE_TEXT else self.cell

    def _cell(self, base: SampledBlock, file: SourceFile, cell: int, scale: float) -> Iterator[SampledBlock]:
        """A cell of a file, which is that of `base` or a copy of its head with `scale` bytes on disk per byte."""
        count = cell_count(file, self._cell_bytes(file))
        start, stop = file.size * cell // count, file.size * (cell + 1) // count
        base.covered = (stop - start) * scale
        if self._entry(file) == "document" and file.size >= LARGE_TEXT:
            passage = self._passage(file, start, stop, base.file)
            if passage is not None:
                share = base.covered / max(base.file.size, 1)
                yield replace(base, spot=(cell, 0), texts=passage, byte=start, share=share)
            return
        blocks = self._read_blocks(base.file, Piece(file, start, stop) if count > 1 else Piece(file), self.cell)
        if blocks is None:
            yield base
            return
        first, covered = 0, file.size * scale
        if count > 1:
            record_start = get_format(file.format).record_start
            first = record_start(file, self.source, start)
            covered = (record_start(file, self.source, stop) - first) * scale
        if not blocks:  # the cell lies within one record
            yield replace(base, covered=covered)
        text, row, continues = sum(texts.nbytes for texts in blocks), 0, False
        block = replace(base, spot=(cell, 0), byte=first)
        for texts in blocks:
            part = covered * texts.nbytes / text if text else covered / len(blocks)
            first_row = partial(self._row, Piece(file, first), row)
            yield replace(block, covered=part, texts=texts, first_row=first_row, continues=continues)
            row, continues = row + texts.rows, texts.unfinished

    def _passage(self, file: SourceFile, start: int, stop: int, origin: SourceFile) -> Texts | None:
        """A range of a file that is one document, cut at whole characters; None if it is not UTF-8."""
        with self._noting_failure(origin):
            with open_input(file) as raw:
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

    # Tables.

    def _part_visits(self, stratum: Stratum, share: int) -> Iterator[Visit]:
        """Row groups and batches of some files, in proportion to their text."""
        files = self._some_files(stratum, MOST_FILES)
        parts: list[tuple[SourceFile, int, float, Part]] = []
        for file, stands_for in files:
            found: list[Part] | None = None
            with self._noting_failure(file):
                found = get_format(file.format).parts(file, self.source)
            if found is None:
                yield partial(iter, [SampledBlock(stratum, file, stands_for / max(file.size, 1), file.size)])
                continue
            text = sum(part.text for part in found)
            parts += [(file, i, stands_for * part.text / text, part) for i, part in enumerate(found)]
        if len(files) == len(stratum.files):
            stratum.rows = _rows_by_file(parts)
        if not parts:
            return
        weights = np.array([weight for _, _, weight, _ in parts])
        mean, reach = max(1.0, sum(part.text for *_, part in parts) / len(parts)), self._reach(share)
        count = max(min(LEAST_PARTS, len(parts)), min(int(reach / mean), share // self.cell))
        for i, hits in spread(weights, count, f"parts {self.strata.index(stratum)}").items():
            file, number, _, part = parts[i]
            weight = float(weights.sum()) / count * hits / part.nbytes
            base = SampledBlock(stratum, file, weight, part.nbytes)
            keep = max(self.cell, hits * share // count)
            yield partial(self._thinned, base, Piece(file, number, number + 1), keep, reach=hits * reach // count)

    def _thinned(
        self, base: SampledBlock, piece: Piece, keep: int, *, reach: int | None = None, most_rows: int | None = None
    ) -> Iterator[SampledBlock]:
        """Sample about `keep` bytes of text from a piece that can only be read from its start, and count its rows.

        At most `reach` bytes of text or `most_rows` rows are read. The piece, or these rows, has `base.covered` bytes.
        """
        origin = base.file
        seed = f"{os.path.basename(origin.path)} {piece.start}"
        grid: Grid[_Cut] = Grid(self.cell, max(1, keep // self.cell), seed)
        rows, documents, share, continues = 0, 0, 1.0, False
        skips: dict[str, Skip] = {}
        with self._noting_failure(origin):
            for texts in self._small_blocks(piece):
                grid.add(_Cut(rows, texts, continues), _grid_length(texts))
                for skip in texts.skips:
                    first = skips.get(skip.reason, skip._replace(row=rows + skip.row, rows=0))
                    skips[skip.reason] = first._replace(rows=first.rows + skip.rows)
                rows, continues = rows + texts.rows, texts.unfinished
                documents += len(texts.values) - texts.unfinished
                if reach is not None and (grid.length > max(reach, keep) or time.monotonic() > self.deadline):
                    share = self._share_of_part(piece, rows)
                    break
                if most_rows is not None and rows >= most_rows:
                    break
        chosen = [] if origin.shown in self.failed else grid.chosen()
        weight, size = base.weight / share, base.covered * share
        if reach is not None:
            self.heads.append(Head(base.stratum, origin, size, base.covered))
        yield replace(
            base,
            weight=weight,
            covered=0.0 if chosen else size,
            texts=Texts(text_array([]), rows, list(skips.values())),
            first_row=partial(self._row, piece, 0),
            documents=documents if chosen else 0,
        )
        for (row, texts, continues), stands_for in chosen:
            part = _grid_length(texts) / grid.length
            yield replace(
                base,
                weight=weight * stands_for / part,
                covered=size * part,
                spot=(piece.start, row),
                texts=texts,
                first_row=partial(self._row, piece, row),
                documents=0,
                continues=continues,
                counted=True,
            )

    def _small_blocks(self, piece: Piece) -> Iterator[Texts]:
        try:
            for texts in read_piece(piece, self.source, THINNED_BYTES):
                yield from _cut_small(texts, self.cell)
        except CutShort:
            if not piece.file.path.startswith(self.temporary.name):  # else it is the copy of a head
                raise

    def _share_of_part(self, piece: Piece, rows: int) -> float:
        """The share of a row group or record batch that its first `rows` rows are."""
        next_part = Piece(piece.file, piece.start + 1)
        total = rows_before(next_part, self.source) - rows_before(piece, self.source)
        return min(1.0, rows / max(1, total))

    # Files of which only the head can be read.

    def _head_visits(self, stratum: Stratum, share: int) -> Iterator[Visit]:
        mean = max(1, sum(map(text_weight, stratum.files)) // len(stratum.files))
        chosen = self._some_files(stratum, min(max(MOST_FILES, share // mean), MOST_SMALL_FILES))
        reach = max(self.cell, self._reach(share) // max(1, len(chosen)))
        for file, stands_for in chosen:
            base = SampledBlock(stratum, file, stands_for / max(file.size, 1), file.size)
            yield partial(self._head, base, stands_for, max(self.cell, share // len(chosen)), reach)

    def _head(self, base: SampledBlock, stands_for: float, share: int, reach: int) -> Iterator[SampledBlock]:
        """A sample of the head of a file: of its first rows if they can be counted, else of a copy."""
        file = base.file
        piece, consumed, scale, most_rows = Piece(file), 0.0, 0.0, None
        with self._noting_failure(file):
            rows_and_bytes = get_format(file.format).head_rows(file, reach)
            if rows_and_bytes is not None:
                most_rows, consumed = rows_and_bytes
            else:
                until = time.monotonic() + max(HEAD_SECONDS, self.seconds / 2 * share / self.sample_bytes)
                path = Path(self.temporary.name) / str(len(self.heads))
                copied, text = copy_head(file, path, reach, until)
                consumed, scale = (file.size * copied / text, file.size / text) if text else (file.size, 0.0)
                piece = Piece(file._replace(path=str(path), size=copied, codec=None, name=file.shown))
        if file.shown in self.failed:
            yield base
            return
        self.heads.append(Head(base.stratum, file, consumed, file.size))
        if most_rows is not None or (piece.file.size and self._entry(piece.file) == "head"):
            base = replace(base, weight=stands_for / consumed, covered=consumed)
            yield from self._thinned(base, piece, share, most_rows=most_rows)
        elif piece.file.size:
            yield from self._copied_cells(base, piece.file, stands_for, share, scale)

    def _copied_cells(
        self, base: SampledBlock, copy: SourceFile, stands_for: float, share: int, scale: float
    ) -> Iterator[SampledBlock]:
        """Cells of the copy of a head, which together stand for `stands_for` bytes on disk."""
        cell = self._cell_bytes(copy)
        cells = cell_count(copy, cell)
        count = max(1, min(share // cell, cells)) if cells > 1 else 1
        blocks: list[SampledBlock] = []
        drawn = 0
        for order, ((_, number), hits) in golden(cells_of([copy], cell, count).items()):
            if order and time.monotonic() > self.deadline:
                break
            blocks += self._cell(replace(base, weight=float(hits)), copy, number, scale)
            drawn += hits
        covered = sum(block.weight * block.covered for block in blocks)
        if count < ENOUGH_CELLS or not covered:
            covered = drawn * cell_size(copy, cell) * scale
        for block in blocks:
            yield replace(block, weight=block.weight * stands_for / covered)

    # What they share.

    def _entry(self, file: SourceFile) -> Entry:
        """How a file can be entered. A text without the separator is one document, unless it is read as a whole anyway."""
        if file.path not in self._entries:
            entry = "head" if file.codec else get_format(file.format).entry(file, self.source)
            if not self._is_separated(file):
                self.unseparated.append(file)
                entry = entry if self.everything else "document"
            self._entries[file.path] = entry
        return self._entries[file.path]

    def _is_separated(self, file: SourceFile) -> bool:
        """Whether a text has the given separator. Taken to be true of compressed files, until their heads were copied."""
        separator = self.source.separator
        if not separator or REGISTERED[file.format].option != "separator" or file.codec:
            return True
        return has_separator(file, separator, SOUGHT_BYTES // len(self.source.files))

    def _reach(self, share: int) -> int:
        """How much text may be read for a share of the sample, in all files together."""
        return int(max(READ_BYTES, self.sample_bytes) * share / self.sample_bytes)

    def _some_files(self, stratum: Stratum, most: int) -> list[tuple[SourceFile, float]]:
        """Up to `most` files, in proportion to their size, each with the bytes it stands for."""
        files = [file for file in stratum.files if file.size or file.codec]
        chosen = [(file, float(file.size)) for file in files]
        if len(files) > most:
            sizes = np.array([file.size for file in files], float)
            hits = spread(sizes, most, f"files {self.strata.index(stratum)}")
            chosen = [(files[i], float(sizes.sum()) / most * count) for i, count in hits.items()]
        stratum.opened = len(chosen)
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


class _Cut(NamedTuple):
    """Some texts of a piece: the row they begin at, and whether the first of them began earlier."""

    row: int
    texts: Texts
    continues: bool


def _rows_by_file(parts: list[tuple[SourceFile, int, float, Part]]) -> dict[str, int] | None:
    """The rows of each file, from those of its parts; None if they are not known."""
    rows: dict[str, int] = {}
    for file, _, _, part in parts:
        if part.rows is None:
            return None
        rows[file.path] = rows.get(file.path, 0) + part.rows
    return rows


def _cut_small(texts: Texts, nbytes: int) -> Iterator[Texts]:
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


def _grid_length(texts: Texts) -> int:
    """The length of a block in a `Grid`: its text, and something for documents that are empty."""
    return texts.nbytes + len(texts.values)
