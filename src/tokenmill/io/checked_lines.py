"""Append-only files of JSON lines, each with its own checksum, so that damage is found line by line."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tokenmill.io import disk

TORN_LINE_BYTES = 1 << 20  # how far back from the end of a file a line cut short by a crash is searched for


class CheckedLines:
    """Appends records to a file. Opening the file removes a last line that a crash cut short."""

    def __init__(self, path: Path) -> None:
        self._out = disk.open_file(path, "a+b")
        _drop_torn_line(self._out)

    def append(self, record: dict[str, Any]) -> None:
        """Write one line, unbuffered, so that it survives a crash of this process."""
        line = checked_line(record)
        end = self._out.seek(0, os.SEEK_END)
        try:
            self._out.write(line)
        except OSError:
            with suppress(OSError):
                self._out.truncate(end)  # the next line must not continue a part of this one
            raise

    def close(self) -> None:
        self._out.close()


def checked_line(record: dict[str, Any]) -> bytes:
    """A record as it is written: a JSON line with a checksum over itself."""
    body = json.dumps(record, sort_keys=True)
    return f"{body[:-1]}, {_checksum(body)}\n".encode()


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The undamaged records of a file, without their checksums. Yields nothing if the file does not exist."""
    for _, record in numbered_records(path):
        if record is not None:
            del record["crc"]
            yield record


def damaged_lines(path: Path) -> list[int]:
    """The numbers, from 1, of the lines whose checksum does not match."""
    return [number for number, record in numbered_records(path) if record is None]


def numbered_records(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """The record of each line, with its checksum, by the number of the line from 1; None for a damaged one."""
    if not path.exists():
        return
    with disk.open_to_read(path) as lines:
        for number, line in enumerate(lines, 1):
            yield number, checked_record(line)


def checked_record(line: bytes) -> dict[str, Any] | None:
    """The record of a line, with its checksum; None if the line is damaged or not finished."""
    text = line.decode("utf-8", "replace")
    body, comma, checksum = text.rpartition(", ")
    is_intact = comma and checksum == f"{_checksum(body + '}')}\n"
    try:
        return json.loads(text) if is_intact else None
    except (ValueError, RecursionError):  # the checksum of a forged line may be right
        return None


def _checksum(body: str) -> str:
    return f'"crc": "{zlib.crc32(body.encode("utf-8", "replace")):08x}"}}'


def _drop_torn_line(out: disk.File) -> None:
    size = out.seek(0, os.SEEK_END)
    start = max(0, size - TORN_LINE_BYTES)
    out.seek(start)
    tail = out.readall()
    if tail and not tail.endswith(b"\n"):
        out.truncate(start + tail.rfind(b"\n") + 1)
    out.seek(0, os.SEEK_END)
