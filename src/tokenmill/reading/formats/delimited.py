"""What formats of delimited records share: pieces are byte ranges, and a record belongs to the range it starts in."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator

from tokenmill.documents import BLANK, BLOCK_BYTES, Skip, Texts, merge_skips
from tokenmill.reading.codecs import hash_file, open_input, open_raw, open_stream, reading
from tokenmill.reading.content_hash import Content
from tokenmill.reading.cutting import Delimiters
from tokenmill.reading.files import Piece, RawRow, Source, SourceFile
from tokenmill.reading.formats.base import Entry, Format
from tokenmill.reading.raw_rows import MARGIN, find_record, shown_row, without_line_break
from tokenmill.reading.records import Raw, count_records, record_start, splittable, whole_records

SEARCH_BYTES = 1 << 16  # read at a time to find where a record starts


class DelimitedFormat(Format):
    """Records that end in a delimiter: a line end, or the separator of a text file."""

    @abstractmethod
    def delimiter(self, source: Source) -> bytes | None:
        """What ends a record; None where the whole file is one document."""

    @abstractmethod
    def long_bytes(self) -> int:
        """The largest record that is held in memory as a whole."""

    @abstractmethod
    def parser(self, piece: Piece, source: Source) -> Callable[[Raw], Texts | None]:
        """A function that turns blocks of records into documents, in order; None where a block gives nothing yet."""

    def read(self, piece: Piece, source: Source, block_bytes: int, content: Content) -> Iterator[Texts]:
        delimiter = self._delimiter(source)
        # A whole file is identified by all of its bytes, a part of one by its records.
        with open_stream(piece.file, content if piece.is_whole else None, piece.start, piece.stop) as stream:
            parse, records = self.parser(piece, source), self.records(piece, stream)
            for raw in whole_records(records, delimiter, piece.start, piece.stop, block_bytes, self.long_bytes()):
                if not piece.is_whole:
                    content.update(raw.data)
                with content.parsing():
                    texts = parse(raw)
                if texts is not None:
                    yield texts

    def hash(self, piece: Piece, source: Source, content: Content) -> None:
        if piece.is_whole:
            hash_file(piece.file, content)
            return
        delimiter, long_bytes = self._delimiter(source), self.long_bytes()
        with open_raw(piece.file, piece.start, piece.stop) as stream:
            for record in whole_records(stream, delimiter, piece.start, piece.stop, BLOCK_BYTES, long_bytes):
                content.update(record.data)

    def raw_row(self, file: SourceFile, source: Source, row: int, most_bytes: int) -> RawRow | None:
        delimiter = self._delimiter(source)
        with open_stream(file) as stream:
            records = self.records(Piece(file), stream)
            record = find_record(records, Delimiters(delimiter), row, most_bytes + MARGIN + len(delimiter))
        if record is None:
            return None
        return shown_row(
            without_line_break(record) if delimiter == b"\n" else record.removesuffix(delimiter), most_bytes
        )

    def entry(self, file: SourceFile, source: Source) -> Entry:
        delimiter = self.delimiter(source)
        if delimiter is None:
            return "document"
        return "records" if splittable(delimiter) else "head"

    def split(self, file: SourceFile, source: Source, piece_bytes: int) -> list[Piece]:
        if self.entry(file, source) != "records":
            return []
        cuts = list(range(0, file.size, piece_bytes))
        stops = [*cuts[1:], None]
        return [Piece(file, a, b, (b or file.size) - a) for a, b in zip(cuts, stops, strict=True)]

    def rows_before(self, piece: Piece, source: Source) -> int:
        """Counts delimiters up to the piece."""
        with open_stream(piece.file, stop=piece.start) as stream:
            return count_records(stream, self._delimiter(source), piece.start, BLOCK_BYTES, self.long_bytes())

    def record_start(self, file: SourceFile, source: Source, at: int) -> int:
        if at <= 0 or at >= file.size:
            return min(max(at, 0), file.size)
        with reading(file), open_input(file) as raw:
            return record_start(raw, self._delimiter(source), at, SEARCH_BYTES)[0]

    def _delimiter(self, source: Source) -> bytes:
        delimiter = self.delimiter(source)
        assert delimiter is not None, "a file that is one document has no pieces"
        return delimiter


def with_blanks(skips: list[Skip], blank_rows: list[int]) -> list[Skip]:
    """Skips and blank rows together, in order."""
    if not blank_rows:
        return skips
    return merge_skips(sorted([*skips, *(Skip(row, 1, BLANK) for row in blank_rows)]))
