"""Plain text: a file per document, documents between separators, or a document per line."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow.compute as pc

from tokenmill.documents import Skip, Texts, text_offsets
from tokenmill.reading.codecs import open_stream
from tokenmill.reading.content_hash import Content
from tokenmill.reading.files import Piece, Source, SourceFile
from tokenmill.reading.formats.base import Format
from tokenmill.reading.formats.delimited import DelimitedFormat, with_blanks
from tokenmill.reading.records import Raw
from tokenmill.reading.utf8 import no_text, one_text, take, valid_texts, whole_characters

LONG_TEXT = 16 << 20  # a document up to this size is held as a whole; a longer one is passed on in parts


class LinesFormat(DelimitedFormat):
    """A document per line."""

    has_fields = False

    def delimiter(self, source: Source) -> bytes | None:
        return b"\n"

    def long_bytes(self) -> int:
        return LONG_TEXT

    def parser(self, piece: Piece, source: Source) -> Callable[[Raw], Texts | None]:
        delimiter = self._delimiter(source)
        long_text = _LongText(delimiter)

        def parse(raw: Raw) -> Texts | None:
            return long_text.feed(raw.data, last=raw.last) if raw.part else _delimited_texts(raw.data, delimiter)

        return parse

    def digest_option(self, source: Source) -> str | None:
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

    def digest_option(self, source: Source) -> str | None:
        return source.separator


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


def _delimited_texts(data: bytes, delimiter: bytes) -> Texts:
    """The documents between delimiters. An empty one is a blank row, not a document."""
    if delimiter == b"\n" and b"\r\n" in data:
        data = data.replace(b"\r\n", b"\n")
    values = pc.list_flatten(pc.split_pattern(one_text(data), delimiter.decode()))
    if data.endswith(delimiter):
        values = values.slice(0, len(values) - 1)
    rows = len(values)
    lengths = np.diff(text_offsets(values))
    blank = np.flatnonzero(lengths == 0)
    if not len(blank):
        texts, skips = valid_texts(values, None)
        return Texts(texts, rows, skips)
    filled = np.flatnonzero(lengths)
    texts, skips = valid_texts(take(values, filled), filled)
    return Texts(texts, rows, with_blanks(skips, blank.tolist()))


class _LongText:
    """A document that comes in parts. Each part ends at a whole character and is passed on at once.

    A document with invalid UTF-8 ends in a skip at row 0, also if parts of it were passed on: the consumer of these Texts
    drops what it has of the document.
    """

    def __init__(self, delimiter: bytes) -> None:
        self.delimiter = delimiter
        self.rest = b""
        self.bad = False

    def feed(self, data: bytes, *, last: bool) -> Texts | None:
        data = self.rest + data
        if last:
            data = self._without_delimiter(data)
        cut = len(data) if last else self._cut(data)
        values, skips = valid_texts(one_text(data[:cut]), None)
        bad = self.bad or bool(skips)
        self.rest, self.bad = (b"", False) if last else (data[cut:], bad)
        if bad:
            return no_text(Skip(0, 1, "invalid utf-8", "in a long document")) if last else None
        return Texts(values, 1) if last else Texts(values, 0, unfinished=True)

    def _without_delimiter(self, data: bytes) -> bytes:
        if not self.delimiter or not data.endswith(self.delimiter):
            return data
        data = data[: -len(self.delimiter)]
        return data.removesuffix(b"\r") if self.delimiter == b"\n" else data

    def _cut(self, data: bytes) -> int:
        cut = whole_characters(data)
        if self.delimiter == b"\n" and data[:cut].endswith(b"\r"):
            cut -= 1  # it may be the first half of a line end
        return cut
