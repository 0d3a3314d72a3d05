"""Best-fit decreasing over millions of pieces, in seconds, without a loop over pieces.

Best-fit decreasing takes the largest piece first and puts it where the least room is left. Pieces of one size are alike,
and so are rows with the same room: what matters is how many there are of each. So the loop below goes over sizes and
rooms, moves whole ranges of rows at once, and is still exactly best-fit decreasing: pieces of size s go to the rows with
the least room r >= s, r // s of them each (after the first, such a row has the least room still), then to rows with the
next larger room, then to new ones.

Price: memory about 40 bytes a piece; time about that of sorting the pieces twice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


def best_fit(sizes: npt.NDArray[np.int32], capacity: int) -> npt.NDArray[np.int32]:
    """The row of each piece; sizes are 1 to `capacity`."""
    order = _largest_first(sizes, capacity)
    counts = np.bincount(sizes)
    rows = np.empty(len(sizes), np.int32)
    rows[order] = _rows_by_size(counts, capacity)
    return rows


class Moved(NamedTuple):
    """Parts of pieces in other rows than their piece was in."""

    pieces: Numbers  # whose part it is
    offsets: Numbers  # where in it
    sizes: Numbers
    rows: Numbers


def fill_gaps(rows: npt.NDArray[np.int32], sizes: Numbers, movable: npt.NDArray[np.bool_], capacity: int) -> Moved:
    """Give up rows of movable pieces, the emptiest first, and fill the widest gaps of others with their parts.

    Where most documents are longer than a row there are few small pieces, and best-fit leaves gaps. Only as many rows are
    given up as it takes to fill 99.9%; pieces that are not movable stay as they are.
    """
    filled = np.bincount(rows, sizes).astype(np.int64)
    total = int(filled.sum())
    surplus = max(0, len(filled) - max(-(-total // capacity), total * 1000 // (capacity * 999)))
    candidates = filled < capacity
    candidates[rows[~movable]] = False
    given_up = np.flatnonzero(candidates)
    given_up = given_up[np.argsort(filled[given_up], kind="stable")][:surplus]
    gaps = capacity - filled
    gaps[given_up] = 0
    widest = np.argsort(-gaps, kind="stable")
    gap_ends = np.cumsum(gaps[widest])
    pieces = np.flatnonzero(np.isin(rows, given_up))
    piece_ends = np.cumsum(sizes[pieces])
    need = int(piece_ends[-1]) if len(pieces) else 0
    cuts = np.union1d(piece_ends, gap_ends[gap_ends < need])
    begins = cuts - np.diff(cuts, prepend=0)
    which = piece_ends.searchsorted(begins, "right")
    return Moved(
        pieces[which],
        begins - (piece_ends - sizes[pieces])[which],
        cuts - begins,
        widest[gap_ends.searchsorted(begins, "right")],
    )


def _largest_first(sizes: npt.NDArray[np.int32], capacity: int) -> npt.NDArray[np.int64]:
    room = (capacity - sizes).astype(np.uint16 if capacity < 1 << 16 else np.int32)
    return np.argsort(room, kind="stable")  # up to 16 bits this is a radix sort


def _rows_by_size(counts: npt.NDArray[np.int64], capacity: int) -> npt.NDArray[np.int32]:
    """Rows for the pieces, largest first."""
    first, many, each = _moves(counts, capacity)
    pieces = many * each
    ends = np.cumsum(pieces)
    rows = np.arange(int(ends[-1]) if len(ends) else 0, dtype=np.int32)
    rows -= np.repeat((ends - pieces).astype(np.int32), pieces)
    rows //= np.repeat(each.astype(np.int32), pieces)
    rows += np.repeat(first.astype(np.int32), pieces)
    return rows


def _moves(counts: npt.NDArray[np.int64], capacity: int) -> tuple[npt.NDArray[np.int64], ...]:
    """Best-fit decreasing as moves: `many` rows from `first` on take `each` pieces of the size at hand."""
    moves: list[tuple[int, int, int]] = []
    ranges: dict[int, list[tuple[int, int]]] = {}  # room left -> ranges of rows: first, many
    rooms = _Rooms()
    total = 0

    def put(first: int, many: int, each: int, rest: int) -> None:
        moves.append((first, many, each))
        if rest:
            ranges.setdefault(rest, []).append((first, many))
            rooms.add(rest)

    for size in np.flatnonzero(counts)[::-1].tolist():
        left = int(counts[size])
        while left:
            room = rooms.least(size)
            if room:
                first, many = ranges[room].pop()
            else:
                room = capacity
                first, many = total, -(-left // (capacity // size))
                total += many
            each = room // size
            full = min(many, left // each)
            if full:
                put(first, full, each, room - each * size)
                left -= full * each
            if full < many and left:  # fewer pieces than a row would take
                put(first + full, 1, left, room - left * size)
                left, full = 0, full + 1
            if full < many:
                ranges[room].append((first + full, many - full))
            elif room < capacity and not ranges[room]:
                rooms.remove(room)
    table = np.array(moves, np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


class _Rooms:
    """The rooms that some row has: bits in blocks of 1,024, so that the least that is enough is found in two steps."""

    def __init__(self) -> None:
        self.bits: dict[int, int] = {}
        self.blocks = 0  # those with a bit set

    def add(self, room: int) -> None:
        block = room >> 10
        self.bits[block] = self.bits.get(block, 0) | 1 << (room & 1023)
        self.blocks |= 1 << block

    def remove(self, room: int) -> None:
        block = room >> 10
        self.bits[block] ^= 1 << (room & 1023)
        if not self.bits[block]:
            self.blocks ^= 1 << block

    def least(self, size: int) -> int:
        """The least room of at least `size`; 0 for none."""
        block = size >> 10
        here = self.bits.get(block, 0) >> (size & 1023)
        if here:
            return size + (here & -here).bit_length() - 1
        above = self.blocks >> (block + 1)
        if not above:
            return 0
        block += (above & -above).bit_length()
        bits = self.bits[block]
        return (block << 10) + (bits & -bits).bit_length() - 1


def by_first_piece(rows: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The same rows, numbered from 0 in the order in which their first pieces come."""
    count = int(rows.max()) + 1 if len(rows) else 0
    first = np.full(count, len(rows), np.int32)
    first[rows[::-1]] = np.arange(len(rows) - 1, -1, -1, dtype=np.int32)  # the last write to a row is its first piece
    number = np.empty(count, np.int32)
    number[np.argsort(first)] = np.arange(count, dtype=np.int32)
    return number[rows]
