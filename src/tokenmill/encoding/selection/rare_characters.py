"""Which characters explain why an engine differs from the reference, and whether they are rare enough to be guarded.

The engine and the reference may know different versions of Unicode: one knows a combining mark that the other does not,
or drops a control character that the other keeps. If all differences disappear with such characters, the engine is used
for all other documents. Letters and digits in use, emoji, and symbols in the tokenizer's own vocabulary are never
guarded: an engine that differs on those is wrong.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain

from tokenmill.encoding.engines.guarded import Ranges, merged, outside, without
from tokenmill.encoding.selection.probes import PICTOGRAPHS
from tokenmill.user_cache import cache_folder, read_cached, write_cached

MAX_TEXTS = 2000  # that differ
MAX_CHARACTERS = 20_000  # in those texts
_RARE = frozenset({"Cc", "Cf", "Co", "Cn", "Mn", "Me", "Mc"})  # control, format, private, unassigned; marks
_UNNAMED = frozenset({"Cn", "Co"})  # unassigned and private: some are tested, and the result holds for all of them
_UNNAMED_TESTED = 500
_EMPTY_PLANES = (0x40000, 0xDFFFF)  # nothing is planned for them
_CONTEXTS = (
    "{}", " {}", "a{0}b {0} {0}{0}\n{0}", "1{}2", "'{}s", "{0}\n\n{0}", "  {}", "x{0} y{0}", "中{}文", "{0}'s x{0}'ll {0}'M",
)  # fmt: skip

Compare = Callable[[list[str]], list[int]]  # encodes texts with both engines; returns the indices of those that differ


def explain_differences(
    texts: Sequence[str], differ: Sequence[int], vocabulary: set[str], compare: Compare
) -> Ranges | None:
    """Return the characters to guard, or None if an engine is wrong in a way that no guard covers.

    `differ` are the indices of the texts that differ, `vocabulary` the characters of the tokenizer's vocabulary.
    """
    wrong = [texts[i] for i in differ]
    suspects = _suspects(wrong)
    if len(wrong) > MAX_TEXTS or len(suspects) > MAX_CHARACTERS:
        return None
    probes = [context.format(c) for c in suspects for context in _CONTEXTS]
    guilty = {suspects[i // len(_CONTEXTS)] for i in compare(probes)}
    if not all(_is_rare(c, vocabulary) for c in guilty):
        return None
    ranges = _with_unnamed(guilty)
    unexplained = [wrong[i] for i in compare([without(text, ranges) for text in wrong])]
    if not unexplained:
        return ranges
    for more in _wrong_together(unexplained, _characters_except(texts, set(differ)), vocabulary):
        ranges = _with_unnamed(guilty | more)
        if not compare([without(text, ranges) for text in wrong]):
            return ranges
    return None


@cache
def unassigned() -> Ranges:
    """The characters that this Python's Unicode does not know, except pictographs. Documents with one are left to the reference.

    One of the libraries in play may know them, and another not. New pictographs are in wide use within a year, and nearly all
    tokenizers treat them like unassigned characters, so they are probed instead. To find all these takes 40 ms: they are cached.
    """
    path = cache_folder() / "proofs" / f"unassigned-{unicodedata.unidata_version}.json"
    cached = read_cached(path)
    if cached is not None:
        return tuple((low, high) for low, high in cached["ranges"])
    ranges = outside(_of_category("Cn"), (PICTOGRAPHS,))
    write_cached(path, {"ranges": ranges})
    return ranges


def _characters_except(texts: Sequence[str], indices: set[int]) -> set[str]:
    """The characters of all texts but those with these indices."""
    return set().union(*(text for i, text in enumerate(texts) if i not in indices))


def _wrong_together(texts: list[str], correct: set[str], vocabulary: set[str]) -> Iterator[set[str]]:
    """Sets of characters that may be wrong only next to each other, such as marks that have to be reordered.

    First the rare ones that no correct text has; then also all rare ones of a text that has no such character.
    """
    rare = [{c for c in text if unicodedata.category(c) in _RARE and c not in "\t\n\r"} for text in texts]
    yield set().union(*(characters - correct - vocabulary for characters in rare))
    yield set().union(*((characters - correct) or characters for characters in rare))


def _suspects(texts: Iterable[str]) -> list[str]:
    """The characters of texts that are not plain ASCII; a sample of the unassigned and private ones."""
    characters = sorted({c for text in texts for c in text if not (" " <= c <= "~" or c in "\t\n\r")})
    unnamed = [c for c in characters if unicodedata.category(c) in _UNNAMED]
    named = [c for c in characters if unicodedata.category(c) not in _UNNAMED]
    return named + unnamed[:: len(unnamed) // _UNNAMED_TESTED + 1]


def _is_rare(character: str, vocabulary: set[str]) -> bool:
    category, code = unicodedata.category(character), ord(character)
    if category == "Cc" or category in _UNNAMED:
        return True
    if character in vocabulary or 0x1F000 <= code < 0x20000:  # emoji are not rare
        return False
    is_new = unicodedata.ucd_3_2_0.category(character) == "Cn"
    return category in _RARE or code >= 0x10000 or is_new or (category[0] in "PS" and code >= 0x600)


def _with_unnamed(characters: Iterable[str]) -> Ranges:
    """Characters as ranges. If one of them is unassigned or private, all characters of that category are included."""
    points = {ord(c) for c in characters}
    ranges = [(point, point) for point in points]
    for category in {unicodedata.category(chr(point)) for point in points} & _UNNAMED:
        ranges += _of_category(category)
    return merged(ranges)


@cache
def _of_category(category: str) -> Ranges:
    low, high = _EMPTY_PLANES
    points = (
        point
        for point in chain(range(low), range(high + 1, sys.maxunicode + 1))
        if unicodedata.category(chr(point)) == category
    )
    empty = (_EMPTY_PLANES,) if category == "Cn" else ()
    return merged([*((point, point) for point in points), *empty])
