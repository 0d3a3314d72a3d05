"""JSON lines: a JSON object per line. Files of JSON whose objects span lines, such as one array, are turned into lines.

The fast path passes a whole block to Arrow and then proves that the result has one document per line. A block that fails
the proof is bisected until the bad lines stand alone. Only those are parsed one by one and reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from tokenmill.documents import BLANK, Skip, Texts
from tokenmill.errors import InputError
from tokenmill.reading.codecs import Continued, local_path, open_stream
from tokenmill.reading.files import Piece, Source, SourceFile
from tokenmill.reading.formats.base import CutShort, Entry, Format, remedy
from tokenmill.reading.formats.delimited import DelimitedFormat, with_blanks
from tokenmill.reading.records import Raw
from tokenmill.reading.template import JsonNumber, Template, as_text, dig, parse_record
from tokenmill.reading.utf8 import join, join_columns, no_text, one_text, struct_field

BOM = b"\xef\xbb\xbf"
LONG_LINE = 256 << 20  # a longer line is skipped
LONG_ENOUGH = 1 << 10  # lines of this length, on average, are found one by one
CAREFUL_LINES = 32  # a block with something bad in it is halved down to this many lines, which are then read one by one
TOO_LONG = ("too large", "a line too long to be held")
HEAD_BYTES = 1 << 20  # read to look at the first records
START_BYTES = 1 << 12  # read to see whether objects span lines
# One array, or objects on several lines each. A line that is a list without objects is a bad row, and not the end of the file.
SPANS_LINES = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\[\s*[{\]]|\[[ \t\r]*(?:\n|$)|\{[ \t\r]*\n\s*["}])')
STEPS = np.zeros(256, np.int8)  # how a byte changes the depth of brackets
STEPS[list(b"[{")], STEPS[list(b"]}")] = 1, -1


class JsonlFormat(DelimitedFormat):
    """A JSON object per line."""

    def delimiter(self, source: Source) -> bytes | None:
        return b"\n"

    def long_bytes(self) -> int:
        return LONG_LINE

    def records(self, piece: Piece, stream: BinaryIO) -> BinaryIO:
        if not (piece.is_whole and piece.is_first):
            return stream
        head = stream.read(START_BYTES)
        is_spanning = SPANS_LINES.match(head)
        return cast(BinaryIO, _ObjectLines(piece.file, head, stream) if is_spanning else Continued(head, stream))

    def entry(self, file: SourceFile, source: Source) -> Entry:
        """Looks at the start of a local file; a large remote one must have an object per line, which saves a request."""
        if local_path(file) is not None:
            with suppress(OSError), open_stream(file) as stream:
                if SPANS_LINES.match(stream.read(START_BYTES)):
                    return "head"
        return super().entry(file, source)

    def parser(self, piece: Piece, source: Source) -> Callable[[Raw], Texts | None]:
        at_start = piece.is_first

        def parse(raw: Raw) -> Texts | None:
            nonlocal at_start
            if raw.part:
                return no_text(Skip(0, 1, *TOO_LONG)) if raw.last else None
            data = raw.data
            if at_start:
                data = data.removeprefix(BOM)
                at_start = False
                if not piece.is_whole and SPANS_LINES.match(data[:START_BYTES]):
                    raise InputError(f"{piece.file.shown}: a large file of objects that span lines must be local")
            return jsonl_texts(data, source)

        return parse

    def check_fields(self, file: SourceFile, source: Source) -> str | None:
        names: dict[str, Any] = {}
        text = (str, int, float, type(None)) if source.template else (str, type(None))  # null may be text elsewhere
        try:
            for record in self.first_records(file, 100):
                found = [dig(record, name) for name in source._fields]
                if all(is_there and isinstance(value, text) for is_there, value in found):
                    return None
                names |= record
        except InputError:
            return None
        if not names:
            return None
        kinds = [f"{n!r} is of type {_kind(v)}" for n in source._fields if not isinstance(v := dig(names, n)[1], text)]
        what = f"no text in the first records: {', '.join(kinds)}" if kinds else "no record has all of the fields"
        if missing := [repr(name) for name in source._fields if name not in names]:
            what = f"the first records have no field {', '.join(missing)}"
        return f"{file.shown}: {what}; they have {', '.join(names)}. {remedy(source, names)}"

    def first_records(self, file: SourceFile, count: int) -> Iterator[dict[str, Any]]:
        with open_stream(file) as stream:
            head = self.records(Piece(file), stream).read(HEAD_BYTES)
        for line in head.split(b"\n")[:count]:
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                yield record


FORMATS: dict[str, Format] = {"jsonl": JsonlFormat("jsonl")}


def jsonl_texts(data: bytes, source: Source) -> Texts:
    """The documents of a block of JSON lines. Row numbers are line numbers; blank lines count."""
    lines = _Lines(data)
    reader = _Records(data, lines, source)
    pending = [(0, len(lines.filled))] if len(lines.filled) else []
    while pending:
        low, high = pending.pop()
        texts = reader.parse(low, high)
        if texts is not None:
            reader.values.append(texts)
        elif high - low > CAREFUL_LINES:
            middle = (low + high) // 2
            pending += [(middle, high), (low, middle)]
        else:
            for i in range(low, high):
                reader.read_one(i)
    return Texts(join(reader.values), len(lines.starts), with_blanks(reader.skips, lines.blank.tolist()))


class _Lines:
    """Where the lines of a block start and end, without their line ends, and which are blank."""

    def __init__(self, data: bytes) -> None:
        codes = self.codes = np.frombuffer(data, np.uint8)
        breaks = _line_breaks(data, codes)
        self.starts = np.concatenate(([0], breaks + 1)) if len(data) else np.empty(0, np.int64)
        self.ends = np.concatenate((breaks, [len(data)])) if len(data) else np.empty(0, np.int64)
        if len(data) and data.endswith(b"\n"):
            self.starts, self.ends = self.starts[:-1], self.ends[:-1]
        if b"\r" in data:
            not_empty = self.ends > self.starts
            self.ends = self.ends - (not_empty & (codes[np.maximum(self.ends - 1, 0)] == 0x0D))
        filled = self.ends > self.starts
        self.filled = np.flatnonzero(filled)
        self.blank = np.flatnonzero(~filled)


def _line_breaks(data: bytes, codes: np.ndarray) -> np.ndarray:
    """Where the line ends are. Long lines are found one by one, at the speed of `memchr`; many short ones all together."""
    breaks: list[int] = []
    at = data.find(b"\n")
    while at >= 0:
        breaks.append(at)
        if len(breaks) * LONG_ENOUGH > at + (LONG_ENOUGH << 4):
            return np.flatnonzero(codes == 0x0A)
        at = data.find(b"\n", at + 1)
    return np.array(breaks, np.int64)


class _Records:
    """The records of a block: their texts and skips so far, in order."""

    def __init__(self, data: bytes, lines: _Lines, source: Source) -> None:
        self.data, self.lines = data, lines
        self.template = source._text_template
        self.values: list[pa.LargeStringArray] = []
        self.skips: list[Skip] = []

    def parse(self, low: int, high: int) -> pa.LargeStringArray | None:
        """The texts of the filled lines [low, high) in one call to Arrow, or None if that cannot be proved correct.

        The proof: every line starts with "{" and ends with "}", so no value spans two lines (inside a value, "{" cannot
        follow "}", and strings contain no raw newline). So each line holds at least one object, and as many objects as
        lines means exactly one each. Each object has the fields, as text, as valid UTF-8.
        """
        rows = self.lines.filled[low:high]
        starts, ends = self.lines.starts[rows], self.lines.ends[rows]
        if (ends - starts > LONG_LINE).any() or not self._look_like_objects(starts, ends):
            return None
        block = pa.py_buffer(self.data)[int(starts[0]) : int(ends[-1])]
        try:
            table = pj.read_json(
                pa.BufferReader(block),
                read_options=pj.ReadOptions(use_threads=False, block_size=block.size + 1),
                parse_options=pj.ParseOptions(
                    explicit_schema=_schema(self.template.fields), unexpected_field_behavior="ignore"
                ),
            )
            return self._texts(table) if table.num_rows == high - low else None
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None

    def _look_like_objects(self, starts: np.ndarray, ends: np.ndarray) -> bool:
        codes = self.lines.codes
        return bool((codes[starts] == 0x7B).all() and (codes[ends - 1] == 0x7D).all())

    def _texts(self, table: pa.Table) -> pa.LargeStringArray | None:
        text = join_columns(self.template, [_column(table, name) for name in self.template.fields])
        if text.null_count:
            return None
        text = text.view(pa.large_string())
        text.validate(full=True)
        return text

    def read_one(self, i: int) -> None:
        """Add one line that the fast path refused: its text after all, or why it has none."""
        row = int(self.lines.filled[i])
        line = self.data[self.lines.starts[row] : self.lines.ends[row]]
        try:
            self.values.append(one_text(_read_line(line, self.template), pa.large_string()))
        except _NoText as why:
            # Arrow accepts some lines that Python does not, such as very deep nesting.
            values = self.parse(i, i + 1) if why.reason != BLANK else None
            if values is None:
                self.skips.append(Skip(row, 1, why.reason, why.detail))
            else:
                self.values.append(values)


def _schema(fields: tuple[str, ...]) -> pa.Schema:
    tree: dict[str, Any] = {}
    for name in fields:
        here = tree
        for key in name.split("."):
            here = here.setdefault(key, {})

    def as_type(node: dict[str, Any]) -> pa.DataType:
        return pa.struct([(key, as_type(below)) for key, below in node.items()]) if node else pa.large_string()

    return pa.schema([(key, as_type(below)) for key, below in tree.items()])


def _column(table: pa.Table, name: str) -> pa.Array:
    first, *rest = name.split(".")
    column = table.column(first)
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return struct_field(array, rest) if rest else array


class _NoText(Exception):
    """A line that gives no document, and why."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, detail


def _read_line(line: bytes, template: Template) -> bytes:
    """The text of one line."""
    if len(line) > LONG_LINE:
        raise _NoText(*TOO_LONG)
    if not line.strip():
        raise _NoText(BLANK)
    try:
        record = parse_record(line.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise _NoText("bad json", str(error)[:200]) from error
    if not isinstance(record, dict):
        raise _NoText("bad json", f"a {_kind(record)}, not an object")
    text = template.join([_field_text(record, name, lenient=template.lenient) for name in template.fields])
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _NoText(_encoding_fault(line, template.fields), f"at character {error.start}") from error


def _field_text(record: dict[str, Any], name: str, *, lenient: bool) -> str:
    present, value = dig(record, name)
    if not present:
        raise _NoText("missing field", f"no field {name!r}")
    if value is None:
        raise _NoText("null field", f"field {name!r} is null")
    text = as_text(value, lenient=lenient)
    if text is None:
        raise _NoText("not text", f"field {name!r} is a {_kind(value)}")
    return text


def _kind(value: Any) -> str:
    return "number" if isinstance(value, JsonNumber) else type(value).__name__


def _encoding_fault(line: bytes, fields: tuple[str, ...]) -> str:
    """Whether invalid bytes or invalid escapes are the fault: is the text valid once bad bytes are replaced?"""
    record = parse_record(line.decode("utf-8", "replace"))
    try:
        for name in fields:
            str(dig(record, name)[1]).encode()
    except UnicodeEncodeError:
        return "lone surrogate"
    return "invalid utf-8"


class _ObjectLines(Continued):
    """JSON whose objects span lines, as JSON lines: the elements of one array, or objects one after the other.

    Memory: a few times what is read at once. A file that ends too early, or goes on after its array, is an InputError.
    """

    def __init__(self, file: SourceFile, head: bytes, raw: BinaryIO) -> None:
        head = head.removeprefix(BOM).lstrip()
        self.file, self.is_array = file, head.startswith(b"[")
        self.what = "array" if self.is_array else "object"
        super().__init__(head[self.is_array :], raw)
        self.depth, self.is_quoted, self.is_escaped = 0, False, False  # after the last byte

    def readinto(self, buffer: Any) -> int:
        while count := super().readinto(buffer):
            if lines := self._lines(bytes(memoryview(buffer)[:count])):
                buffer[: len(lines)] = lines
                return len(lines)
        if self.is_quoted or self.depth != -self.is_array:
            raise CutShort(f"{self.file.shown}: ends inside a JSON {self.what}; is the file cut short?")
        return 0

    def _lines(self, data: bytes) -> bytes:
        seen = b"_" + data[1:] if self.is_escaped else data
        seen = seen.replace(b"\\\\", b"__").replace(b'\\"', b"__")  # without escaped quotes
        codes, out = np.frombuffer(seen, np.uint8), np.frombuffer(data, np.uint8).copy()
        quoted = np.bitwise_xor.accumulate(codes == ord('"')) ^ self.is_quoted
        depth = self.depth + np.cumsum(np.where(quoted, 0, STEPS[codes]), dtype=np.int32)
        beyond = np.flatnonzero(depth < 0)
        if len(beyond) and data[beyond[0] + (self.is_array and self.depth >= 0) :].strip():
            raise InputError(f"{self.file.shown}: the file goes on where its JSON {self.what} ends")
        between = ~quoted & (depth == 0)
        breaks = out == ord("\n")
        out[breaks & ~between] = ord(" ")
        out[breaks & quoted] = 1  # as wrong in a string as a line break is, but no end of a line
        kept = (out > ord(" ")) | ~between | (breaks & (not self.is_array))
        if self.is_array:
            out[between & (codes == ord(","))] = ord("\n")
        self.depth, self.is_quoted, self.is_escaped = int(depth[-1]), bool(quoted[-1]), seen.endswith(b"\\")
        return bytes(out[kept & (depth >= 0)])
