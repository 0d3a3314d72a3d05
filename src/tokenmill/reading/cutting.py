"""Where a stream of bytes is cut into segments: after whole records, however the bytes arrive.

A border is the end of a record: a line, a text with its separator, or a row of csv with its line break. Each format with borders
has a finder of them, which is given the stream in order and remembers what it must.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.io import disk
from tokenmill.reading.files import Source

READ_BYTES = 1 << 20
FIELD_MARKS = {"csv": ",", "tsv": "\t"}  # formats with a header, which is repeated in each segment
HEADER_BYTES = 1 << 16
LF, CR = b"\n\r"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Written(NamedTuple):
    """A segment that was written: its rows and bytes, and a digest of it."""

    rows: int
    nbytes: int
    digest: str


class Found(NamedTuple):
    """The borders in some bytes, ascending, and how many of the bytes are settled: the rest needs the bytes after it."""

    borders: npt.NDArray[np.int64]
    settled: int


class Finder(Protocol):
    """Finds the borders of a stream."""

    def find(self, data: bytes, *, is_last: bool) -> Found:
        """The borders in the next bytes. What was not settled is given again, with more after it, unless it `is_last`."""
        ...


def finder_for(source: Source) -> Finder | None:
    """The finder for standard input; None if it cannot be cut: one document, or a format that is read from its end."""
    if source.format in FIELD_MARKS:
        return CsvRows(FIELD_MARKS[source.format].encode())
    if source.format in ("jsonl", "lines"):
        return Delimiters(b"\n")
    if source.format == "text" and source.separator:
        return Delimiters(source.separator.encode())
    return None


def field_mark(source: Source, format: str, head: bytes) -> str:
    """What is between the fields of a file that begins like this: a comma, unless its header has the fields with another mark."""
    if source.delimiter is not None or format != "csv":
        return source.delimiter or FIELD_MARKS[format]
    text = io.StringIO(head.decode("utf-8-sig", "surrogateescape"), newline="")
    headers = {mark: next(filter(None, csv.reader(text, delimiter=mark)), []) for mark in ",;\t|" if not text.seek(0)}
    fitting = (mark for mark, names in headers.items() if set(source._fields) <= set(names))
    return next(fitting, max(headers, key=lambda mark: len(headers[mark]) > 1))


class Cutter:
    """Cuts a stream after the first record that ends at or beyond a size."""

    def __init__(self, raw: BinaryIO, finder: Finder, *, has_header: bool = False) -> None:
        self._raw, self._finder = raw, finder
        self._data, self._unsettled = b"", b""
        self._borders: npt.NDArray[np.int64] = np.empty(0, np.int64)  # in `_data`
        self._is_read = False
        self.is_at_end = False
        self._header = self._take_header() if has_header else b""

    def write(self, path: Path, most_bytes: int, most_rows: int | None) -> Written:
        """Write the next records to a file: about `most_bytes`, at most `most_rows`."""
        digest, size, rows = xxhash.xxh3_128(self._header), 0, 0
        with disk.open_to_write(path) as out:
            out.write(self._header)
            while self._fill():
                last = int(np.searchsorted(self._borders, most_bytes - size))
                if most_rows is not None:
                    last = min(last, max(most_rows - rows, 1) - 1)
                is_cut = last < len(self._borders)
                rows += last + 1 if is_cut else len(self._borders)
                part = self._take(int(self._borders[last]) if is_cut else len(self._data))
                digest.update(part)
                out.write(part)
                size += len(part)
                if is_cut:
                    break
        self.is_at_end = not self._fill()
        return Written(rows, len(self._header) + size, digest.hexdigest())

    def _fill(self) -> bool:
        """Read on if there is nothing left of what was read. False at the end of the stream."""
        while not self._data and not self._is_read:
            fresh = self._raw.read(READ_BYTES)
            self._is_read = not fresh
            data = self._unsettled + fresh
            self._borders, settled = self._finder.find(data, is_last=self._is_read)
            self._data, self._unsettled = data[:settled], data[settled:]
        return bool(self._data)

    def _take(self, count: int) -> bytes:
        """The first `count` bytes of what was read."""
        part, self._data = self._data[:count], self._data[count:]
        self._borders = self._borders[self._borders > count] - count
        return part

    def _take_header(self) -> bytes:
        header = b""
        while self._fill():
            has_border = len(self._borders) > 0
            header += self._take(int(self._borders[0]) if has_border else len(self._data))
            if has_border:
                break
        return header


class Delimiters:
    """Borders after a delimiter: a line break, or the separator of texts. They are found from the left."""

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter

    def find(self, data: bytes, *, is_last: bool) -> Found:
        borders = self._after_each(data)
        if is_last:
            return Found(borders, len(data))
        begins_none = len(data) - len(self._delimiter) + 1  # from here on, a delimiter may begin that ends later
        return Found(borders, max(begins_none, int(borders[-1]) if len(borders) else 0))

    def _after_each(self, data: bytes) -> npt.NDArray[np.int64]:
        if len(self._delimiter) == 1:
            return np.flatnonzero(np.frombuffer(data, np.uint8) == self._delimiter[0]) + 1
        found = re.finditer(re.escape(self._delimiter), data)
        return np.fromiter((match.end() for match in found), np.int64)


class CsvRows:
    """Borders after a line break that is not in quotes. A blank line is no row, and belongs to the row after it.

    As csv is read everywhere: only a quote at the start of a field opens a quoted one, and two quotes in it are one.
    """

    def __init__(self, field_mark: bytes) -> None:
        self._starts_field = (field_mark[0], LF, CR)  # bytes after which a field starts
        self._previous = LF  # the last byte that was settled
        self._is_quoted = False  # whether that is in a quoted field
        self._is_start = True

    def find(self, data: bytes, *, is_last: bool) -> Found:
        if self._is_start and len(data) <= len(BYTE_ORDER_MARK) and not is_last:
            return Found(np.empty(0, np.int64), 0)
        starts_row = self._previous in (LF, CR) and not self._is_quoted
        starts, ends, settled = self._quoted_fields(data, is_last=is_last)
        if not self._is_quoted and not is_last and data[:settled].endswith(b"\r"):
            settled -= 1  # a line feed may follow
        codes = np.frombuffer(data, np.uint8, settled)
        breaks = np.flatnonzero((codes == LF) | (codes == CR))
        is_pair = codes[breaks] == CR
        is_pair &= np.append(codes, 0)[breaks + 1] == LF
        breaks = breaks[~is_pair]  # the line feed of a pair ends the row
        field = np.searchsorted(starts, breaks, "right") - 1
        breaks = breaks[(field < 0) | (breaks >= np.append(ends, 0)[field])]
        borders = breaks + 1
        borders = borders[~self._is_blank(codes, borders, starts_row=starts_row)]
        if settled:
            self._previous, self._is_start = data[settled - 1], False
        return Found(borders, settled)

    def _quoted_fields(self, data: bytes, *, is_last: bool) -> tuple[list[int], list[int], int]:
        """Where quoted fields start and end, and how many bytes are settled. Sets whether the last of these is in one."""
        starts: list[int] = [0] if self._is_quoted else []
        ends: list[int] = []
        at = data.find(b'"')
        while at >= 0:
            if not self._is_quoted:
                if self._opens(data, at):
                    starts.append(at)
                    self._is_quoted = True
            elif at + 1 == len(data) and not is_last:
                return starts, [*ends, len(data)], at  # another quote may follow
            elif data[at + 1 : at + 2] == b'"':
                at += 1
            else:
                ends.append(at)
                self._is_quoted = False
            at = data.find(b'"', at + 1)
        return starts, [*ends, len(data)] if self._is_quoted else ends, len(data)

    def _opens(self, data: bytes, at: int) -> bool:
        """Whether a quote is the first byte of its field."""
        if self._is_start and data[:at] == BYTE_ORDER_MARK:
            return True
        return (data[at - 1] if at else self._previous) in self._starts_field

    @staticmethod
    def _is_blank(
        codes: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], *, starts_row: bool
    ) -> npt.NDArray[np.bool_]:
        """Which of the rows that end here have nothing but a line break. `starts_row`: the first of them begins with `codes`."""
        if not len(ends):
            return np.empty(0, np.bool_)
        first = np.concatenate(([0], ends[:-1]))
        is_blank: npt.NDArray[np.bool_] = (ends - first == 1) | ((ends - first == 2) & (codes[first] == CR))
        is_blank[0] &= starts_row
        return is_blank
