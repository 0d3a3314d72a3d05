"""Documents out of byte streams: plain text, text between separators, a line each, JSON lines.

The fast path hands a whole block to Arrow and then proves that what came back is one document per record. A block that
fails the proof is bisected until the bad records stand alone; only those are looked at one by one, and named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tokenmill.documents import BLANK, Skip, Texts, merge_skips, text_offsets
from tokenmill.errors import InputError
from tokenmill.reading.codecs import open_stream
from tokenmill.reading.content_hash import Content
from tokenmill.reading.discover import SourceFile
from tokenmill.reading.records import whole_records
from tokenmill.reading.source import Source
from tokenmill.reading.template import Literal, Template, as_text, dig, parse_record
from tokenmill.reading.utf8 import join, join_columns, no_text, one_text, take, valid_texts

BOM = b"\xef\xbb\xbf"
# A record up to this size is held whole; a longer text is passed on in parts, a longer JSON line is refused.
LONG_TEXT = 16 << 20
LONG_LINE = 256 << 20
CAREFUL_LINES = 32  # a block with something bad in it is halved down to this, and then looked at line by line
TOO_LONG = ("too large", "a line too long to be held")


def delimiter_of(file: SourceFile, source: Source) -> bytes | None:
    """What ends a record in this file; None where the whole file is one document."""
    if file.format == "text":
        return source.separator.encode() if source.separator else None
    return b"\n"


def long_record(file: SourceFile) -> int:
    """Up to how many bytes a record of this file is held whole."""
    return LONG_LINE if file.format == "jsonl" else LONG_TEXT


def read_lines(
    file: SourceFile, source: Source, start: int, stop: int | None, block_bytes: int, content: Content
) -> Iterator[Texts]:
    """The documents of the records that start in [start, stop) bytes of the (decompressed) file."""
    delimiter = delimiter_of(file, source)
    by_records = stop is not None or start > 0  # a part of a file, known by its records; else every byte counts
    with open_stream(file, None if by_records else content) as stream:
        long_text = _LongText(delimiter or b"")
        if delimiter is None:
            yield from _whole_file(stream, long_text, LONG_TEXT if file.codec else min(file.size + 1, LONG_TEXT))
            return
        is_json = file.format == "jsonl"
        first = start == 0
        for raw in whole_records(stream, delimiter, start, stop, block_bytes, long_record(file)):
            if by_records:
                content.update(raw.data)
            if raw.part and is_json:
                if raw.last:
                    yield no_text(Skip(0, 1, *TOO_LONG))
                continue
            if raw.part:
                texts = long_text.feed(raw.data, raw.last)
                if texts is not None:
                    yield texts
                continue
            data = raw.data.removeprefix(BOM) if first and is_json else raw.data
            if is_json:
                if first and data.lstrip()[:2] in (b"[", b"[\n", b"[\r", b"[{", b"[ "):
                    _refuse_array(file, data)
                yield jsonl_texts(data, source)
            else:
                yield delimited_texts(data, delimiter)
            first = False
        if by_records:
            content.finish()


def _whole_file(stream: BinaryIO, long_text: _LongText, part_bytes: int) -> Iterator[Texts]:
    held = stream.read(part_bytes)
    while True:
        fresh = stream.read(part_bytes)
        texts = long_text.feed(held, last=not fresh)
        if texts is not None:
            yield texts
        if not fresh:
            return
        held = fresh


def delimited_texts(data: bytes, delimiter: bytes) -> Texts:
    """The documents between delimiters; an empty one is blank, not a document."""
    if delimiter == b"\n" and b"\r\n" in data:
        data = data.replace(b"\r\n", b"\n")
    values = pc.list_flatten(pc.split_pattern(one_text(data), delimiter.decode()))
    if data.endswith(delimiter):
        values = values.slice(0, len(values) - 1)
    rows = len(values)
    lengths = np.diff(text_offsets(values))
    blank = np.flatnonzero(lengths == 0)
    if not len(blank):
        texts, skips = valid_texts(values, None)
        return Texts(texts, rows, skips)
    kept = np.flatnonzero(lengths)
    texts, skips = valid_texts(take(values, kept), kept)
    return Texts(texts, rows, _with_blanks(skips, blank))


def jsonl_texts(data: bytes, source: Source) -> Texts:
    """The documents of a block of JSON lines. Row numbers are line numbers, blank lines counted."""
    lines = _Lines(data)
    values: list[pa.LargeStringArray] = []
    skips: list[Skip] = []
    template = Template(source.template) if source.template else None
    pending = [(0, len(lines.kept))] if len(lines.kept) else []
    while pending:
        low, high = pending.pop()
        found = _parse(data, lines, low, high, source.fields, template)
        if found is not None:
            values.append(found)
        elif high - low > CAREFUL_LINES:
            middle = (low + high) // 2
            pending += [(middle, high), (low, middle)]
        else:
            for i in range(low, high):
                row = int(lines.kept[i])
                text, skip = _careful(data[lines.starts[row] : lines.ends[row]], source.fields, template)
                if skip is not None and skip.reason != BLANK:  # Arrow may bear what Python does not: very deep nesting
                    found = _parse(data, lines, i, i + 1, source.fields, template)
                    skip = skip if found is None else None
                    values += [] if found is None else [found]
                if skip is not None:
                    skips.append(skip._replace(row=row))
                if text is not None:
                    values.append(one_text(text.encode(), pa.large_string()))
    return Texts(join(values), len(lines.starts), _with_blanks(skips, lines.blank))


class _Lines:
    """Where the lines of a block start and end, without their line ends, and which are blank."""

    def __init__(self, data: bytes) -> None:
        codes = self.codes = np.frombuffer(data, np.uint8)
        breaks = np.flatnonzero(codes == 0x0A)
        self.starts = np.concatenate(([0], breaks + 1)) if len(data) else np.empty(0, np.int64)
        self.ends = np.concatenate((breaks, [len(data)])) if len(data) else np.empty(0, np.int64)
        if len(data) and data.endswith(b"\n"):
            self.starts, self.ends = self.starts[:-1], self.ends[:-1]
        if b"\r" in data:
            some = self.ends > self.starts
            self.ends = self.ends - (some & (codes[np.maximum(self.ends - 1, 0)] == 0x0D))
        full = self.ends > self.starts
        self.kept = np.flatnonzero(full)
        self.blank = np.flatnonzero(~full)


def _parse(
    data: bytes, lines: _Lines, low: int, high: int, fields: tuple[str, ...], template: Template | None
) -> pa.LargeStringArray | None:
    """The texts of kept lines [low, high) in one go, or None where that could not be proved right.

    The proof: every line starts with "{" and ends with "}", so no value can span two lines (after "}" inside a value a
    "{" cannot follow, and strings hold no raw newline); so each line holds at least one object, and as many objects as
    lines means exactly one each. Each has the fields, as text, as valid UTF-8.
    """
    rows = lines.kept[low:high]
    starts, ends = lines.starts[rows], lines.ends[rows]
    if (
        (ends - starts > LONG_LINE).any()
        or (lines.codes[starts] != 0x7B).any()
        or (lines.codes[ends - 1] != 0x7D).any()
    ):
        return None
    block = pa.py_buffer(data)[int(starts[0]) : int(ends[-1])]
    try:
        table = pj.read_json(
            pa.BufferReader(block),
            read_options=pj.ReadOptions(use_threads=False, block_size=block.size + 1),
            parse_options=pj.ParseOptions(explicit_schema=_schema(fields), unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != high - low:
        return None
    try:
        columns = [_column(table, name) for name in fields]
        text = columns[0].cast(pa.large_string()) if template is None else join_columns(template, columns)
        if text.null_count:
            return None
        text = text.view(pa.large_string())
        text.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return text


def _schema(fields: tuple[str, ...]) -> pa.Schema:
    tree: dict[str, Any] = {}
    for name in fields:
        here = tree
        for key in name.split("."):
            here = here.setdefault(key, {})

    def as_type(node: dict[str, Any]) -> pa.DataType:
        return pa.struct([(key, as_type(below)) for key, below in node.items()]) if node else pa.string()

    return pa.schema([(key, as_type(below)) for key, below in tree.items()])


def _column(table: pa.Table, name: str) -> pa.Array:
    first, *rest = name.split(".")
    column = table.column(first)
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return pc.struct_field(array, rest) if rest else array


def _careful(line: bytes, fields: tuple[str, ...], template: Template | None) -> tuple[str | None, Skip | None]:
    """One line that the fast path would not take: its text after all, or why it has none."""
    if len(line) > LONG_LINE:
        return None, Skip(0, 1, *TOO_LONG)
    if not line.strip():
        return None, Skip(0, 1, BLANK)
    try:
        record = parse_record(line.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        return None, Skip(0, 1, "bad json", str(error)[:200])
    if not isinstance(record, dict):
        kind = "number" if isinstance(record, Literal) else type(record).__name__
        return None, Skip(0, 1, "bad json", f"a {kind}, not an object")
    values = []
    for name in fields:
        found, value = dig(record, name)
        if not found:
            return None, Skip(0, 1, "missing field", f"no field {name!r}")
        if value is None:
            return None, Skip(0, 1, "null field", f"field {name!r} is null")
        text = as_text(value, lenient=template is not None)
        if text is None:
            kind = "number" if isinstance(value, Literal) else type(value).__name__
            return None, Skip(0, 1, "not text", f"field {name!r} is a {kind}")
        values.append(text)
    text = values[0] if template is None else template.join(values)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return None, Skip(0, 1, _which_bad_character(line, fields), f"at character {error.start}")
    return text, None


def _which_bad_character(line: bytes, fields: tuple[str, ...]) -> str:
    """Whether a text is bad for its bytes or for its escapes: does it become good when bad bytes are replaced?"""
    record = parse_record(line.decode("utf-8", "replace"))
    try:
        for name in fields:
            str(dig(record, name)[1]).encode()
    except UnicodeEncodeError:
        return "lone surrogate"
    return "invalid utf-8"


def _refuse_array(file: SourceFile, data: bytes) -> None:
    first_line = data.lstrip().split(b"\n", 1)[0].strip()
    if first_line == b"[" or first_line.startswith((b"[{", b"[ {")):
        raise InputError(
            f"{file.shown}: one JSON array, not one object a line; turn it into lines with: jq -c '.[]' FILE > FILE.jsonl"
        )


def _with_blanks(skips: list[Skip], blank: np.ndarray) -> list[Skip]:
    if not len(blank):
        return skips
    return merge_skips(sorted([*skips, *(Skip(int(row), 1, BLANK) for row in blank)]))


class _LongText:
    """A document that comes in parts. Each part is cut at a whole character and passed on at once.

    A document found to be bad after some of it was passed on ends in a skip at row 0: whoever reads these Texts drops
    what it had of it.
    """

    def __init__(self, delimiter: bytes) -> None:
        self.delimiter = delimiter
        self.held = b""
        self.bad = False

    def feed(self, data: bytes, last: bool) -> Texts | None:
        data = self.held + data
        if last and self.delimiter and data.endswith(self.delimiter):
            data = data[: -len(self.delimiter)]
            if self.delimiter == b"\n":
                data = data.removesuffix(b"\r")
        cut = len(data) if last else _character_boundary(data)
        if not last and self.delimiter == b"\n" and data[:cut].endswith(b"\r"):
            cut -= 1  # it may be half of a line end
        values, skips = valid_texts(one_text(data[:cut]), None)
        bad = self.bad or bool(skips)
        self.held, self.bad = (b"", False) if last else (data[cut:], bad)
        if bad:
            return no_text(Skip(0, 1, "invalid utf-8", "in a long document")) if last else None
        return Texts(values, 1) if last else Texts(values, 0, unfinished=True)


def _character_boundary(data: bytes) -> int:
    """Where the last character that is whole ends."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            return len(data)
        if byte >= 0xC0:
            width = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) if width <= back else len(data) - back
    return len(data)
