"""The contract of a file format.

A new format is one module that implements `Format`, one line in `tokenmill.reading.formats`, and a subclass of
`tokenmill.testing.formats.FormatTests`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, Literal, NamedTuple

from tokenmill.documents import BLOCK_BYTES, Texts
from tokenmill.errors import InputError
from tokenmill.option_types import option_name
from tokenmill.reading.content_hash import Content
from tokenmill.reading.files import Piece, RawRow, Source, SourceFile

REQUESTS_AT_ONCE = 32
# Usual names of the fields of instructions, and of chats, whose text is in more than one field.
ASKED = ("instruction", "prompt", "question", "query", "input")
ANSWERS = ("output", "completion", "response", "answer")
CHATS = {"messages", "conversations", "conversation"}
Entry = Literal["records", "document", "parts", "head"]


class CutShort(InputError):
    """A file ends inside a record."""


class Part(NamedTuple):
    """A row group or record batch: about how much text it has, its share of the file in bytes, its rows if known."""

    text: int
    nbytes: float
    rows: int | None


class Format(ABC):
    """Reads the files of one format. Instances have no state; a file and its source are passed to every method."""

    def __init__(self, name: str) -> None:
        self.name = name

    # What every format must do.

    def records(self, piece: Piece, stream: BinaryIO) -> BinaryIO:
        """The records of a piece, given the stream of its file; for formats of lines."""
        return stream

    @abstractmethod
    def read(self, piece: Piece, source: Source, block_bytes: int, content: Content) -> Iterator[Texts]:
        """The documents of a piece, in order, in blocks of about `block_bytes` of text.

        Documents do not depend on `block_bytes`. Bad rows are skips in the Texts; a broken, truncated or changed file is
        an InputError that names it. `content` is updated on the way.
        """

    @abstractmethod
    def hash(self, piece: Piece, source: Source, content: Content) -> None:
        """Update `content` as `read` does, at the speed of the disk: nothing is parsed."""

    @abstractmethod
    def raw_row(self, file: SourceFile, source: Source, row: int, most_bytes: int) -> RawRow | None:
        """What a row holds as it is stored, cut after `most_bytes`; None if there are fewer rows.

        Rows are counted as `read` counts them, from 0 at the start of the file.
        """

    # What a format may do better than the default.

    has_fields = True  # whether records have named fields; text and lines do not
    hashes_columns = False  # whether the digest covers only the columns that are read, not all bytes of a piece

    def entry(self, file: SourceFile, source: Source) -> Entry:
        """How an uncompressed file can be entered without reading what comes before.

        "records": at any byte, the next record is found. "document": at any byte, inside the one document.
        "parts": at row groups or record batches, listed by `parts`. "head": only at its start.
        """
        return "head"

    def split(self, file: SourceFile, source: Source, piece_bytes: int) -> list[Piece]:
        """An uncompressed file as pieces of about `piece_bytes`; an empty list if it must stay whole."""
        return []

    def split_many(self, files: Sequence[SourceFile], source: Source, piece_bytes: int) -> Sequence[list[Piece] | None]:
        """`split` of several files, at the same time; None for one that cannot be read."""

        def pieces(file: SourceFile) -> list[Piece] | None:
            try:
                return self.split(file, source, piece_bytes)
            except (OSError, InputError):
                return None

        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
            return list(pool.map(pieces, files))

    def digest_option(self, source: Source) -> str | list[str] | None:
        """The option that chooses the text. The digest covers it."""
        return source.template or source.text_field

    def one_document(self, source: Source) -> bool:
        """Whether each file is one document."""
        return False

    def check_fields(self, file: SourceFile, source: Source) -> str | None:
        """What is wrong with the chosen fields, judged by the start of a file. None if nothing, or if it is unreadable."""
        return None

    def first_records(self, file: SourceFile, count: int) -> Iterator[dict[str, Any]]:
        """Up to `count` records from the start of a file, with all fields that may hold text."""
        return iter(())

    def rows_before(self, piece: Piece, source: Source) -> int:
        """How many rows of the file come before a piece. The default reads the file up to there."""
        before = Piece(piece.file, 0, piece.start)
        return sum(texts.rows for texts in self.read(before, source, BLOCK_BYTES, self.hasher(before, source)))

    def record_start(self, file: SourceFile, source: Source, at: int) -> int:
        """Where the first record at or after byte `at` starts, for files with entry "records"."""
        raise NotImplementedError(f"{self.name} files cannot be entered between records")

    def parts(self, file: SourceFile, source: Source) -> list[Part]:
        """The parts of a file with entry "parts". Reads its footer only."""
        raise NotImplementedError(f"{self.name} files have no parts")

    def head_rows(self, file: SourceFile, most_bytes: int) -> tuple[int, int] | None:
        """For a file with entry "head": (rows, bytes) of the first `most_bytes`, if found without parsing. Else None."""
        return None

    # The same for all.

    def hasher(self, piece: Piece, source: Source) -> Content:
        """The hasher of a piece, before its first byte."""
        file = piece.file
        size = file.size if self.hashes_columns else None
        option = self.digest_option(source)
        given = [option] if source.delimiter is None else [option, source.delimiter]
        # The start of a file is read differently: a byte order mark is dropped, a JSON array is refused.
        return Content([file.format, file.codec, file.name, piece.is_first, size, bool(source.template), *given])


def remedy(source: Source, names: Iterable[str]) -> str:
    """What to do about a field that is not there or holds no text, for messages. `names` are the fields there are."""
    if source.template:
        return f"Correct {option_name('template')}"
    asked, answer = ([name for name in usual if name in names] for usual in (ASKED, ANSWERS))
    if asked and answer:
        template = "\n".join(f"{{{name}}}" for name in asked + answer[:1])
        return f"For all of it pass {option_name('template', template)}"
    if chats := [name for name in names if name in CHATS]:
        return f"{chats[0]!r} holds chats: write each as one text first, as the chat template of a tokenizer does"
    other = "files that differ in this can be sources of one recipe, each with its own text_field"
    return f"Choose with {option_name('text_field')}; {other}"


def grouped(file: SourceFile, sizes: list[int], piece_bytes: int) -> list[Piece]:
    """Consecutive parts joined to pieces of up to `piece_bytes`. The bytes of the file are shared in proportion."""
    pieces: list[Piece] = []
    start, size_so_far, total = 0, 0, max(sum(sizes), 1)
    for i, size in enumerate(sizes):
        if size_so_far and size_so_far + size > piece_bytes:
            pieces.append(Piece(file, start, i, file.size * size_so_far // total))
            start, size_so_far = i, 0
        size_so_far += size
    pieces.append(Piece(file, start, len(sizes), file.size * size_so_far // total))
    return pieces
