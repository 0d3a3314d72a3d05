"""Atomic writes: after a crash at any moment there is the old file or the new one. Also canonical JSON and its digest."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import xxhash

from tokenmill.errors import BuildError, TokenmillError
from tokenmill.io import disk

TEMPORARY_SUFFIX = r"\.[0-9a-f-]+\.tmp"  # as a regular expression: what `temporary_path` adds to a name


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no spaces: equal values are equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def digest(data: bytes) -> str:
    """XXH3-128 of some bytes, in hex."""
    return str(xxhash.xxh3_128_hexdigest(data))


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file by these bytes."""
    with replacing(path) as out:
        out.write(data)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A temporary file that replaces `path` when it is complete: fsync, rename, fsync the folder."""
    with writing(path):
        temporary = temporary_path(path)
        try:
            with disk.open_to_write(temporary) as out:
                yield out
                disk.sync(out)
            disk.replace(temporary, path)
        except BaseException:
            disk.unlink(temporary)
            raise
        disk.sync_folder(path.parent)


def temporary_path(path: Path) -> Path:
    """A path in the same folder that no other process, thread or machine uses."""
    return path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError (disk full, permission denied) into a BuildError that names the path and the remedy."""
    try:
        yield
    except OSError as error:
        if isinstance(error, TokenmillError):  # an InputError: reading failed, not writing
            raise
        raise BuildError(
            f"cannot write {path}: {error.strerror or error}."
            " Finished shards are kept; fix this and run the command again"
        ) from error


@contextmanager
def naming_files() -> Iterator[None]:
    """Turn an OSError that nothing else has explained into a BuildError that names the file."""
    try:
        yield
    except OSError as error:
        if isinstance(error, TokenmillError) or error.errno is None:  # or it is not from the file system
            raise
        where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        raise BuildError(f"{where}{error.strerror or error}. Fix this, and run the command again") from error
