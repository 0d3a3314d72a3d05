"""Which tokens go into which row, for each strategy, over any number of documents in bounded memory.

There are two kinds of plans. A *stream*, for `concat`, is a list of ranges of the store that are cut into rows end to end.
*Pieces*, for the other strategies, are ranges of one document each, with one or more pieces per row. Both are made in windows
of a few million documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.packing.best_fit import Numbers, best_fit, by_first_piece, fill_gaps
from tokenmill.packing.layout import Layout
from tokenmill.packing.stats import Tally
from tokenmill.store.store import Store
from tokenmill.store.stream import Documents, all_documents

Chosen = Callable[[Documents], npt.NDArray[np.bool_]]  # which of these documents belong to the view
Packable = Store | Documents  # what can be packed: a store, or documents whose starts and lengths are in memory
Columns = dict[str, npt.NDArray[np.generic]]

CONTINUES, CONTINUED = 1, 2  # the document continues in another row; it began in another row
WINDOW = 1 << 22  # pieces packed together: what best-fit can choose from, and about 250 MB of memory

STREAM_COLUMNS = {"runs": "int64", "run_ends": "int64"}
PIECE_COLUMNS = {"starts": "int64", "lengths": "int32", "flags": "uint8"}


class Pieces(NamedTuple):
    """Parts of single documents: their starts in the store's stream, lengths, and CONTINUES and CONTINUED flags."""

    starts: Numbers
    lengths: Numbers
    flags: npt.NDArray[np.uint8]


def columns_of(layout: Layout) -> dict[str, str]:
    """The columns of a plan and their dtypes."""
    if layout.strategy == "concat":
        return STREAM_COLUMNS | ({"row_starts": "int64"} if layout.row_start == "document" else {})
    return PIECE_COLUMNS | ({"row_ends": "int64"} if layout.strategy == "best_fit" else {})


def plan_rows(store: Packable, layout: Layout, chosen: Chosen | None, tally: Tally) -> Iterator[Columns]:
    """Yield the plan in parts, and count its statistics in `tally`."""
    if layout.strategy == "concat":
        return _stream(store, layout, chosen, tally)
    if layout.strategy == "best_fit":
        return _best_fit(store, layout, chosen, tally)
    return _one_piece_rows(store, layout, chosen, tally)


def count_rows(store: Packable, layout: Layout) -> Tally:
    """The statistics of all rows, counted without keeping a plan.

    Those of documents in memory equal those of their store as long as there are fewer than WINDOW pieces."""
    tally = Tally()
    for _ in plan_rows(store, layout, None, tally):
        pass
    return tally


class Included(NamedTuple):
    """Documents that go into rows: none is empty, and those to be truncated are cut short."""

    starts: Numbers
    lengths: Numbers
    truncated: npt.NDArray[np.bool_]


def included_documents(store: Packable, layout: Layout, chosen: Chosen | None, tally: Tally) -> Iterator[Included]:
    """The documents that go into rows, one block after another. Counts what is left out."""
    longest = layout.seq_len
    for documents in [store] if isinstance(store, Documents) else all_documents(store):
        starts, lengths = documents.starts, documents.lengths
        if chosen is not None:
            mine = chosen(documents)
            starts, lengths = starts[mine], lengths[mine]
        tally.add_documents(lengths)
        dropped = lengths < layout.min_doc_tokens
        if layout.long_docs == "drop":
            dropped |= lengths > longest
        tally.documents_dropped += int(dropped.sum())
        tally.dropped += int(lengths[dropped].sum())
        used = ~dropped & (lengths > 0)
        starts, lengths = starts[used], lengths[used]
        cut = (lengths > longest) & (layout.long_docs == "truncate")
        tally.documents_truncated += int(cut.sum())
        tally.truncated += int((lengths[cut] - longest).sum())
        lengths = np.where(cut, longest, lengths)
        if len(starts):
            yield Included(starts, lengths, cut)


# Pieces: pad, windows, best_fit.


def pieces(store: Packable, layout: Layout, chosen: Chosen | None, tally: Tally) -> Iterator[Pieces]:
    """Documents cut into pieces of at most one row, a stride apart, in order; at most WINDOW pieces at once."""
    longest, stride = layout.seq_len, layout.stride
    for starts, lengths, _ in included_documents(store, layout, chosen, tally):
        counts = np.maximum(-(-(lengths - longest) // stride), 0) + 1
        ends = np.cumsum(counts)
        tally.documents_split += int((counts > 1).sum())
        for low in range(0, int(ends[-1]), WINDOW):
            number = np.arange(low, min(low + WINDOW, int(ends[-1])))
            document = ends.searchsorted(number, "right")
            part = number - (ends - counts)[document]
            size = np.minimum(lengths[document] - part * stride, longest)
            flags = (part + 1 < counts[document]) * np.uint8(CONTINUES) | (part > 0) * np.uint8(CONTINUED)
            tally.repeated += int((part > 0).sum()) * (longest - stride)
            yield Pieces(starts[document] + part * stride, size, flags)


def _one_piece_rows(store: Packable, layout: Layout, chosen: Chosen | None, tally: Tally) -> Iterator[Columns]:
    """pad and windows: one piece per row. With buckets, rows are sorted by width, with a pass over the documents for each."""
    narrower = 0
    for width in layout.widths:
        before = tally.rows
        counted = Tally() if narrower else tally  # the first pass counts the documents
        for window in pieces(store, layout, chosen, counted):
            fits = (window.lengths > narrower) & (window.lengths <= width)
            starts, lengths, flags = (column[fits] for column in window)
            tally.rows += len(starts)
            tally.positions += len(starts) * width
            tally.padding += len(starts) * width - int(lengths.sum())
            yield {"starts": starts, "lengths": lengths.astype(np.int32), "flags": flags}
        narrower = width
        tally.widths.append((width, tally.rows - before))


def _best_fit(store: Packable, layout: Layout, chosen: Chosen | None, tally: Tally) -> Iterator[Columns]:
    window: list[Pieces] = []
    count = 0
    for some in pieces(store, layout, chosen, tally):
        window.append(some)
        count += len(some.starts)
        if count >= WINDOW:
            yield _packed(window, layout.seq_len, tally)
            window, count = [], 0
    if window:
        yield _packed(window, layout.seq_len, tally)


def _packed(window: list[Pieces], capacity: int, tally: Tally) -> Columns:
    """The pieces of one window, row by row. Pieces of a row, and the first pieces of rows, are in the order of the corpus."""
    starts, sizes, flags = (np.concatenate(column) for column in zip(*window, strict=True))
    window.clear()
    rows = best_fit(sizes.astype(np.int32), capacity)
    moved = fill_gaps(rows, sizes, flags > 0, capacity)
    if len(moved.pieces):
        stay = np.ones(len(rows), np.bool_)
        stay[moved.pieces] = False
        continues = moved.offsets + moved.sizes < sizes[moved.pieces]
        parts = flags[moved.pieces] | continues * np.uint8(CONTINUES) | (moved.offsets > 0) * np.uint8(CONTINUED)
        starts = np.concatenate((starts[stay], starts[moved.pieces] + moved.offsets))
        order = np.argsort(starts)
        starts, sizes = starts[order], np.concatenate((sizes[stay], moved.sizes))[order]
        flags = np.concatenate((flags[stay], parts))[order]
        rows = np.concatenate((rows[stay], moved.rows.astype(np.int32)))[order]
    rows = by_first_piece(rows)
    counts = np.bincount(rows)
    order = np.sort(rows.astype(np.int64) << 32 | np.arange(len(rows))) & 0xFFFFFFFF
    ends = tally.rows + tally.boundaries + np.cumsum(counts)  # tally.rows + tally.boundaries pieces came before
    tally.rows += len(counts)
    tally.boundaries += len(sizes) - len(counts)
    tally.positions += len(counts) * capacity
    tally.padding += len(counts) * capacity - int(sizes.sum())
    return {"starts": starts[order], "lengths": sizes[order].astype(np.int32), "flags": flags[order], "row_ends": ends}


# The stream: concat.


def _stream(store: Packable, layout: Layout, chosen: Chosen | None, tally: Tally) -> Iterator[Columns]:
    """The ranges of the store that make up the stream, adjacent ones joined; and where rows start, if at documents."""
    length = 0  # of the stream so far
    start, stop = -1, -1  # of the current range
    at_documents = _RowStarts(layout, tally) if layout.row_start == "document" else None
    for starts, lengths, cut in included_documents(store, layout, chosen, tally):
        before = length + np.cumsum(lengths) - lengths
        length += int(lengths.sum())
        stops = starts + lengths
        fresh = np.flatnonzero(starts != np.concatenate(([stop], stops[:-1])))
        runs, run_ends = np.append(start, starts[fresh]), before[fresh]
        first = int(start < 0)  # nothing comes before the first range
        start, stop = int(runs[-1]), int(stops[-1])
        columns: Columns = {"runs": runs[first:-1], "run_ends": run_ends[first:]}
        yield columns | ({"row_starts": at_documents.add(before, cut)} if at_documents else {})
    tally.stream = length
    if length:
        yield {"runs": np.array([start]), "run_ends": np.array([length])}
    if at_documents:
        yield {"row_starts": at_documents.finish(length)}
    else:
        stream_tally(included_documents(store, layout, chosen, Tally()), layout, tally, length)


class _RowStarts:
    """Rows that start at documents: each at the first document that begins after the end of the previous row."""

    def __init__(self, layout: Layout, tally: Tally) -> None:
        self.layout, self.tally = layout, tally
        self.last: list[int] = []  # the current row, which may be the last and short
        self.last_documents = 0  # documents that start in it
        self.last_cut = False  # whether the last document was truncated

    def add(self, before: Numbers, cut: npt.NDArray[np.bool_]) -> Numbers:
        """Take documents by their starts in the stream; returns the rows that are complete."""
        next_row = before.searchsorted(before + self.layout.seq_len).tolist()
        at = int(before.searchsorted(self.last[0] + self.layout.seq_len)) if self.last else 0
        self.last_documents += min(at, len(before))
        cut_before, self.last_cut = np.append(self.last_cut, cut), bool(cut[-1])
        first = []  # documents that rows start at
        while at < len(before):
            first.append(at)
            at = next_row[at]
        if not first:
            return np.empty(0, np.int64)
        rows = np.concatenate((self.last, before[first])).astype(np.int64)
        self._count_cuts(np.diff(rows) - self.layout.seq_len, cut_before[first[0 if self.last else 1 :]])
        self.tally.boundaries += first[-1] - first[0] - (len(first) - 1) + max(self.last_documents - 1, 0)
        self.last, self.last_documents = [int(rows[-1])], len(before) - first[-1]
        self.tally.rows += len(rows) - 1
        return rows[:-1]

    def finish(self, length: int) -> Numbers:
        """The last row, unless it is short and the layout drops short rows."""
        tally, seq_len = self.tally, self.layout.seq_len
        rows = np.array(self.last, np.int64)
        if self.last:
            beyond = length - self.last[0] - seq_len
            if beyond < 0 and self.layout.tail == "drop":
                tally.dropped += seq_len + beyond
                tally.documents_dropped += self.last_documents
                rows = rows[:0]
            else:
                self._count_cuts(np.array([max(beyond, 0)]), np.array([self.last_cut]))
                tally.padding += max(-beyond, 0)
                tally.boundaries += self.last_documents - 1
                tally.rows += 1
        tally.positions = tally.rows * seq_len
        return rows

    def _count_cuts(self, tokens: Numbers, already_cut: npt.NDArray[np.bool_]) -> None:
        self.tally.truncated += int(tokens.sum())
        self.tally.documents_truncated += int(((tokens > 0) & ~already_cut).sum())


def stream_tally(documents: Iterable[Included], layout: Layout, tally: Tally, length: int) -> None:
    """Count the statistics of a stream of these documents, `length` tokens in all, that is cut into rows."""
    seq_len, stride = layout.seq_len, layout.stride
    rows = stream_rows(length, layout)
    placed = min(length, (rows - 1) * stride + seq_len) if rows else 0
    before = 0
    for _, lengths, _ in documents:
        starts = before + np.cumsum(lengths) - lengths
        before += int(lengths.sum())
        stops = np.minimum(starts + lengths, placed)
        tally.documents_dropped += int((starts >= placed).sum())
        if rows:
            row = np.minimum(starts // stride, rows - 1)  # the last row that could hold all of it
            tally.documents_split += int(((row * stride + seq_len < stops) & (starts < placed)).sum())
            high = np.minimum((starts - 1) // stride, rows - 1)
            low = np.maximum((starts - seq_len) // stride + 1, 0)
            tally.boundaries += int(np.maximum(high - low + 1, 0).sum())
    tally.rows = rows
    tally.positions = rows * seq_len
    tally.dropped += length - placed
    tally.padding = max(0, (rows - 1) * stride + seq_len - length) if rows else 0
    tally.repeated = tally.positions - tally.padding - placed


def stream_rows(length: int, layout: Layout) -> int:
    """The number of rows of a stream of `length` tokens."""
    beyond = length - layout.seq_len
    if layout.tail == "drop":
        return beyond // layout.stride + 1 if beyond >= 0 else 0
    return max(0, -(-beyond // layout.stride)) + 1 if length else 0
