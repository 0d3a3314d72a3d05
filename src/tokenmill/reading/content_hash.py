"""What a piece of a file holds, in one number: taken while it is read, or by reading it for that alone.

The number stands for the bytes that decide a piece's documents and for the way they are read, never for a name or a date.
Of a line file these are the bytes of its records, so a range whose records did not change is the same piece although others
did. Of a parquet file they are its footer and the columns with the text; of an Arrow file those columns' buffers.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any, BinaryIO, cast

import pyarrow as pa
import xxhash

from tokenmill.reading.discover import SourceFile
from tokenmill.reading.source import Source

READ_BYTES = 1 << 20
HEAD_BYTES = 4096


class Content:
    """The digest of one piece, fed on the way. `digest` is None until the piece was read to its end."""

    def __init__(self, file: SourceFile, source: Source, start: int = 0) -> None:
        self.hash = xxhash.xxh3_128()
        self.digest: str | None = None
        if file.format in ("text", "lines"):
            way: Any = source.separator if file.format == "text" else None
        else:
            way = source.template or source.text_field
        size = file.size if file.format in ("parquet", "arrow") else None
        # What is at a file's start is read in another way: a byte order mark, an array in place of lines.
        kind = [file.format, file.codec, file.name, start == 0, size, bool(source.template), way]
        self.hash.update(f"{kind}\n".encode("utf-8", "surrogateescape"))

    def update(self, data: Any) -> None:
        self.hash.update(data)

    def finish(self) -> None:
        self.digest = self.hash.hexdigest()


class Watched(io.RawIOBase):
    """A file whose bytes are counted into a content as they go by, each once, also where a reader steps back."""

    def __init__(self, raw: BinaryIO, content: Content) -> None:
        self.raw, self.content, self.high = raw, content, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        at = self.raw.tell()
        data = self.raw.read(size)
        self._count(at, data)
        return data

    def readinto(self, buffer: Any) -> int:
        at = self.raw.tell()
        count = cast(io.FileIO, self.raw).readinto(buffer) or 0
        self._count(at, memoryview(buffer).cast("B")[:count])
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self.raw.seek(offset, whence)

    def tell(self) -> int:
        return self.raw.tell()

    def read_on(self) -> None:
        """To the end of the file: a reader may leave what comes after its own end."""
        self.raw.seek(self.high)
        while self.read(READ_BYTES):
            pass

    def _count(self, at: int, data: Any) -> None:
        if at + len(data) > self.high:
            self.content.update(data[self.high - at :] if at < self.high else data)
            self.high = at + len(data)


def count_parquet(
    content: Content, raw: BinaryIO, metadata: Any, groups: Iterable[int], fields: tuple[str, ...]
) -> None:
    """The footer, and of each row group the chunks of the columns that are read."""
    size = raw.seek(0, io.SEEK_END)
    raw.seek(size - 8)
    footer = int.from_bytes(raw.read(4), "little") + 8
    _count_range(content, raw, max(size - footer, 0), footer)
    for group in groups:
        for column in text_columns(metadata.row_group(group), fields):
            starts = [at for at in (column.dictionary_page_offset, column.data_page_offset) if at]
            _count_range(content, raw, min(starts), column.total_compressed_size)


def text_columns(group: Any, fields: tuple[str, ...]) -> list[Any]:
    """The column chunks of a row group that the fields are read from."""
    columns = [group.column(i) for i in range(group.num_columns)]
    return [
        column
        for column in columns
        if any(column.path_in_schema == name or column.path_in_schema.startswith(name + ".") for name in fields)
    ]


def _count_range(content: Content, raw: BinaryIO, start: int, length: int) -> None:
    raw.seek(start)
    while length > 0 and (data := raw.read(min(length, READ_BYTES))):
        content.update(data)
        length -= len(data)


def count_batch(content: Content, batch: pa.RecordBatch, fields: tuple[str, ...]) -> None:
    """The buffers of the columns that are read."""
    for name in dict.fromkeys(name if name in batch.schema.names else name.split(".")[0] for name in fields):
        _count_array(content, batch.column(name))


def _count_array(content: Content, array: pa.Array) -> None:
    content.update(f"{array.type} {len(array)} {array.offset}\n".encode())
    is_struct = pa.types.is_struct(array.type)
    for buffer in array.buffers()[:1] if is_struct else array.buffers():
        content.update(b"-" if buffer is None else f"{buffer.size}\n".encode())
        if buffer is not None and buffer.size:
            content.update(buffer)
    for i in range(array.type.num_fields if is_struct else 0):
        _count_array(content, array.field(i))
    if pa.types.is_dictionary(array.type):
        _count_array(content, array.dictionary)


def head_of(file: SourceFile) -> str:
    """A digest of a file's size and its first bytes: tells most files apart, at the price of opening each."""
    try:
        with open(file.path, "rb", buffering=0) as raw:
            head = raw.read(HEAD_BYTES)
    except OSError:
        head = b""
    return str(xxhash.xxh3_64_hexdigest(b"%d " % file.size + head))
