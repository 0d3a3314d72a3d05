"""A fast engine that is used for all documents except those with certain characters, which the reference encodes.

Fast engines and references may be built with different versions of Unicode. `selection.rare_characters` decides which
characters may be guarded; this module applies a guard.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tokenmill.documents import text_offsets
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines import make_engine
from tokenmill.encoding.engines.base import Engine, Ids, Offsets, offsets_of

if TYPE_CHECKING:
    import pyarrow as pa

Ranges = tuple[tuple[int, int], ...]  # of code points, both ends included, sorted


def guards(ranges: Ranges, text: str) -> bool:
    """Whether a text has a character of these ranges."""
    return _any_of(ranges).search(text) is not None


def without(text: str, ranges: Ranges) -> str:
    """A text with the characters of these ranges removed."""
    return _any_of(ranges).sub("", text)


@cache
def _any_of(ranges: Ranges) -> re.Pattern[str]:
    inside = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)
    return re.compile(f"[{inside}]" if inside else "(?!)")


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same characters as sorted ranges that do not touch."""
    result: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if result and low <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return tuple(result)


def describe(ranges: Ranges) -> str:
    """The characters in words."""
    count = sum(high - low + 1 for low, high in ranges)
    if count > 100_000:
        return "characters that Unicode has not assigned, or other rare ones"
    shown = ", ".join(f"U+{low:04X}" + (f"-{high:04X}" if high > low else "") for low, high in ranges[:3])
    return f"{count:,} rare {'character' if count == 1 else 'characters'} ({shown}{', ...' if len(ranges) > 3 else ''})"


def guarded(fast: Engine, definition: Definition, guard: Iterable[Sequence[int]]) -> Engine:
    """An engine behind its guard, or the engine itself if the guard is empty."""
    ranges = tuple((low, high) for low, high in guard)
    return GuardedEngine(fast, lambda: make_engine(definition.reference, definition), ranges) if ranges else fast


class GuardedEngine(Engine):
    """A fast engine, with the reference for documents that have a guarded character.

    The reference is constructed for the first such document.
    """

    def __init__(self, fast: Engine, reference: Callable[[], Engine], ranges: Ranges) -> None:
        self.name, self.traits = fast.name, fast.traits
        self._fast, self._make_reference = fast, reference
        self._reference: Engine | None = None
        self._lows, self._highs = (np.array(side, np.int64) for side in zip(*ranges, strict=True))
        self._second_bytes = _second_bytes(ranges)

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        documents = self._guarded_documents(values)
        if not len(documents):
            return self._fast.encode(values)
        if self._reference is None:
            self._reference = self._make_reference()
        is_guarded = np.zeros(len(values), bool)
        is_guarded[documents] = True
        fast, fast_offsets = self._fast.encode(_take(values, np.flatnonzero(~is_guarded)))
        slow, slow_offsets = self._reference.encode(_take(values, documents))
        lengths = np.empty(len(values), np.int64)
        lengths[~is_guarded], lengths[is_guarded] = np.diff(fast_offsets), np.diff(slow_offsets)
        offsets = offsets_of(lengths)
        ids = np.empty(int(offsets[-1]), np.uint32)
        from_reference = np.repeat(is_guarded, lengths)
        ids[~from_reference], ids[from_reference] = fast, slow
        return ids, offsets

    def _guarded_documents(self, values: pa.LargeStringArray) -> Offsets:
        """The documents with a guarded character. Usually none of the possible first bytes occurs at all."""
        bounds = text_offsets(values)
        data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[bounds[0] : bounds[-1]]
        positions = [np.empty(0, np.int64)]
        largest = int(data.max()) if len(data) else 0
        for first_byte, seconds in self._second_bytes.items():
            if first_byte > largest:
                continue
            at = np.flatnonzero(data == first_byte)
            if len(at) and first_byte >= 0xC0:
                at = at[seconds[data[at + 1]]]
            if len(at):
                points = _code_points(data, at, first_byte)
                place = np.searchsorted(self._lows, points, "right") - 1
                positions.append(at[(place >= 0) & (points <= self._highs[place])])
        return np.unique(np.searchsorted(bounds - bounds[0], np.concatenate(positions), "right") - 1)


def _second_bytes(ranges: Ranges) -> dict[int, npt.NDArray[np.bool_]]:
    """For each first byte that these characters have in UTF-8: the second bytes that may follow it."""
    possible: dict[int, npt.NDArray[np.bool_]] = {}
    for low, high in ranges:
        # Beyond ASCII, 64 neighbouring characters differ only in the last byte.
        for point in (*range(low, min(high, 0x7F) + 1), *range(low, high + 1, 64), high):
            if 0xD800 <= point < 0xE000:
                continue
            raw = chr(point).encode()
            seconds = possible.setdefault(raw[0], np.zeros(256, bool))
            if len(raw) > 1:
                seconds[raw[1]] = True
                if len(raw) == 2:
                    seconds[0x80:0xC0] = True
    return possible


def _code_points(data: npt.NDArray[np.uint8], at: Offsets, first_byte: int) -> Offsets:
    """The code points of the characters that start at these positions, all with the same first byte."""
    more = 0 if first_byte < 0x80 else 1 if first_byte < 0xE0 else 2 if first_byte < 0xF0 else 3
    points = np.full(len(at), first_byte & (0x7F, 0x1F, 0x0F, 0x07)[more], np.int64)
    for i in range(1, more + 1):
        points = points << 6 | (data[at + i] & 0x3F)
    return points


def _take(values: pa.LargeStringArray, indices: Offsets) -> pa.LargeStringArray:
    import pyarrow as pa

    selection = pa.Array.from_buffers(pa.int64(), len(indices), [None, pa.py_buffer(indices.astype(np.int64))])
    return values.take(selection)
