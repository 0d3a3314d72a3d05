"""Where the tokens of a row lie in the store: by arithmetic and a search for a stream, by looking it up for planned pieces."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tokenmill.errors import CorruptError
from tokenmill.packing.layout import Layout
from tokenmill.packing.plan_file import Plan
from tokenmill.packing.strategies import CONTINUED, CONTINUES, stream_rows
from tokenmill.store import Store
from tokenmill.store.stream import ends_within, spread

Numbers = npt.NDArray[np.int64]
ROWS_AT_ONCE = 1024


class Stretches(NamedTuple):
    """Stretches of the store's stream, in the order in which they fill rows; none is empty."""

    rows: Numbers  # which of the rows asked for
    starts: Numbers
    lengths: Numbers
    filled: Numbers  # tokens of each row asked for
    planned: Numbers | None = None  # which pieces of the plan they are, for rows of pieces


class RowPieces(NamedTuple):
    """What rows hold of each document, laid out flat: row after row, a width of positions each."""

    rows: Numbers
    places: Numbers
    lengths: Numbers
    in_rows: Numbers  # how many pieces each row has


class Geometry(Protocol):
    """Rows by number. `index` is always an array of valid row numbers; `places` is where their tokens begin, laid out flat."""

    def __len__(self) -> int: ...

    def width(self, index: Numbers) -> int: ...

    def stretches(self, index: Numbers) -> Stretches: ...

    def pieces(self, stretches: Stretches, places: Numbers) -> RowPieces: ...

    def after(self, index: Numbers, stretches: Stretches, pieces: RowPieces) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """The token that follows each piece outside of its row, by its place in the store or -1; is it of that document?"""
        ...

    def seen(self, index: Numbers) -> Numbers:
        """How many tokens of each row were in the row before."""
        ...


class StreamRows:
    """Rows cut from a stream: the whole store, or the stretches of it that a plan names."""

    def __init__(self, store: Store, layout: Layout, plan: Plan | None) -> None:
        self.store, self.layout = store, layout
        self.columns = plan.columns if plan else {}
        self.length = plan.facts["stream"] if plan else store.num_tokens
        row_starts = self.columns.get("row_starts")
        self.count = len(row_starts) if row_starts is not None else stream_rows(self.length, layout)
        self._rows, self._full = np.arange(ROWS_AT_ONCE), np.full(ROWS_AT_ONCE, layout.seq_len)  # for most batches

    def __len__(self) -> int:
        return self.count

    def width(self, index: Numbers) -> int:
        return self.layout.seq_len

    def seen(self, index: Numbers) -> Numbers:
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

    def pieces(self, stretches: Stretches, places: Numbers) -> RowPieces:
        starts, stops = stretches.starts, stretches.starts + stretches.lengths
        begins = _laid_out(stretches, places)
        counts, ends = ends_within(self.store, starts, stops)
        inner = ends + np.repeat(begins - starts, counts)
        borders = np.sort(np.concatenate((begins, inner[ends < np.repeat(stops, counts)])))
        borders = borders[np.append(True, borders[1:] != borders[:-1])[: len(borders)]]  # empty documents end twice
        rows = places.searchsorted(borders, "right") - 1
        in_rows = np.bincount(rows, minlength=len(places))
        lengths = np.append(borders[1:], 0)[: len(borders)] - borders
        last = np.cumsum(in_rows) - 1
        lengths[last] = places + stretches.filled - borders[last]
        return RowPieces(rows, borders, lengths, in_rows)

    def after(self, index: Numbers, stretches: Stretches, pieces: RowPieces) -> tuple[Numbers, npt.NDArray[np.bool_]]:
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
        """Where tokens of this stream lie in the store; -1 behind the last."""
        there = tokens < self.length
        if not self.columns:
            return np.where(there, tokens, -1)
        some = tokens[there]
        runs = self.columns["run_ends"].first_above(some)
        begin = np.where(runs > 0, self.columns["run_ends"].take(np.maximum(runs - 1, 0)), 0)
        found = np.full(len(tokens), -1)
        found[there] = self.columns["runs"].take(runs) + some - begin
        return found


class PieceRows:
    """Rows of planned pieces: one each, or as many as `row_ends` says."""

    def __init__(self, store: Store, layout: Layout, plan: Plan) -> None:
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
        rows, number = self._numbers(index)
        lengths = self.lengths.take(number).astype(np.int64)
        filled = lengths if self.row_ends is None else np.bincount(rows, lengths, len(index)).astype(np.int64)
        if len(filled) and not 0 < filled.min() <= filled.max() <= self.layout.seq_len:
            raise CorruptError(f"{self.starts.path} is not the plan of such rows; remove it, and pack again")
        return Stretches(rows, self.starts.take(number), lengths, filled, number)

    def pieces(self, stretches: Stretches, places: Numbers) -> RowPieces:
        in_rows = np.bincount(stretches.rows, minlength=len(places))
        return RowPieces(stretches.rows, _laid_out(stretches, places), stretches.lengths, in_rows)

    def after(self, index: Numbers, stretches: Stretches, pieces: RowPieces) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        assert stretches.planned is not None
        continues = (self.flags.take(stretches.planned) & CONTINUES) > 0
        return np.where(continues, stretches.starts + stretches.lengths, -1), continues

    def _numbers(self, index: Numbers) -> tuple[Numbers, Numbers]:
        """The pieces of these rows."""
        rows = np.arange(len(index))
        if self.row_ends is None:
            return rows, index
        low = np.where(index > 0, self.row_ends.take(np.maximum(index - 1, 0)), 0)
        counts = self.row_ends.take(index) - low
        return np.repeat(rows, counts), spread(low, counts)


def _laid_out(stretches: Stretches, places: Numbers) -> Numbers:
    """Where stretches go: one behind the other from where their row begins."""
    if len(stretches.rows) == len(places):
        return places  # one each
    before = np.cumsum(stretches.lengths) - stretches.lengths
    row_first = stretches.rows.searchsorted(np.arange(len(places)))
    laid_out: Numbers = (places - before[row_first])[stretches.rows] + before
    return laid_out
