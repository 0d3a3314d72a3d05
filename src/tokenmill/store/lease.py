"""A hold on a store of the cache: while it lasts, in whatever process, the store is not removed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from weakref import finalize

USED = ".used"  # whose time says when the store was used last, and whose lock that it is now


class _Hold:
    def __init__(self, handle: int) -> None:
        finalize(self, os.close, handle)


def hold(path: Path, *, used: bool = True) -> object:
    """Hold a store of the cache until the result is let go, and mark it as used now. None where that is not possible."""
    import fcntl

    for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):  # who may only read a store holds it all the same
        with suppress(OSError):
            handle = os.open(path / USED, flags, 0o666)
            held = _Hold(handle)
            fcntl.flock(handle, fcntl.LOCK_SH)  # who removes it has it for a moment; then it is gone
            with suppress(OSError):
                if used:
                    os.utime(handle)
            return held
    return None
