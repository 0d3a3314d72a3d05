"""Reading files of any format: split into pieces, read or hash a piece, check the chosen fields, say what a file may be."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from itertools import chain, groupby

from tokenmill.documents import BLOCK_BYTES, Texts
from tokenmill.errors import InputError, TokenmillError, UsageError
from tokenmill.option_types import option_name
from tokenmill.reading.codecs import open_stream
from tokenmill.reading.content_hash import Content
from tokenmill.reading.files import Piece, Source, SourceFile
from tokenmill.reading.formats import REGISTERED, get_format, text_weight
from tokenmill.reading.utf8 import whole_characters

REMOTE_BATCH = 512  # files whose footers are fetched together
FILES_CHECKED = 5  # for the chosen fields, before a build
TEXTS_CHECKED = 20  # whether they are text, after a build
HEAD_BYTES = 1 << 14
STARTS = {
    rb"\0{64}|\0+$": "holds only zeros (NUL bytes): was a copy or a download cut off?",
    rb"\xff\xfe\0\0|\0\0\xfe\xff|([^\0]\0{3}){4}|(\0{3}[^\0]){4}": "is UTF-32 text: iconv -f UTF-32 -t UTF-8 converts it",
    rb"\xff\xfe|\xfe\xff|([^\0]\0){4}|(\0[^\0]){4}": "is UTF-16 text: iconv -f UTF-16 -t UTF-8 converts it",
    rb"version https://git-lfs": "is a Git LFS pointer, not the file itself: fetch it with git lfs pull",
    rb"PAR1": f"is a Parquet file: pass {option_name('format', 'parquet')}",
    rb"ARROW1": f"is an Arrow file: pass {option_name('format', 'arrow')}",
    rb"\x1f\x8b|\x28\xb5\x2f\xfd|BZh|\xfd7zXZ": "is compressed: let its name end in .gz, .zst, .bz2 or .xz",
    rb"PK\x03\x04": "is a zip archive: unpack it",
    rb"7z\xbc\xaf|Rar!\x1a|.{257}ustar": "is an archive: unpack it",
}


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
    complaints: list[str] = []
    for file in source.files:
        format = get_format(file.format)
        if file.size and format.has_fields:
            complaint = format.check_fields(file, source)
            if not complaint:
                return
            complaints.append(complaint if complaints else with_likely_cause(complaint, file.shown, source))
            if len(complaints) == FILES_CHECKED:
                break
    if complaints:
        raise UsageError(complaints[0])


def with_likely_cause(message: str, name: str, source: Source) -> str:
    """A message about a file that gave few documents or none, with what it probably is, and the remedy."""
    for file in source.files:
        if file.shown == name and (what := _what_it_is(file)):
            return f"{message}; {what}"
        if file.shown == name and "missing field" in message:
            with suppress(OSError, TokenmillError):
                names = chain.from_iterable(get_format(file.format).first_records(file, 100))
                return f"{message}; its first records have {', '.join(dict.fromkeys(names))}"
    return message


def texts_in_doubt(source: Source, known: Container[str]) -> list[str]:
    """What the first of some text files is that are no text, though they are read as such; `known` ones are left out."""
    texts = [file for file in source.files if not get_format(file.format).has_fields and file.shown not in known]
    found = (f"{file.shown}: {_what_it_is(file)}" for file in texts[:: len(texts) // TEXTS_CHECKED + 1])
    return [doubt for doubt in found if not doubt.endswith(": ")][:1]


def _what_it_is(file: SourceFile) -> str:
    """What a file probably is, judged by its start; "" if that is what it should be, or cannot be read."""
    with suppress(OSError, TokenmillError), open_stream(file) as stream:
        head = stream.read(HEAD_BYTES)
        for start, words in STARTS.items():
            if head and re.match(start, head) and repr(file.format) not in words:
                return f"it {words}"
        if not REGISTERED[file.format].codecs:  # binary, as it should be
            return ""
        if b"\0" in head:
            return "it has NUL bytes: is it binary data, or in another encoding than UTF-8?"
        try:
            head[: whole_characters(head) if len(head) == HEAD_BYTES else None].decode()
        except UnicodeDecodeError:
            return "it is not UTF-8 but perhaps Latin-1 or Windows-1252: iconv -f LATIN1 -t UTF-8 converts it"
        if file.format == "jsonl" and head.lstrip()[:1] not in (b"", b"[", b"{"):
            what = "a web page (HTML)" if head.lstrip().startswith(b"<") else "not JSON"
            return f"it is {what}; {option_name('format')} takes it for csv, lines or text"
    return ""
