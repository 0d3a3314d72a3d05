"""One build at a time in a folder. The lock is the kernel's: it is gone the moment its holder is."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from tokenmill.errors import BuildError, LockedError
from tokenmill.io.atomic import writing

LOOK_AGAIN = 0.2  # seconds between looks at a lock that is waited for


def lock_holder(folder: Path) -> str | None:
    """The process that is building in a folder now, if one is."""
    import fcntl

    try:
        with open(folder / ".lock") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return handle.read().strip() or "unknown"
    except OSError:
        pass
    return None


@contextmanager
def build_lock(folder: Path, wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the right to write a store. If another process has it: LockedError; or `wait` is told which, and it is waited for."""
    path = folder / ".lock"
    while True:
        try:
            handle = _locked(folder, path)
            break
        except LockedError:
            if wait is None:
                raise
            wait(lock_holder(folder) or "unknown")
            time.sleep(LOOK_AGAIN)
    try:
        with writing(path):
            handle.truncate(0)
            handle.write(str(os.getpid()))
            handle.flush()
        yield
    finally:
        with suppress(OSError):
            handle.close()


def _locked(folder: Path, path: Path) -> TextIO:
    """The lock file, opened and locked. A holder may take the file away with the folder: then there is a new one."""
    import fcntl

    for attempt in range(6):
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise BuildError(
                    f"cannot write into {folder}: permission denied; choose another folder with -o"
                ) from PermissionError(errno.EACCES, "permission denied")
            handle = open(path, "a+")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.fstat(handle.fileno()).st_ino == path.stat().st_ino:
                return handle
        except BlockingIOError:
            if attempt == 5:  # one who only looks holds it for less than that
                handle.seek(0)
                holder = handle.read().strip() or "unknown"
                handle.close()
                raise LockedError(
                    f"{folder} is being written by another build (process {holder}); wait for it, or choose another folder"
                ) from None
        except FileNotFoundError:
            pass
        handle.close()
        time.sleep(0.05)
    raise LockedError(f"{folder} comes and goes: other builds begin and end in it; choose another folder")
