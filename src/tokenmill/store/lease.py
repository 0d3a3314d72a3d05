"""Leases on stores in the cache: a store that any process has a lease on is not removed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from weakref import finalize

from tokenmill.io import disk

USED = ".used"  # a shared lock on this file is a lease; its modification time is when the store was last used


class Lease:
    """A shared lock that ends when this object is garbage collected, or when the process ends."""

    def __init__(self, handle: disk.File) -> None:
        finalize(self, handle.close)


def hold(path: Path, *, used: bool = True) -> Lease | None:
    """Take a lease on a store in the cache and, with `used`, record that it is used now. None if that is not possible."""
    for mode in ("ab", "rb"):  # a reader without write permission also gets a lease
        with suppress(OSError):
            handle = disk.open_file(path / USED, mode)
            lease = Lease(handle)
            disk.lock(handle, exclusive=False, wait=True)  # waits while another process removes the store
            with suppress(OSError):
                if used:
                    os.utime(handle.fileno())
            return lease
    return None
