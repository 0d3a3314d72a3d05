"""Best-fit decreasing over millions of pieces, in seconds, without a loop over pieces.

Best-fit decreasing places the largest piece first, in the row with the least remaining space that fits it. Pieces of one size
are interchangeable, and so are rows with the same space: only the counts matter. The loop below therefore goes over sizes and
spaces and moves whole ranges of rows at once. The result is exactly best-fit decreasing: pieces of size s go to the rows with
the least space r >= s, r // s of them each (after the first, such a row still has the least space), then to rows with the next
larger space, then to new rows.

Cost: about 40 bytes of memory per piece, and about the time of sorting the pieces twice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


def best_fit(sizes: npt.NDArray[np.int32], capacity: int) -> npt.NDArray[np.int32]:
    """The row of each piece. Sizes are 1 to `capacity`."""
    space = (capacity - sizes).astype(np.uint16 if capacity < 1 << 16 else np.int32)
    largest_first = np.argsort(space, kind="stable")  # a radix sort for 16 bits
    rows = np.empty(len(sizes), np.int32)
    rows[largest_first] = _rows_by_size(np.bincount(sizes), capacity)
    return rows


class Moved(NamedTuple):
    """Parts of pieces that move to another row."""

    pieces: Numbers  # the piece of each part
    offsets: Numbers  # where the part starts in its piece
    sizes: Numbers
    rows: Numbers


def fill_gaps(rows: npt.NDArray[np.int32], sizes: Numbers, movable: npt.NDArray[np.bool_], capacity: int) -> Moved:
    """Dissolve rows of movable pieces, the emptiest first, and fill the widest gaps of other rows with their parts.

    Where most documents are longer than a row there are few small pieces, and best-fit leaves gaps. Only as many rows are
    dissolved as it takes to reach 99.9% fill. Pieces that are not movable stay where they are.
    """
    filled = np.bincount(rows, sizes).astype(np.int64)
    total = int(filled.sum())
    surplus = max(0, len(filled) - max(-(-total // capacity), total * 1000 // (capacity * 999)))
    candidates = filled < capacity
    candidates[rows[~movable]] = False
    dissolved = np.flatnonzero(candidates)
    dissolved = dissolved[np.argsort(filled[dissolved], kind="stable")][:surplus]
    gaps = capacity - filled
    gaps[dissolved] = 0
    widest = np.argsort(-gaps, kind="stable")
    gap_ends = np.cumsum(gaps[widest])
    pieces = np.flatnonzero(np.isin(rows, dissolved))
    piece_ends = np.cumsum(sizes[pieces])
    total_moved = int(piece_ends[-1]) if len(pieces) else 0
    cuts = np.union1d(piece_ends, gap_ends[gap_ends < total_moved])
    begins = cuts - np.diff(cuts, prepend=0)
    piece = piece_ends.searchsorted(begins, "right")
    return Moved(
        pieces[piece],
        begins - (piece_ends - sizes[pieces])[piece],
        cuts - begins,
        widest[gap_ends.searchsorted(begins, "right")],
    )


def _rows_by_size(counts: npt.NDArray[np.int64], capacity: int) -> npt.NDArray[np.int32]:
    """The rows of the pieces, in order from the largest piece to the smallest."""
    first, many, each = _moves(counts, capacity)
    pieces = many * each
    ends = np.cumsum(pieces)
    rows = np.arange(int(ends[-1]) if len(ends) else 0, dtype=np.int32)
    rows -= np.repeat((ends - pieces).astype(np.int32), pieces)
    rows //= np.repeat(each.astype(np.int32), pieces)
    rows += np.repeat(first.astype(np.int32), pieces)
    return rows


def _moves(counts: npt.NDArray[np.int64], capacity: int) -> tuple[npt.NDArray[np.int64], ...]:
    """Best-fit decreasing as moves: `many` rows from `first` on take `each` pieces of the current size."""
    moves: list[tuple[int, int, int]] = []
    ranges: dict[int, list[tuple[int, int]]] = {}  # space left -> ranges of rows: first, many
    spaces = _Spaces()
    total = 0

    def put(first: int, many: int, each: int, rest: int) -> None:
        moves.append((first, many, each))
        if rest:
            ranges.setdefault(rest, []).append((first, many))
            spaces.add(rest)

    for size in np.flatnonzero(counts)[::-1].tolist():
        left = int(counts[size])
        while left:
            space = spaces.least(size)
            if space:
                first, many = ranges[space].pop()
            else:
                space = capacity
                first, many = total, -(-left // (capacity // size))
                total += many
            each = space // size
            full = min(many, left // each)
            if full:
                put(first, full, each, space - each * size)
                left -= full * each
            if full < many and left:  # too few pieces left to fill this row
                put(first + full, 1, left, space - left * size)
                left, full = 0, full + 1
            if full < many:
                ranges[space].append((first + full, many - full))
            elif space < capacity and not ranges[space]:
                spaces.remove(space)
    table = np.array(moves, np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


class _Spaces:
    """The set of spaces that rows have left: bits in blocks of 1,024, so that a search for the least takes two steps."""

    def __init__(self) -> None:
        self.bits: dict[int, int] = {}
        self.blocks = 0  # bit b: whether block b has a bit set

    def add(self, space: int) -> None:
        block = space >> 10
        self.bits[block] = self.bits.get(block, 0) | 1 << (space & 1023)
        self.blocks |= 1 << block

    def remove(self, space: int) -> None:
        block = space >> 10
        self.bits[block] ^= 1 << (space & 1023)
        if not self.bits[block]:
            self.blocks ^= 1 << block

    def least(self, size: int) -> int:
        """The least space of at least `size`; 0 if there is none."""
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
    """The same rows, numbered from 0 in the order of their first pieces."""
    count = int(rows.max()) + 1 if len(rows) else 0
    first = np.full(count, len(rows), np.int32)
    first[rows[::-1]] = np.arange(len(rows) - 1, -1, -1, dtype=np.int32)  # the last write to a row is its first piece
    number = np.empty(count, np.int32)
    number[np.argsort(first)] = np.arange(count, dtype=np.int32)
    return number[rows]
