"""Plain text: a file per document, documents between separators, or a document per line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.documents import Skip, Texts, text_offsets
from tokenmill.reading.codecs import open_stream
from tokenmill.reading.content_hash import Content
from tokenmill.reading.files import Piece, RawRow, Source, SourceFile
from tokenmill.reading.formats.base import Format
from tokenmill.reading.formats.delimited import DelimitedFormat, with_blanks
from tokenmill.reading.raw_rows import shown_row
from tokenmill.reading.records import Raw
from tokenmill.reading.utf8 import no_text, one_text, take, valid_texts, whole_characters

LF, CR = b"\n\r"
LONG_TEXT = 16 << 20  # a document up to this size is held as a whole; a longer one is passed on in parts


class _Breaks(NamedTuple):
    """Where a line break, \\n or \\r\\n, belongs to a separator: one directly before it, one directly after it."""

    before: bool
    after: bool


NO_BREAKS = _Breaks(before=False, after=False)


class LinesFormat(DelimitedFormat):
    """A document per line."""

    has_fields = False

    def delimiter(self, source: Source) -> bytes | None:
        return b"\n"

    def long_bytes(self) -> int:
        return LONG_TEXT

    def parser(self, piece: Piece, source: Source) -> Callable[[Raw], Texts | None]:
        delimiter, breaks = self._delimiter(source), self._breaks(source)
        long_text = _LongText(delimiter, breaks)
        at_start = piece.is_first

        def parse(raw: Raw) -> Texts | None:
            nonlocal at_start
            follows, at_start = not at_start, at_start and raw.part and not raw.last
            if raw.part:
                return long_text.feed(raw.data, last=raw.last, follows=follows)
            return _delimited_texts(raw.data, delimiter, breaks, follows=follows)

        return parse

    def _breaks(self, source: Source) -> _Breaks:
        return NO_BREAKS

    def digest_option(self, source: Source) -> str | list[str] | None:
        return None


class TextFormat(LinesFormat):
    """A file per document, or documents between separators."""

    def delimiter(self, source: Source) -> bytes | None:
        return source.separator.encode() if source.separator else None

    def one_document(self, source: Source) -> bool:
        return self.delimiter(source) is None

    def read(self, piece: Piece, source: Source, block_bytes: int, content: Content) -> Iterator[Texts]:
        if self.one_document(source):
            return _read_document(piece.file, content)
        return super().read(piece, source, block_bytes, content)

    def raw_row(self, file: SourceFile, source: Source, row: int, most_bytes: int) -> RawRow | None:
        if not self.one_document(source):
            return super().raw_row(file, source, row, most_bytes)
        return _head_of_document(file, most_bytes) if row == 0 else None

    def _breaks(self, source: Source) -> _Breaks:
        """A separator that begins or ends with a line break has it on that side already."""
        separator = source.separator or ""
        if source.separator_newlines == "keep":
            return NO_BREAKS
        return _Breaks(before=not separator.startswith(("\n", "\r")), after=not separator.endswith("\n"))

    def digest_option(self, source: Source) -> str | list[str] | None:
        if source.separator is None or self._breaks(source) == NO_BREAKS:
            return source.separator
        return [source.separator, source.separator_newlines]


FORMATS: dict[str, Format] = {"text": TextFormat("text"), "lines": LinesFormat("lines")}


def _read_document(file: SourceFile, content: Content) -> Iterator[Texts]:
    """A whole file as one document, in parts of up to 16 MB."""
    part_bytes = LONG_TEXT if file.codec else min(file.size + 1, LONG_TEXT)
    long_text = _LongText(b"")
    with open_stream(file, content) as stream:
        data = stream.read(part_bytes)
        at_end = False
        while not at_end:
            following = stream.read(part_bytes)
            at_end = not following
            with content.parsing():
                texts = long_text.feed(data, last=at_end)
            if texts is not None:
                yield texts
            data = following


def _head_of_document(file: SourceFile, most_bytes: int) -> RawRow:
    head = b""
    with open_stream(file) as stream:
        while len(head) <= most_bytes and (fresh := stream.read(most_bytes + 1 - len(head))):
            head += fresh
    return shown_row(head, most_bytes)


def _delimited_texts(data: bytes, delimiter: bytes, breaks: _Breaks, *, follows: bool) -> Texts:
    """The documents between delimiters. An empty one is a blank row, not a document.

    `follows` is whether a delimiter comes before the first of them.
    """
    if delimiter == b"\n" and b"\r\n" in data:
        data = data.replace(b"\r\n", b"\n")
    import pyarrow.compute as pc

    values = pc.list_flatten(pc.split_pattern(one_text(data), delimiter.decode()))
    is_ended = data.endswith(delimiter)
    if is_ended:
        values = values.slice(0, len(values) - 1)
    if breaks != NO_BREAKS:
        values = _without_breaks(values, breaks, first=follows, last=is_ended)
    rows = len(values)
    lengths = np.diff(text_offsets(values))
    blank = np.flatnonzero(lengths == 0)
    if not len(blank):
        texts, skips = valid_texts(values, None)
        return Texts(texts, rows, skips)
    filled = np.flatnonzero(lengths)
    texts, skips = valid_texts(take(values, filled), filled)
    return Texts(texts, rows, with_blanks(skips, blank.tolist()))


def _without_breaks(values: pa.Array, breaks: _Breaks, *, first: bool, last: bool) -> pa.Array:
    """The values without the line breaks that belong to separators: one at the start of each value, one at its end.

    `first` is whether a separator comes before the first value, `last` whether one comes after the last.
    """
    if not len(values):
        return values
    offsets = text_offsets(values)
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    starts, ends = offsets[:-1].copy(), offsets[1:].copy()
    after, before = np.full(len(starts), breaks.after), np.full(len(starts), breaks.before)
    after[0] &= first
    before[-1] &= last

    def holds(at: npt.NDArray[np.int64], byte: int) -> npt.NDArray[np.bool_]:
        """Whether there is such a byte of the value at these places."""
        inside = (at >= starts) & (at < ends)
        inside[inside] = data[at[inside]] == byte
        return inside

    starts += after & holds(starts, CR) & holds(starts + 1, LF)
    starts += after & holds(starts, LF)
    has_break = before & holds(ends - 1, LF)
    has_return = has_break & holds(ends - 2, CR)
    ends -= has_break.astype(np.int64) + has_return
    kept = np.ones(len(data), np.bool_)
    for width in (1, 2):
        kept[starts[starts - offsets[:-1] >= width] - width] = False
        kept[ends[offsets[1:] - ends >= width] + width - 1] = False
    new = np.concatenate(([0], np.cumsum(ends - starts)))
    text = data[offsets[0] : offsets[-1]][kept[offsets[0] : offsets[-1]]]
    return pa.Array.from_buffers(values.type, len(values), [None, pa.py_buffer(new), pa.py_buffer(text)])


class _LongText:
    """A document that comes in parts. Each part ends at a whole character and is passed on at once.

    A document with invalid UTF-8 ends in a skip at row 0, also if parts of it were passed on: the consumer of these Texts
    drops what it has of the document.
    """

    def __init__(self, delimiter: bytes, breaks: _Breaks = NO_BREAKS) -> None:
        self.delimiter, self.breaks = delimiter, breaks
        self.rest = b""
        self.bad = False
        self.is_new = True

    def feed(self, data: bytes, *, last: bool, follows: bool = False) -> Texts | None:
        """The next part. `follows` is whether a delimiter comes before the document."""
        data = self.rest + data
        if self.is_new and follows and self.breaks.after:
            data = data.removeprefix(b"\r\n" if data.startswith(b"\r\n") else b"\n")
        if last:
            data = self._without_delimiter(data)
        cut = len(data) if last else self._cut(data)
        values, skips = valid_texts(one_text(data[:cut]), None)
        bad = self.bad or bool(skips)
        self.rest, self.bad, self.is_new = (b"", False, True) if last else (data[cut:], bad, False)
        if bad:
            return no_text(Skip(0, 1, "invalid utf-8", "somewhere in the document")) if last else None
        return Texts(values, 1) if last else Texts(values, 0, unfinished=True)

    def _without_delimiter(self, data: bytes) -> bytes:
        if not self.delimiter or not data.endswith(self.delimiter):
            return data
        data = data[: -len(self.delimiter)]
        if self.delimiter == b"\n":
            return data.removesuffix(b"\r")
        if self.breaks.before:
            return data.removesuffix(b"\r\n" if data.endswith(b"\r\n") else b"\n")
        return data

    def _cut(self, data: bytes) -> int:
        """Where a part ends that is passed on. What may be a line break before the delimiter is held back."""
        cut = whole_characters(data)
        if self.delimiter == b"\n" or self.breaks.before:
            while cut and data[cut - 1] in (LF, CR) and cut > len(data) - 2:
                cut -= 1
        return cut
