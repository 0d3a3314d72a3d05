"""What a row of a file holds as it is stored, before it is parsed: for rows that gave no document."""

from __future__ import annotations

from typing import BinaryIO

from tokenmill.errors import InputError, UsageError
from tokenmill.reading.codecs import reading
from tokenmill.reading.cutting import READ_BYTES, Finder
from tokenmill.reading.files import RawRow, Source, SourceFile
from tokenmill.reading.formats import get_format
from tokenmill.reading.utf8 import whole_characters

__all__ = ["MARGIN", "RawRow", "find_record", "raw_row", "shown_row", "without_line_break"]

MARGIN = 3  # bytes of a record to find beyond those that are shown: a line break, and one that says that there is more


def raw_row(file: SourceFile, source: Source, row: int, most_bytes: int = 4096) -> RawRow:
    """What a row of a file holds, cut after `most_bytes` of UTF-8. Rows are counted from 0, as receipts count them.

    A line, a part between separators or a record of csv without its end; all of a file that is one document; the values of
    the chosen columns of a table. Bytes that are not UTF-8 become U+FFFD. A row that is not there is an InputError.

    Reads the file up to the row, about 1 MB at a time. Of a table it reads the batch of the row, and of parquet nothing
    before its row group.
    """
    if row < 0:
        raise UsageError(f"there is no row {row}: rows are counted from 0")
    with reading(file):
        found = get_format(file.format).raw_row(file, source, row, most_bytes)
    if found is None:
        raise InputError(f"{file.shown}: there is no row {row:,}; the file has changed since it was read")
    return found


def shown_row(data: bytes, most_bytes: int) -> RawRow:
    """The bytes of a row as text. Of a row that is longer than `most_bytes`, at least one more byte than that is given."""
    head = data[:most_bytes]
    if len(data) > most_bytes:
        head = head[: whole_characters(head)]
    text = head.decode("utf-8", "replace").encode()  # U+FFFD takes more bytes than what it replaces
    is_cut = len(data) > most_bytes or len(text) > most_bytes
    return RawRow(text[:most_bytes].decode("utf-8", "ignore"), is_cut)


def without_line_break(record: bytes) -> bytes:
    """A record without the one line break at its end: \\r\\n, \\n or \\r."""
    return record[:-2] if record.endswith(b"\r\n") else record[:-1] if record.endswith((b"\n", b"\r")) else record


def find_record(stream: BinaryIO, finder: Finder, number: int, most_bytes: int, before: bytes = b"") -> bytes | None:
    """The first `most_bytes` of a record, with what ends it; None if there are fewer records. Memory: a few MB.

    `finder` says where records end. Any of the bytes `before` at the start of a record are left out.
    """
    passed = 0  # records that end before `data`
    record = unsettled = b""
    is_last = False
    while not is_last:
        fresh = stream.read(READ_BYTES)
        is_last = not fresh
        data = unsettled + fresh
        borders, settled = finder.find(data, is_last=is_last)
        unsettled = data[settled:]
        ahead = number - passed  # borders before the record
        if ahead <= len(borders):
            start = int(borders[ahead - 1]) if ahead else 0
            has_end = ahead < len(borders)
            record += data[start : int(borders[ahead]) if has_end else settled]
            record = record.lstrip(before)[:most_bytes]
            if has_end or len(record) == most_bytes:
                return record
        passed += len(borders)
    return record or None
