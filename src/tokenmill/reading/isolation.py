"""Files that are read in a child process, because a damaged one may crash the library that reads it.

The child is `reading_process`. A piece is read block by block; while the caller works on a block, the child reads the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from tokenmill.child_process import ChildDied, Children, Message
from tokenmill.documents import Skip, Texts
from tokenmill.errors import InputError
from tokenmill.options import ReadOptions
from tokenmill.reading.content_hash import Content
from tokenmill.reading.files import Piece, RawRow, Source, SourceFile
from tokenmill.reading.formats.base import Entry, Format, Part

_children = Children("tokenmill.reading.reading_process")
_OPTIONS = [option.name for option in fields(ReadOptions)]


class IsolatedFormat(Format):
    """A format whose files are read in a child process, except those that tokenmill wrote itself.

    Where no process can be started, they are read in this one.
    """

    def __init__(self, here: Format) -> None:
        super().__init__(here.name)
        self._here = here  # reads in this process
        self.has_fields, self.hashes_columns = here.has_fields, here.hashes_columns

    def read(self, piece: Piece, source: Source, block_bytes: int, content: Content) -> Iterator[Texts]:
        if _is_read_here(piece.file):
            yield from self._here.read(piece, source, block_bytes, content)
            return
        with _blaming(piece.file), _children.lend() as child:
            child.send(_request("read", piece, source, block_bytes))
            while "digest" not in (answer := child.receive()).body:
                child.send({"call": "next"})
                try:
                    yield _texts(answer)
                except GeneratorExit:  # the caller has enough
                    child.receive()
                    return
            content.finish(answer.body["digest"])

    def hash(self, piece: Piece, source: Source, content: Content) -> None:
        content.finish(self._call("hash", piece, source))

    def raw_row(self, file: SourceFile, source: Source, row: int, most_bytes: int) -> RawRow | None:
        if _is_read_here(file):
            return self._here.raw_row(file, source, row, most_bytes)
        with _blaming(file), _children.lend() as child:
            request = _request("raw_row", Piece(file), source, most_bytes)
            found = child.call({**request, "row": row}).body["result"]
        return None if found is None else RawRow(*found)

    def entry(self, file: SourceFile, source: Source) -> Entry:
        return self._here.entry(file, source)

    def split(self, file: SourceFile, source: Source, piece_bytes: int) -> list[Piece]:
        return [Piece(file, *piece) for piece in self._call("split", Piece(file), source, piece_bytes)]

    def split_many(self, files: Sequence[SourceFile], source: Source, piece_bytes: int) -> Sequence[list[Piece] | None]:
        if _is_read_here(files[0]):
            return self._here.split_many(files, source, piece_bytes)
        with _blaming(files[0]), _children.lend() as child:
            request = _request("split_many", Piece(files[0]), source, piece_bytes)
            found = child.call({**request, "files": [list(file) for file in files]}).body["result"]
        return [
            None if pieces is None else [Piece(file, *piece) for piece in pieces]
            for file, pieces in zip(files, found, strict=True)
        ]

    def digest_option(self, source: Source) -> str | list[str] | None:
        return self._here.digest_option(source)

    def one_document(self, source: Source) -> bool:
        return self._here.one_document(source)

    def check_fields(self, file: SourceFile, source: Source) -> str | None:
        try:
            complaint: str | None = self._call("check_fields", Piece(file), source)
        except InputError:
            return None
        return complaint

    def first_records(self, file: SourceFile, count: int) -> Iterator[dict[str, Any]]:
        yield from self._call("first_records", Piece(file), None, count)

    def rows_before(self, piece: Piece, source: Source) -> int:
        return int(self._call("rows_before", piece, source))

    def parts(self, file: SourceFile, source: Source) -> list[Part]:
        return [Part(*part) for part in self._call("parts", Piece(file), source)]

    def head_rows(self, file: SourceFile, most_bytes: int) -> tuple[int, int] | None:
        found = self._call("head_rows", Piece(file), None, most_bytes)
        return None if found is None else (found[0], found[1])

    def _call(self, method: str, piece: Piece, source: Source | None, number: int = 0) -> Any:
        if _is_read_here(piece.file):
            return call_format(self._here, method, piece, source, number)
        with _blaming(piece.file), _children.lend() as child:
            return child.call(_request(method, piece, source, number)).body["result"]


def call_format(format: Format, method: str, piece: Piece, source: Source | None, number: int) -> Any:
    """The result of a method of a format, as JSON can express it."""
    file, source = piece.file, source or Source(files=(), inputs=())
    match method:
        case "hash":
            content = format.hasher(piece, source)
            format.hash(piece, source, content)
            content.finish()
            return content.digest
        case "split":
            return [[part.start, part.stop, part.nbytes] for part in format.split(file, source, number)]
        case "rows_before":
            return format.rows_before(piece, source)
        case "first_records":
            return list(format.first_records(file, number))
        case "head_rows":
            return format.head_rows(file, number)
        case "parts":
            return format.parts(file, source)
        case _:
            return format.check_fields(file, source)


def split_many_here(
    format: Format, files: list[SourceFile], source: Source, piece_bytes: int
) -> list[list[list[int | None]] | None]:
    """`split_many` of a format, as JSON can express it."""
    return [
        None if pieces is None else [[part.start, part.stop, part.nbytes] for part in pieces]
        for pieces in format.split_many(files, source, piece_bytes)
    ]


def _is_read_here(file: SourceFile) -> bool:
    return file.spooled or not _children.can_start()


def _request(method: str, piece: Piece, source: Source | None, number: int) -> dict[str, Any]:
    options = {name: getattr(source, name) for name in _OPTIONS} if source is not None else {}
    return {
        "call": method,
        "file": list(piece.file),
        "range": [piece.start, piece.stop],
        "reading": options,
        "number": number,
    }


@contextmanager
def _blaming(file: SourceFile) -> Iterator[None]:
    """Turn the death of the child into an InputError that names the file."""
    try:
        yield
    except ChildDied as died:
        raise InputError(
            f"{file.shown}: the library that reads {file.format} files {died} at this file; it is damaged, or memory is short"
        ) from died


def _texts(answer: Message) -> Texts:
    import pyarrow as pa

    offsets, data = map(pa.py_buffer, answer.data)
    values = pa.Array.from_buffers(pa.large_string(), answer.body["documents"], [None, offsets, data])
    skips = [Skip(*skip) for skip in answer.body["skips"]]
    return Texts(values, answer.body["rows"], skips, answer.body["unfinished"])
