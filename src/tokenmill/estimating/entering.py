"""How a file can be entered without reading what lies before: at any byte, at its parts, or only at its head."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import pyarrow as pa

from tokenmill.errors import InputError, UsageError
from tokenmill.reading import Source, SourceFile

COUNTED_BYTES = 256 << 20  # a row is named where no more than this lies before it
COUNTED_PARTS = 1000  # and where no more parts do
READ_BYTES = 1 << 16  # of a stream at a time: what it has consumed is known as often


def how_entered(file: SourceFile, source: Source) -> str:
    """At any byte, between records ("cells") or within the one document ("text"); at "parts"; or only at its "head"."""
    from tokenmill.reading.lines import delimiter_of
    from tokenmill.reading.records import splittable

    if file.codec or file.format in ("csv", "tsv"):
        return "head"
    if file.format == "arrow":
        from tokenmill.reading.tables import is_arrow_file

        try:
            return "parts" if is_arrow_file(file) else "head"
        except OSError:
            return "parts"
    if file.format == "parquet":
        return "parts"
    delimiter = delimiter_of(file, source)
    return "text" if delimiter is None else "cells" if splittable(delimiter) else "head"


class Part(NamedTuple):
    """A row group or a batch: about how much text is in it, its share of the file, and its rows where they are known."""

    text: int
    nbytes: float
    rows: int | None


def parts_of(file: SourceFile, source: Source) -> list[Part]:
    """The parts of a parquet or Arrow file, from its footer."""
    from tokenmill.reading.codecs import reading

    with reading(file):
        if file.format == "arrow":
            with pa.memory_map(file.path) as raw:
                count = pa.ipc.open_file(raw).num_record_batches
            return [Part(max(1, file.size // count), file.size / count, None)] * count if count else []
        import pyarrow.parquet as pq

        from tokenmill.reading.content_hash import text_columns

        metadata = pq.read_metadata(file.path)
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        texts = [1 + sum(one.total_uncompressed_size for one in text_columns(group, source.fields)) for group in groups]
        each = file.size / max(1, sum(texts))
        return [Part(text, text * each, group.num_rows) for text, group in zip(texts, groups, strict=True)]


def part_rows(file: SourceFile, start: int, stop: int) -> int:
    """Rows of some parts, from the footer or the batches' own heads."""
    if file.format == "arrow":
        with pa.memory_map(file.path) as raw:
            reader = pa.ipc.open_file(raw)
            return sum(reader.get_batch(i).num_rows for i in range(start, stop))
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(file.path)
    return sum(metadata.row_group(i).num_rows for i in range(start, stop))


def arrow_rows(file: SourceFile, most_bytes: int) -> tuple[int, int]:
    """How many rows the first bytes of an Arrow stream hold, and how many bytes those are. Their text is not touched."""
    from tokenmill.reading.codecs import reading

    rows = consumed = 0
    with reading(file), pa.memory_map(file.path) as raw:
        for batch in pa.ipc.open_stream(raw):
            rows += batch.num_rows
            consumed = raw.tell()
            if consumed >= most_bytes:
                return rows, consumed
    return rows, file.size


class Head(NamedTuple):
    """The first `copied` bytes of text of what has about `text`: `consumed` of the `size` bytes on disk hold them."""

    file: SourceFile
    copied: int
    text: int
    consumed: float
    size: float


def copy_head(file: SourceFile, to: Path, most_bytes: int, until: float) -> Head:
    """Lay down the beginning of a file, decompressed: so many bytes, or what is there by `until`, to the last line end.

    How much text the whole file has is told by how much came out of the bytes taken in. A decompressor takes in more than
    it has given out; so that is looked at whenever it asks for more, when it has next to nothing left.
    """
    from tokenmill.reading.codecs import decompressed, reading

    with reading(file), _Marked(file.path) as raw, open(to, "wb", buffering=0) as out:
        stream = cast(BinaryIO, raw) if file.codec is None else decompressed(file, raw)
        at_end, full, last = False, None, b""
        while not raw.telling or (raw.given < most_bytes and time.monotonic() < until):
            data = stream.read(READ_BYTES)
            if not data:
                at_end = True
                break
            try:
                out.write(data)
            except OSError as error:  # the temporary folder is full: so far, and no further
                full = error
                break
            raw.given += len(data)
            last = data
        copied, telling = raw.given, raw.telling
        if not at_end and (end := last.rfind(b"\n")) >= 0:
            copied -= len(last) - end - 1
            out.truncate(copied)
        text = copied if at_end or not telling else max(raw.text_of(file.size), copied)
    if full is not None and not telling:
        raise UsageError(
            f"no room in {to.parent} for the heads of compressed files: {full.strerror}; set TMPDIR"
        ) from full
    return Head(file, copied, text, file.size * copied / text if text else file.size, file.size)


class _Marked(io.FileIO):
    """A file that notes, whenever more of it is asked for, how far it was read and what had come of that by then."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "rb")
        self.given = 0
        self.marks: list[tuple[int, int]] = []

    def read(self, size: int | None = -1, /) -> bytes:
        self.marks.append((self.tell(), self.given))
        return super().read(-1 if size is None else size) or b""

    def readinto(self, buffer: object, /) -> int:
        self.marks.append((self.tell(), self.given))
        return super().readinto(buffer) or 0  # type: ignore[arg-type]

    @property
    def telling(self) -> bool:
        """Whether it is known what came of the first bytes: more was asked for since."""
        return bool(self.marks) and self.marks[-1][0] > 0 and self.marks[-1][1] > 0

    def text_of(self, size: int) -> int:
        """How much would come of the whole file, going on as between the first mark and the last."""
        marks = [mark for mark in self.marks if mark[1]]
        (first, before), (last, after) = marks[0] if len(marks) > 2 else (0, 0), marks[-1]
        if last == first:
            first, before = 0, 0
        return round(after + (size - last) * (after - before) / (last - first))


def range_of(file: SourceFile, start: int, stop: int) -> Iterator[str]:
    """A range of a file that is one document, at whole characters."""
    with open(file.path, "rb") as raw:
        raw.seek(start)
        data = raw.read(stop - start)
    low = next((i for i in range(min(4, len(data))) if data[i] & 0xC0 != 0x80), 0) if start else 0
    high = len(data)
    for back in range(1, min(4, high) + 1) if stop < file.size else ():
        if data[-back] >= 0xC0:
            width = 2 if data[-back] < 0xE0 else 3 if data[-back] < 0xF0 else 4
            high -= back if width > back else 0
            break
    try:
        yield data[low:high].decode()
    except UnicodeDecodeError as error:
        at = start + low + error.start
        raise InputError(f"{file.shown}: not UTF-8 at byte {at:,}; a build leaves such a document out") from error


def next_record(file: SourceFile, source: Source, at: int) -> int:
    """Where the first record at or after a byte begins."""
    from tokenmill.reading.lines import delimiter_of

    delimiter = delimiter_of(file, source)
    if at <= 0 or at >= file.size or delimiter is None:
        return min(max(at, 0), file.size)
    with open(file.path, "rb", buffering=0) as raw:
        position, held = max(at - len(delimiter), 0), b""
        raw.seek(position)
        while fresh := raw.read(READ_BYTES):
            held += fresh
            found = held.find(delimiter)
            if found >= 0:
                return position + found + len(delimiter)
            gone = max(0, len(held) - len(delimiter) + 1)
            position, held = position + gone, held[gone:]
    return file.size


def row_at(file: SourceFile, source: Source, byte: int) -> int | None:
    """The number of the row that begins at a byte; None where too much lies before it."""
    from tokenmill.reading.lines import delimiter_of

    delimiter = delimiter_of(file, source)
    if delimiter is None or byte == 0:
        return 0
    if byte > COUNTED_BYTES or len(delimiter) > 1 or not os.path.exists(file.path):
        return None
    rows = 0
    with open(file.path, "rb", buffering=0) as raw:
        while byte > 0 and (data := raw.read(min(byte, 1 << 20))):
            rows += data.count(delimiter)
            byte -= len(data)
    return rows
