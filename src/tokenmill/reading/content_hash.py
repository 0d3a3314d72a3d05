"""The digest of the content of a piece, computed while the piece is read or by reading it for that purpose only.

The digest covers the bytes that decide the documents of the piece and the options they are read with, but no file name
or date. For a file of lines these bytes are the records of the piece, so a range whose records did not change keeps its
digest when other parts of the file change. For a parquet file they are the footer and the text columns; for an Arrow
file the buffers of these columns.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import xxhash

from tokenmill.io import object_store
from tokenmill.io.object_file import ReadRange
from tokenmill.reading.files import SourceFile
from tokenmill.reading.hub_client import read_range
from tokenmill.reading.hub_copies import existing_copy, is_on_hub

READ_BYTES = 1 << 20
HEAD_BYTES = 4096


class Content:
    """The hasher of one piece. `digest` is None until the piece was read to its end.

    `header` identifies how the bytes are read: format, codec, fields. `Format.hasher` makes one.
    """

    def __init__(self, header: list[Any]) -> None:
        self.hash = xxhash.xxh3_128()
        self.digest: str | None = None
        self.parse_seconds = 0.0  # spent within `parsing`
        self.hash.update(f"{header}\n".encode("utf-8", "surrogateescape"))

    def update(self, data: Any) -> None:
        self.hash.update(data)

    def finish(self, digest: str | None = None) -> None:
        """Everything was read. `digest` is given by a reader that has computed it elsewhere."""
        self.digest = self.digest or digest or self.hash.hexdigest()

    @contextmanager
    def parsing(self) -> Iterator[None]:
        """Measure the time a reader spends on turning bytes into text. One call per block, not per document."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.parse_seconds += time.perf_counter() - began


class Wrapped(io.RawIOBase):
    """A file that passes on what is read of another one; subclasses look at it."""

    def __init__(self, raw: BinaryIO) -> None:
        self.raw = raw

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self.raw.seek(offset, whence)

    def tell(self) -> int:
        return self.raw.tell()


class Watched(Wrapped):
    """A file that hashes its bytes as they are read, each byte once, also where a reader seeks back."""

    def __init__(self, raw: BinaryIO, content: Content) -> None:
        super().__init__(raw)
        self.content, self.high = content, 0

    def read(self, size: int = -1) -> bytes:
        at = self.raw.tell()
        data = self.raw.read(size)
        self._hash(at, data)
        return data

    def readinto(self, buffer: Any) -> int:
        at = self.raw.tell()
        count = cast(io.FileIO, self.raw).readinto(buffer) or 0
        self._hash(at, memoryview(buffer).cast("B")[:count])
        return count

    def read_rest(self) -> None:
        """Hash to the end of the file: a reader may stop before trailing bytes."""
        self.raw.seek(self.high)
        while self.read(READ_BYTES):
            pass

    def _hash(self, at: int, data: Any) -> None:
        if at + len(data) > self.high:
            self.content.update(data[self.high - at :] if at < self.high else data)
            self.high = at + len(data)


def range_reader(file: SourceFile) -> ReadRange:
    """The function that reads a range of bytes of a remote file."""
    return read_range if is_on_hub(file) else object_store.read


def head_of(file: SourceFile) -> str:
    """A digest of the size of a file and its first 4 KB. Tells most files apart for the price of opening each."""
    try:
        path = existing_copy(file) if file.is_remote else file.path
        if path is None:
            head = range_reader(file)(file.path, 0, min(HEAD_BYTES, file.size), file.tag) if file.size else b""
        else:
            with open(path, "rb", buffering=0) as raw:
                head = raw.read(HEAD_BYTES)
    except OSError:
        head = b""
    return str(xxhash.xxh3_64_hexdigest(b"%d " % file.size + head))
