"""Writing so that a crash at any moment leaves the old file or the new one, and a full disk is an error."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xxhash

from tokenmill.errors import BuildError, CorruptError, TokenmillError

CHECK_BLOCK = 4 << 20  # bytes under one checksum


def canonical(value: Any) -> bytes:
    """JSON in one spelling, so that equal values are equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def digest(data: bytes) -> str:
    return str(xxhash.xxh3_128_hexdigest(data))


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside, fsync, rename, fsync the folder."""
    with writing(path):
        beside = beside_of(path)
        try:
            with open(beside, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            os.replace(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def beside_of(path: Path) -> Path:
    """A name for a file on its way, which no other process, thread or machine takes."""
    return path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a full disk or a forbidden folder into an error that names the path and says how to go on."""
    try:
        yield
    except OSError as error:
        if isinstance(error, TokenmillError):  # something could not be read, and that has been said
            raise
        raise BuildError(
            f"cannot write {path}: {error.strerror or error}. What was finished is kept; mend it and run the same command"
        ) from error


def sync_folder(folder: Path) -> None:
    """Make renames in a folder last through a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checked_names(names: list[Any]) -> None:
    """Shard ids from a file must be plain words: names never lead out of the store's folder."""
    try:
        plain = re.fullmatch(
            r"([0-9a-z][0-9a-z_-]{0,99}\n)*", "\n".join([*names, ""])
        )  # all at once: there may be a million
    except TypeError:
        plain = None
    if not plain or "\n" in "".join(names):
        wrong = next(
            (n for n in names if not isinstance(n, str) or not re.fullmatch(r"[0-9a-z][0-9a-z_-]{0,99}", n)), names
        )
        raise CorruptError(f"manifest names a shard {wrong!r}, which no store has; the file is damaged or was forged")
