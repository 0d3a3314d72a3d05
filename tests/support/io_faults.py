"""The Nth call that opens, syncs, renames, links, lists or removes a file below a folder fails, or ends the process.

Python tells audit hooks of every such call before it is made; an exception in the hook is an exception of the call. fsync and
truncate have no event, and are wrapped.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

_CALLS = {
    "open": 0,
    "os.rename": 0,
    "os.remove": 0,
    "os.link": 0,
    "os.mkdir": 0,
    "os.rmdir": 0,
    "os.truncate": 0,
    "os.utime": 0,
    "os.listdir": 0,
    "os.scandir": 0,
}
DEATH = -1


class Faults:
    """Counts the calls below `folder`. Call `fails_at` fails with `error`, an errno; with DEATH the process ends there."""

    def __init__(self) -> None:
        self.active = False
        self.calls: Counter[str] = Counter()
        sys.addaudithook(self._hear)
        self._fsync = os.fsync
        os.fsync = self._sync  # type: ignore[assignment]

    def arm(self, folder: Path, fails_at: int | None = None, error: int = 0) -> None:
        self.folder, self.fails_at, self.error = os.fspath(folder), fails_at, error
        self.count, self.calls, self.failed, self.active = 0, Counter(), "", True

    def disarm(self) -> None:
        self.active = False

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.active and event in _CALLS:
            path = arguments[_CALLS[event]]
            if isinstance(path, str | bytes | os.PathLike) and os.fsdecode(path).startswith(self.folder):
                self._call(event)

    def _sync(self, descriptor: int) -> None:
        if self.active:
            self._call("os.fsync")
        self._fsync(descriptor)

    def _call(self, what: str) -> None:
        self.count += 1
        self.calls[what] += 1
        if self.count == self.fails_at:
            self.failed = what
            if self.error == DEATH:
                os._exit(9)
            raise OSError(self.error, os.strerror(self.error))
