"""An engine that is right but for characters hardly any text holds: documents with one are left to the reference.

Fast engines and the reference do not always know the same Unicode: a combining mark that came with its latest version, a
control character that one drops and the other keeps. Where every difference a trial found goes away with such characters,
the engine is used for all other documents. Letters and digits that people write, emoji, and signs that the tokenizer's own
vocabulary spells are never guarded: an engine that differs on those is wrong.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from tokenmill.documents import text_offsets
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines import Engine, Ids, Offsets, make_engine

if TYPE_CHECKING:
    import pyarrow as pa

Ranges = tuple[tuple[int, int], ...]  # of code points, both ends included, in order
MOST_TEXTS = 2000  # that differ: more is no exception any more
MOST_CHARACTERS = 20_000  # in those texts
_RARE = frozenset({"Cc", "Cf", "Co", "Cn", "Mn", "Me", "Mc"})  # control, format, private, unassigned; marks
_AS_A_WHOLE = frozenset({"Cn", "Co"})  # a trial sees some of them, and what it finds holds for all
_CONTEXTS = ("{}", " {}", "a{0}b {0} {0}{0}\n{0}", "1{}2", "'{}s", "{0}\n\n{0}", "  {}", "x{0} y{0}", "中{}文")


def attribute(
    texts: Sequence[str], differ: Sequence[int], vocabulary: set[str], differing: Callable[[list[str]], list[int]]
) -> Ranges | None:
    """The characters that explain why some texts differ; None where none do, or not such as may be guarded.

    `differing` has both engines encode texts and tells which of these differ.
    """
    wrong = [texts[i] for i in differ]
    held = sorted({c for text in wrong for c in text if not (" " <= c <= "~" or c in "\t\n\r")})
    nameless = [c for c in held if unicodedata.category(c) in _AS_A_WHOLE]  # one stands for all
    held = [c for c in held if unicodedata.category(c) not in _AS_A_WHOLE] + nameless[:: len(nameless) // 500 + 1]
    if len(wrong) > MOST_TEXTS or len(held) > MOST_CHARACTERS:
        return None
    probes = [context.format(c) for c in held for context in _CONTEXTS]
    guilty = {held[i // len(_CONTEXTS)] for i in differing(probes)}
    if not all(_is_rare(c, vocabulary) for c in guilty):
        return None
    found = _whole_categories(guilty)
    left = [wrong[i] for i in differing([without(text, found) for text in wrong])]
    if left:  # it takes two of them, as where marks are put in order
        apart = set(differ)
        seen = set().union(*(text for i, text in enumerate(texts) if i not in apart))
        rare = [{c for c in text if unicodedata.category(c) in _RARE and c not in "\t\n\r"} for text in left]
        for some in ([of - seen - vocabulary for of in rare], [(of - seen) or of for of in rare]):
            found = _whole_categories(guilty.union(*some))
            if not differing([without(text, found) for text in wrong]):
                return found
        return None
    return found


def without(text: str, ranges: Ranges) -> str:
    return _any_of(ranges).sub("", text)


def guards(ranges: Ranges, text: str) -> bool:
    return _any_of(ranges).search(text) is not None


@cache
def _any_of(ranges: Ranges) -> re.Pattern[str]:
    inside = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)
    return re.compile(f"[{inside}]" if inside else "(?!)")


def describe(ranges: Ranges) -> str:
    """The characters, for people."""
    count = sum(high - low + 1 for low, high in ranges)
    if count > 100_000:
        return "characters that Unicode has not assigned, or other rare ones"
    shown = ", ".join(f"U+{low:04X}" + (f"-{high:04X}" if high > low else "") for low, high in ranges[:3])
    return f"{count:,} rare {'character' if count == 1 else 'characters'} ({shown}{', ...' if len(ranges) > 3 else ''})"


def guarded(fast: Engine, definition: Definition, guard: Iterable[Sequence[int]]) -> Engine:
    """An engine as it is, or behind a guard where there is one."""
    ranges = tuple((low, high) for low, high in guard)
    return GuardedEngine(fast, lambda: make_engine(definition.reference, definition), ranges) if ranges else fast


class GuardedEngine:
    """A fast engine, and the reference for the documents that hold a character the fast one is not trusted with."""

    def __init__(self, fast: Engine, reference: Callable[[], Engine], ranges: Ranges) -> None:
        self.name = fast.name
        self._fast, self._make_reference = fast, reference
        self._reference: Engine | None = None
        self._lows, self._highs = (np.array(side, np.int64) for side in zip(*ranges, strict=True))
        self._leads = _leads(ranges)

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        odd = self._odd(values)
        if not len(odd):
            return self._fast.encode(values)
        if self._reference is None:
            self._reference = self._make_reference()
        is_odd = np.zeros(len(values), bool)
        is_odd[odd] = True
        fast, fast_offsets = self._fast.encode(_taken(values, np.flatnonzero(~is_odd)))
        slow, slow_offsets = self._reference.encode(_taken(values, odd))
        lengths = np.empty(len(values), np.int64)
        lengths[~is_odd], lengths[is_odd] = np.diff(fast_offsets), np.diff(slow_offsets)
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        ids = np.empty(int(offsets[-1]), np.uint32)
        from_reference = np.repeat(is_odd, lengths)
        ids[~from_reference], ids[from_reference] = fast, slow
        return ids, offsets

    def _odd(self, values: pa.LargeStringArray) -> Offsets:
        """The documents with such a character. Nearly always the first bytes of them are nowhere to be seen."""
        bounds = text_offsets(values)
        data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[bounds[0] : bounds[-1]]
        found = [np.empty(0, np.int64)]
        largest = int(data.max()) if len(data) else 0
        for lead, seconds in self._leads.items():
            if lead > largest:
                continue
            at = np.flatnonzero(data == lead)
            if len(at) and lead >= 0xC0:
                at = at[seconds[data[at + 1]]]
            if len(at):
                points = _code_points(data, at, lead)
                place = np.searchsorted(self._lows, points, "right") - 1
                found.append(at[(place >= 0) & (points <= self._highs[place])])
        return np.unique(np.searchsorted(bounds - bounds[0], np.concatenate(found), "right") - 1)


def _is_rare(character: str, vocabulary: set[str]) -> bool:
    category, code = unicodedata.category(character), ord(character)
    if category in ("Cc", *_AS_A_WHOLE):
        return True
    if character in vocabulary or 0x1F000 <= code < 0x20000:  # emoji are not rare
        return False
    return category in _RARE or code >= 0x10000 or (category[0] in "PS" and code >= 0x600)


def _whole_categories(characters: Iterable[str]) -> Ranges:
    """Characters as ranges. Of those that nobody has assigned, or that are private, a trial sees a few: all are meant."""
    points = {ord(c) for c in characters}
    ranges = [(point, point) for point in points]
    for category in {unicodedata.category(chr(point)) for point in points} & _AS_A_WHOLE:
        ranges += _of_category(category)
    return merged(ranges)


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same characters in ranges that are in order and do not touch."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)


@cache
def _of_category(category: str) -> Ranges:
    ranges: list[tuple[int, int]] = []
    for point in range(sys.maxunicode + 1):
        if unicodedata.category(chr(point)) == category:
            if ranges and ranges[-1][1] == point - 1:
                ranges[-1] = (ranges[-1][0], point)
            else:
                ranges.append((point, point))
    return tuple(ranges)


def _leads(ranges: Ranges) -> dict[int, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """The first bytes such characters have in UTF-8, and which second bytes may follow each."""
    leads: dict[int, np.ndarray[tuple[int], np.dtype[np.bool_]]] = {}
    for low, high in ranges:
        # Beyond ASCII, 64 neighbours differ in nothing but the last byte.
        for point in (*range(low, min(high, 0x7F) + 1), *range(low, high + 1, 64), high):
            if 0xD800 <= point < 0xE000:
                continue
            raw = chr(point).encode()
            seconds = leads.setdefault(raw[0], np.zeros(256, bool))
            if len(raw) > 1:
                seconds[raw[1]] = True
                if len(raw) == 2:
                    seconds[0x80:0xC0] = True
    return leads


def _code_points(data: np.ndarray[tuple[int], np.dtype[np.uint8]], at: Offsets, lead: int) -> Offsets:
    """The code points that begin at some places, all with the same first byte."""
    more = 0 if lead < 0x80 else 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
    points = np.full(len(at), lead & (0x7F, 0x1F, 0x0F, 0x07)[more], np.int64)
    for i in range(1, more + 1):
        points = points << 6 | (data[at + i] & 0x3F)
    return points


def _taken(values: pa.LargeStringArray, indices: Offsets) -> pa.LargeStringArray:
    import pyarrow as pa

    wanted = pa.Array.from_buffers(pa.int64(), len(indices), [None, pa.py_buffer(indices.astype(np.int64))])
    return values.take(wanted)
