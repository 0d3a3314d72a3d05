"""Where the tokens of a row lie in the store: by arithmetic and a search for a stream, by looking it up for planned pieces."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tokenmill.errors import CorruptError
from tokenmill.packing.options import Layout
from tokenmill.packing.plan import Plan
from tokenmill.packing.planning import CONTINUED, CONTINUES, stream_rows
from tokenmill.store import Store
from tokenmill.store.stream import ends_within, spread

Numbers = npt.NDArray[np.int64]


class Stretches(NamedTuple):
    """Stretches of the store's stream, in the order in which they fill rows; none is empty."""

    rows: Numbers  # which of the rows asked for
    starts: Numbers
    lengths: Numbers
    filled: Numbers  # tokens of each row asked for


class RowPieces(NamedTuple):
    """What each row holds of each document."""

    rows: Numbers
    starts: Numbers
    lengths: Numbers
    continues: npt.NDArray[np.bool_]  # the token behind the piece, in `follows`, is of the same document
    follows: Numbers  # the token that follows it outside of the row, in the store's stream; -1 for none


class Geometry(Protocol):
    """Rows by number. `index` is always an array of valid row numbers."""

    def __len__(self) -> int: ...
    def width(self, index: Numbers) -> int: ...
    def stretches(self, index: Numbers) -> Stretches: ...
    def pieces(self, index: Numbers, stretches: Stretches) -> RowPieces: ...
    def seen(self, index: Numbers) -> Numbers: ...


class StreamRows:
    """Rows cut from a stream: the whole store, or the stretches of it that a plan names."""

    def __init__(self, store: Store, layout: Layout, plan: Plan | None) -> None:
        self.store, self.layout = store, layout
        self.columns = plan.columns if plan else {}
        self.length = plan.facts["stream"] if plan else store.num_tokens
        row_starts = self.columns.get("row_starts")
        self.count = len(row_starts) if row_starts is not None else stream_rows(self.length, layout)

    def __len__(self) -> int:
        return self.count

    def width(self, index: Numbers) -> int:
        return self.layout.seq_len

    def seen(self, index: Numbers) -> Numbers:
        return np.where(index > 0, self.layout.seq_len - self.layout.stride, 0)

    def stretches(self, index: Numbers) -> Stretches:
        first = self.columns["row_starts"].take(index) if "row_starts" in self.columns else index * self.layout.stride
        filled = np.minimum(self.length - first, self.layout.seq_len)
        rows = np.arange(len(index))
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

    def pieces(self, index: Numbers, stretches: Stretches) -> RowPieces:
        starts, stops = stretches.starts, stretches.starts + stretches.lengths
        counts, ends = ends_within(self.store, starts, stops)
        owner = np.repeat(np.arange(len(starts)), counts)
        inner = ends < stops[owner]
        inner[1:] &= (ends[1:] != ends[:-1]) | (owner[1:] != owner[:-1])  # an empty document ends where another does
        each = 1 + np.bincount(owner[inner], minlength=len(starts))
        last = np.cumsum(each) - 1
        begins = np.empty(int(each.sum()), np.int64)
        is_first = np.zeros(len(begins), np.bool_)
        is_first[last + 1 - each] = True
        begins[is_first], begins[~is_first] = starts, ends[inner]
        finishes = np.append(begins[1:], 0)
        finishes[last] = stops
        follows, continues = np.full(len(begins), -1), np.zeros(len(begins), np.bool_)
        if "row_starts" not in self.columns and len(begins):
            row_last = last[np.append(stretches.rows[1:] != stretches.rows[:-1], True)]
            after = self._places(index * self.layout.stride + stretches.filled)
            ended = np.zeros(len(starts), np.bool_)
            ended[owner[ends == stops[owner]]] = True
            follows[row_last] = after
            continues[row_last] = (after == finishes[row_last]) & ~ended[
                np.repeat(np.arange(len(starts)), each)[row_last]
            ]
        return RowPieces(np.repeat(stretches.rows, each), begins, finishes - begins, continues, follows)

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
            raise CorruptError(f"{self.starts.path} is not the plan of such rows; remove it and pack again")
        return Stretches(rows, self.starts.take(number), lengths, filled)

    def pieces(self, index: Numbers, stretches: Stretches) -> RowPieces:
        _, number = self._numbers(index)
        continues = (self.flags.take(number) & CONTINUES) > 0
        follows = np.where(continues, stretches.starts + stretches.lengths, -1)
        return RowPieces(stretches.rows, stretches.starts, stretches.lengths, continues, follows)

    def _numbers(self, index: Numbers) -> tuple[Numbers, Numbers]:
        """The pieces of these rows."""
        rows = np.arange(len(index))
        if self.row_ends is None:
            return rows, index
        low = np.where(index > 0, self.row_ends.take(np.maximum(index - 1, 0)), 0)
        counts = self.row_ends.take(index) - low
        return np.repeat(rows, counts), spread(low, counts)
