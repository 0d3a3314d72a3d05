"""How much of an export or an import is done, in bytes."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

Report = Callable[[int, int], None]  # gets the bytes that are done, and how many there are in all


class AmountDone:
    """Files that are written or read, of about `total` bytes. Threads may report at the same time."""

    def __init__(self, total: int, report: Report | None) -> None:
        self._total, self._report, self._done = total, report, 0
        self._lock = Lock()

    def part(self, size: int) -> PartDone:
        """A file of about this size, which is part of the total."""
        return PartDone(self, size)

    def add(self, nbytes: int) -> None:
        with self._lock:
            self._done += nbytes
            if nbytes and self._report is not None:
                self._report(self._done, self._total)


class PartDone:
    """A file, which counts with its expected size in the end, and never with more: sizes of compressed files are guesses."""

    def __init__(self, whole: AmountDone, size: int) -> None:
        self._whole, self._left = whole, size

    def advance(self, nbytes: int) -> None:
        nbytes = min(nbytes, self._left)
        self._left -= nbytes
        self._whole.add(nbytes)

    def finish(self) -> None:
        self.advance(self._left)
