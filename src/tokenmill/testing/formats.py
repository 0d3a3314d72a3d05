"""The conformance suite of file formats.

    class TestWarc(FormatTests):
        suffix = ".warc"

        def write(self, texts, path):
            ...

The suite writes files with `write` and reads them through the public functions of `tokenmill.reading`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from tokenmill.errors import InputError
from tokenmill.reading import (
    Piece,
    Source,
    SourceFile,
    check_fields,
    content_hasher,
    content_of,
    read,
    read_piece,
    rows_before,
    split,
    text_weight,
)
from tokenmill.reading.formats import Format, get_format
from tokenmill.reading.raw_rows import raw_row

BLOCK_SIZES = (1, 8, 100, 1000, 1 << 20)
PIECE_SIZES = (1, 64, 500, 5000)


class Result(NamedTuple):
    """What reading gave: documents, source rows, and (row, reason) of each row that gave none."""

    documents: list[str]
    rows: int
    skipped: list[tuple[int, str]]


class FormatTests:
    """Inherit from this class, set the attributes and implement `write`."""

    suffix: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}  # for tokenmill.read
    texts: ClassVar[Sequence[str]] = [
        *(f"document {i} " + "word " * (i % 40) for i in range(60)),
        " leading and trailing ",
        "中文字符 naïve café e\u0301 👩‍👩‍👧‍👦",
        '"quotes", commas,\ttabs, \\n {braces} <|endoftext|>',
        "x" * 3000,
        "last",
    ]
    empty: ClassVar[Sequence[str]] = ()  # the documents of a file without any
    one_document = False  # whether a file is one document: then only the first text is written
    detects_truncation = True  # whether a file that ends too early is an error

    def write(self, texts: Sequence[str | bytes], path: Path) -> None:
        """Write a file with these documents. A bytes object is text that may not be valid UTF-8."""
        raise NotImplementedError

    # Helpers for the tests.

    def expected(self) -> list[str]:
        return list(self.texts[:1] if self.one_document else self.texts)

    def source(self, folder: Path, texts: Sequence[str | bytes] | None = None, name: str = "corpus") -> Source:
        """The source of a new file."""
        path = folder / f"{name}{self.suffix}"
        self.write(self.expected() if texts is None else texts, path)
        return read(path, **self.options)

    def format(self, source: Source) -> Format:
        return get_format(source.files[0].format)

    def entered(self, folder: Path, entry: str) -> tuple[Source, SourceFile, Format]:
        """The source of a new file, the file and its format. Skips the test if files are not entered like that."""
        source = self.source(folder)
        file, format = source.files[0], self.format(source)
        if file.codec or format.entry(file, source) != entry:
            pytest.skip(f"files of this format are not entered by {entry}")
        return source, file, format

    def read(self, source: Source, pieces: Iterable[Piece] | None = None, block_bytes: int = 1 << 20) -> Result:
        """The documents of pieces, or of the whole file. Checks every block on the way."""
        import pyarrow as pa

        documents: list[str] = []
        skipped: list[tuple[int, str]] = []
        rows, unfinished = 0, ""
        for piece in [Piece(source.files[0])] if pieces is None else pieces:
            for block in read_piece(piece, source, block_bytes):
                assert block.values.type == pa.large_string()
                assert block.values.null_count == 0
                assert len(block.values) + sum(skip.rows for skip in block.skips) == block.rows + block.unfinished
                values = block.values.to_pylist()
                if unfinished:
                    values[0] = unfinished + values[0]
                unfinished = values.pop() if block.unfinished else ""
                documents += values
                for skip in block.skips:
                    skipped += [(rows + row, skip.reason) for row in range(skip.row, skip.row + skip.rows)]
                rows += block.rows
        return Result(documents, rows, skipped)

    # Documents.

    def test_what_is_written_is_read(self, tmp_path: Path) -> None:
        result = self.read(self.source(tmp_path))
        assert result == (self.expected(), len(self.expected()), [])

    def test_block_size_never_changes_documents(self, tmp_path: Path) -> None:
        source = self.source(tmp_path)
        for block_bytes in BLOCK_SIZES:
            assert self.read(source, block_bytes=block_bytes).documents == self.expected()

    def test_pieces_together_equal_the_whole(self, tmp_path: Path) -> None:
        source = self.source(tmp_path)
        for piece_bytes in PIECE_SIZES:
            pieces = split(source.files[0], source, piece_bytes)
            assert [piece.start for piece in pieces] == [0, *(piece.stop for piece in pieces[:-1])]
            for block_bytes in (100, 1 << 20):
                assert self.read(source, pieces, block_bytes) == self.read(source)

    def test_a_file_without_documents(self, tmp_path: Path) -> None:
        source = self.source(tmp_path, [])
        assert self.read(source).documents == list(self.empty)
        assert self.read(source, split(source.files[0], source, 1)).documents == list(self.empty)

    def test_invalid_utf8_is_skipped_with_its_row(self, tmp_path: Path) -> None:
        texts: list[str | bytes] = [b"b\xff"] if self.one_document else ["a", b"b\xff", "c"]
        good = [text for text in texts if isinstance(text, str)]
        source = self.source(tmp_path, texts)
        for block_bytes in BLOCK_SIZES:
            result = self.read(source, block_bytes=block_bytes)
            assert result == (good, len(texts), [(len(texts) // 2, "invalid utf-8")])

    def test_rows_before_counts_the_rows_of_earlier_pieces(self, tmp_path: Path) -> None:
        source = self.source(tmp_path)
        pieces = split(source.files[0], source, 500)
        for i, piece in enumerate(pieces):
            assert rows_before(piece, source) == self.read(source, pieces[:i]).rows

    def test_every_row_can_be_shown_as_it_is_stored(self, tmp_path: Path) -> None:
        source = self.source(tmp_path)
        file, texts = source.files[0], self.expected()
        for row in {0, len(texts) // 2, len(texts) - 1}:
            assert texts[row] in raw_row(file, source, row).text
            assert raw_row(file, source, row, most_bytes=3).is_cut
        with pytest.raises(InputError, match="corpus"):
            raw_row(file, source, len(texts))

    # Digests.

    def test_reading_and_hashing_give_the_same_digest(self, tmp_path: Path) -> None:
        source = self.source(tmp_path)
        for piece in [Piece(source.files[0]), *split(source.files[0], source, 500)]:
            for block_bytes in (100, 1 << 20):
                content = content_hasher(piece, source)
                for _ in read_piece(piece, source, block_bytes, content):
                    assert content.digest is None, "a digest before everything was read"
                assert content.digest == content_of(piece, source)

    def test_equal_content_has_the_same_digest_and_other_content_another(self, tmp_path: Path) -> None:
        changed = ["another" + self.expected()[0], *self.expected()[1:]]
        sources = [
            self.source(tmp_path, name="a"),
            self.source(tmp_path, name="b"),
            self.source(tmp_path, changed, name="c"),
        ]
        first, copy, other = (content_of(Piece(source.files[0]), source) for source in sources)
        assert first == copy
        assert first != other

    # Broken files.

    def test_a_truncated_file_is_an_error_that_names_it(self, tmp_path: Path) -> None:
        if not self.detects_truncation:
            pytest.skip("a file of this format that ends early is a shorter file")
        path = tmp_path / f"cut{self.suffix}"
        self.write(self.expected(), path)
        whole = path.read_bytes()
        for size in (0, 1, len(whole) // 3, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:size])
            with pytest.raises(InputError, match="cut"):
                self.read(read(path, **self.options))

    def test_a_file_that_changed_or_went_away_is_an_error_that_names_it(self, tmp_path: Path) -> None:
        source = self.source(tmp_path)
        piece, path = Piece(source.files[0]), source.files[0].path
        os.utime(path, ns=(1, 1))
        for attempt in (lambda: self.read(source), lambda: content_of(piece, source)):
            with pytest.raises(InputError, match="corpus"):
                attempt()
        os.unlink(path)
        for attempt in (lambda: self.read(source), lambda: content_of(piece, source)):
            with pytest.raises(InputError, match="corpus"):
                attempt()

    def test_a_file_of_garbage_does_not_fail_the_plan(self, tmp_path: Path) -> None:
        path = tmp_path / f"garbage{self.suffix}"
        path.write_bytes(b"\x00\xfegarbage" * 1000)
        source = read(path, **self.options)
        assert split(source.files[0], source, 100)
        check_fields(source)

    # Entering a file.

    def test_entry_and_split_agree(self, tmp_path: Path) -> None:
        source = self.source(tmp_path)
        file = source.files[0]
        entry = "head" if file.codec else self.format(source).entry(file, source)
        assert entry in ("records", "document", "parts", "head")
        if entry in ("document", "head"):
            assert len(split(file, source, 1)) == 1
        assert text_weight(file) >= file.size > 0

    def test_records_start_where_it_is_said(self, tmp_path: Path) -> None:
        source, file, format = self.entered(tmp_path, "records")
        total = self.read(source).rows
        for at in range(0, file.size + 1, 97):
            start = format.record_start(file, source, at)
            assert at <= start <= file.size
            rest = Piece(file, start)
            assert self.read(source, [rest]).rows == total - rows_before(rest, source)

    def test_parts_add_up_to_the_file(self, tmp_path: Path) -> None:
        source, file, format = self.entered(tmp_path, "parts")
        parts = format.parts(file, source)
        assert sum(part.nbytes for part in parts) == pytest.approx(file.size)
        assert all(part.text > 0 for part in parts)
        rows = [self.read(source, [Piece(file, i, i + 1)]).rows for i in range(len(parts))]
        assert [part.rows or count for part, count in zip(parts, rows, strict=True)] == rows
        assert sum(rows) == self.read(source).rows

    def test_the_rows_of_a_head(self, tmp_path: Path) -> None:
        source, file, format = self.entered(tmp_path, "head")
        total = self.read(source).rows
        for most_bytes in (1, file.size // 2, file.size):
            head = format.head_rows(file, most_bytes)
            if head is not None:
                rows, consumed = head
                assert 0 < rows <= total
                assert min(most_bytes, file.size) <= consumed <= file.size
                assert (rows == total) or consumed < file.size

    # Fields.

    def test_the_first_records_have_the_text(self, tmp_path: Path) -> None:
        source = self.source(tmp_path)
        format = self.format(source)
        records = list(format.first_records(source.files[0], 5))
        if not format.has_fields:
            assert records == []
            return
        assert [record[source.text_field] for record in records] == self.expected()[:5]

    def test_a_wrong_field_is_named_with_those_there_are(self, tmp_path: Path) -> None:
        source = self.source(tmp_path)
        format = self.format(source)
        assert format.check_fields(source.files[0], source) is None
        if format.has_fields:
            wrong = read(source.files[0].path, **{**self.options, "text_field": "nowhere"})
            complaint = format.check_fields(wrong.files[0], wrong)
            assert complaint is not None
            for part in (source.files[0].path, "'nowhere'", source.text_field):
                assert part in complaint
