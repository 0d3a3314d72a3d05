"""Blocks of whole records out of a stream of bytes, from any byte range, in bounded memory.

A record belongs to the range its first byte lies in. So any cutting of a file into ranges gives every record exactly
once, in order, and no reader needs to know about any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple


class Raw(NamedTuple):
    """Bytes of whole records, each with its delimiter but maybe the last; or a part of one record too long to hold."""

    data: bytes
    part: bool = False  # some of one long record, which may go on
    last: bool = True  # that record ends here


def splittable(delimiter: bytes) -> bool:
    """Whether ranges can be read alone: a delimiter that overlaps itself is only found by reading from the start."""
    return not any(delimiter.startswith(delimiter[-n:]) for n in range(1, len(delimiter)))


def whole_records(
    stream: BinaryIO, delimiter: bytes, start: int, stop: int | None, block_bytes: int, long_bytes: int
) -> Iterator[Raw]:
    """Blocks of the records that start in [start, stop), about `block_bytes` each; `stop` None means to the end.

    A record longer than `long_bytes` comes in parts, so memory is bounded by that.
    """
    width = len(delimiter)
    last_in = bytes.rfind if splittable(delimiter) else _last_from_left
    position, held = 0, b""  # `held` starts at `position`, which is the start of a record, or lies inside a long one
    if start:
        before = max(start - width, 0)
        stream.seek(before)
        position, held = _after_delimiter(stream, delimiter, before, block_bytes)
    inside_long = at_end = False
    while inside_long or stop is None or position < stop:
        if inside_long:
            cut = held.find(delimiter)
        else:
            reach = len(held) if stop is None else min(len(held), stop - position)
            cut = last_in(held, delimiter, 0, reach)
            if cut < 0:  # the record that straddles `stop` is ours to its end
                cut = held.find(delimiter, max(0, reach - width + 1))
        if cut >= 0 or at_end:
            end = cut + width if cut >= 0 else len(held)
            if end or inside_long:
                yield Raw(held[:end], part=inside_long)
            position, held, inside_long = position + end, held[end:], False
        elif inside_long or len(held) > max(long_bytes, width):
            end = max(0, len(held) - (width - 1))  # a delimiter may straddle two reads
            yield Raw(held[:end], part=True, last=False)
            position, held, inside_long = position + end, held[end:], True
        if at_end and not held:
            return
        if len(held) < block_bytes or cut < 0:
            fresh = stream.read(max(block_bytes, 0 if inside_long else len(held)))
            at_end = not fresh
            held = held + fresh if held else fresh


def _last_from_left(held: bytes, delimiter: bytes, start: int, stop: int) -> int:
    """The last delimiter as a reader from the left sees them, for one that may overlap itself."""
    pieces = held[start:stop].split(delimiter)
    return -1 if len(pieces) == 1 else stop - len(pieces[-1]) - len(delimiter)


def _after_delimiter(stream: BinaryIO, delimiter: bytes, position: int, block_bytes: int) -> tuple[int, bytes]:
    """Read on to the end of the next delimiter: (where that is, what was read beyond it)."""
    held = b""
    while True:
        fresh = stream.read(block_bytes)
        held += fresh
        cut = held.find(delimiter)
        if cut >= 0:
            cut += len(delimiter)
            return position + cut, held[cut:]
        if not fresh:
            return position + len(held), b""
        gone = max(0, len(held) - len(delimiter) + 1)
        position, held = position + gone, held[gone:]
