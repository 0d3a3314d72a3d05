"""Text that is not in files: standard input, tables, datasets and iterables. It is written to files segment by segment.

A segment is a file like any other: it is read in a worker, retried, and known by its content. Where segments end depends only on
the text and on their size, so that the same stream gives the same segments. They are removed by whoever asked for them, and the
next ones are read meanwhile: a stream of any length takes little room on disk.

Standard input in a format that cannot be cut between two lines (text, csv, parquet, Arrow) is one segment, as a whole.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import xxhash

from tokenmill.errors import InputError, UsageError
from tokenmill.io import disk
from tokenmill.reading.codecs import CODECS, decompressed, reading
from tokenmill.reading.files import Source, SourceFile, Stream

CHUNK_ROWS = 1 << 14
READ_BYTES = 1 << 20
BATCH_ROWS = 1000
TABLE_FORMAT = "arrow"  # the format of spooled tables
LINE_FORMATS = ("jsonl", "lines")
_MAGIC = {
    b"\x1f\x8b": ".gz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"BZh": ".bz2",
    b"\xfd7zXZ": ".xz",
    b"\x04\x22\x4d\x18": ".lz4",
}

# How many rows are wanted at most from now on; None if all.
RowsWanted = Callable[[], int | None]


def segments(
    source: Source, folder: Path, segment_bytes: int, wanted: RowsWanted = lambda: None
) -> Iterator[SourceFile]:
    """The streams of a source as files in `folder`, of about `segment_bytes` each. Each is read only when it is asked for."""
    disk.make_folder(folder)
    for old in disk.matching(folder):
        disk.unlink(old)
    number = 0
    for stream in source.streams:
        stream.begin()
        is_bytes = stream.name.startswith("<stdin")
        spooled = _bytes_segments if is_bytes else _table_segments
        for file in spooled(stream, source, folder, segment_bytes, wanted):
            path = folder / f"{number:06d}-{file.tag}"
            disk.replace(Path(file.path), path)
            yield file._replace(path=str(path))
            number += 1


def _bytes_segments(
    stream: Stream, source: Source, folder: Path, segment_bytes: int, wanted: RowsWanted
) -> Iterator[SourceFile]:
    head = stream.data.read(READ_BYTES)
    suffix = next((suffix for magic, suffix in _MAGIC.items() if head.startswith(magic)), None)
    codec = CODECS[suffix] if suffix else None
    raw = cast(BinaryIO, io.BufferedReader(_Continued(head, stream.data), READ_BYTES))
    path = folder / "segment"
    if source.format not in LINE_FORMATS:
        size, tag = _write_all(raw, path)
        yield SourceFile(str(path), size, tag, source.format, codec, stream.name)
        return
    whole = SourceFile(stream.name, len(head), "", source.format, codec, stream.name)
    lines = _Lines(decompressed(whole, raw))
    row = 0
    while not lines.is_at_end:
        with reading(whole):
            rows, size, tag = lines.write(path, segment_bytes, wanted())
        yield SourceFile(str(path), size, tag, source.format, None, stream.name, row)
        row += rows


def _write_all(raw: BinaryIO, path: Path) -> tuple[int, str]:
    digest, size = xxhash.xxh3_128(), 0
    with disk.open_to_write(path) as out:
        while data := raw.read(READ_BYTES):
            digest.update(data)
            out.write(data)
            size += len(data)
    return size, digest.hexdigest()


class _Continued(io.RawIOBase):
    """The rest of a stream, after its first bytes were read."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


class _Lines:
    """Cuts a stream of bytes after the first line that ends at or beyond a size, however the bytes arrive."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw, self._left = raw, b""
        self.is_at_end = False

    def write(self, path: Path, most_bytes: int, most_rows: int | None) -> tuple[int, int, str]:
        """Write the next lines to a file: about `most_bytes`, at most `most_rows`. Returns rows, bytes and digest."""
        digest, size, rows = xxhash.xxh3_128(), 0, 0
        with disk.open_to_write(path) as out:
            while True:
                data, self._left = self._left or self._raw.read(READ_BYTES), b""
                if not data:
                    self.is_at_end = True
                    break
                end = _cut(data, most_bytes - size, None if most_rows is None else most_rows - rows)
                part = data if end is None else data[:end]
                digest.update(part)
                out.write(part)
                size, rows = size + len(part), rows + part.count(b"\n")
                if end is not None:
                    self._left = data[end:] or self._raw.read(READ_BYTES)
                    self.is_at_end = not self._left
                    break
        return rows, size, digest.hexdigest()


def _cut(data: bytes, most_bytes: int, most_rows: int | None) -> int | None:
    """Where to cut: after the first line that ends at or beyond `most_bytes`, or after `most_rows`. None: not in here."""
    end = data.find(b"\n", max(0, most_bytes - 1)) + 1 if most_bytes <= len(data) else 0
    if most_rows is not None and data.count(b"\n", 0, end or len(data)) >= most_rows:
        end = 0
        for _ in range(max(1, most_rows)):
            end = data.find(b"\n", end) + 1
    return end or None


def _table_segments(
    stream: Stream, source: Source, folder: Path, segment_bytes: int, wanted: RowsWanted
) -> Iterator[SourceFile]:
    empty = pa.table({name: pa.array([], pa.large_binary()) for name in source.fields})
    row = 0
    for table in _chunks(_tables(stream, source, wanted), segment_bytes, empty, wanted):
        path = folder / "segment"
        with disk.open_to_write(path) as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=CHUNK_ROWS)
        digest = xxhash.xxh3_128()
        with disk.open_to_read(path) as raw:
            while block := raw.read(READ_BYTES):
                digest.update(block)
        size = path.stat().st_size
        yield SourceFile(str(path), size, digest.hexdigest(), TABLE_FORMAT, None, stream.name, row)
        row += table.num_rows


def _chunks(tables: Iterable[pa.Table], chunk_bytes: int, empty: pa.Table, wanted: RowsWanted) -> Iterator[pa.Table]:
    """Tables joined or cut to about `chunk_bytes`; `empty` if there is none, so that there is always one."""
    parts: list[pa.Table] = []
    size = rows = 0
    has_rows = False
    for table in tables:
        has_rows = has_rows or table.num_rows > 0
        step = max(1, table.num_rows * chunk_bytes // max(table.nbytes, 1))
        for low in range(0, table.num_rows, step):
            part = table.slice(low, step)
            parts.append(part)
            size, rows = size + part.nbytes, rows + part.num_rows
            most_rows = wanted()
            if size >= chunk_bytes or (most_rows is not None and rows >= most_rows):
                yield pa.concat_tables(parts)
                parts, size, rows = [], 0, 0
    if parts:
        yield pa.concat_tables(parts)
    elif not has_rows:
        yield empty


def _tables(stream: Stream, source: Source, wanted: RowsWanted) -> Iterator[pa.Table]:
    """The tables of a stream. A stream that breaks off is an error of the input, not of the disk it is written to."""
    try:
        for table in _as_tables(stream.data, source, wanted):
            yield _needed_columns(table, source)
    except OSError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{stream.name} broke off: {error}. Finished shards are kept; run the build again") from error


def _as_tables(data: Any, source: Source, wanted: RowsWanted) -> Iterable[pa.Table]:
    if isinstance(data, pa.RecordBatch):
        return [pa.Table.from_batches([data])]
    if isinstance(data, (pa.Array, pa.ChunkedArray)):
        return [pa.table({source.text_field: data})]
    if isinstance(data, pa.Table):
        return [data]
    if isinstance(data, pa.RecordBatchReader):
        return (pa.Table.from_batches([batch]) for batch in data)
    if type(data).__module__.partition(".")[0] == "datasets":
        rows = min(BATCH_ROWS, wanted() or BATCH_ROWS)
        batches: Iterable[pa.Table] = data.with_format("arrow").iter(batch_size=rows)
        return batches
    if hasattr(data, "__arrow_c_stream__"):  # a data frame of another library
        return [pa.table(data)]
    return _tables_of_strings(data, source.text_field, wanted)


def _tables_of_strings(data: Iterable[Any], name: str, wanted: RowsWanted) -> Iterator[pa.Table]:
    rows = iter(data)
    first = next(rows, None)
    if first is not None and not isinstance(first, str):
        raise UsageError(
            f"an iterable of documents yields strings, but this one yields {type(first).__name__}: {str(first)[:60]!r};"
            " pass (row['text'] for row in rows), an Arrow table or a dataset"
        )
    rows = rows if first is None else chain([first], rows)
    while batch := list(islice(rows, min(BATCH_ROWS, wanted() or BATCH_ROWS))):
        yield pa.table({name: pa.array([_encoded(item) for item in batch], pa.large_binary())})


def _needed_columns(table: pa.Table, source: Source) -> pa.Table:
    names = [name if name in table.schema.names else name.split(".")[0] for name in source.fields]
    missing = [name for name in names if name not in table.schema.names]
    if missing:
        raise UsageError(
            f"no column {missing[0]!r}; it has {', '.join(table.schema.names)}. Choose with text_field=..."
        )
    return table.select(list(dict.fromkeys(names)))


def _encoded(item: Any) -> bytes | None:
    """A string as bytes, anything else as null. Lone surrogates are kept: the reader skips them with a row number."""
    return item.encode("utf-8", "surrogatepass") if isinstance(item, str) else None
