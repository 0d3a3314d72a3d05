"""Records out of bytes: however a file is cut, blocked or read, it gives the records that `bytes.split` gives."""

from __future__ import annotations

import io
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenmill.reading.records import splittable, whole_records

BOUNDLESS = 1 << 20
few_letters = st.lists(st.sampled_from(b"ab\nc"), max_size=80).map(bytes)
delimiters = st.lists(st.sampled_from(b"ab\nc"), min_size=1, max_size=5).map(bytes)


def expected(data: bytes, delimiter: bytes) -> list[bytes]:
    records = data.split(delimiter)
    return records if records[-1] else records[:-1]


def records(data: bytes, delimiter: bytes, cuts: list[int], block_bytes: int, long_bytes: int) -> list[bytes]:
    """The records of each range between cuts, one range after the other, long ones put together again."""
    found: list[bytes] = []
    edges: list[int | None] = [0, *sorted(cuts), None]
    for start, stop in pairwise(edges):
        assert start is not None
        begun: list[bytes] = []
        for raw in whole_records(io.BytesIO(data), delimiter, start, stop, block_bytes, long_bytes):
            if raw.part:
                begun.append(raw.data)
                if raw.last:
                    found.append(b"".join(begun).removesuffix(delimiter))
                    begun = []
                continue
            assert raw.data, "a block of no bytes"
            assert not begun, "a block inside a long record"
            found += expected(raw.data, delimiter)
        assert not begun, "a long record that never ended"
    return found


@settings(max_examples=80, deadline=None)
@given(
    few_letters,
    delimiters.filter(splittable),
    st.lists(st.integers(1, 100), max_size=8, unique=True),
    st.integers(1, 50),
    st.integers(1, 60),
)
@example(b"", b"\n", [1], 1, 1)
@example(b"\n\n\n", b"\n", [1, 2], 1, 1)
@example(b"aaab\n", b"ab\n", [1, 2, 3, 4], 1, 2)
@example(b"abcca", b"abcc", [1], 1, 1)
@example(
    b"c\nbb\naabbccc\naabcc\na\naabc\nac\naabbb\na\naaba\ncb\naabb\n\n\n\naab\nba",
    b"\naab",
    [10, 12, 20, 21, 48],
    1,
    20,
)
def test_any_ranges_give_every_record_once(data, delimiter, cuts, block_bytes, long_bytes):
    """Any data, delimiter, ranges, block size and bound on memory: every record, once, in order."""
    assert records(data, delimiter, cuts, block_bytes, long_bytes) == expected(data, delimiter)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300), st.binary(min_size=1, max_size=3).filter(splittable), st.integers(1, 64), st.data())
def test_any_bytes_cut_anywhere(data, delimiter, block_bytes, draw):
    """The same for bytes of every value, also where delimiters are as common as other bytes."""
    data = delimiter.join(data[i : i + 7] for i in range(0, len(data), 7))
    cuts = draw.draw(st.lists(st.integers(1, len(data) + 5), max_size=6, unique=True))
    assert records(data, delimiter, cuts, block_bytes, BOUNDLESS) == expected(data, delimiter)


@settings(max_examples=50, deadline=None)
@given(few_letters, delimiters, st.integers(1, 50), st.integers(5, 60))
@example(b"xaaax", b"aa", 1, 5)
@example(b"aaaaaaa", b"aa", 3, 5)
@example(b"x" * 20 + b"abab" + b"abaab" * 4, b"abab", 4, 5)
def test_overlapping_delimiters_read_whole(data, delimiter, block_bytes, long_bytes):
    """A delimiter that overlaps itself is found from the left, as `split` finds it, when read from the start."""
    assert records(data, delimiter, [], block_bytes, long_bytes) == expected(data, delimiter)


@pytest.mark.parametrize(
    ("delimiter", "can"),
    [(b"\n", True), (b"ab", True), (b"\r\n", True), (b"aa", False), (b"aba", False), (b"---", False), (b"-->", True)],
)
def test_which_delimiters_can_be_entered_in_the_middle(delimiter, can):
    """A delimiter that ends as it begins may be seen in two places: such a file stays whole."""
    assert splittable(delimiter) == can


@pytest.mark.parametrize("piece", range(1, 14))
def test_every_range_size_by_hand(piece):
    """Ranges of every size, down to one byte, with an empty record, a missing end and a delimiter of two bytes."""
    data = b"one\r\n\r\nthree\r\nfour"
    cuts = list(range(piece, len(data), piece))
    for block_bytes in range(1, 24):
        assert records(data, b"\r\n", cuts, block_bytes, BOUNDLESS) == [b"one", b"", b"three", b"four"]


def test_long_records_come_in_bounded_parts():
    """A record far over the bound is never held whole, and its neighbours are left alone."""
    data = b"first\n" + b"x" * 100_000 + b"\nlast\n"
    raws = list(whole_records(io.BytesIO(data), b"\n", 0, None, 100, 1000))
    assert max(len(raw.data) for raw in raws) < 4000
    assert records(data, b"\n", [], 100, 1000) == [b"first", b"x" * 100_000, b"last"]


class Trickle(io.BytesIO):
    """A stream that gives a few bytes at a time, however many are asked for, as compressed streams may."""

    def read(self, size=-1):
        return super().read(min(size, 7))

    def readinto(self, buffer):
        with memoryview(buffer)[:7] as few:
            return super().readinto(few)


@pytest.mark.parametrize("make_stream", [io.BytesIO, Trickle])
@pytest.mark.parametrize("block_bytes", [5, 64, 1000])
def test_records_of_all_lengths_through_one_buffer(make_stream, block_bytes):
    """Long records make the buffer grow, and short ones after them find it in order."""
    lengths = [0, 3, 900, 1, 1, 2500, 0, 40, 40, 7, 5000, *range(60)]
    data = b"\n".join(bytes([97 + i % 26]) * length for i, length in enumerate(lengths)) + b"\n"
    raws = list(whole_records(make_stream(data), b"\n", 0, None, block_bytes, 3000))
    assert b"".join(raw.data for raw in raws) == data
    assert sum(raw.part and raw.last for raw in raws) == 1
    assert all(raw.data.endswith(b"\n") for raw in raws if raw.last)
