"""Arrow IPC files and streams. Pieces of a file are ranges of record batches; a stream has no footer and stays whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa

from tokenmill.documents import Texts
from tokenmill.errors import InputError
from tokenmill.reading.codecs import local_path, open_input, open_raw, reading
from tokenmill.reading.content_hash import Content
from tokenmill.reading.files import Piece, RawRow, Source, SourceFile
from tokenmill.reading.formats.base import Entry, Format, Part, grouped
from tokenmill.reading.formats.text_columns import TableFormat, check_columns, raw_row_in, table_blocks, text_columns

FILE_MAGIC = b"ARROW1"
STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"


class ArrowFormat(TableFormat):
    """Record batches, memory-mapped."""

    hashes_columns = True

    def read(self, piece: Piece, source: Source, block_bytes: int, content: Content) -> Iterator[Texts]:
        # Items of an iterable that are not strings were spooled as nulls.
        null_reason = "not text" if piece.file.name.startswith("<iterable") else "null field"
        with reading(piece.file):
            for batch in _batches(piece, source):
                _hash_batch(content, batch, source._fields)
                yield from table_blocks(batch, source, block_bytes, null_reason)

    def hash(self, piece: Piece, source: Source, content: Content) -> None:
        for batch in _batches(piece, source):
            _hash_batch(content, batch, source._fields)

    def raw_row(self, file: SourceFile, source: Source, row: int, most_bytes: int) -> RawRow | None:
        with reading(file):
            return raw_row_in(_batches(Piece(file), source), source, row, most_bytes)

    def schema(self, file: SourceFile, source: Source) -> pa.Schema:
        with _arrow_input(file) as raw:
            return (pa.ipc.open_file if _has_footer(file) else pa.ipc.open_stream)(raw).schema

    def entry(self, file: SourceFile, source: Source) -> Entry:
        try:
            return "parts" if _has_footer(file) else "head"
        except OSError:
            return "parts"

    def split(self, file: SourceFile, source: Source, piece_bytes: int) -> list[Piece]:
        with reading(file):
            if not _has_footer(file):
                return []
            count = _num_batches(file)
        return grouped(file, [file.size // max(count, 1)] * count, piece_bytes)

    def parts(self, file: SourceFile, source: Source) -> list[Part]:
        with reading(file):
            count = _num_batches(file)
        return [Part(max(1, file.size // count), file.size / count, None)] * count if count else []

    def rows_before(self, piece: Piece, source: Source) -> int:
        """From the headers of the batches."""
        with reading(piece.file), _arrow_input(piece.file) as raw:
            reader = pa.ipc.open_file(raw)
            return sum(reader.get_batch(i).num_rows for i in range(piece.start))

    def head_rows(self, file: SourceFile, most_bytes: int) -> tuple[int, int] | None:
        """From the headers of the batches; their text is not touched."""
        rows = 0
        with reading(file), _arrow_input(file) as raw:
            for batch in pa.ipc.open_stream(raw):
                rows += batch.num_rows
                consumed = raw.tell()
                if consumed >= most_bytes:
                    return rows, consumed
        return rows, file.size

    def first_records(self, file: SourceFile, count: int) -> Iterator[dict[str, Any]]:
        with reading(file), _arrow_input(file) as raw:
            if _has_footer(file):
                reader = pa.ipc.open_file(raw)
                batch = reader.get_batch(0) if reader.num_record_batches else None
            else:
                batch = next(iter(pa.ipc.open_stream(raw)), None)
            if batch is not None:
                some = batch.select(text_columns(batch.schema)).slice(0, count)
                some.validate(full=True)  # a damaged file must not be read outside its buffers
                yield from some.to_pylist()


FORMATS: dict[str, Format] = {"arrow": ArrowFormat("arrow")}


def _arrow_input(file: SourceFile) -> pa.NativeFile:
    path = local_path(file)
    return pa.PythonFile(open_input(file), mode="r") if path is None else pa.memory_map(path)


def _has_footer(file: SourceFile) -> bool:
    """Whether this is an Arrow file, whose batches can be read on their own, and not a stream."""
    with open_input(file) as raw:
        return raw.read(len(FILE_MAGIC)) == FILE_MAGIC


def _num_batches(file: SourceFile) -> int:
    with _arrow_input(file) as raw:
        count: int = pa.ipc.open_file(raw).num_record_batches
        return count


def _batches(piece: Piece, source: Source) -> Iterator[pa.RecordBatch]:
    file = piece.file
    with open_raw(file), _arrow_input(file) as raw:
        has_footer = _has_footer(file)
        reader = (pa.ipc.open_file if has_footer else pa.ipc.open_stream)(raw)
        check_columns(file, reader.schema, source)
        if has_footer:
            listed = reader.num_record_batches
            if not piece.start and local_path(file) is not None and (count := _num_batches_in(file)) > listed:
                raise InputError(f"{file.shown}: damaged: its footer lists {listed:,} of {count:,} record batches")
            stop = reader.num_record_batches if piece.stop is None else piece.stop
            batches = (reader.get_batch(i) for i in range(piece.start, stop))
        for batch in batches if has_footer else reader:
            batch.validate()
            yield batch
        if not has_footer and (raw.tell() != file.size or not _has_end_mark(file)):
            raise InputError(f"{file.shown}: the Arrow stream ends before the file does, or has no end marker")


def _num_batches_in(file: SourceFile) -> int:
    """The record batches of a local file, whether its footer lists them or not. Reads their headers."""
    found = 0
    with _arrow_input(file) as raw, suppress(pa.ArrowInvalid):  # some writers leave out the end marker
        raw.seek(len(FILE_MAGIC) + 2)  # padding
        for message in pa.ipc.MessageReader.open_stream(raw):
            found += message.type == "record batch"
    return found


def _has_end_mark(file: SourceFile) -> bool:
    """Whether an Arrow stream was closed by its writer. A stream cut between two batches lacks the mark."""
    with open_input(file) as raw:
        raw.seek(max(0, file.size - len(STREAM_END)))
        return raw.read() == STREAM_END


def _hash_batch(content: Content, batch: pa.RecordBatch, fields: tuple[str, ...]) -> None:
    """Hash the buffers of the columns that are read."""
    for name in dict.fromkeys(name if name in batch.schema.names else name.split(".")[0] for name in fields):
        _hash_array(content, batch.column(name))


def _hash_array(content: Content, array: pa.Array) -> None:
    content.update(f"{array.type} {len(array)} {array.offset}\n".encode())
    is_struct = pa.types.is_struct(array.type)
    for buffer in array.buffers()[:1] if is_struct else array.buffers():
        content.update(b"-" if buffer is None else f"{buffer.size}\n".encode())
        if buffer is not None and buffer.size:
            content.update(buffer)
    for i in range(array.type.num_fields if is_struct else 0):
        _hash_array(content, array.field(i))
    if pa.types.is_dictionary(array.type):
        _hash_array(content, array.dictionary)
