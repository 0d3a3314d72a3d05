"""A line on the terminal that shows how much of a known amount is done, and how long the rest will take."""

from __future__ import annotations

import sys
import time
from typing import Any

from tokenmill.formatting import human, human_time, printable

SECONDS = 0.2  # between two updates


class ProgressLine:
    """Shown on standard error if that is a terminal, and cleared in the end. Use it as a context manager."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_shown = not is_quiet and sys.stderr.isatty()
        self._began = self._updated = 0.0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *error: Any) -> None:
        self._write("")

    def show(self, done: int, total: int) -> None:
        """`done` of `total` bytes are done."""
        now = time.monotonic()
        if not self._began:  # not before: text may have been built first
            self._began = self._updated = now
        if now - self._updated >= SECONDS:
            self._updated = now
            self._write(progress_text(done, total, now - self._began))

    def _write(self, text: str) -> None:
        if self._is_shown:
            print(f"\r\x1b[K{printable(text)}", end="", file=sys.stderr, flush=True)


def progress_text(done: int, total: int, seconds: float) -> str:
    """ "37% of 1.2 GB, 310.0 MB/s, 3 s left"; without an end in sight, how much is done."""
    rate = f"{human(done / max(seconds, 1e-9))}/s"
    if not done or not total:
        return f"{human(done)}, {rate}"
    return f"{100 * done / total:.0f}% of {human(total)}, {rate}, {human_time((total - done) * seconds / done)} left"
