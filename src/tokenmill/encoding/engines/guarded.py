"""A fast engine that is used for all documents except those with certain characters, which the reference encodes.

Fast engines and references may be built with different versions of Unicode. `selection.proof` finds out which are guarded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tokenmill.documents import flat_text
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines import engine_traits, make_engine
from tokenmill.encoding.engines.base import Engine, Ids, Offsets, documents_at, interleaved

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
    can_fork = engine_traits(reference).can_fork
    return GuardedEngine(fast, lambda: make_engine(reference, definition), ranges, preloads=can_fork)


class GuardedEngine(Engine):
    """A fast engine; the reference encodes documents with a guarded character. It is constructed for the first of them."""

    def __init__(
        self, fast: Engine, reference: Callable[[], Engine], guard: Iterable[Sequence[int]], *, preloads: bool = True
    ) -> None:
        self.name, self.traits = fast.name, fast.traits
        self._fast, self._make_reference, self._preloads = fast, reference, preloads
        self._left = 0
        self._is_guarded = mask_of(guard)
        first_two = _first_two_bytes(self._is_guarded)
        self._is_first, self._first_two = first_two.any(axis=1), first_two.ravel()
        self._lowest = int(self._is_first.argmax())

    @cached_property
    def _reference(self) -> Engine:
        return self._make_reference()

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        documents = self._guarded_documents(values)
        if not len(documents):
            return self._fast.encode(values)
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
            _ = self._reference

    def _guarded_documents(self, values: pa.LargeStringArray) -> Offsets:
        """The documents with a guarded character.

        This looks at every byte of the corpus, so it must cost next to nothing: text that is mostly ASCII is passed over in
        one comparison, most other scripts by their first byte, and of what is left the first two bytes are usually enough.
        """
        data, offsets = flat_text(values)
        starts = [np.empty(0, np.int64)]
        for start in range(0, len(data), CHUNK):
            chunk = data[start : start + CHUNK]
            at = np.flatnonzero(chunk >= self._lowest)
            if len(at) > CHUNK // 50:
                at = at[self._is_first.take(chunk.take(at))]
            starts.append(at + start)
        at = np.concatenate(starts)
        at = at[self._first_two.take(data.take(at).astype(np.uint16) << 8 | data.take(at + 1, mode="clip"))]
        return documents_at(at[self._is_guarded[_code_points(data, at)]], offsets)


def _first_two_bytes(mask: Mask) -> Mask:
    """Whether a character of this mask starts with a byte and goes on with another; of ASCII, whatever comes next."""
    possible, codes = np.zeros((256, 256), bool), np.flatnonzero(mask)
    possible[codes[codes < 0x80]] = True
    text = codes.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
    data = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
    first = np.flatnonzero(data >= 0xC0)
    possible[data[first], data[first + 1]] = True
    return possible


def _code_points(data: npt.NDArray[np.uint8], at: Offsets) -> npt.NDArray[np.int32]:
    """The code points of the characters that start at some places in UTF-8."""
    first = data[at]
    points = first.astype(np.int32)
    # Masks cut off the bits of the first byte that say how many more there are.
    for more, lowest, mask in ((1, 0xC0, 0x7FF), (2, 0xE0, 0xFFFF), (3, 0xF0, 0x1FFFFF)):
        longer = np.flatnonzero(first >= lowest)
        points[longer] = (points[longer] << 6 | data[at[longer] + more] & 0x3F) & mask
    return points


def _take(values: pa.LargeStringArray, indices: Offsets) -> pa.LargeStringArray:
    import pyarrow as pa

    # pa.array would import pandas, and masked arrays.
    return values.take(pa.Array.from_buffers(pa.int64(), len(indices), [None, pa.py_buffer(indices.astype(np.int64))]))
