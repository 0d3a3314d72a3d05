"""Documents out of tables: parquet by row groups, Arrow IPC by record batches, csv and tsv as streams."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from tokenmill.documents import Skip, Texts
from tokenmill.errors import InputError
from tokenmill.reading.codecs import check_unchanged, open_stream, reading
from tokenmill.reading.content_hash import Content, count_batch, count_parquet, text_columns
from tokenmill.reading.discover import SourceFile
from tokenmill.reading.source import Source
from tokenmill.reading.template import Template
from tokenmill.reading.utf8 import join_columns, no_text, one_text, places, valid_texts

_TEXT_TYPES = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view,
    pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view,
)  # fmt: skip


def read_parquet(
    file: SourceFile, source: Source, start: int, stop: int | None, block_bytes: int, content: Content
) -> Iterator[Texts]:
    """The documents of row groups [start, stop). Memory: about one block, and one compressed page a column."""
    with reading(file), open(file.path, "rb", buffering=0) as raw:
        check_unchanged(file, raw.fileno())
        # Buffered reads keep a huge row group from being held whole.
        table = pq.ParquetFile(raw, buffer_size=1 << 20, pre_buffer=False)
        check_columns(file, table.schema_arrow, source)
        groups = range(start, table.num_row_groups if stop is None else stop)
        for group in groups:
            rows = _rows_per_block(table.metadata.row_group(group), source.fields, block_bytes)
            for batch in table.iter_batches(
                rows, row_groups=[group], columns=list(dict.fromkeys(source.fields)), use_threads=False
            ):
                yield from _blocks(pa.Table.from_batches([batch]), source, block_bytes)
        count_parquet(content, raw, table.metadata, groups, source.fields)
        check_unchanged(file, file.path)
        content.finish()


def count_parquet_file(file: SourceFile, source: Source, start: int, stop: int | None, content: Content) -> None:
    """What `read_parquet` reads, counted and not decoded."""
    with reading(file), open(file.path, "rb", buffering=0) as raw:
        check_unchanged(file, raw.fileno())
        metadata = pq.read_metadata(raw)
        groups = range(start, metadata.num_row_groups if stop is None else stop)
        count_parquet(content, cast(BinaryIO, raw), metadata, groups, source.fields)
        check_unchanged(file, file.path)


def _rows_per_block(group: pq.RowGroupMetaData, fields: tuple[str, ...], block_bytes: int) -> int:
    wanted: int = sum(column.total_uncompressed_size for column in text_columns(group, fields))
    rows: int = group.num_rows
    return max(1, min(rows, block_bytes * rows // max(wanted, 1)))


def read_arrow(
    file: SourceFile, source: Source, start: int, stop: int | None, block_bytes: int, content: Content
) -> Iterator[Texts]:
    """The documents of record batches [start, stop) of an Arrow file, mapped; or of a whole Arrow stream."""
    # Of an iterable only what is text was spooled as such.
    null_reason = "not text" if file.name.startswith("<iterable") else "null field"
    with reading(file):
        for batch in _batches(file, source, start, stop):
            count_batch(content, batch, source.fields)
            yield from _blocks(pa.Table.from_batches([batch]), source, block_bytes, null_reason)
        content.finish()


def count_arrow_file(file: SourceFile, source: Source, start: int, stop: int | None, content: Content) -> None:
    """What `read_arrow` reads, counted."""
    for batch in _batches(file, source, start, stop):
        count_batch(content, batch, source.fields)


def _batches(file: SourceFile, source: Source, start: int, stop: int | None) -> Iterator[pa.RecordBatch]:
    with reading(file), pa.memory_map(file.path) as raw:
        with open(file.path, "rb") as handle:
            check_unchanged(file, handle.fileno())
        if is_arrow_file(file):
            reader = pa.ipc.open_file(raw)
            check_columns(file, reader.schema, source)
            batches = (reader.get_batch(i) for i in range(start, reader.num_record_batches if stop is None else stop))
        else:
            stream = pa.ipc.open_stream(raw)
            check_columns(file, stream.schema, source)
            batches = iter(stream)
        for batch in batches:
            batch.validate()
            yield batch
        if not is_arrow_file(file) and (raw.tell() != file.size or not _ends_well(file)):
            raise InputError(f"{file.shown}: the Arrow stream ends before the file does, or without its end mark")
        check_unchanged(file, file.path)


def _ends_well(file: SourceFile) -> bool:
    """Whether an Arrow stream ends as its writer closes it: a stream cut between two batches lacks this mark."""
    with open(file.path, "rb") as raw:
        raw.seek(max(0, file.size - 8))
        return raw.read() == b"\xff\xff\xff\xff\0\0\0\0"


def is_arrow_file(file: SourceFile) -> bool:
    """Whether an Arrow IPC file has the footer that lets batches be read alone."""
    with open(file.path, "rb") as raw:
        return raw.read(6) == b"ARROW1"


def read_csv(
    file: SourceFile, source: Source, start: int, stop: int | None, block_bytes: int, content: Content
) -> Iterator[Texts]:
    """The documents of a csv or tsv file with a header. What Arrow will not parse, Python's csv module reads on from."""
    done = 0
    fast = Content(file, source)
    for texts in _fast_csv(file, source, block_bytes, fast):
        if texts is None:
            yield from _careful_csv(file, source, done, content)
            return
        yield texts
        done += texts.rows
    content.digest = fast.digest


def _fast_csv(file: SourceFile, source: Source, block_bytes: int, content: Content) -> Iterator[Texts | None]:
    """Blocks as Arrow parses them; None where it will not go on."""
    with open_stream(file, content) as raw:
        stream = _ForArrow(raw)
        try:
            reader = pacsv.open_csv(
                pa.PythonFile(stream, mode="r"),
                read_options=pacsv.ReadOptions(block_size=block_bytes, use_threads=False),
                parse_options=pacsv.ParseOptions(delimiter=_delimiter(file), newlines_in_values=True),
                convert_options=pacsv.ConvertOptions(
                    include_columns=list(dict.fromkeys(source.fields)),
                    column_types={name: pa.large_binary() for name in source.fields},
                    strings_can_be_null=False,
                ),
            )
        except (pa.ArrowKeyError, pa.ArrowInvalid):
            stream.complain()
            yield None
            return
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                stream.complain()
                return
            except pa.ArrowInvalid:
                stream.complain()
                yield None
                return
            yield from _blocks(pa.Table.from_batches([batch]), source, block_bytes)


class _ForArrow(io.RawIOBase):
    """A stream as Arrow's csv reader can bear it.

    Its reads never end between \\r and \\n (Arrow drops such a \\n, also from inside a quoted field), and never raise (an
    error in Arrow's read-ahead thread can hang the process): an error looks like the end, and is kept to be raised later.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.held = stream, b""
        self.error: Exception | None = None

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            fresh = self.stream.read(max(size - len(self.held), 1) if size >= 0 else -1)
        except Exception as error:
            self.error, fresh = error, b""
        data, self.held = self.held + fresh, b""
        if fresh and data.endswith(b"\r") and len(data) > 1:
            data, self.held = data[:-1], b"\r"
        return data

    def complain(self) -> None:
        """Raise what reading raised."""
        if self.error is not None:
            raise self.error


def _careful_csv(file: SourceFile, source: Source, skip_rows: int, content: Content) -> Iterator[Texts]:
    """Row by row from `skip_rows` on. Costs a Python object per field: only for files the fast path cannot finish."""
    template = Template(source.template) if source.template else None
    with open_stream(file, content) as stream:
        rows = _csv_rows(file, stream)
        header = next(rows, [])
        check_columns(file, pa.schema([(name, pa.string()) for name in header]), source)
        places = [header.index(name) for name in source.fields]
        for row, fields in enumerate(rows):
            if row < skip_rows:
                continue
            if len(fields) != len(header):
                detail = f"{len(fields)} fields where the header has {len(header)}"
                yield no_text(Skip(0, 1, "bad csv row", detail))
                continue
            values = [fields[i] for i in places]
            text = values[0] if template is None else template.join(values)
            texts, skips = valid_texts(one_text(text.encode("utf-8", "surrogateescape")), None)
            yield Texts(texts, 1, skips)


def _csv_rows(file: SourceFile, stream: BinaryIO) -> Iterator[list[str]]:
    csv.field_size_limit(1 << 30)
    lines = io.TextIOWrapper(io.BufferedReader(cast(io.RawIOBase, stream)), "utf-8-sig", "surrogateescape", newline="")
    try:
        yield from (row for row in csv.reader(lines, delimiter=_delimiter(file)) if row)
    except csv.Error as error:
        raise InputError(f"{file.shown}: {error}") from error
    finally:
        with suppress(ValueError):  # closed already
            lines.detach().detach()  # the stream is closed by whoever opened it


def _delimiter(file: SourceFile) -> str:
    return "\t" if file.format == "tsv" else ","


def missing_column(file: SourceFile, source: Source) -> str | None:
    """What is wrong with the columns of a file, if anything; a file that cannot be read is not judged here."""
    try:
        with reading(file):
            if file.format == "parquet":
                schema = pq.read_schema(file.path)
            elif file.format == "arrow":
                with pa.memory_map(file.path) as raw:
                    schema = (pa.ipc.open_file if is_arrow_file(file) else pa.ipc.open_stream)(raw).schema
            else:
                with open_stream(file) as stream:
                    schema = pa.schema([(name, pa.string()) for name in next(_csv_rows(file, stream), [])])
    except InputError:
        return None
    try:
        check_columns(file, schema, source)
    except InputError as error:
        return str(error)
    return None


def check_columns(file: SourceFile, schema: pa.Schema, source: Source) -> None:
    """A missing or non-text column is the file's fault, not each row's."""
    for name in source.fields:
        kind = _type_of(schema, name)
        if kind is None:
            raise InputError(
                f"{file.shown}: no column {name!r}; it has {', '.join(schema.names)}."
                f" {'Mend the --template' if source.template else 'Choose with --text-field (text_field=...)'}"
            )
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        readable = any(test(kind) for test in _TEXT_TYPES) or pa.types.is_null(kind)
        if not readable and not (source.template and not pa.types.is_nested(kind)):
            raise InputError(
                f"{file.shown}: column {name!r} holds {kind}, not text. Choose with --text-field (text_field=...)"
            )


def _type_of(schema: pa.Schema, name: str) -> pa.DataType | None:
    if name in schema.names:
        return schema.field(name).type
    first, *rest = name.split(".")
    if first not in schema.names:
        return None
    kind = schema.field(first).type
    for key in rest:
        if not pa.types.is_struct(kind) or kind.get_field_index(key) < 0:
            return None
        kind = kind.field(key).type
    return kind


def _blocks(table: pa.Table, source: Source, block_bytes: int, null_reason: str = "null field") -> Iterator[Texts]:
    """A table's documents in blocks of about `block_bytes`."""
    rows = max(1, table.num_rows)
    step = max(1, min(rows, block_bytes * rows // max(table.nbytes, 1)))
    template = Template(source.template) if source.template else None
    for low in range(0, table.num_rows, step):
        part = table.slice(low, step)
        columns = [_as_binary(_pick(part, name), lenient=template is not None) for name in source.fields]
        values = columns[0] if template is None else join_columns(template, columns)
        yield _texts(values, null_reason)


def _pick(table: pa.Table, name: str) -> pa.Array:
    first, *rest = [name] if name in table.schema.names else name.split(".")
    array = table.column(first).combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    return pc.struct_field(array, rest) if rest else array


def _as_binary(array: pa.Array, *, lenient: bool) -> pa.Array:
    """A column as large_binary, its offsets checked: a damaged file must not send anyone reading outside its buffers."""
    if pa.types.is_dictionary(array.type):
        _sound(array.dictionary)
        array.indices.validate(full=True)
        if len(array) and array.null_count < len(array):
            bounds = pc.min_max(array.indices).as_py()
            if bounds["min"] < 0 or bounds["max"] >= len(array.dictionary):
                raise pa.ArrowInvalid("a dictionary index points outside its dictionary")
        array = array.dictionary_decode()
    _sound(array)
    if lenient and not any(test(array.type) for test in _TEXT_TYPES):
        array = array.cast(pa.large_string())
    if array.type in (pa.string(), pa.string_view()):
        array = array.cast(pa.large_string())
    return array.view(pa.large_binary()) if array.type == pa.large_string() else array.cast(pa.large_binary())


def _sound(array: pa.Array) -> None:
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):  # UTF-8 is checked later, row by row
        array = array.view(pa.binary() if pa.types.is_string(array.type) else pa.large_binary())
    array.validate(full=True)


def _texts(values: pa.Array, null_reason: str) -> Texts:
    total = len(values)
    if not values.null_count:
        texts, skips = valid_texts(values, None)
        return Texts(texts, total, skips)
    nulls, kept = places(values.is_null()), places(values.is_valid())
    texts, skips = valid_texts(values.drop_null(), kept)
    return Texts(texts, total, sorted([*skips, *(Skip(int(row), 1, null_reason) for row in nulls)]))
