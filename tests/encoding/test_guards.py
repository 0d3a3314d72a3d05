"""Ranges of characters: what is in them, outside of them, and how they are said."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.encoding.engines.guarded import describe, guards, merged, outside

spans = st.lists(
    st.tuples(st.integers(0, 0x10FFFF), st.integers(0, 300)).map(lambda span: (span[0], min(sum(span), 0x10FFFF))),
    max_size=5,
)


def points(ranges) -> set[int]:
    return {point for low, high in ranges for point in range(low, high + 1)}


def test_ranges_outside_of_others():
    assert outside(((1, 9), (20, 20), (30, 40)), ((0, 2), (4, 5), (20, 35))) == ((3, 3), (6, 9), (36, 40))
    assert outside(((1, 9),), ()) == ((1, 9),)
    assert outside((), ((1, 9),)) == ()


@settings(deadline=None)
@given(spans, spans)
def test_any_ranges_outside_of_any_others(some, others):
    some, others = merged(some), merged(others)
    assert points(outside(some, others)) == points(some) - points(others)


@settings(deadline=None)
@given(spans)
def test_merged_ranges_are_the_same_characters(ranges):
    found = merged(ranges)
    assert points(found) == points(ranges)
    assert all(high + 1 < low for (_, high), (low, _) in pairwise(found))


@settings(deadline=None)
@given(spans, st.text())
def test_a_text_is_guarded_if_one_of_its_characters_is(ranges, text):
    assert guards(tuple(ranges), text) == any(low <= ord(c) <= high for c in text for low, high in ranges)


def test_ranges_in_words():
    assert describe(((0x898, 0x898),)) == "1 rare character (U+0898)"
    assert describe(((1, 2), (5, 5), (7, 9), (12, 12))) == "7 rare characters (U+0001-0002, U+0005, U+0007-0009, ...)"
    assert describe(((0, 0x10FFFF),)) == "characters that Unicode has not assigned, or other rare ones"
