"""One build per folder at a time. The kernel holds the lock and releases it when the process ends."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tokenmill.errors import BuildError, LockedError
from tokenmill.io import disk
from tokenmill.io.atomic import writing

POLL_SECONDS = 0.2  # between two tries while waiting for the lock
ATTEMPTS = 6  # `lock_holder` takes the lock for a moment: try for longer than that


def lock_holder(folder: Path) -> str | None:
    """The id of the process that is building in a folder, "unknown" if it cannot be read; None if there is none."""
    try:
        with disk.open_file(folder / ".lock", "rb") as handle:
            try:
                disk.lock(handle, exclusive=False, wait=False)
            except BlockingIOError:
                return _process_in(handle)
    except OSError:
        pass
    return None


@contextmanager
def build_lock(
    folder: Path, wait: Callable[[str], None] | None = None, *, shared: bool = False, name: str = ".lock"
) -> Iterator[None]:
    """Hold the lock on a folder, which is created if needed. `shared`: together with others that share it.

    If another process has the lock, raise LockedError; or, with `wait`, call `wait(process id)` every 0.2 s until it is free.
    """
    path = folder / name
    while True:
        try:
            handle = _acquire(folder, path, shared=shared)
            break
        except LockedError:
            if wait is None:
                raise
            wait(lock_holder(folder) or "unknown")
            time.sleep(POLL_SECONDS)
    try:
        if not shared:
            with writing(path):
                handle.truncate(0)
                handle.write(str(os.getpid()).encode())
        yield
    finally:
        with suppress(OSError):
            handle.close()


def _acquire(folder: Path, path: Path, *, shared: bool) -> disk.File:
    """Open and lock the file. The previous holder may have removed it together with the folder: then lock a new one."""
    for attempt in range(ATTEMPTS):
        with writing(folder):
            disk.make_folder(folder)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise BuildError(
                    f"cannot write into {folder}: permission denied; choose another folder with -o"
                ) from PermissionError(errno.EACCES, "permission denied")
            handle = disk.open_file(path, "a+b")
        try:
            disk.lock(handle, exclusive=not shared, wait=False)
            if path.exists() and os.fstat(handle.fileno()).st_ino == path.stat().st_ino:
                return handle
        except BlockingIOError:
            if attempt == ATTEMPTS - 1:
                holder = _process_in(handle)
                handle.close()
                raise LockedError(
                    f"{folder} is being written by another build (process {holder}); wait for it, or choose another folder"
                ) from None
        except FileNotFoundError:
            pass
        handle.close()
        time.sleep(0.05)
    raise LockedError(f"other builds keep creating and removing {folder}; choose another folder")


def _process_in(handle: disk.File) -> str:
    """The process id that the holder of a lock wrote into its file."""
    handle.seek(0)
    return handle.readall().decode().strip() or "unknown"
