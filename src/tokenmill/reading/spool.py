"""Spooling: standard input, tables, datasets and iterables are written to files before a build.

So every source is planned, retried and resumed in the same way. This costs one copy of the text on disk until the build
ends. A spooled file is named by its content, so a build of the same stream can resume.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from tokenmill.errors import InputError, UsageError
from tokenmill.io import disk
from tokenmill.reading.codecs import CODECS
from tokenmill.reading.files import Source, SourceFile, Stream

CHUNK_ROWS = 1 << 14
TABLE_FORMAT = "arrow"  # the format of spooled tables
_MAGIC = {
    b"\x1f\x8b": ".gz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"BZh": ".bz2",
    b"\xfd7zXZ": ".xz",
    b"\x04\x22\x4d\x18": ".lz4",
}


def spool(source: Source, folder: Path, chunk_bytes: int) -> Source:
    """The same source with its streams written to files in `folder`. Memory: about one chunk."""
    if not source.streams:
        return source
    disk.make_folder(folder)
    for old in disk.matching(folder):
        disk.unlink(old)
    files: list[SourceFile] = list(source.files)
    for stream in source.streams:
        if stream.name.startswith("<stdin"):
            files.append(_spool_bytes(stream, source, folder))
        else:
            files += _spool_tables(stream, source, folder, chunk_bytes, len(files))
    return replace(source, files=tuple(files), streams=())


def _spool_bytes(stream: Stream, source: Source, folder: Path) -> SourceFile:
    if source.format == "auto":
        raise UsageError(
            "standard input has no file name that shows its format: pass --format jsonl, lines, text or csv"
        )
    head = stream.data.read(1 << 22)
    codec = next((suffix for magic, suffix in _MAGIC.items() if head.startswith(magic)), None)
    path = folder / "stdin"
    digest = xxhash.xxh3_128()
    with disk.open_to_write(path) as out:
        while head:
            digest.update(head)
            out.write(head)
            head = stream.data.read(1 << 22)
    named = path.with_name(f"stdin-{digest.hexdigest()}")
    return _renamed(path, named, digest.hexdigest(), source.format, CODECS[codec] if codec else None, stream.name)


def _spool_tables(stream: Stream, source: Source, folder: Path, chunk_bytes: int, first: int) -> Iterator[SourceFile]:
    empty = pa.table({name: pa.array([], pa.large_binary()) for name in source.fields})
    for number, table in enumerate(_chunks(_tables(stream, source), chunk_bytes, empty), first):
        path = folder / "chunk"
        with disk.open_to_write(path) as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=CHUNK_ROWS)
        digest = xxhash.xxh3_128()
        with disk.open_to_read(path) as raw:
            while block := raw.read(1 << 22):
                digest.update(block)
        named = path.with_name(f"{number:06d}-{digest.hexdigest()}.arrow")
        yield _renamed(path, named, digest.hexdigest(), TABLE_FORMAT, None, stream.name)


def _renamed(path: Path, to: Path, tag: str, format: str, codec: str | None, name: str) -> SourceFile:
    disk.replace(path, to)
    return SourceFile(str(to), to.stat().st_size, tag, format, codec, name)


def _chunks(tables: Iterable[pa.Table], chunk_bytes: int, empty: pa.Table) -> Iterator[pa.Table]:
    """Tables joined or cut to about `chunk_bytes`; `empty` if there is none, so that there is always one."""
    parts: list[pa.Table] = []
    size = 0
    has_rows = False
    for table in tables:
        has_rows = has_rows or table.num_rows > 0
        step = max(1, table.num_rows * chunk_bytes // max(table.nbytes, 1))
        for low in range(0, table.num_rows, step):
            part = table.slice(low, step)
            parts.append(part)
            size += part.nbytes
            if size >= chunk_bytes:
                yield pa.concat_tables(parts)
                parts, size = [], 0
    if parts:
        yield pa.concat_tables(parts)
    elif not has_rows:
        yield empty


def _tables(stream: Stream, source: Source) -> Iterator[pa.Table]:
    """The tables of a stream. A stream that breaks off is an error of the input, not of the disk it is written to."""
    try:
        for table in _as_tables(stream.data, source):
            yield _needed_columns(table, source)
    except OSError as error:
        raise InputError(f"{stream.name} broke off: {error}; nothing of it is kept") from error


def _as_tables(data: Any, source: Source) -> Iterable[pa.Table]:
    if isinstance(data, pa.RecordBatch):
        return [pa.Table.from_batches([data])]
    if isinstance(data, (pa.Array, pa.ChunkedArray)):
        return [pa.table({source.text_field: data})]
    if isinstance(data, pa.Table):
        return [data]
    if isinstance(data, pa.RecordBatchReader):
        return (pa.Table.from_batches([batch]) for batch in data)
    if type(data).__module__.partition(".")[0] == "datasets":
        batches: Iterable[pa.Table] = data.with_format("arrow").iter(batch_size=1000)
        return batches
    if hasattr(data, "__arrow_c_stream__"):  # a data frame of another library
        return [pa.table(data)]
    return _tables_of_strings(data, source.text_field)


def _tables_of_strings(data: Iterable[Any], name: str) -> Iterator[pa.Table]:
    rows = iter(data)
    first = next(rows, None)
    if first is not None and not isinstance(first, str):
        raise UsageError(
            f"an iterable of documents yields strings, but this one yields {type(first).__name__}: {str(first)[:60]!r};"
            " pass (row['text'] for row in rows), an Arrow table or a dataset"
        )
    rows = rows if first is None else chain([first], rows)
    while batch := list(islice(rows, 1000)):
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
