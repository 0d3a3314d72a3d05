"""Parquet files. Pieces are ranges of row groups."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.documents import Texts
from tokenmill.errors import InputError
from tokenmill.reading.codecs import expect, local_path, open_input, open_raw, reading
from tokenmill.reading.content_hash import READ_BYTES, Content
from tokenmill.reading.files import Piece, RawRow, Source, SourceFile
from tokenmill.reading.formats.base import Entry, Format, Part, grouped
from tokenmill.reading.formats.text_columns import TableFormat, check_columns, raw_row_in, table_blocks, text_columns

BUFFER_BYTES = 1 << 20  # buffered reads keep a huge row group from being held as a whole


class ParquetFormat(TableFormat):
    """Row groups with the text in one or more columns."""

    hashes_columns = True

    def read(self, piece: Piece, source: Source, block_bytes: int, content: Content) -> Iterator[Texts]:
        """Memory: about one block, and one compressed page per column."""
        file, fields = piece.file, source._fields
        with open_raw(file, 0, 0) as raw:
            table = pq.ParquetFile(raw, buffer_size=BUFFER_BYTES, pre_buffer=False)
            check_columns(file, table.schema_arrow, source)
            groups = _groups(piece, table.metadata)
            if piece.start == 0:  # once for a file
                all_groups = map(table.metadata.row_group, range(table.metadata.num_row_groups))
                _check_counts(file, table.metadata.num_rows, sum(each.num_rows for each in all_groups))
            if local_path(file) is None:
                _expect(raw, _chunks(table, groups, fields))
            _hash_footer(content, raw)
            for group in groups:
                rows = 0
                for batch in _batches(
                    table, group, fields, _rows_per_block(table.metadata.row_group(group), block_bytes)
                ):
                    rows += batch.num_rows
                    yield from table_blocks(batch, source, block_bytes)
                chunks = _chunks(table, [group], fields)
                values = [chunk.num_values for chunk in chunks]
                _check_counts(file, rows, table.metadata.row_group(group).num_rows, *values)
                _hash_chunks(content, raw, chunks)

    def hash(self, piece: Piece, source: Source, content: Content) -> None:
        with open_raw(piece.file, 0, 0) as raw:
            table = pq.ParquetFile(raw, buffer_size=BUFFER_BYTES, pre_buffer=False)
            groups = _groups(piece, table.metadata)
            if local_path(piece.file) is None:
                _expect(raw, _chunks(table, groups, source._fields))
            _hash_footer(content, raw)
            for group in groups:
                next(_batches(table, group, source._fields, 1), None)  # see `_chunks`
                _hash_chunks(content, raw, _chunks(table, [group], source._fields))

    def raw_row(self, file: SourceFile, source: Source, row: int, most_bytes: int) -> RawRow | None:
        with open_raw(file, 0, 0) as raw:
            table = pq.ParquetFile(raw, buffer_size=BUFFER_BYTES, pre_buffer=False)
            check_columns(file, table.schema_arrow, source)
            for number in range(table.metadata.num_row_groups):
                group = table.metadata.row_group(number)
                if row < group.num_rows:
                    batches = _batches(table, number, source._fields, _rows_per_block(group, BUFFER_BYTES))
                    return raw_row_in(batches, source, row, most_bytes)
                row -= group.num_rows
        return None

    def schema(self, file: SourceFile, source: Source) -> pa.Schema:
        with open_input(file) as raw:
            return pq.read_schema(raw)

    def entry(self, file: SourceFile, source: Source) -> Entry:
        return "parts"

    def split(self, file: SourceFile, source: Source, piece_bytes: int) -> list[Piece]:
        return grouped(file, [group.total_byte_size for group in _row_groups(file)], piece_bytes)

    def parts(self, file: SourceFile, source: Source) -> list[Part]:
        """From the footer. Other columns count as text: to look at the metadata of one column, it must be read."""
        groups = _row_groups(file)
        texts = [1 + int(group.total_byte_size) for group in groups]
        disk_bytes = file.size / max(1, sum(texts))  # per byte of text
        return [Part(text, text * disk_bytes, group.num_rows) for text, group in zip(texts, groups, strict=True)]

    def rows_before(self, piece: Piece, source: Source) -> int:
        """From the footer."""
        return sum(group.num_rows for group in _row_groups(piece.file)[: piece.start])

    def first_records(self, file: SourceFile, count: int) -> Iterator[dict[str, Any]]:
        with reading(file), open_input(file) as raw:
            table = pq.ParquetFile(raw, buffer_size=BUFFER_BYTES, pre_buffer=False)
            batches = table.iter_batches(count, columns=text_columns(table.schema_arrow), use_threads=False)
            yield from next(batches, pa.RecordBatch.from_pylist([])).to_pylist()


FORMATS: dict[str, Format] = {"parquet": ParquetFormat("parquet")}


def _groups(piece: Piece, metadata: Any) -> range:
    return range(piece.start, metadata.num_row_groups if piece.stop is None else piece.stop)


def _row_groups(file: SourceFile) -> list[Any]:
    """The metadata of all row groups, from the footer."""
    with reading(file), open_input(file) as raw:
        metadata = pq.read_metadata(raw)
        return [metadata.row_group(i) for i in range(metadata.num_row_groups)]


def _batches(table: pq.ParquetFile, group: int, fields: tuple[str, ...], rows: int) -> Iterator[pa.RecordBatch]:
    columns = list(dict.fromkeys(fields))
    batches: Iterator[pa.RecordBatch] = table.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False)
    return batches


def _chunks(table: pq.ParquetFile, groups: Iterable[int], fields: tuple[str, ...]) -> list[Any]:
    """The column chunks that the fields are read from, for row groups of which some rows were read before.

    pyarrow aborts the process at the metadata of a damaged chunk, where reading the chunk raises an exception. So rows must
    have been read, and chunks of other columns are not touched. (Of a remote file all are needed before, to fetch them.)
    """
    paths = [table.metadata.schema.column(i).path for i in range(table.metadata.num_columns)]
    wanted = [i for i, path in enumerate(paths) if any(path == name or path.startswith(name + ".") for name in fields)]
    return [table.metadata.row_group(group).column(i) for group in groups for i in wanted]


def _check_counts(file: SourceFile, *counts: int) -> None:
    """Raise InputError unless these counts of the same rows are equal: else documents would be lost without a word."""
    if len(set(counts)) > 1:
        raise InputError(f"{file.shown}: damaged: the same rows are counted as {min(counts):,} and {max(counts):,}")


def _rows_per_block(group: Any, block_bytes: int) -> int:
    """About a block, or less where there are other columns; small blocks are joined later."""
    rows: int = group.num_rows
    nbytes: int = group.total_byte_size
    return max(1, min(rows, block_bytes * rows // max(nbytes, 1)))


def _expect(raw: Any, chunks: list[Any]) -> None:
    """Have the chunks of a remote file fetched before they are read."""
    expect(raw, sorted(_range_of(chunk) for chunk in chunks))


def _range_of(chunk: Any) -> tuple[int, int]:
    start = min(at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at)
    return start, start + chunk.total_compressed_size


def _hash_footer(content: Content, raw: BinaryIO) -> None:
    size = raw.seek(0, io.SEEK_END)
    raw.seek(size - 8)
    footer = int.from_bytes(raw.read(4), "little") + 8
    _hash_range(content, raw, max(size - footer, 0), footer)


def _hash_chunks(content: Content, raw: BinaryIO, chunks: list[Any]) -> None:
    """Hash the chunks of the columns that are read."""
    for chunk in chunks:
        start, stop = _range_of(chunk)
        _hash_range(content, raw, start, stop - start)


def _hash_range(content: Content, raw: BinaryIO, start: int, length: int) -> None:
    raw.seek(start)
    while length > 0 and (data := raw.read(min(length, READ_BYTES))):
        content.update(data)
        length -= len(data)
