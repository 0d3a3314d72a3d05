"""What was learned once and is kept: in a folder of the user's, whole or not at all, and never more than a saving of time."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


def cache_folder() -> Path:
    """Where tokenmill keeps what it learned: TOKENMILL_CACHE, or tokenmill in the user's cache folder."""
    own = os.environ.get("TOKENMILL_CACHE")
    if own:
        return Path(own)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokenmill"
    except RuntimeError:  # a user whom nobody knows, as in some containers
        return Path(os.devnull) / "no-home-folder"  # where nothing can be kept


def read_cached(path: Path) -> dict[str, Any] | None:
    """What `write_cached` wrote; None where it is not there or not whole."""
    try:
        checksum, body = path.read_bytes().split(b"\n", 1)
        if checksum == hashlib.sha256(body).hexdigest().encode():
            return dict(json.loads(body))
    except (OSError, ValueError, TypeError):
        pass
    return None


def write_cached(path: Path, value: dict[str, Any]) -> None:
    """Keep something learned, whole or not at all. Only a cache: a read-only home is no reason to fail."""
    body = json.dumps(value).encode()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            beside.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
            os.replace(beside, path)
        except OSError:
            beside.unlink(missing_ok=True)
