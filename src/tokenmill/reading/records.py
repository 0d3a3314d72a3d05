"""Blocks of whole records from a stream of bytes, for any byte range, in bounded memory.

A record belongs to the range that its first byte lies in. So any way to cut a file into ranges gives every record exactly
once, in order, and the readers of different ranges need not know about each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple


class Raw(NamedTuple):
    """Bytes of whole records, each with its delimiter except perhaps the last; or part of one record too long to hold."""

    data: bytes
    part: bool = False  # part of one long record
    last: bool = True  # the last part of that record


def splittable(delimiter: bytes) -> bool:
    """Whether ranges can be read on their own. A delimiter that overlaps itself is only found by reading from the start."""
    return not any(delimiter.startswith(delimiter[-n:]) for n in range(1, len(delimiter)))


def whole_records(
    stream: BinaryIO, delimiter: bytes, start: int, stop: int | None, block_bytes: int, long_bytes: int
) -> Iterator[Raw]:
    """Blocks of about `block_bytes` of the records that start in [start, stop); `stop` None means to the end.

    A record longer than `long_bytes` comes in parts, which bounds the memory.
    """
    position, begun = record_start(stream, delimiter, start, block_bytes) if start else (0, b"")
    window = _Window(stream, delimiter, block_bytes, position, begun)
    while stop is None or window.position < stop:
        end = window.records_end(stop)
        if end:
            yield Raw(window.take(end))
        elif window.size > max(long_bytes, len(delimiter)):
            yield from _long_record(window)
        if window.at_end and not window.size:
            return
        if not end or window.size < block_bytes:
            window.fill()


def record_start(stream: BinaryIO, delimiter: bytes, at: int, block_bytes: int) -> tuple[int, bytes]:
    """The position of the first record that starts at or after byte `at`, and the bytes that were read beyond it.

    The position is the end of the stream where no further record starts.
    """
    position, buffer = max(at - len(delimiter), 0), b""
    stream.seek(position)
    while True:
        fresh = stream.read(block_bytes)
        buffer += fresh
        cut = buffer.find(delimiter)
        if cut >= 0:
            cut += len(delimiter)
            return position + cut, buffer[cut:]
        if not fresh:
            return position + len(buffer), b""
        passed = max(0, len(buffer) - len(delimiter) + 1)
        position, buffer = position + passed, buffer[passed:]


def count_records(stream: BinaryIO, delimiter: bytes, stop: int, block_bytes: int, long_bytes: int) -> int:
    """How many records start in the first `stop` bytes. Reads them, but parses nothing."""
    count = 0
    for raw in whole_records(stream, delimiter, 0, stop, block_bytes, long_bytes):
        if raw.part:
            count += raw.last
        else:
            count += raw.data.count(delimiter) + (not raw.data.endswith(delimiter))
    return count


class _Window:
    """The bytes of a stream that are in memory: the first `size` of `buffer`, which starts at `position` of the stream.

    The buffer is used again for every block, because fresh memory costs page faults.
    """

    def __init__(self, stream: BinaryIO, delimiter: bytes, block_bytes: int, position: int, begun: bytes) -> None:
        self.stream, self.delimiter, self.block_bytes = stream, delimiter, block_bytes
        self.position, self.buffer, self.size, self.at_end = position, bytearray(begun), len(begun), False
        self.last_delimiter = bytearray.rfind if splittable(delimiter) else _last_from_left

    def fill(self) -> None:
        """Read a block, or as much as is held already: so a record longer than a block takes linear time."""
        wanted = max(self.block_bytes, self.size)
        if len(self.buffer) < self.size + wanted:  # it grows by what there is, which is little for a small file
            fresh = self.stream.read(wanted)
            self.buffer[self.size :] = fresh
            count = len(fresh)
        else:
            with memoryview(self.buffer) as view, view[self.size : self.size + wanted] as free:
                count = self.stream.readinto(free)  # type: ignore[attr-defined]
        self.at_end = not count
        self.size += count

    def take(self, count: int) -> bytes:
        """The first `count` bytes, which the window then holds no more."""
        with memoryview(self.buffer) as view:
            taken = bytes(view[:count])
            view[: self.size - count] = view[count : self.size]
        self.size -= count
        self.position += count
        if len(self.buffer) > 4 * max(self.block_bytes, self.size):  # after a very long record
            del self.buffer[self.size :]
        return taken

    def find(self, start: int = 0) -> int:
        """Where the first delimiter is, from `start` on; -1 if there is none."""
        return self.buffer.find(self.delimiter, start, self.size)

    def records_end(self, stop: int | None) -> int:
        """Where the last whole record that starts before `stop` ends in the window; 0 if that is not known yet."""
        reach = self.size if stop is None else min(self.size, stop - self.position)
        cut = self.last_delimiter(self.buffer, self.delimiter, 0, reach)
        if cut < 0:  # the record that straddles `stop` belongs to this range
            cut = self.find(max(0, reach - len(self.delimiter) + 1))
        if cut >= 0:
            return cut + len(self.delimiter)
        return self.size if self.at_end else 0


def _long_record(window: _Window) -> Iterator[Raw]:
    """The record that starts where the window does, in parts."""
    overlap = len(window.delimiter) - 1  # a delimiter may straddle two reads
    while True:
        yield Raw(window.take(max(0, window.size - overlap)), part=True, last=False)
        window.fill()
        cut = window.find()
        if cut >= 0 or window.at_end:
            yield Raw(window.take(cut + len(window.delimiter) if cut >= 0 else window.size), part=True)
            return


def _last_from_left(buffer: bytearray, delimiter: bytes, start: int, stop: int) -> int:
    """The last delimiter as a reader from the left finds it, for a delimiter that may overlap itself."""
    pieces = buffer[start:stop].split(delimiter)
    return -1 if len(pieces) == 1 else stop - len(pieces[-1]) - len(delimiter)
