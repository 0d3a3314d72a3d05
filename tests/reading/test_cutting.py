"""Streams are cut after whole records. Where depends on their bytes alone, not on how they arrive."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokenmill.reading.cutting import CsvRows, Cutter, Delimiters, Finder

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=10)
MOST_ROWS = st.none() | st.integers(1, 5)


class Raw:
    """A stream that gives as many bytes at a time as the sizes say, in turn."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self.data, self.sizes, self.turn = io.BytesIO(data), sizes, 0

    def read(self, _: int) -> bytes:
        self.turn += 1
        return self.data.read(self.sizes[self.turn % len(self.sizes)])


@pytest.fixture(scope="module")
def cut(tmp_path_factory) -> Callable[..., list[tuple[int, bytes]]]:
    """The rows and bytes of each segment of a stream."""
    path: Path = tmp_path_factory.mktemp("cut") / "segment"

    def segments(
        data: bytes,
        finder: Finder,
        sizes: list[int],
        most_bytes: int,
        most_rows: int | None,
        *,
        has_header: bool = False,
    ) -> list[tuple[int, bytes]]:
        cutter, found = Cutter(Raw(data, sizes), finder, has_header=has_header), []  # type: ignore[arg-type]
        while not cutter.is_at_end:
            rows, nbytes, _ = cutter.write(path, most_bytes, most_rows)
            found.append((rows, path.read_bytes()))
            assert nbytes == len(found[-1][1])
        return found

    return segments


@given(
    st.sampled_from([b"\n", b"\n\n", b"<|end|>", b"aba", "–".encode()]),
    st.lists(st.sampled_from([b"", b"a", b"b", b"\n", b"<", b"<|", b"\xe2", b"word", b"|>"]), max_size=40),
    SIZES,
    st.integers(1, 60),
    MOST_ROWS,
    st.randoms(),
)
def test_segments_end_after_a_delimiter(cut, delimiter, parts, sizes, most_bytes, most_rows, chance):
    """Records are those that a reader finds from the left of the whole."""
    data = b"".join(part + (delimiter if chance.random() < 0.4 else b"") for part in parts)
    found = cut(data, Delimiters(delimiter), sizes, most_bytes, most_rows)
    assert found == cut(data, Delimiters(delimiter), [7], most_bytes, most_rows)
    assert b"".join(part for _, part in found) == data
    whole = data.split(delimiter)
    assert [record for _, part in found[:-1] for record in part.split(delimiter)[:-1]] == whole[
        : sum(rows for rows, _ in found[:-1])
    ]
    assert found[-1][1].split(delimiter) == whole[sum(rows for rows, _ in found[:-1]) :] or not found[-1][1]
    for rows, part in found[:-1]:
        assert part.endswith(delimiter)
        assert len(part) >= most_bytes or rows == most_rows
        assert len(part) - len(part.split(delimiter)[-2]) - len(delimiter) < most_bytes
        assert most_rows is None or rows <= most_rows


def rows_of(data: bytes) -> list[list[str]]:
    lines = io.StringIO(data.decode("utf-8-sig"), newline="")
    return [row for row in csv.reader(lines) if row]


@given(
    st.lists(st.sampled_from(['"', '""', ",", "\n", "\r", "\r\n", "a", "bc", '"x"', '"\n"']), max_size=40).map("".join),
    SIZES,
    st.integers(1, 40),
    MOST_ROWS,
    st.booleans(),
)
@example('5" disk,"a\nb"\n"c\nd",e\n', [1], 1, None, False)
@example('"a ""quoted""\n""word",1\n2,3\n', [1], 1, None, False)
@example("\n\r\n1\r2\r\n\r\n3\n", [1], 1, None, False)
def test_segments_of_csv(cut, body, sizes, most_bytes, most_rows, has_mark):
    """Each segment has the header and whole rows, as a csv reader finds them in the whole."""
    data = (b"\xef\xbb\xbf" if has_mark else b"") + b'"te\nxt",id\n' + body.encode()
    found = cut(data, CsvRows(b","), sizes, most_bytes, most_rows, has_header=True)
    assert found == cut(data, CsvRows(b","), [7], most_bytes, most_rows, has_header=True)
    header, *rows = rows_of(data)
    seen: list[list[str]] = []
    for number, part in found:
        own_header, *own = rows_of(part)
        assert own_header == header
        assert part is found[-1][1] or len(own) == number
        assert most_rows is None or number <= most_rows
        seen += own
    assert seen == rows
