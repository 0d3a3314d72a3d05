"""Arrow IPC streams cut between record batches. Each segment is a stream of its own, with the schema at its start.

Messages are copied as they are: the text in them is not touched here, where a damaged one might crash this process.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import xxhash

from tokenmill.errors import InputError
from tokenmill.io import disk
from tokenmill.reading.cutting import Written
from tokenmill.reading.formats.arrow import FILE_MAGIC, STREAM_END


def can_cut_batches(head: bytes) -> bool:
    """Whether this is the start of an Arrow stream, and not of a file, without dictionaries: these would have to be repeated."""
    if head.startswith(FILE_MAGIC):
        return False
    try:
        schema = pa.ipc.open_stream(pa.BufferReader(head)).schema
    except (pa.ArrowInvalid, OSError):
        return False
    return not any(_has_dictionary(field.type) for field in schema)


def _has_dictionary(kind: pa.DataType) -> bool:
    inner = (kind.field(i).type for i in range(kind.num_fields))
    return pa.types.is_dictionary(kind) or any(map(_has_dictionary, inner))


class BatchCutter:
    """Cuts an Arrow stream after the first record batch that ends at or beyond a size. See `Cutter`."""

    def __init__(self, raw: BinaryIO, name: str) -> None:
        self._raw, self._name = _Watched(raw), name
        self._messages = pa.ipc.MessageReader.open_stream(pa.PythonFile(self._raw, mode="r"))
        first = self._messages.read_next_message()
        self._schema, self._header = pa.ipc.read_schema(first), first.serialize()
        self._next = self._read()
        self.is_at_end = False

    def write(self, path: Path, most_bytes: int, most_rows: int | None) -> Written:
        """Write the next batches to a file: about `most_bytes` or `most_rows`, and at least one if there is one."""
        digest, size, rows = xxhash.xxh3_128(), 0, 0
        with disk.open_to_write(path) as out:
            part: Any = self._header
            while True:
                digest.update(part)
                out.write(part)
                size += len(part)
                if self._next is None or size >= most_bytes or (most_rows is not None and rows >= most_rows > 0):
                    break
                part = self._next.serialize()
                rows += pa.ipc.read_record_batch(self._next, self._schema).num_rows
                self._next = self._read()
            digest.update(STREAM_END)
            out.write(STREAM_END)
        self.is_at_end = self._next is None
        return Written(rows, size + len(STREAM_END), digest.hexdigest())

    def _read(self) -> pa.Message | None:
        """The next message; None at the end of the stream, which must be marked."""
        try:
            return self._messages.read_next_message()
        except StopIteration:
            if self._raw.last != STREAM_END or self._raw.read(1):
                raise InputError(f"{self._name}: the Arrow stream breaks off, or something follows it") from None
            return None


class _Watched(io.RawIOBase):
    """A stream that keeps the last bytes that were read."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw, self.last = raw, b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._raw.read(size)
        self.last = (self.last + data[-len(STREAM_END) :])[-len(STREAM_END) :]
        return data
