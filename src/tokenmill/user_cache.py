"""Small JSON files in the user's cache directory. Written atomically; losing one only costs time."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


def cache_folder() -> Path:
    """The cache directory: $TOKENMILL_CACHE, or `tokenmill` in the user's cache directory."""
    own = os.environ.get("TOKENMILL_CACHE")
    if own:
        return Path(own)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokenmill"
    except RuntimeError:  # the user has no home directory, as in some containers
        return Path(os.devnull) / "no-home-folder"  # nothing can be written below it, so nothing is cached


def read_cached(path: Path) -> dict[str, Any] | None:
    """Return what `write_cached` wrote, or None if the file is missing or its checksum does not match."""
    try:
        checksum, body = path.read_bytes().split(b"\n", 1)
        if checksum == hashlib.sha256(body).hexdigest().encode():
            return dict(json.loads(body))
    except (OSError, ValueError, TypeError):
        pass
    return None


def write_cached(path: Path, value: dict[str, Any]) -> None:
    """Write a value atomically. Errors are ignored: a read-only home directory only disables caching."""
    body = json.dumps(value).encode()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            temporary.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
