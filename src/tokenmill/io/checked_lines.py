"""Append-only files of JSON lines, each with a checksum of its own, so damage is found line by line."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TORN_LINE_BYTES = 1 << 20  # how far back from its end a file is searched for a line that a crash cut short


class CheckedLines:
    """Appends records to a file. A line that a crash cut short is removed when the file is opened again."""

    def __init__(self, path: Path) -> None:
        self._out = open(path, "a+b", buffering=0)
        _drop_torn_line(self._out)

    def append(self, record: dict[str, Any]) -> None:
        body = json.dumps(record, sort_keys=True)
        self._out.write(f"{body[:-1]}, {_checksum(body)}\n".encode())

    def close(self) -> None:
        self._out.close()


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The undamaged records of a file, without their checksums; nothing if there is no file."""
    for _, record in _records(path):
        if record is not None:
            del record["crc"]
            yield record


def damaged_lines(path: Path) -> list[int]:
    """The numbers, from 1, of the lines that differ from what was written."""
    return [number for number, record in _records(path) if record is None]


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    if not path.exists():
        return
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            text = line.decode("utf-8", "replace")
            body, comma, checksum = text.rpartition(", ")
            is_intact = comma and checksum == f"{_checksum(body + '}')}\n"
            yield number, json.loads(text) if is_intact else None


def _checksum(body: str) -> str:
    return f'"crc": "{zlib.crc32(body.encode("utf-8", "replace")):08x}"}}'


def _drop_torn_line(out: Any) -> None:
    size = out.seek(0, os.SEEK_END)
    start = max(0, size - TORN_LINE_BYTES)
    out.seek(start)
    tail = out.read()
    if tail and not tail.endswith(b"\n"):
        out.truncate(start + tail.rfind(b"\n") + 1)
    out.seek(0, os.SEEK_END)
