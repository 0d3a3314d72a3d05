"""Row numbers -> places in the store: by arithmetic and binary search for streams, by lookup for planned pieces."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.errors import CorruptError
from tokenmill.packing.best_fit import Numbers
from tokenmill.packing.layout import Layout
from tokenmill.packing.plan_file import RowPlan
from tokenmill.packing.strategies import CONTINUED, CONTINUES, stream_rows
from tokenmill.store.store import Store
from tokenmill.store.stream import DOCUMENTS_AT_ONCE, SHARDS_AT_ONCE, ends_within, spread

ROWS_AT_ONCE = 1024
ROWS_IN_TABLE = 1 << 20  # 8 MB


class Stretches(NamedTuple):
    """Ranges of the store's stream, in the order in which they fill rows; none is empty."""

    rows: Numbers  # the row of each, as an index into the requested rows
    starts: Numbers
    lengths: Numbers
    filled: Numbers  # tokens of each requested row
    planned: Numbers | None = None  # their numbers in the plan, for rows of pieces


class RowPieces(NamedTuple):
    """The part of each document in each row."""

    rows: Numbers
    begins: Numbers  # counted from the first token of the row
    lengths: Numbers
    in_rows: Numbers  # pieces of each row


class StreamRows:
    """Rows cut from a stream: the whole store, or the ranges of it that a plan lists.

    `index` holds valid row numbers.
    """

    def __init__(self, store: Store, layout: Layout, plan: RowPlan | None) -> None:
        self.store, self.layout = store, layout
        self.columns = plan.columns if plan else {}
        self.length = plan.facts["stream"] if plan else store.num_tokens
        row_starts = self.columns.get("row_starts")
        self.count = len(row_starts) if row_starts is not None else stream_rows(self.length, layout)
        self._rows = np.arange(ROWS_AT_ONCE)  # these two are reused for most batches
        self._full = np.full(ROWS_AT_ONCE, layout.seq_len)

    def __len__(self) -> int:
        return self.count

    def width(self, index: Numbers) -> int:
        return self.layout.seq_len

    def seen(self, index: Numbers) -> Numbers:
        """The tokens of each row that are also in the previous row."""
        return np.where(index > 0, self.layout.seq_len - self.layout.stride, 0)

    def stretches(self, index: Numbers) -> Stretches:
        count = len(index)
        if not self.columns and count <= ROWS_AT_ONCE and self.count - 1 not in index.tolist():
            return Stretches(self._rows[:count], index * self.layout.stride, self._full[:count], self._full[:count])
        first = self.columns["row_starts"].take(index) if "row_starts" in self.columns else index * self.layout.stride
        filled = np.minimum(self.length - first, self.layout.seq_len)
        rows = np.arange(count)
        if not self.columns:
            return Stretches(rows, first, filled, filled)
        run_ends = self.columns["run_ends"]
        low = run_ends.first_above(first)
        counts = run_ends.first_above(first + filled - 1) - low + 1
        rows, runs = np.repeat(rows, counts), spread(low, counts)
        end = run_ends.take(runs)
        begin = np.where(runs > 0, run_ends.take(np.maximum(runs - 1, 0)), 0)
        begin_here = np.maximum(begin, first[rows])
        lengths = np.minimum(end, (first + filled)[rows]) - begin_here
        return Stretches(rows, self.columns["runs"].take(runs) + begin_here - begin, lengths, filled)

    def pieces(self, stretches: Stretches) -> RowPieces:
        # All pieces together, as positions in rows that are laid out one after the other.
        starts, width = stretches.starts, self.layout.seq_len
        first = stretches.rows * width + _begins(stretches)
        counts, ends = self._ends_inside(starts, stretches.lengths)
        borders = np.concatenate((first, ends + np.repeat(first - starts, counts)))
        borders.sort()
        if not (distinct := borders[1:] != borders[:-1]).all():  # an empty document ends where the one before it does
            borders = np.concatenate((borders[:1], borders[1:][distinct]))
        rows = borders // width
        begins = borders - rows * width
        in_rows = np.bincount(rows, minlength=len(stretches.filled))
        lengths = np.empty_like(borders)
        np.subtract(borders[1:], borders[:-1], out=lengths[:-1])
        last = np.cumsum(in_rows) - 1
        lengths[last] = stretches.filled - begins[last]
        return RowPieces(rows, begins, lengths, in_rows)

    def _ends_inside(self, starts: Numbers, lengths: Numbers) -> tuple[Numbers, Numbers]:
        """The number of document ends in each range, and all of them in order; some may be at the start of their range."""
        if self._ends_before is None:
            return ends_within(self.store, starts, starts + lengths - 1)
        rows = starts // self.layout.stride
        low = self._ends_before[rows]
        counts = self._ends_before[rows + 1] - low
        return counts, self.store.stream_ends[spread(low, counts)]

    @cached_property
    def _ends_before(self) -> Numbers | None:
        """The number of document ends before each row: a search for every row, once, instead of two per row in every batch.

        None for rows that overlap, rows of a plan, and stores so large that their ends are not kept in memory.
        """
        plain = not self.columns and self.layout.stride == self.layout.seq_len and self.count <= ROWS_IN_TABLE
        if not plain or len(self.store) > DOCUMENTS_AT_ONCE or self.store.num_shards > SHARDS_AT_ONCE:
            return None
        starts = np.minimum(np.arange(self.count + 1) * self.layout.stride, self.length)
        return self.store.stream_ends.searchsorted(starts)

    def after(self, index: Numbers, stretches: Stretches, pieces: RowPieces) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """The place in the store of the token that follows each piece outside of its row (-1: none), and whether it continues
        the same document."""
        follows, continues = np.full(len(pieces.rows), -1), np.zeros(len(pieces.rows), np.bool_)
        if "row_starts" not in self.columns:
            last = np.append(stretches.rows[1:] != stretches.rows[:-1], True)[: len(stretches.rows)]
            stops = (stretches.starts + stretches.lengths)[last]
            next_tokens = self._places(index * self.layout.stride + stretches.filled)
            ended, _ = ends_within(self.store, stops - 1, stops)
            row_last = np.cumsum(pieces.in_rows) - 1
            follows[row_last] = next_tokens
            continues[row_last] = (next_tokens == stops) & (ended == 0)
        return follows, continues

    def _places(self, tokens: Numbers) -> Numbers:
        """The places of tokens of this stream in the store; -1 past the end."""
        inside = tokens < self.length
        if not self.columns:
            return np.where(inside, tokens, -1)
        tokens_inside = tokens[inside]
        runs = self.columns["run_ends"].first_above(tokens_inside)
        begin = np.where(runs > 0, self.columns["run_ends"].take(np.maximum(runs - 1, 0)), 0)
        places = np.full(len(tokens), -1)
        places[inside] = self.columns["runs"].take(runs) + tokens_inside - begin
        return places


class PieceRows:
    """Rows of planned pieces: one piece per row, or those up to the row's entry in `row_ends`. See StreamRows for the methods."""

    def __init__(self, store: Store, layout: Layout, plan: RowPlan) -> None:
        self.store, self.layout = store, layout
        self.starts, self.lengths, self.flags = (plan.columns[name] for name in ("starts", "lengths", "flags"))
        self.row_ends = plan.columns.get("row_ends")
        self.width_ends = np.cumsum([rows for _, rows in plan.facts["widths"]])

    def __len__(self) -> int:
        return len(self.starts if self.row_ends is None else self.row_ends)

    def width(self, index: Numbers) -> int:
        if not self.layout.buckets:
            return self.layout.seq_len
        widest = int(self.width_ends.searchsorted(index.max(), "right")) if len(index) else -1
        return self.layout.widths[widest]

    def seen(self, index: Numbers) -> Numbers:
        continued = (self.flags.take(index) & CONTINUED) > 0
        return np.where(continued, self.layout.seq_len - self.layout.stride, 0)

    def stretches(self, index: Numbers) -> Stretches:
        rows, numbers = self._piece_numbers(index)
        lengths = self.lengths.take(numbers).astype(np.int64)
        filled = lengths if self.row_ends is None else np.bincount(rows, lengths, len(index)).astype(np.int64)
        if len(filled) and not 0 < filled.min() <= filled.max() <= self.layout.seq_len:
            raise CorruptError(f"{self.starts.path} does not fit this packing; remove it and pack again")
        return Stretches(rows, self.starts.take(numbers), lengths, filled, numbers)

    def pieces(self, stretches: Stretches) -> RowPieces:
        in_rows = np.bincount(stretches.rows, minlength=len(stretches.filled))
        return RowPieces(stretches.rows, _begins(stretches), stretches.lengths, in_rows)

    def after(self, index: Numbers, stretches: Stretches, pieces: RowPieces) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        assert stretches.planned is not None
        continues = (self.flags.take(stretches.planned) & CONTINUES) > 0
        return np.where(continues, stretches.starts + stretches.lengths, -1), continues

    def _piece_numbers(self, index: Numbers) -> tuple[Numbers, Numbers]:
        """The row and the number in the plan of each piece of these rows."""
        rows = np.arange(len(index))
        if self.row_ends is None:
            return rows, index
        low = np.where(index > 0, self.row_ends.take(np.maximum(index - 1, 0)), 0)
        counts = self.row_ends.take(index) - low
        return np.repeat(rows, counts), spread(low, counts)


RowIndex = StreamRows | PieceRows


def _begins(stretches: Stretches) -> Numbers:
    """Where each stretch begins in its row: one after the other."""
    if len(stretches.rows) == len(stretches.filled):
        return np.zeros_like(stretches.starts)  # one stretch per row
    before = np.cumsum(stretches.lengths) - stretches.lengths
    row_first = stretches.rows.searchsorted(np.arange(len(stretches.filled)))
    begins: Numbers = before - before[row_first][stretches.rows]
    return begins
