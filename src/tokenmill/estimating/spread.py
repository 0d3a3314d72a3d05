"""Places at even distances: over the bytes of many files, over weights, and in an order that can be stopped anywhere."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from tokenmill.reading import SourceFile

GOLDEN = 0.6180339887498949  # of its multiples, however many, none lie close together

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


def cell_count(file: SourceFile, cell: int) -> int:
    """How many cells of about `cell` bytes a file has; all of a file's are of one size."""
    return max(1, round(file.size / cell))


def cell_size(file: SourceFile, cell: int) -> float:
    """Bytes of a cell of this file."""
    return file.size / cell_count(file, cell)


def cells_of(files: list[SourceFile], cell: int, count: int) -> dict[tuple[int, int], int]:
    """`count` cells at even distances over all files, as (file, cell), and how often each was hit."""
    ends = np.cumsum([file.size for file in files], dtype=np.float64)
    found: dict[tuple[int, int], int] = {}
    for at in _places(float(ends[-1]), count, f"cells {os.path.basename(files[0].path)}"):
        i = min(int(np.searchsorted(ends, at, "right")), len(files) - 1)
        inside = at - (ends[i] - files[i].size)
        key = i, min(int(inside / cell_size(files[i], cell)), cell_count(files[i], cell) - 1)
        found[key] = found.get(key, 0) + 1
    return found


def spread(weights: npt.NDArray[np.float64], count: int, seed: str) -> dict[int, int]:
    """`count` draws at even distances, in proportion to weights: which, and how often."""
    ends = np.cumsum(weights)
    drawn = np.searchsorted(ends, _places(float(ends[-1]), count, seed), "right")
    which, hits = np.unique(np.minimum(drawn, len(weights) - 1), return_counts=True)
    return dict(zip(which.tolist(), hits.tolist(), strict=True))


def _places(total: float, count: int, seed: str) -> list[float]:
    """One place in each of `count` equal stretches: chance, so that no period of the corpus is met, but always the same."""
    chance = random.Random(seed)
    return [(i + chance.random()) * total / count for i in range(count)]


def golden(found: dict[K, V]) -> list[tuple[K, V]]:
    """The same pairs in an order of which every beginning is spread over the whole."""
    return [pair for _, pair in sorted(enumerate(found.items()), key=lambda one: one[0] * GOLDEN % 1)]


class Grid(Generic[T]):
    """Some items out of a row of unknown length, those in which points at even distances fall: the longer, the likelier.

    When there are twice too many points, every other one is dropped. So no more is held than twice what is wanted.
    """

    def __init__(self, distance: int, points: int, seed: str) -> None:
        self.chance = random.Random(seed)
        self.distance, self.most, self.length = distance, points, 0
        self.first = self.chance.randrange(distance)
        self.held: list[tuple[int, int, T]] = []  # where an item begins and ends

    def add(self, item: T, length: int) -> None:
        """The next item."""
        self.held.append((self.length, self.length + length, item))
        self.length += length
        if not self._points(self.held[-1]):
            last = self.held.pop()
            if not self.held and last[1] > last[0]:
                self.held.append(last)  # until there is a better one
        while sum(map(self._points, self.held)) > 2 * self.most:
            self.first += self.distance * self.chance.randrange(2)
            self.distance *= 2
            self.held = [one for one in self.held if self._points(one)]

    def chosen(self) -> list[tuple[T, float]]:
        """The items, in order, and the share of the whole each stands for."""
        hits = [i for i, one in enumerate(self.held) for _ in range(self._points(one))] or list(
            range(len(self.held[:1]))
        )
        count = min(len(hits), self.most)
        drawn = Counter(hits[int((i + self.chance.random()) * len(hits) / count)] for i in range(count))
        return [(self.held[i][2], times / count) for i, times in sorted(drawn.items())]

    def _points(self, one: tuple[int, int, T]) -> int:
        """Points at `first` and every `distance` after it, in an item."""
        before, after = (max(0, -(-(at - self.first) // self.distance)) for at in one[:2])
        return after - before
