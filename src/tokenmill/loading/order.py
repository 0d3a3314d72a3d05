"""The order of rows, without an index array however many rows there are.

A shuffle is a permutation computed on the fly from (seed, epoch, rows): rounds of invertible steps on numbers of just enough
bits; a result outside the range goes through the rounds again until it is inside. It is frozen, because resumed runs depend on
it. Cost: about 60 ns per row in blocks of thousands.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.packing.hashing import splitmix64

Numbers = npt.NDArray[np.int64]
ROUNDS = 6
BLOCK = 8192  # places of an epoch that are computed at once: half a millisecond
_MASK = (1 << 64) - 1


class Order:
    """The rows 0 to count - 1 in an endless sequence: in a different order each epoch, or always ascending."""

    def __init__(self, count: int, seed: int, *, shuffle: bool) -> None:
        self.count, self.seed, self.shuffle = count, seed, shuffle
        self._blocks: dict[tuple[int, int], Numbers] = {}

    def rows(self, start: int, stop: int) -> Numbers:
        """The rows at places `start` to `stop` of the sequence."""
        parts = []
        while start < stop:
            epoch, place = divmod(start, self.count)
            block, within = divmod(place, BLOCK)
            parts.append(self._block(epoch, block)[within : within + stop - start])
            start += len(parts[-1])
        return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _block(self, epoch: int, block: int) -> Numbers:
        rows = self._blocks.get((epoch, block))
        if rows is None:
            places = np.arange(block * BLOCK, min((block + 1) * BLOCK, self.count))
            rows = shuffled(places, self.count, self.seed, epoch) if self.shuffle else places
            if len(self._blocks) >= 4:
                self._blocks = {}
            self._blocks[epoch, block] = rows
        return rows


def shuffled(places: Numbers, count: int, seed: int, epoch: int) -> Numbers:
    """The rows at these places of an epoch: a permutation of 0 to count - 1."""
    bits = max(1, (count - 1).bit_length())
    mask, half = np.uint64((1 << bits) - 1), np.uint64((bits + 1) // 2)
    keys = [np.uint64(key) for key in _keys(seed, epoch, count)]

    def permuted(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        for turn in range(ROUNDS):
            values = values ^ (keys[2 * turn] & mask)
            values = values * (keys[2 * turn + 1] | np.uint64(1)) & mask
            values = values ^ (values >> half)
        return values

    rows = permuted(places.astype(np.uint64))
    while (outside := np.flatnonzero(rows >= np.uint64(count))).size:
        rows[outside] = permuted(rows[outside])
    return rows.astype(np.int64)


def _keys(seed: int, epoch: int, count: int) -> list[int]:
    key = 0
    for number in (seed, epoch, count):
        key = splitmix64(key ^ (number & _MASK))
    keys = []
    for _ in range(2 * ROUNDS):
        key = splitmix64(key)
        keys.append(key)
    return keys
