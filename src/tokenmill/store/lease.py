"""Leases on stores in the cache: a store that any process has a lease on is not removed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from weakref import finalize

USED = ".used"  # a shared lock on this file is a lease; its modification time is when the store was last used


class Lease:
    """A shared lock that ends when this object is garbage collected, or when the process ends."""

    def __init__(self, handle: int) -> None:
        finalize(self, os.close, handle)


def hold(path: Path, *, used: bool = True) -> Lease | None:
    """Take a lease on a store in the cache and, with `used`, record that it is used now. None if that is not possible."""
    import fcntl

    for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):  # a reader without write permission also gets a lease
        with suppress(OSError):
            handle = os.open(path / USED, flags, 0o666)
            lease = Lease(handle)
            fcntl.flock(handle, fcntl.LOCK_SH)  # waits while another process removes the store
            with suppress(OSError):
                if used:
                    os.utime(handle)
            return lease
    return None
