"""Files in pieces that can be read alone: the unit a task is made of, and the one door to every reader."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from tokenmill.documents import BLOCK_BYTES, Texts
from tokenmill.errors import InputError, UsageError
from tokenmill.reading.content_hash import Content, Watched
from tokenmill.reading.discover import SourceFile
from tokenmill.reading.source import Source

Reader = Callable[[SourceFile, Source, int, "int | None", int, Content], Iterator[Texts]]


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a file: bytes of a line file, row groups of a parquet file, batches of an Arrow file. `stop` None: all.

    `content` is the digest of what it holds, where that is known. `held` names a piece of a finished shard that was made
    from the same content: (the shard's path without suffix, the piece's number in it).
    """

    file: SourceFile
    start: int = 0
    stop: int | None = None
    nbytes: int = 0  # bytes on disk, about; for progress and balance
    content: str | None = None
    held: tuple[str, int] | None = None


def read_piece(
    piece: Piece, source: Source, block_bytes: int = BLOCK_BYTES, content: Content | None = None
) -> Iterator[Texts]:
    """A piece's documents, in order, in blocks of about `block_bytes` of text.

    A broken file is an InputError that names it; bad rows are skips in the Texts. `content` has the digest once all was read.
    """
    content = content or Content(piece.file, source, piece.start)
    return _reader(piece.file.format)(piece.file, source, piece.start, piece.stop, block_bytes, content)


def content_of(piece: Piece, source: Source) -> str:
    """The digest of what a piece holds, by reading it for that alone: at the speed of the disk, nothing is parsed."""
    from tokenmill.reading.codecs import check_unchanged, reading

    file, content = piece.file, Content(piece.file, source, piece.start)
    if file.format in ("parquet", "arrow"):
        from tokenmill.reading import tables

        (tables.count_parquet_file if file.format == "parquet" else tables.count_arrow_file)(
            file, source, piece.start, piece.stop, content
        )
    else:
        with reading(file), open(file.path, "rb", buffering=0) as raw:
            check_unchanged(file, raw.fileno())
            if piece.start == 0 and piece.stop is None:
                Watched(raw, content).read_on()
            else:
                _count_records(piece, source, raw, content)
            check_unchanged(file, file.path)
    content.finish()
    assert content.digest is not None
    return content.digest


def _count_records(piece: Piece, source: Source, raw: BinaryIO, content: Content) -> None:
    from tokenmill.reading.lines import delimiter_of, long_record
    from tokenmill.reading.records import whole_records

    delimiter = delimiter_of(piece.file, source)
    assert delimiter is not None
    longest = long_record(piece.file)
    for record in whole_records(raw, delimiter, piece.start, piece.stop, BLOCK_BYTES, longest):
        content.update(record.data)


def _reader(format: str) -> Reader:
    if format in ("text", "lines", "jsonl"):
        from tokenmill.reading.lines import read_lines

        return read_lines
    from tokenmill.reading import tables

    return {"parquet": tables.read_parquet, "arrow": tables.read_arrow}.get(format, tables.read_csv)


def text_weight(file: SourceFile) -> int:
    """About how much text a file holds; compressed formats hold some three times their size."""
    return file.size * (3 if file.codec or file.format == "parquet" else 1)


def split(file: SourceFile, source: Source, piece_bytes: int) -> list[Piece]:
    """A file in pieces of about `piece_bytes`, decided by the file and that size alone.

    Streams that cannot be entered in the middle stay whole. A file whose structure cannot be read stays whole too: it
    fails when it is read, by name, without failing the plan.
    """
    whole = [Piece(file, nbytes=file.size)]
    if text_weight(file) <= piece_bytes or file.codec:
        return whole
    try:
        if file.format in ("text", "lines", "jsonl"):
            return _byte_ranges(file, source, piece_bytes) or whole
        if file.format == "parquet":
            return _row_groups(file, piece_bytes)
        if file.format == "arrow":
            return _batches(file, piece_bytes) or whole
    except (OSError, InputError):
        return whole
    return whole


def _byte_ranges(file: SourceFile, source: Source, piece_bytes: int) -> list[Piece]:
    from tokenmill.reading.lines import delimiter_of
    from tokenmill.reading.records import splittable

    delimiter = delimiter_of(file, source)
    if delimiter is None or not splittable(delimiter):
        return []
    cuts = list(range(0, file.size, piece_bytes))
    stops = [*cuts[1:], None]
    return [Piece(file, a, b, (b or file.size) - a) for a, b in zip(cuts, stops, strict=True)]


def _row_groups(file: SourceFile, piece_bytes: int) -> list[Piece]:
    import pyarrow.parquet as pq

    from tokenmill.reading.codecs import reading

    with reading(file):
        metadata = pq.read_metadata(file.path)
    sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
    return _runs(file, sizes, piece_bytes)


def _batches(file: SourceFile, piece_bytes: int) -> list[Piece]:
    import pyarrow as pa

    from tokenmill.reading.codecs import reading
    from tokenmill.reading.tables import is_arrow_file

    with reading(file):
        if not is_arrow_file(file):
            return []
        with pa.memory_map(file.path) as raw:
            count = pa.ipc.open_file(raw).num_record_batches
    return _runs(file, [file.size // max(count, 1)] * count, piece_bytes)


def _runs(file: SourceFile, sizes: list[int], piece_bytes: int) -> list[Piece]:
    """Neighbouring parts put together up to `piece_bytes`; the file's bytes shared out by the parts' sizes."""
    pieces: list[Piece] = []
    start, held, total = 0, 0, max(sum(sizes), 1)
    for i, size in enumerate(sizes):
        if held and held + size > piece_bytes:
            pieces.append(Piece(file, start, i, file.size * held // total))
            start, held = i, 0
        held += size
    pieces.append(Piece(file, start, len(sizes), file.size * held // total))
    return pieces


def rows_before(piece: Piece, source: Source) -> int:
    """How many rows of its file lie before a piece. Reads the file up to there: for naming a row in an error."""
    if piece.start == 0:
        return 0
    before = Piece(piece.file, 0, piece.start)
    return sum(texts.rows for texts in read_piece(before, source))


def check_fields(source: Source) -> None:
    """Look at the first records before a long build: a field that none of them has is a wrong option, not bad data."""
    for file in source.files:
        if file.size == 0 or file.format in ("text", "lines"):
            continue
        if file.format == "jsonl":
            _check_json_fields(file, source)
        else:
            from tokenmill.reading.tables import missing_column

            complaint = missing_column(file, source)
            if complaint:
                raise UsageError(complaint)
        return


def _check_json_fields(file: SourceFile, source: Source) -> None:
    from tokenmill.reading.codecs import open_stream
    from tokenmill.reading.template import dig

    try:
        with open_stream(file) as stream:
            lines = stream.read(1 << 20).split(b"\n")[:100]
    except InputError:
        return
    keys: dict[str, None] = {}
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            if all(dig(record, name)[0] for name in source.fields):
                return
            keys |= dict.fromkeys(record)
    if keys:
        lacking = ", ".join(repr(name) for name in source.fields if name not in keys)
        choose = "Mend the --template" if source.template else "Choose with --text-field (text_field=...)"
        raise UsageError(
            f"{file.shown}: the first records have no field {lacking}; they have {', '.join(keys)}. {choose}"
        )
