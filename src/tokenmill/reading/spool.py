"""Text that is not in files: standard input, tables, datasets and iterables. It is written to files segment by segment.

A segment is a file like any other: it is read in a worker, retried, and known by its content. Where segments end depends only on
the text and on their size, so that the same stream gives the same segments. They are removed by whoever asked for them, and the
next ones are read meanwhile: a stream of any length takes little room on disk.

Standard input that cannot be cut (a text that is one document, parquet, an Arrow file) is one segment, as a whole.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from inspect import isgeneratorfunction
from itertools import islice
from numbers import Integral, Real
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import pyarrow as pa
import xxhash

from tokenmill.errors import InputError, UsageError, WrongTypeError
from tokenmill.events import Listener, SavingStream
from tokenmill.io import disk
from tokenmill.reading.batch_cutting import BatchCutter, can_cut_batches
from tokenmill.reading.codecs import CODECS, Continued, decompressed, reading
from tokenmill.reading.cutting import FIELD_MARKS, HEADER_BYTES, READ_BYTES, CsvRows, Cutter, field_mark, finder_for
from tokenmill.reading.discover import looks_like_path
from tokenmill.reading.files import Piece, Source, SourceFile, Stream
from tokenmill.reading.formats import get_format
from tokenmill.reading.formats.base import remedy
from tokenmill.reading.pieces import check_fields
from tokenmill.reading.resuming import DatasetTables, ResumePoint, is_dataset
from tokenmill.reading.template import dig

CHUNK_ROWS = 1 << 14
BATCH_ROWS = 1000
LOOKED_AT = 100  # the first strings of a stream, which may be paths or JSON
TABLE_FORMAT = "arrow"  # the format of spooled tables
SAVING_BYTES = 16 << 20  # between two events about a stream that is saved as a whole
_MAGIC = {
    b"\x1f\x8b": ".gz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"BZh": ".bz2",
    b"\xfd7zXZ": ".xz",
    b"\x04\x22\x4d\x18": ".lz4",
}

# How many rows are wanted at most from now on; None if all.
RowsWanted = Callable[[], int | None]


class Segment(NamedTuple):
    """A part of a stream, as a file. `resume` is where to go on after it, where that is possible."""

    file: SourceFile
    resume: ResumePoint | None = None


class Spool:
    """Writes the streams of a source to files in `folder`, of about `segment_bytes` each."""

    def __init__(
        self,
        source: Source,
        folder: Path,
        segment_bytes: int,
        wanted: RowsWanted = lambda: None,
        emit: Listener = lambda event: None,
    ) -> None:
        self._source, self._folder, self._segment_bytes = source, folder, segment_bytes
        self._wanted, self._emit = wanted, emit
        self._count = 0
        disk.make_folder(folder)
        for old in disk.matching(folder):
            disk.unlink(old)

    def segments(self, stream: Stream, resume: ResumePoint | None = None) -> Iterator[Segment]:
        """The segments of a stream, or those after a resume point. Each is read only when it is asked for."""
        parts = self._of_bytes(stream) if stream.is_standard_input else self._of_tables(stream, resume)
        for file, point in parts:
            path = self._folder / f"{self._count:06d}-{file.tag}"
            disk.replace(Path(file.path), path)
            yield Segment(file._replace(path=str(path)), point)
            self._count += 1

    def _check_has_text(self, size: int, stream: Stream) -> None:
        if not size and len(self._source._streams) == 1 and not self._source.files:
            raise UsageError(f"{stream.name} is empty: there is no document to read")

    def _of_bytes(self, stream: Stream) -> Iterator[Segment]:
        source = self._source
        head = stream.data.read(READ_BYTES)
        self._check_has_text(len(head), stream)
        suffix = next((suffix for magic, suffix in _MAGIC.items() if head.startswith(magic)), None)
        codec = CODECS[suffix] if suffix else None
        raw = cast(BinaryIO, io.BufferedReader(Continued(head, stream.data), READ_BYTES))
        path = self._folder / "segment"
        whole = SourceFile(stream.name, len(head), "", source.format, codec, stream.name)
        with reading(whole):
            cutter = _cutter(whole, source, head, raw)
        if cutter is None:
            size, tag = _write_all(raw, path, stream.name, self._emit)
            yield Segment(whole._replace(path=str(path), size=size, tag=tag))
            return
        row = 0
        while not cutter.is_at_end:
            with reading(whole):
                written = cutter.write(path, self._segment_bytes, self._wanted())
            file = SourceFile(str(path), written.nbytes, written.digest, source.format, None, stream.name, row)
            if row == 0:  # if it has none of the chosen fields, neither have the others, to the end of the stream
                check_fields(replace(source, files=(file,)))
            yield Segment(file)
            row += written.rows

    def _of_tables(self, stream: Stream, resume: ResumePoint | None) -> Iterator[Segment]:
        empty = pa.table({name: pa.array([], pa.large_binary()) for name in self._source._fields})
        batches = _as_tables(stream.data, self._source, self._wanted, resume)
        row, skip = (resume.row, resume.row - resume.state_row) if resume is not None else (0, 0)
        tables = _needed_tables(batches, stream, self._source)
        for table in _chunks(tables, self._segment_bytes, empty, self._wanted, skip):
            self._check_has_text(table.num_rows, stream)
            path = self._folder / "segment"
            with disk.open_to_write(path) as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=CHUNK_ROWS)
            digest = xxhash.xxh3_128()
            with disk.open_to_read(path) as raw:
                while block := raw.read(READ_BYTES):
                    digest.update(block)
            size = path.stat().st_size
            file = SourceFile(str(path), size, digest.hexdigest(), TABLE_FORMAT, None, stream.name, row)
            row += table.num_rows
            yield Segment(file, batches.resume_point(row) if isinstance(batches, DatasetTables) else None)


def _cutter(whole: SourceFile, source: Source, head: bytes, raw: BinaryIO) -> Cutter | BatchCutter | None:
    """What cuts a stream of bytes into segments; None if it is one, as a whole. It begins with `head`, which `raw` has too."""
    if source.format == "arrow":
        return BatchCutter(raw, whole.shown) if whole.codec is None and can_cut_batches(head) else None
    finder = finder_for(source)
    if finder is None:
        return None
    records = get_format(source.format).records(Piece(whole), decompressed(whole, raw))
    if source.format in FIELD_MARKS:
        start = records.read(HEADER_BYTES)
        finder = CsvRows(field_mark(source, source.format, start).encode())
        records = cast(BinaryIO, io.BufferedReader(Continued(start, records), READ_BYTES))
    return Cutter(records, finder, has_header=source.format in FIELD_MARKS)


def _write_all(raw: BinaryIO, path: Path, name: str, emit: Listener) -> tuple[int, str]:
    digest, size, next_event = xxhash.xxh3_128(), 0, READ_BYTES
    with disk.open_to_write(path) as out:
        while data := raw.read(READ_BYTES):
            digest.update(data)
            out.write(data)
            size += len(data)
            if size >= next_event:
                emit(SavingStream(stream=name, bytes=size))
                next_event = size + SAVING_BYTES
    return size, digest.hexdigest()


def _chunks(
    tables: Iterable[pa.Table], chunk_bytes: int, empty: pa.Table, wanted: RowsWanted, skip: int
) -> Iterator[pa.Table]:
    """Tables joined or cut to about `chunk_bytes`, without the first `skip` rows; `empty` if there is none, so that there is
    always one."""
    parts: list[pa.Table] = []
    size = rows = 0
    has_rows = False
    for table in tables:
        has_rows = has_rows or table.num_rows > 0
        step = max(1, table.num_rows * chunk_bytes // max(table.nbytes, 1))
        for low in range(0, table.num_rows, step):
            part = table.slice(low, step)
            if skip:  # the rows after these are cut as if they were there
                skipped = min(skip, part.num_rows)
                skip, part = skip - skipped, part.slice(skipped)
                if not part.num_rows:
                    continue
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


def _needed_tables(tables: Iterable[pa.Table], stream: Stream, source: Source) -> Iterator[pa.Table]:
    """The columns that are read. A stream that breaks off is an error of the input, not of the disk it is written to."""
    try:
        for number, table in enumerate(tables):
            needed = table.select(_needed(table.schema.names, source))
            if number == 0:
                _refuse_data(needed, stream, source)
            yield needed
    except OSError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{stream.name} broke off: {error}. Finished shards are kept; run the build again") from error


def _refuse_data(first: pa.Table, stream: Stream, source: Source) -> None:
    """Raise UsageError if a tenth of the first strings are paths or lines of JSON, and no template says that they are text."""
    field = source.text_field
    if source.template is not None or field not in first.schema.names:
        return
    column = first.column(field).slice(0, LOOKED_AT)
    values = (value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in column.to_pylist())
    texts = [value for value in values if isinstance(value, str)]
    paths = [text for text in texts if looks_like_path(text)]
    lines = [text for text in texts if text[:1] == "{" and text.rstrip()[-1:] == "}" and f'"{field}":' in text]
    if len(paths + lines) * 10 > len(column):
        what, instead = ("look like paths", "tm.read(*paths)") if paths else ("are JSON", "the path of their file")
        raise UsageError(
            f"{stream.name} has strings that {what}, such as {(paths + lines)[0][:60]!r}, and they would be the documents:"
            f" pass {instead}; if they are the text, pass template='{{{field}}}'"
        )


def _as_tables(
    data: Any, source: Source, wanted: RowsWanted, resume: ResumePoint | None
) -> Iterable[pa.Table] | DatasetTables:
    if isinstance(data, pa.RecordBatch):
        return [pa.Table.from_batches([data])]
    if isinstance(data, (pa.Array, pa.ChunkedArray)):
        return [pa.table({source.text_field: data})]
    if isinstance(data, pa.Table):
        return [data]
    if isinstance(data, pa.RecordBatchReader):
        return (pa.Table.from_batches([batch]) for batch in data)
    if hasattr(data, "to_batches"):  # a dataset or scanner of pyarrow
        return (pa.Table.from_batches([batch]) for batch in data.to_batches())
    if is_dataset(data):
        return DatasetTables(data, min(BATCH_ROWS, wanted() or BATCH_ROWS), resume)
    if hasattr(data, "__arrow_c_stream__"):  # a data frame of another library
        return [_table_of_frame(data, source)]
    if hasattr(data, "collect_schema"):  # a lazy frame of polars: what is not read stays where it is
        needed = data.select(_needed(data.collect_schema().names(), source))
        frames = needed.collect_batches() if hasattr(needed, "collect_batches") else [needed.collect()]
        return (pa.table(frame) for frame in frames)
    if isinstance(data, Mapping):
        return [_table_of_columns(data, source)]
    return _tables_of_rows(data() if isgeneratorfunction(data) else data, source, wanted)


def _table_of_frame(data: Any, source: Source) -> pa.Table:
    if type(data).__module__.startswith("pandas") and hasattr(data, "columns"):  # the others may hold any object
        data = data[_needed(list(data.columns), source)]
    try:
        with suppress(pa.ArrowInvalid):
            return pa.table(data)
        return pa.table({source.text_field: pa.chunked_array(data)})  # one column
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise WrongTypeError(f"a {type(data).__name__} is read as columns of strings: {error}") from error


def _table_of_columns(data: Mapping[str, Any], source: Source) -> pa.Table:
    if source.text_field not in data and all(isinstance(value, str) for value in data.values()):
        raise WrongTypeError(
            "a dict is read as columns, {'text': texts}; for its values pass list(texts.values()), for named paths"
            " tm.recipe, or tm.read(*paths.values()) without the names"
        )
    columns = {name: data[name] for name in _needed(list(data), source)}
    try:
        if any(isinstance(column, str | Mapping) for column in columns.values()):
            raise TypeError(
                "a string or a dict is not a column: pass [row] for one row, frame.to_dict('list') for a frame"
            )
        return pa.table(columns)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise WrongTypeError(f"a dict is read as columns, which are lists of strings of one length: {error}") from error


def _tables_of_rows(data: Iterable[Any], source: Source, wanted: RowsWanted) -> Iterator[pa.Table]:
    rows, first = iter(data), None
    while batch := list(islice(rows, min(BATCH_ROWS, wanted() or BATCH_ROWS))):
        is_first, first = first is None, first or next((item for item in batch if item is not None), None)
        if isinstance(first, Mapping):
            records = [dict(item) if isinstance(item, Mapping) else {} for item in batch]
            if is_first:
                _needed(list(dict.fromkeys(name for record in records for name in record)), source)
            lenient = source._text_template.lenient
            columns = {name: [_value(record, name, lenient=lenient) for record in records] for name in source._fields}
        elif first is None or isinstance(first, str):
            columns = {source.text_field: batch}
        else:
            instead = "(row['text'] for row in rows), an Arrow table or a dataset"
            instead = "(text.decode() for text in texts)" if isinstance(first, bytes) else instead
            if isinstance(first[0] if isinstance(first, list | np.ndarray) and len(first) else first, Integral):
                instead = "texts; ids are imported from a file: tm.import_tokens"
            raise WrongTypeError(
                f"an iterable of documents yields strings or dicts, but this one yields {type(first).__name__}:"
                f" {str(first)[:60]!r}; pass {'tm.read(*paths)' if isinstance(first, os.PathLike) else instead}"
            )
        yield pa.table({name: pa.array(map(_encoded, column), pa.large_binary()) for name, column in columns.items()})


def _value(record: dict[str, Any], name: str, *, lenient: bool) -> Any:
    """The value of a field; with `lenient`, numbers as text."""
    value = dig(record, name)[1]
    if lenient and isinstance(value, Real):
        return json.dumps(value) if isinstance(value, bool) else str(value)
    return value


def _needed(names: list[str], source: Source) -> list[str]:
    """The columns that are read, of those that there are; UsageError if one is not there."""
    needed = [name if name in names else name.split(".")[0] for name in source._fields]
    if missing := [name for name in needed if name not in names]:
        raise UsageError(f"no column {missing[0]!r}; it has {', '.join(map(str, names))}. {remedy(source, names)}")
    return list(dict.fromkeys(needed))


def _encoded(item: Any) -> bytes | None:
    """A string as bytes, anything else as null. Lone surrogates are kept: the reader skips them with a row number."""
    return item.encode("utf-8", "surrogatepass") if isinstance(item, str) else None
