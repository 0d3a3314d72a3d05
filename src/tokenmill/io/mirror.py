"""Local copies of what is in a bucket: a folder whose files are fetched when they are first opened.

A mirror is a folder with a file `.url`, which says where its files are. `disk.open_file` fetches a file of a mirror that is not
there. The mirrors of a machine are shared by its processes. Together they keep to a limit: the files that were not used for the
longest time are removed, which never removes the only copy. A file that a process has mapped stays readable until it is unmapped.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from tokenmill.io import object_store

URL = ".url"
MIRRORS = "mirrors"  # in the cache folder
# Set by `store.bucket`: gets a fetched file, the path it will have and its URL, and raises if it is damaged.
verify: Callable[[Path, Path, str], None] | None = None
LIMIT = 20 * 10**9  # bytes
LEFTOVER_SECONDS = 3600.0
FETCHES = 8  # files that are fetched at the same time
_LOCK = ".lock"


def make_mirror(folder: Path, url: str, limit: int | None) -> None:
    """Make a folder the mirror of an URL. `limit` is for all mirrors in the same parent folder together, in bytes.

    Without one, the mirror keeps the limit it has, or gets the usual one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / URL
    if limit is None:
        limit = LIMIT if mirrored_url(folder) is None else mirror_limit(folder)
    text = f"{url}\n{limit}\n"
    if not path.exists() or path.read_text() != text:
        temporary = folder / f"{URL}.{secrets.token_hex(4)}"
        temporary.write_text(text)
        os.replace(temporary, path)


def mirrored_url(folder: Path) -> str | None:
    """The URL that a folder is the mirror of; None if it is no mirror."""
    try:
        return _origin(folder)[0]
    except (OSError, ValueError):  # a power failure may leave an empty file
        return None


def mirror_limit(folder: Path) -> int:
    """The limit of a mirror, in bytes."""
    return _origin(folder)[1]


def _origin(folder: Path) -> tuple[str, int]:
    """What a mirror is made from: the URL, and the limit."""
    url, limit = (folder / URL).read_text().split("\n")[:2]
    return url, int(limit)


def mirrored_bytes(root: Path) -> int:
    """How much space the shards of all mirrors in a folder take."""
    return sum(nbytes for _, nbytes, _ in _files(root))


def fetch_missing(path: Path) -> bool:
    """Fetch a file that is not there, if it belongs to a mirror. False if it does not, or if the bucket has no such file."""
    for folder in (path.parent, path.parent.parent):
        try:
            url, limit = _origin(folder)
        except (OSError, ValueError):
            continue
        return _fetch(object_store.join(url, path.relative_to(folder).as_posix()), path, folder.parent, limit)
    return False


def prefetch_later(paths: Iterable[Path]) -> None:
    """Have files of mirrors fetched that are not there, several at a time. Problems show when they are opened."""
    for path in paths:
        if not path.exists():
            _threads(os.getpid()).submit(fetch_missing, path)


def touch(path: Path) -> None:
    """Note that a file is used now."""
    with suppress(OSError):
        os.utime(path)


def _fetch(url: str, path: Path, root: Path, limit: int) -> bool:
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.parent / f"{path.name}.fetch", "ab") as claim:  # one process fetches, others wait for it
        fcntl.flock(claim, fcntl.LOCK_EX)
        if path.exists():
            return True
        temporary = path.parent / f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
        try:
            object_store.download(url, temporary)
            if verify is not None:
                verify(temporary, path, url)
            _put_in_place(temporary, path, root, limit)
        except FileNotFoundError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
            with suppress(OSError):
                os.unlink(path.parent / f"{path.name}.fetch")
    return True


def _put_in_place(fetched: Path, path: Path, root: Path, limit: int) -> None:
    """Give a fetched file its name, after other files of all mirrors were removed so that it fits."""
    import fcntl

    size = fetched.stat().st_size
    with open(root / _LOCK, "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _remove_leftovers(root)
        files = sorted(_files(root))
        total = sum(each[1] for each in files)
        for _, nbytes, name in files:
            if total + size <= limit:
                break
            with suppress(OSError):
                os.unlink(name)
            total -= nbytes
        os.replace(fetched, path)


def _remove_leftovers(root: Path) -> None:
    """Remove what fetches of processes that were killed have left: files that have not changed for an hour."""
    for path in root.glob("*/shards/*.tmp"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > LEFTOVER_SECONDS:
                os.unlink(path)


def _files(root: Path) -> Iterable[tuple[float, int, str]]:
    """The shard files of all mirrors: when each was last used, its size and its path."""
    for folder in root.glob("*/shards"):
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.name.endswith(".npy"):
                        info = entry.stat()
                        yield info.st_mtime, info.st_size, entry.path


@lru_cache(maxsize=4)
def _threads(pid: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(FETCHES, thread_name_prefix="mirror")
