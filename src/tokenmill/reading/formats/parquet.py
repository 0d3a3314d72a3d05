"""Parquet files. Pieces are ranges of row groups."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.documents import Texts
from tokenmill.reading.codecs import open_raw, reading
from tokenmill.reading.content_hash import READ_BYTES, Content
from tokenmill.reading.files import Piece, Source, SourceFile
from tokenmill.reading.formats.base import Entry, Format, Part, grouped
from tokenmill.reading.formats.text_columns import TableFormat, check_columns, table_blocks, text_columns

BUFFER_BYTES = 1 << 20  # buffered reads keep a huge row group from being held as a whole


class ParquetFormat(TableFormat):
    """Row groups with the text in one or more columns."""

    hashes_columns = True

    def read(self, piece: Piece, source: Source, block_bytes: int, content: Content) -> Iterator[Texts]:
        """Memory: about one block, and one compressed page per column."""
        file, fields = piece.file, source.fields
        with open_raw(file) as raw:
            table = pq.ParquetFile(raw, buffer_size=BUFFER_BYTES, pre_buffer=False)
            check_columns(file, table.schema_arrow, source)
            groups = _groups(piece, table.metadata)
            for group in groups:
                rows = _rows_per_block(table.metadata.row_group(group), fields, block_bytes)
                columns = list(dict.fromkeys(fields))
                for batch in table.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False):
                    yield from table_blocks(batch, source, block_bytes)
            _hash_groups(content, raw, table.metadata, groups, fields)

    def hash(self, piece: Piece, source: Source, content: Content) -> None:
        with open_raw(piece.file) as raw:
            metadata = pq.read_metadata(raw)
            _hash_groups(content, raw, metadata, _groups(piece, metadata), source.fields)

    def schema(self, file: SourceFile) -> pa.Schema:
        return pq.read_schema(file.path)

    def entry(self, file: SourceFile, source: Source) -> Entry:
        return "parts"

    def split(self, file: SourceFile, source: Source, piece_bytes: int) -> list[Piece]:
        return grouped(file, [group.total_byte_size for group in _row_groups(file)], piece_bytes)

    def parts(self, file: SourceFile, source: Source) -> list[Part]:
        groups = _row_groups(file)
        fields = source.fields
        texts = [1 + sum(chunk.total_uncompressed_size for chunk in _chunks(group, fields)) for group in groups]
        disk_bytes = file.size / max(1, sum(texts))  # per byte of text
        return [Part(text, text * disk_bytes, group.num_rows) for text, group in zip(texts, groups, strict=True)]

    def rows_before(self, piece: Piece, source: Source) -> int:
        """From the footer."""
        return sum(group.num_rows for group in _row_groups(piece.file)[: piece.start])

    def first_records(self, file: SourceFile, count: int) -> Iterator[dict[str, Any]]:
        with reading(file), pq.ParquetFile(file.path, buffer_size=BUFFER_BYTES, pre_buffer=False) as table:
            batches = table.iter_batches(count, columns=text_columns(table.schema_arrow), use_threads=False)
            yield from next(batches, pa.RecordBatch.from_pylist([])).to_pylist()


FORMATS: dict[str, Format] = {"parquet": ParquetFormat("parquet")}


def _groups(piece: Piece, metadata: Any) -> range:
    return range(piece.start, metadata.num_row_groups if piece.stop is None else piece.stop)


def _row_groups(file: SourceFile) -> list[Any]:
    """The metadata of all row groups, from the footer."""
    with reading(file):
        metadata = pq.read_metadata(file.path)
        return [metadata.row_group(i) for i in range(metadata.num_row_groups)]


def _chunks(group: Any, fields: tuple[str, ...]) -> list[Any]:
    """The column chunks of a row group that the fields are read from."""
    chunks = [group.column(i) for i in range(group.num_columns)]
    return [
        chunk
        for chunk in chunks
        if any(chunk.path_in_schema == name or chunk.path_in_schema.startswith(name + ".") for name in fields)
    ]


def _rows_per_block(group: Any, fields: tuple[str, ...], block_bytes: int) -> int:
    nbytes: int = sum(chunk.total_uncompressed_size for chunk in _chunks(group, fields))
    rows: int = group.num_rows
    return max(1, min(rows, block_bytes * rows // max(nbytes, 1)))


def _hash_groups(
    content: Content, raw: BinaryIO, metadata: Any, groups: Iterable[int], fields: tuple[str, ...]
) -> None:
    """Hash the footer, and of each row group the chunks of the columns that are read."""
    size = raw.seek(0, io.SEEK_END)
    raw.seek(size - 8)
    footer = int.from_bytes(raw.read(4), "little") + 8
    _hash_range(content, raw, max(size - footer, 0), footer)
    for group in groups:
        for chunk in _chunks(metadata.row_group(group), fields):
            starts = [at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at]
            _hash_range(content, raw, min(starts), chunk.total_compressed_size)


def _hash_range(content: Content, raw: BinaryIO, start: int, length: int) -> None:
    raw.seek(start)
    while length > 0 and (data := raw.read(min(length, READ_BYTES))):
        content.update(data)
        length -= len(data)
