"""The Nth call on the files of a folder fails, writes less than it was given, or ends the process."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unsynced import path_of

from tokenmill.io import disk

DEATH, SHORT, HALF_THEN_FULL, HALF_THEN_DEATH = "death", "short write", "half a write, disk full", "half a write, death"
ERRORS = ("EIO", "ENOSPC", "EACCES", "EINTR", DEATH)  # of any call
WRITE_ERRORS = (SHORT, HALF_THEN_FULL, HALF_THEN_DEATH)


class Faults:
    """A hook of io/disk.py. `calls` are the names of the calls; number `fails_at`, from 1, meets with `error`."""

    def __init__(self, folder: Path, fails_at: int | None = None, error: str = "") -> None:
        self.folder, self.fails_at, self.error = folder, fails_at, error
        self.calls: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        if not path_of(arguments[0]).is_relative_to(self.folder):
            return function(*arguments)
        with self._lock:
            self.calls.append(name)
            is_due = len(self.calls) == self.fails_at
        if is_due and self.error in WRITE_ERRORS:
            return self._half(function, *arguments) if name == "write" else function(*arguments)
        if is_due:
            self._fail(self.error)
        return function(*arguments)

    def _half(self, write: Callable[..., int], file: disk.File, data: memoryview) -> int:
        written = write(file, data[: max(1, len(data) // 2)])
        if self.error == HALF_THEN_DEATH:
            self._fail(DEATH)
        if self.error == HALF_THEN_FULL:
            self._fail("ENOSPC")
        return written

    def _fail(self, error: str) -> None:
        if error == DEATH:
            os._exit(9)
        number = getattr(errno, error)
        raise OSError(number, os.strerror(number))


def read_only(*folders: Path) -> Callable[..., Any]:
    """A hook for which nothing in these folders can be written, created, renamed, linked or removed."""

    def call(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        reads = name in ("read", "list", "lock", "sync", "sync_folder") or (name == "open" and arguments[1] == "rb")
        if not reads and any(path_of(arguments[0]).is_relative_to(folder) for folder in folders):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path_of(arguments[0])))
        return function(*arguments)

    return call


def errors_of(call: str) -> tuple[str, ...]:
    """What can happen to a call."""
    return (*ERRORS, *WRITE_ERRORS) if call == "write" else ERRORS


@contextmanager
def hooked(hook: Callable[..., Any]) -> Iterator[None]:
    disk.hook = hook
    try:
        yield
    finally:
        disk.hook = None
