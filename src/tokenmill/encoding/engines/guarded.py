"""A fast engine that is used for all documents except those with certain characters, which the reference encodes.

Fast engines and references may be built with different versions of Unicode. `selection.proof` finds out which characters are
guarded; this module applies a guard.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tokenmill.documents import text_offsets
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines import engine_traits, make_engine
from tokenmill.encoding.engines.base import Engine, Ids, Offsets, distinct, interleaved

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 1 << 18  # bytes looked at together; they and what is computed from them stay in the cache of a core

Ranges = tuple[tuple[int, int], ...]  # of code points, both ends included, sorted
Mask = npt.NDArray[np.bool_]  # a flag for each code point


def mask_of(ranges: Iterable[Sequence[int]]) -> Mask:
    mask = np.zeros(0x110000, bool)
    for low, high in ranges:
        mask[low : high + 1] = True
    return mask


def ranges_of(mask: Mask) -> Ranges:
    """The characters of a mask as sorted ranges that do not touch."""
    borders = np.flatnonzero(np.diff(mask, prepend=False, append=False)).tolist()
    return tuple((low, high - 1) for low, high in zip(borders[::2], borders[1::2], strict=True))


def merged(ranges: Iterable[Sequence[int]]) -> Ranges:
    return ranges_of(mask_of(ranges))


def outside(ranges: Ranges, others: Ranges) -> Ranges:
    """The characters of some ranges that are not in others."""
    return ranges_of(mask_of(ranges) & ~mask_of(others))


def guards(ranges: Ranges, text: str) -> bool:
    """Whether a text has a character of these ranges."""
    return _any_of(ranges).search(text) is not None


@cache
def _any_of(ranges: Ranges) -> re.Pattern[str]:
    inside = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)
    return re.compile(f"[{inside}]" if inside else "(?!)")


def describe(ranges: Ranges) -> str:
    """The characters in words."""
    count = sum(high - low + 1 for low, high in ranges)
    if count > 100_000:
        return "characters that Unicode has not assigned, or other rare ones"
    shown = ", ".join(f"U+{low:04X}" + (f"-{high:04X}" if high > low else "") for low, high in ranges[:3])
    return f"{count:,} rare {'character' if count == 1 else 'characters'} ({shown}{', ...' if len(ranges) > 3 else ''})"


def guarded(fast: Engine, definition: Definition, guard: Iterable[Sequence[int]]) -> Engine:
    """An engine behind its guard, or the engine itself if the guard is empty."""
    ranges, reference = list(guard), definition.reference
    if not ranges:
        return fast
    return GuardedEngine(
        fast, lambda: make_engine(reference, definition), ranges, preloads=engine_traits(reference).can_fork
    )


class GuardedEngine(Engine):
    """A fast engine, with the reference for documents that have a guarded character.

    The reference is constructed for the first such document.
    """

    def __init__(
        self, fast: Engine, reference: Callable[[], Engine], guard: Iterable[Sequence[int]], *, preloads: bool = True
    ) -> None:
        self.name, self.traits = fast.name, fast.traits
        self._fast, self._make_reference = fast, reference
        self._reference: Engine | None = None
        self._left, self._preloads = 0, preloads
        self._is_guarded = mask_of(guard)
        self._first_two = _first_two_bytes(self._is_guarded)
        self._is_first = self._first_two.reshape(256, 256).any(axis=1)
        self._lowest = int(self._is_first.argmax())
        self._ascii = np.flatnonzero(self._is_guarded[:0x80]).tolist()

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        documents = self._guarded_documents(values)
        if not len(documents):
            return self._fast.encode(values)
        if self._reference is None:
            self._reference = self._make_reference()
        self._left += len(documents)
        is_guarded = np.zeros(len(values), bool)
        is_guarded[documents] = True
        fast = self._fast.encode(_take(values, np.flatnonzero(~is_guarded)))
        return interleaved(is_guarded, fast, self._reference.encode(_take(values, documents)))

    @property
    def left_to_reference(self) -> int:  # type: ignore[override]
        return self._left + self._fast.left_to_reference

    @property
    def device_lost(self) -> str:  # type: ignore[override]
        return self._fast.device_lost

    def preload(self) -> None:
        if self._preloads:
            self._reference = self._make_reference()

    def _guarded_documents(self, values: pa.LargeStringArray) -> Offsets:
        """The documents with a guarded character.

        This looks at every byte of the corpus, so it must cost next to nothing: text that is mostly ASCII is passed over in
        one comparison, most other scripts by their first byte, and of what is left the first two bytes are usually enough.
        """
        bounds = text_offsets(values)
        data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[bounds[0] : bounds[-1]]
        positions = [np.empty(0, np.int64), *(np.flatnonzero(data == byte) for byte in self._ascii)]
        if self._is_first.any() and len(data):
            at = np.concatenate([self._starts(data[low : low + CHUNK]) + low for low in range(0, len(data), CHUNK)])
            at = at[self._first_two.take(data.take(at).astype(np.uint16) << 8 | data.take(at + 1))]
            positions += [these[self._is_guarded[points]] for these, points in _code_points(data, at)]
        return distinct(np.searchsorted(bounds - bounds[0], np.concatenate(positions), "right") - 1)

    def _starts(self, data: npt.NDArray[np.uint8]) -> Offsets:
        """Where there may be the first byte of a guarded character beyond ASCII."""
        at = np.flatnonzero(data >= self._lowest)
        return at if len(at) < len(data) // 50 else at[self._is_first.take(data.take(at))]


def _first_two_bytes(mask: Mask) -> Mask:
    """For each pair of bytes, as first * 256 + second: whether a character beyond ASCII of this mask starts with it."""
    possible, codes = np.zeros(1 << 16, bool), np.flatnonzero(mask)
    codes = codes[(codes >= 0x80) & ((codes < 0xD800) | (codes > 0xDFFF))]
    of_two, of_three, of_four = np.split(codes, np.searchsorted(codes, (0x800, 0x10000)))
    possible.reshape(256, 256)[0xC0 | of_two >> 6] = True  # the second byte is the last one: any
    possible[(0xE0 | of_three >> 12) << 8 | 0x80 | of_three >> 6 & 0x3F] = True
    possible[(0xF0 | of_four >> 18) << 8 | 0x80 | of_four >> 12 & 0x3F] = True
    return possible


def _code_points(data: npt.NDArray[np.uint8], at: Offsets) -> Iterator[tuple[Offsets, npt.NDArray[np.int32]]]:
    """Positions of characters beyond ASCII and their code points, by the number of bytes they take."""
    first = data[at]
    for low, high, more in ((0xC2, 0xDF, 1), (0xE0, 0xEF, 2), (0xF0, 0xF4, 3)):
        is_such = (first >= low) & (first <= high)
        these = at[is_such]
        points = first[is_such].astype(np.int32) & (0x3F >> more)
        for i in range(1, more + 1):
            points = points << 6 | (data[these + i] & 0x3F)
        yield these, points


def _take(values: pa.LargeStringArray, indices: Offsets) -> pa.LargeStringArray:
    import pyarrow as pa

    # pa.array would import pandas, and masked arrays.
    return values.take(pa.Array.from_buffers(pa.int64(), len(indices), [None, pa.py_buffer(indices.astype(np.int64))]))
