"""Evenly spaced sample points: over the bytes of many files, over weights, and over a stream of unknown length."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from tokenmill.reading import SourceFile

GOLDEN = 0.6180339887498949  # the fractional parts of its multiples stay evenly spread, however many there are

T = TypeVar("T")


def cell_count(file: SourceFile, cell: int) -> int:
    """How many cells of about `cell` bytes a file has. All cells of a file have the same size."""
    return max(1, round(file.size / cell))


def cell_size(file: SourceFile, cell: int) -> float:
    """Bytes per cell of this file."""
    return file.size / cell_count(file, cell)


def cells_of(files: list[SourceFile], cell: int, count: int) -> dict[tuple[int, int], int]:
    """`count` evenly spaced cells over all files: how often each (file, cell) was drawn."""
    ends = np.cumsum([file.size for file in files], dtype=np.float64)
    drawn: dict[tuple[int, int], int] = {}
    for at in _points(float(ends[-1]), count, f"cells {os.path.basename(files[0].path)}"):
        i = min(int(np.searchsorted(ends, at, "right")), len(files) - 1)
        inside = at - (ends[i] - files[i].size)
        key = i, min(int(inside / cell_size(files[i], cell)), cell_count(files[i], cell) - 1)
        drawn[key] = drawn.get(key, 0) + 1
    return drawn


def spread(weights: npt.NDArray[np.float64], count: int, seed: str) -> dict[int, int]:
    """`count` evenly spaced draws in proportion to the weights: how often each index was drawn."""
    ends = np.cumsum(weights)
    drawn = np.searchsorted(ends, _points(float(ends[-1]), count, seed), "right")
    indices, hits = np.unique(np.minimum(drawn, len(weights) - 1), return_counts=True)
    return dict(zip(indices.tolist(), hits.tolist(), strict=True))


def _points(total: float, count: int, seed: str) -> list[float]:
    """A random point in each of `count` equal intervals: avoids the periods of a corpus, and is reproducible."""
    chance = random.Random(seed)
    return [(i + chance.random()) * total / count for i in range(count)]


def golden(items: Iterable[T]) -> list[tuple[float, T]]:
    """The items with sort keys, in an order in which every prefix is an even sample. The first item has the key 0."""
    return sorted(((i * GOLDEN % 1, item) for i, item in enumerate(items)), key=lambda pair: pair[0])


class Grid(Generic[T]):
    """A sample of a stream of unknown length: the items that evenly spaced points fall into, so longer ones more often.

    When there are more than twice the wanted points, every other one is dropped. This bounds the memory.
    """

    def __init__(self, distance: int, points: int, seed: str) -> None:
        self.chance = random.Random(seed)
        self.distance, self.most, self.length = distance, points, 0
        self.first = self.chance.randrange(distance)
        self.items: list[tuple[int, int, T]] = []  # (start, end, item)
        self.points = 0  # that fall into the items

    def add(self, item: T, length: int) -> None:
        """Add the next item of the stream."""
        one = self.length, self.length + length, item
        self.length += length
        points = self._points_in(one)
        if points or (length and not self.items):  # keep one item until a point falls into another
            self.items.append(one)
        self.points += points
        while self.points > 2 * self.most:
            self.first += self.distance * self.chance.randrange(2)
            self.distance *= 2
            self.items = [one for one in self.items if self._points_in(one)]
            self.points = sum(map(self._points_in, self.items))

    def chosen(self) -> list[tuple[T, float]]:
        """The sampled items, in order, each with the share of the stream that it stands for."""
        hits = [i for i, one in enumerate(self.items) for _ in range(self._points_in(one))]
        hits = hits or list(range(len(self.items[:1])))
        count = min(len(hits), self.most)
        drawn = Counter(hits[int((i + self.chance.random()) * len(hits) / count)] for i in range(count))
        return [(self.items[i][2], times / count) for i, times in sorted(drawn.items())]

    def _points_in(self, one: tuple[int, int, T]) -> int:
        """How many of the points `first`, `first + distance`, ... fall into an item."""
        before, after = (max(0, -(-(at - self.first) // self.distance)) for at in one[:2])
        return after - before
