"""An object as a file: reads by ranges, and fetches what will be read next while the reader works on what it has."""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from threading import Lock
from typing import Any

from tokenmill.io import object_store

PART_BYTES = 4 << 20  # of one request, where it is known what will be read
PARTS_AHEAD = 6  # requests on their way
PARTS_KEPT = 8  # that were read, in case a reader goes back
SMALLEST_READ = 1 << 16  # where it is not known what will be read
FOOTERS_KEPT = 16  # ends of objects, by this process: the next task often reads another part of the same file
LARGEST_FOOTER = 1 << 20
THREADS = 24  # of this process, for all of its files

ReadRange = Callable[[str, int, int | None, str | None], bytes]  # of an URL, from, to, with this tag
_footers: OrderedDict[tuple[str, str | None, int], Future[bytes]] = OrderedDict()
_footers_lock = Lock()


class ObjectFile(io.RawIOBase):
    """The bytes of an object, for readers that read and seek. Memory: at most 14 parts of 4 MiB.

    `expect` says what will be read, so that it is fetched ahead. An object that changed since it was listed (`tag`) is a
    ConditionError. `read` makes the requests.
    """

    def __init__(self, url: str, size: int, tag: str | None, read: ReadRange | None = None) -> None:
        self._url, self._size, self._tag, self._read = url, size, tag, read or object_store.read
        self._position = 0
        self._starts: list[int] = []  # of the parts that will be read, in order
        self._stops: list[int] = []
        self._parts: OrderedDict[int, tuple[int, Future[bytes]]] = OrderedDict()  # start -> stop and bytes

    def expect(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Say which ranges of bytes will be read, in ascending order. Fetches the first parts of them."""
        self._starts, self._stops = [], []
        for start, stop in _joined(ranges, self._size):
            for first in range(start, stop, PART_BYTES):
                self._starts.append(first)
                self._stops.append(min(first + PART_BYTES, stop))
        self._fetch_ahead(0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = max(0, self._size - self._position)
        if size is not None and size >= 0:
            wanted = min(wanted, size)
        pieces = []
        while wanted:
            piece = self._available(wanted)
            pieces.append(piece)
            self._position += len(piece)
            wanted -= len(piece)
        return pieces[0].tobytes() if len(pieces) == 1 else b"".join(pieces)

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        wanted = min(len(view), max(0, self._size - self._position))
        done = 0
        while done < wanted:
            piece = self._available(wanted - done)
            view[done : done + len(piece)] = piece
            self._position += len(piece)
            done += len(piece)
        return done

    def close(self) -> None:
        for start, (_, future) in self._parts.items():
            if (self._url, self._tag, start) not in _footers:
                future.cancel()
        self._parts.clear()
        super().close()

    def _available(self, wanted: int) -> memoryview:
        """Some bytes at the position, at most so many; waits for them if they are on their way."""
        start, stop, future = self._part_at(self._position, wanted)
        data = memoryview(future.result())
        offset = self._position - start
        return data[offset : min(stop - start, offset + wanted)]

    def _part_at(self, position: int, wanted: int) -> tuple[int, int, Future[bytes]]:
        """The part that has the byte at a position: one that was fetched, one that is expected, or just what is wanted."""
        number = bisect_right(self._starts, position) - 1
        if number >= 0 and position < self._stops[number]:
            self._fetch_ahead(number)
            start = self._starts[number]
            return start, *self._parts[start]
        for start, (stop, future) in reversed(self._parts.items()):
            if start <= position < stop:
                return start, stop, future
        stop = min(self._size, position + max(wanted, SMALLEST_READ))
        if stop == self._size and stop - position <= LARGEST_FOOTER and self._tag is not None:
            return position, stop, self._footer(position, stop)
        return position, stop, self._fetch(position, stop)

    def _footer(self, start: int, stop: int) -> Future[bytes]:
        """The end of the object, which this process may have read before."""
        key = (self._url, self._tag, start)

        def forget_failure(footer: Future[bytes]) -> None:
            if footer.cancelled() or footer.exception() is not None:
                with _footers_lock:
                    _footers.pop(key, None)

        with _footers_lock:
            known = _footers.pop(key, None) or self._fetch(start, stop)
            _footers[key] = known
            while len(_footers) > FOOTERS_KEPT:
                _footers.popitem(last=False)
        known.add_done_callback(forget_failure)
        self._parts[start] = stop, known
        return known

    def _fetch_ahead(self, number: int) -> None:
        """See to it that a part and the next ones are there or on their way."""
        for each in range(number, min(number + PARTS_AHEAD, len(self._starts))):
            self._fetch(self._starts[each], self._stops[each])
        if number < len(self._starts):
            self._parts.move_to_end(self._starts[number])

    def _fetch(self, start: int, stop: int) -> Future[bytes]:
        found = self._parts.get(start)
        if found is not None and found[0] == stop:
            return found[1]
        future = _threads(os.getpid()).submit(self._read, self._url, start, stop, self._tag)
        self._parts[start] = stop, future
        while len(self._parts) > PARTS_AHEAD + PARTS_KEPT:
            self._parts.popitem(last=False)
        return future


def _joined(ranges: Iterable[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    """The ranges, up to the size of the file, with those in one that lie side by side."""
    begun: tuple[int, int] | None = None
    for start, stop in ranges:
        stop = min(stop, size)
        if begun is not None and begun[1] >= start:
            begun = begun[0], max(begun[1], stop)
            continue
        if begun is not None:
            yield begun
        begun = start, stop
    if begun is not None:
        yield begun


@lru_cache(maxsize=4)
def _threads(pid: int) -> ThreadPoolExecutor:
    """Threads that wait for answers. A process that was forked has its own."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="fetch")
