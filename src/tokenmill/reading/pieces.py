"""Reading files of any format: split into pieces, read or hash a piece, check the chosen fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from tokenmill.documents import BLOCK_BYTES, Texts
from tokenmill.errors import InputError, UsageError
from tokenmill.reading.content_hash import Content
from tokenmill.reading.files import Piece, Source, SourceFile
from tokenmill.reading.formats import get_format, text_weight

REMOTE_BATCH = 512  # files whose footers are fetched together
FILES_CHECKED = 5  # for the chosen fields, before a build


def read_piece(
    piece: Piece, source: Source, block_bytes: int = BLOCK_BYTES, content: Content | None = None
) -> Iterator[Texts]:
    """The documents of a piece, in order, in blocks of about `block_bytes` of text.

    Bad rows are skips in the Texts; a broken file is an InputError that names it. `content`, made by `content_hasher`, has
    the digest once everything was read.
    """
    content = content or content_hasher(piece, source)
    yield from get_format(piece.file.format).read(piece, source, block_bytes, content)
    content.finish()


def content_hasher(piece: Piece, source: Source) -> Content:
    """A hasher to pass to `read_piece`."""
    return get_format(piece.file.format).hasher(piece, source)


def content_of(piece: Piece, source: Source) -> str:
    """The digest of a piece, found at the speed of the disk: nothing is parsed."""
    content = content_hasher(piece, source)
    get_format(piece.file.format).hash(piece, source, content)
    content.finish()
    assert content.digest is not None
    return content.digest


def split(file: SourceFile, source: Source, piece_bytes: int) -> list[Piece]:
    """A file as pieces of about `piece_bytes`. Depends only on the file and that size.

    A file that cannot be entered in the middle stays whole. So does a file whose structure cannot be read: it fails by
    name when it is read, without failing the plan.
    """
    whole = [Piece(file, nbytes=file.size)]
    if text_weight(file) <= piece_bytes or file.codec:
        return whole
    try:
        return get_format(file.format).split(file, source, piece_bytes) or whole
    except (OSError, InputError):
        return whole


def split_many(files: Sequence[SourceFile], source: Source, piece_bytes: int) -> Iterator[list[Piece]]:
    """`split` of each file. The footers of remote files are fetched many at a time."""
    for format, run in groupby(files, key=lambda file: _remote_format(file, piece_bytes)):
        if format is None:
            for file in run:
                yield split(file, source, piece_bytes)
            continue
        remote = list(run)
        for first in range(0, len(remote), REMOTE_BATCH):
            yield from _split_remote(remote[first : first + REMOTE_BATCH], source, piece_bytes)


def _remote_format(file: SourceFile, piece_bytes: int) -> str | None:
    """The format of a remote file that may be split; None for all others."""
    return file.format if file.is_remote and not file.codec and text_weight(file) > piece_bytes else None


def _split_remote(files: list[SourceFile], source: Source, piece_bytes: int) -> Iterator[list[Piece]]:
    try:
        found: Sequence[list[Piece] | None] = get_format(files[0].format).split_many(files, source, piece_bytes)
    except InputError:  # the library crashed at one of them
        found = [None] * len(files)
    for file, pieces in zip(files, found, strict=True):
        yield split(file, source, piece_bytes) if pieces is None else pieces or [Piece(file, nbytes=file.size)]


def rows_before(piece: Piece, source: Source) -> int:
    """How many rows of its file come before a piece. May read the file up to there; used to name a row in a message."""
    inside = get_format(piece.file.format).rows_before(piece, source) if piece.start else 0
    return piece.file.first_row + inside


def check_fields(source: Source) -> None:
    """Raise UsageError if the first files with records have none of the chosen fields: an option is wrong, not the data.

    If one of them has the fields, those that do not fail one by one when they are read.
    """
    complaints = []
    for file in source.files:
        format = get_format(file.format)
        if file.size and format.has_fields:
            complaint = format.check_fields(file, source)
            if not complaint:
                return
            complaints.append(complaint)
            if len(complaints) == FILES_CHECKED:
                break
    if complaints:
        raise UsageError(complaints[0])
