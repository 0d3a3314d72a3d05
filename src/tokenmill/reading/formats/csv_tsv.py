"""Files of values with a header, separated by commas or other characters. They can only be read from the start."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.csv as pacsv

from tokenmill.callers import warn
from tokenmill.documents import Skip, Texts
from tokenmill.errors import InputError
from tokenmill.option_types import option_name
from tokenmill.reading.codecs import Continued, hash_file, open_stream, reading
from tokenmill.reading.content_hash import Content
from tokenmill.reading.cutting import HEADER_BYTES, CsvRows, field_mark
from tokenmill.reading.files import Piece, RawRow, Source, SourceFile
from tokenmill.reading.formats.base import CutShort, Format
from tokenmill.reading.formats.text_columns import TableFormat, check_columns, table_blocks
from tokenmill.reading.raw_rows import MARGIN, find_record, shown_row, without_line_break
from tokenmill.reading.utf8 import no_text, one_text, valid_texts

HEAD_BYTES = 1 << 20  # read to look at the first records
MOST_FIELD_BYTES = 1 << 30
END = "end of the file; this row is added by tokenmill"  # a row after the last one; if it is not, a quoted field was not closed


class CsvFormat(TableFormat):
    """Arrow parses the file; where it cannot go on, Python's csv module reads the rest row by row."""

    def __init__(self, name: str, delimiter: str) -> None:
        super().__init__(name)
        self.delimiter = delimiter

    def check_fields(self, file: SourceFile, source: Source) -> str | None:
        complaint = super().check_fields(file, source)
        with suppress(InputError):
            mark, _ = self._header(file, source)
            if not complaint and source.delimiter is None and mark != self.delimiter:
                remedy = option_name("delimiter", mark)
                warn(f"{file.shown}: by its header, {mark!r} is between fields; pass {remedy} to say so")
        return complaint

    def read(self, piece: Piece, source: Source, block_bytes: int, content: Content) -> Iterator[Texts]:
        mark, names = self._header(piece.file, source)
        check_columns(piece.file, _schema_of(names), source)
        rows = 0
        fast = self.hasher(piece, source)  # the careful path hashes from the start again
        for texts in self._read_fast(piece.file, source, block_bytes, fast, mark):
            if texts is None:
                yield from self._read_carefully(piece.file, source, rows, content, mark)
                return
            yield texts
            rows += texts.rows
        content.hash = fast.hash

    def hash(self, piece: Piece, source: Source, content: Content) -> None:
        hash_file(piece.file, content)

    def raw_row(self, file: SourceFile, source: Source, row: int, most_bytes: int) -> RawRow | None:
        """All fields of the record, with their quotes. The header is no row, and blank lines are none."""
        mark, _ = self._header(file, source)
        with open_stream(file) as stream:
            finder = CsvRows(mark.encode())
            record = find_record(stream, finder, row + 1, most_bytes + MARGIN, before=b"\r\n")
        return None if record is None else shown_row(without_line_break(record), most_bytes)

    def schema(self, file: SourceFile, source: Source) -> pa.Schema:
        return _schema_of(self._header(file, source)[1])

    def first_records(self, file: SourceFile, count: int) -> Iterator[dict[str, Any]]:
        with open_stream(file) as stream:
            head = stream.read(HEAD_BYTES)
        csv.field_size_limit(MOST_FIELD_BYTES)
        lines = io.StringIO(head.decode("utf-8-sig", "replace"), newline="")
        with reading(file):
            mark = field_mark(Source(files=(), inputs=()), self.name, head)
            yield from islice(csv.DictReader(lines, delimiter=mark), count)

    def _header(self, file: SourceFile, source: Source) -> tuple[str, list[str]]:
        """What is between fields, and their names."""
        with open_stream(file) as stream:
            head = stream.read(HEADER_BYTES)
            mark = field_mark(source, self.name, head)
            return mark, next(self._rows(file, cast(BinaryIO, Continued(head, stream)), mark), [])

    def _read_fast(
        self, file: SourceFile, source: Source, block_bytes: int, content: Content, mark: str
    ) -> Iterator[Texts | None]:
        """Blocks as Arrow parses them; None where it will not go on."""
        fields = source._fields
        with open_stream(file, content) as raw:
            stream = _ArrowStream(raw)
            try:
                reader = pacsv.open_csv(
                    pa.PythonFile(stream, mode="r"),
                    read_options=pacsv.ReadOptions(block_size=block_bytes, use_threads=False),
                    parse_options=pacsv.ParseOptions(delimiter=mark, newlines_in_values=True),
                    convert_options=pacsv.ConvertOptions(
                        include_columns=list(dict.fromkeys(fields)),
                        column_types={name: pa.large_binary() for name in fields},
                        strings_can_be_null=False,
                    ),
                )
            except (pa.ArrowKeyError, pa.ArrowInvalid):
                stream.raise_error()
                yield None
                return
            while True:
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    stream.raise_error()
                    if stream.quotes % 2:  # maybe the file ends inside a quoted field, which Arrow takes for its end
                        yield None
                    return
                except pa.ArrowInvalid:
                    stream.raise_error()
                    yield None
                    return
                yield from table_blocks(batch, source, block_bytes)

    def _read_carefully(
        self, file: SourceFile, source: Source, skip_rows: int, content: Content, mark: str
    ) -> Iterator[Texts]:
        """Row by row from `skip_rows` on. Costs a Python object per field: only where the fast path cannot finish."""
        template = source._text_template
        with open_stream(file, content) as stream:
            rows = self._rows(file, stream, mark)
            header = next(rows, [])
            columns = [header.index(name) for name in template.fields]
            for number, row in enumerate(rows):
                if number < skip_rows:
                    continue
                if len(row) != len(header):
                    detail = f"{len(row)} fields where the header has {len(header)}"
                    yield no_text(Skip(0, 1, "bad csv row", detail))
                    continue
                text = template.join([row[i] for i in columns])
                texts, skips = valid_texts(one_text(text.encode("utf-8", "surrogateescape")), None)
                yield Texts(texts, 1, skips)

    def _rows(self, file: SourceFile, stream: BinaryIO, mark: str) -> Iterator[list[str]]:
        csv.field_size_limit(MOST_FIELD_BYTES)
        buffered = io.BufferedReader(cast(io.RawIOBase, stream))
        lines = io.TextIOWrapper(buffered, "utf-8-sig", "surrogateescape", newline="")
        try:
            row: list[str] = []
            for following in csv.reader(chain(lines, ("\n", END)), delimiter=mark):
                if row:
                    yield row
                row = following
            if mark.join(row) != END:
                raise CutShort(f"{file.shown}: ends inside a quoted field; is the file cut short?")
        except csv.Error as error:
            raise InputError(f"{file.shown}: {error}") from error
        finally:
            with suppress(ValueError):  # closed already
                lines.detach().detach()  # the opener closes the stream


FORMATS: dict[str, Format] = {"csv": CsvFormat("csv", ","), "tsv": CsvFormat("tsv", "\t")}


def _schema_of(header: list[str]) -> pa.Schema:
    return pa.schema([(name, pa.string()) for name in header])


class _ArrowStream(io.RawIOBase):
    """A stream that avoids two faults of Arrow's csv reader.

    Reads never end between \\r and \\n: Arrow drops such a \\n, also inside a quoted field. Reads never raise: an error in
    Arrow's read-ahead thread can hang the process. An error looks like the end of the stream and is raised later.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.rest = stream, b""
        self.quotes = 0  # seen so far
        self.error: Exception | None = None

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            fresh = self.stream.read(max(size - len(self.rest), 1) if size >= 0 else -1)
        except Exception as error:
            self.error, fresh = error, b""
        self.quotes += fresh.count(b'"')
        data, self.rest = self.rest + fresh, b""
        if fresh and data.endswith(b"\r") and len(data) > 1:
            data, self.rest = data[:-1], b"\r"
        return data

    def raise_error(self) -> None:
        """Raise the error of an earlier read, if any."""
        if self.error is not None:
            raise self.error
