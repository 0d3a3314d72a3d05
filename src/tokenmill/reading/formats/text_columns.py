"""What tabular formats share: the check of the chosen columns, and columns turned into documents."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator

import pyarrow as pa

from tokenmill.documents import Skip, Texts
from tokenmill.errors import InputError
from tokenmill.option_types import option_name
from tokenmill.reading.codecs import reading
from tokenmill.reading.files import RawRow, Source, SourceFile
from tokenmill.reading.formats.base import Format, remedy
from tokenmill.reading.raw_rows import shown_row
from tokenmill.reading.utf8 import join_columns, places, struct_field, valid_texts

_TEXT_TYPES = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view,
    pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view,
)  # fmt: skip
_RECORD_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_struct)


class TableFormat(Format):
    """A table with named columns."""

    @abstractmethod
    def schema(self, file: SourceFile, source: Source) -> pa.Schema:
        """The columns of a file. Reads its header or footer only."""

    def check_fields(self, file: SourceFile, source: Source) -> str | None:
        try:
            with reading(file):
                schema = self.schema(file, source)
                _ = schema.names  # which may not be text
        except InputError:
            return None
        try:
            check_columns(file, schema, source)
        except InputError as error:
            return str(error)
        return None


def text_columns(schema: pa.Schema) -> list[str]:
    """The columns that may hold text, also in nested fields."""
    return [field.name for field in schema if any(test(field.type) for test in _RECORD_TYPES)]


def check_columns(file: SourceFile, schema: pa.Schema, source: Source) -> None:
    """Raise InputError for a missing, ambiguous or non-text column: the fault of the file, not of each row."""
    for name in source._fields:
        first = name if name in schema.names else name.split(".")[0]
        same = schema.names.count(first)
        if same > 1:
            raise InputError(
                f"{file.shown}: {same} columns are named {first!r}, and which of them is the text is not clear; rename them,"
                f" or choose another with {option_name('text_field')}. It has {', '.join(schema.names)}"
            )
        kind, advice = _type_of(schema, name), remedy(source, schema.names)
        if kind is None:
            raise InputError(f"{file.shown}: no column {name!r}; it has {', '.join(schema.names)}. {advice}")
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        readable = any(test(kind) for test in _TEXT_TYPES) or pa.types.is_null(kind)
        if not readable and not (source.template and not pa.types.is_nested(kind)):
            raise InputError(f"{file.shown}: column {name!r} has type {kind}, which is not text. {advice}")


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


def table_blocks(
    batch: pa.RecordBatch, source: Source, block_bytes: int, null_reason: str = "null field"
) -> Iterator[Texts]:
    """The documents of a batch in blocks of about `block_bytes`."""
    table = pa.Table.from_batches([batch])
    rows = max(1, table.num_rows)
    step = max(1, min(rows, block_bytes * rows // max(table.nbytes, 1)))
    template = source._text_template
    for low in range(0, table.num_rows, step):
        part = table.slice(low, step)
        columns = [_as_binary(_pick(part, name), lenient=template.lenient) for name in template.fields]
        yield _texts(join_columns(template, columns), null_reason)


def raw_row_in(batches: Iterable[pa.RecordBatch], source: Source, row: int, most_bytes: int) -> RawRow | None:
    """The values of the chosen columns in a row, null as `null`. If there are several, a line for each, with its name."""
    for batch in batches:
        if row >= batch.num_rows:
            row -= batch.num_rows
            continue
        table, template = pa.Table.from_batches([batch.slice(row, 1)]), source._text_template
        lines = []
        for name in dict.fromkeys(template.fields):
            value = _as_binary(_pick(table, name), lenient=template.lenient)[0]
            data = bytes(value.as_buffer()[: most_bytes + 1]) if value.is_valid else b"null"
            lines.append(b"%s: %s" % (name.encode(), data) if len(set(template.fields)) > 1 else data)
        return shown_row(b"\n".join(lines), most_bytes)
    return None


def _pick(table: pa.Table, name: str) -> pa.Array:
    first, *rest = [name] if name in table.schema.names else name.split(".")
    array = table.column(first).combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    return struct_field(array, rest) if rest else array


def _as_binary(array: pa.Array, *, lenient: bool) -> pa.Array:
    """A column as large_binary. Its offsets are checked, so that a damaged file cannot cause reads outside its buffers."""
    if pa.types.is_dictionary(array.type):
        _check_buffers(array.dictionary)
        array.indices.validate(full=True)
        if len(array) and array.null_count < len(array):
            import pyarrow.compute as pc

            bounds = pc.min_max(array.indices).as_py()
            if bounds["min"] < 0 or bounds["max"] >= len(array.dictionary):
                raise pa.ArrowInvalid("a dictionary index points outside its dictionary")
        if pa.types.is_string_view(array.dictionary.type):  # which Arrow does not decode
            array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.large_string()))
        array = array.dictionary_decode()
    _check_buffers(array)
    if lenient and not any(test(array.type) for test in _TEXT_TYPES):
        array = array.cast(pa.large_string())
    if array.type in (pa.string(), pa.string_view()):
        array = array.cast(pa.large_string())
    return array.view(pa.large_binary()) if array.type == pa.large_string() else array.cast(pa.large_binary())


def _check_buffers(array: pa.Array) -> None:
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):  # UTF-8 is checked later, row by row
        array = array.view(pa.binary() if pa.types.is_string(array.type) else pa.large_binary())
    array.validate(full=True)


def _texts(values: pa.Array, null_reason: str) -> Texts:
    total = len(values)
    if not values.null_count:
        texts, skips = valid_texts(values, None)
        return Texts(texts, total, skips)
    null_rows, filled_rows = places(values.is_null()), places(values.is_valid())
    texts, skips = valid_texts(values.drop_null(), filled_rows)
    return Texts(texts, total, sorted([*skips, *(Skip(int(row), 1, null_reason) for row in null_rows)]))
