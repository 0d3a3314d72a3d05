"""Small JSON files in the user's cache directory. Written atomically; losing one only costs time."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from tokenmill.callers import warn
from tokenmill.io import disk

VARIABLES = ("TOKENMILL_CACHE", "TOKENMILL_SHARD_CACHE", "TOKENMILL_GPU_MEMORY", "TOKENMILL_DASH_TOKEN")


@cache
def _check_variables() -> None:
    """Warn of variables of the environment that look like those that are read."""
    for name in os.environ:
        if name.startswith("TOKENMILL_") and name not in VARIABLES:
            warn(f"{name} is not read; the variables are {', '.join(VARIABLES)}")


def cache_folder() -> Path:
    """The cache directory: $TOKENMILL_CACHE, or `tokenmill` in the user's cache directory."""
    _check_variables()
    own = os.environ.get("TOKENMILL_CACHE")
    if own:
        return Path(os.path.expanduser(own))
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokenmill"
    except RuntimeError:  # the user has no home directory, as in some containers
        return Path(os.devnull) / "no-home-folder"  # nothing can be written below it, so nothing is cached


def keyed_path(kind: str, key: str) -> Path:
    """Where a value of this kind is kept that holds for a key of any length."""
    return cache_folder() / kind / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def read_cached(path: Path) -> dict[str, Any] | None:
    """Return what `write_cached` wrote, or None if the file is missing or its checksum does not match."""
    try:
        checksum, body = disk.read_bytes(path).split(b"\n", 1)
        if checksum == hashlib.sha256(body).hexdigest().encode():
            return dict(json.loads(body))
    except (OSError, ValueError, TypeError):
        pass
    return None


def write_cached(path: Path, value: dict[str, Any]) -> None:
    """Write a value atomically. Errors are ignored: a read-only home directory only disables caching."""
    body = json.dumps(value).encode()
    with suppress(OSError):
        disk.make_folder(path.parent)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            with disk.open_to_write(temporary) as out:
                out.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
            disk.replace(temporary, path)
        except OSError:
            disk.unlink(temporary)
