"""Every call that stores depend on: open, read, write, sync, rename, link, remove, list and lock.

Stores, builds, repairs, plans and the cache make these calls nowhere else, so that tests can let any of them fail, or end the
process there (`hook`). The files of the input are not read here.
"""

from __future__ import annotations

import fnmatch
import io
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from tokenmill.io.mirror import fetch_missing

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

T = TypeVar("T")

FETCH_ATTEMPTS = 5  # another process may remove a file, to make room, before it is opened

# Only tests set this. It gets the name of a call, the function that makes the call, and the arguments of that function, of which
# the first is a path or an open file. What it returns, the call returns.
hook: Callable[..., Any] | None = None


def _call(name: str, function: Callable[..., T], *arguments: Any) -> T:
    return function(*arguments) if hook is None else hook(name, function, *arguments)


class File(io.FileIO):
    """An unbuffered file. `write` writes everything, or raises."""

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(os.path.abspath(path), mode)  # a name by which numpy and joblib find what is mapped

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data).cast("B")
        size = len(view)
        while len(view):  # one call may write less than it was given
            view = view[_call("write", io.FileIO.write, self, view) :]
        return size

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        return _call("read", io.FileIO.readinto, self, buffer)

    def readall(self) -> bytes:
        return _call("read", io.FileIO.readall, self)

    def truncate(self, size: int | None = None, /) -> int:
        return _call("truncate", io.FileIO.truncate, self, size)


def open_file(path: Path, mode: str) -> File:
    """An unbuffered file. One to be read that belongs to a mirror of a bucket is fetched first, if it is not there."""
    for _ in range(FETCH_ATTEMPTS if mode == "rb" else 0):
        try:
            return _call("open", File, path, mode)
        except FileNotFoundError:
            if not fetch_missing(path):
                raise
    return _call("open", File, path, mode)


def open_to_read(path: Path) -> BinaryIO:
    """A buffered file: a read returns all that was asked for, up to the end of the file."""
    return io.BufferedReader(open_file(path, "rb"))


def open_to_write(path: Path) -> BinaryIO:
    """A buffered file, empty at first. What is written is on its way to the disk after `sync`."""
    return io.BufferedWriter(open_file(path, "wb"))


def read_bytes(path: Path) -> bytes:
    with open_file(path, "rb") as file:
        return file.readall()


def make_hollow(path: Path, size: int) -> None:
    """A file of this size that takes no space: it stands for one that is elsewhere."""
    with open_file(path, "wb") as file:
        file.truncate(size)


def sync(file: BinaryIO) -> None:
    """Wait until what was written to an open file would survive a power failure."""
    file.flush()
    _call("sync", lambda synced: os.fsync(synced.fileno()), file)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder, new, changed and removed ones, would survive a power failure."""
    _call("sync_folder", _sync_folder, folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path: Path, target: Path) -> None:
    """Rename a file or a folder. A file takes the place of one that exists, in one step."""
    _call("replace", os.replace, path, target)


def link(path: Path, target: Path) -> None:
    _call("link", os.link, path, target)


def unlink(path: Path) -> None:
    """Remove a file, if it exists."""
    with suppress(FileNotFoundError):
        _call("unlink", os.unlink, path)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, if they do not exist, so that they survive a power failure."""
    if folder.is_dir():
        return
    if not folder.parent.exists():
        make_folder(folder.parent)
    try:
        _call("mkdir", os.mkdir, folder)
    except FileExistsError:  # another process was faster
        if not folder.is_dir():
            raise
    with suppress(PermissionError):  # the parent may be written but not read
        sync_folder(folder.parent)


def remove_tree(folder: Path) -> None:
    """Remove a folder with everything in it, as far as possible: errors are ignored."""
    with suppress(OSError):
        for entry in [] if folder.is_symlink() else entries(folder):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(folder / entry.name)
            else:
                with suppress(OSError):
                    unlink(folder / entry.name)
        _call("rmdir", os.rmdir, folder)


def remove_empty(folder: Path) -> None:
    """Remove a folder if there is nothing in it; errors are ignored."""
    with suppress(OSError):
        _call("rmdir", os.rmdir, folder)


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder."""
    return _call("list", _entries, folder)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        return list(found)


def matching(folder: Path, pattern: str = "*") -> list[Path]:
    """The paths in a folder whose names match a pattern; none if there is no such folder."""
    try:
        names = [entry.name for entry in entries(folder)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder / name for name in fnmatch.filter(names, pattern)]


def lock(file: File, *, exclusive: bool, wait: bool) -> None:
    """Lock an open file until it is closed. Raises BlockingIOError if another process has the lock, unless told to wait."""
    import fcntl

    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    _call("lock", fcntl.flock, file, kind if wait else kind | fcntl.LOCK_NB)
