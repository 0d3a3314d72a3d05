"""What happens during a build, as plain dicts: for the log in the store, the terminal, and anyone who wants to watch.

Each line of events.jsonl is one event with its time and a check of its own, so a damaged log is noticed line by line.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Sink = Callable[[Event], None]


class EventLog:
    """Appends events to a file. A line cut short by a crash is cut away when the log is opened again."""

    def __init__(self, path: Path) -> None:
        self._out = open(path, "a+b", buffering=0)
        _drop_torn_line(self._out)

    def __call__(self, event: Event) -> None:
        body = json.dumps({"time": round(time.time(), 3), **event}, sort_keys=True)
        self._out.write(f"{body[:-1]}, {_check(body)}\n".encode())

    def close(self) -> None:
        self._out.close()


def read_events(path: Path) -> Iterator[Event]:
    """The events of a log that are whole."""
    for _, event in _lines(path):
        if event is not None:
            yield event


def damaged_lines(path: Path) -> list[int]:
    """The numbers, from 1, of lines that are not what was written."""
    return [number for number, event in _lines(path) if event is None]


def _lines(path: Path) -> Iterator[tuple[int, Event | None]]:
    if not path.exists():
        return
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            text = line.decode("utf-8", "replace")
            body, comma, check = text.rpartition(", ")
            whole = comma and check == f"{_check(body + '}')}\n"
            yield number, json.loads(text) if whole else None


def _check(body: str) -> str:
    return f'"crc": "{zlib.crc32(body.encode("utf-8", "replace")):08x}"}}'


def _drop_torn_line(out: Any) -> None:
    size = out.seek(0, os.SEEK_END)
    start = max(0, size - (1 << 20))
    out.seek(start)
    tail = out.read()
    if tail and not tail.endswith(b"\n"):
        out.truncate(start + tail.rfind(b"\n") + 1)
    out.seek(0, os.SEEK_END)
