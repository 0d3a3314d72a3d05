"""tokenmill export."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from tokenmill.cli.flags import add_command, add_json, add_options, given_options, print_result
from tokenmill.formatting import human, printable, some
from tokenmill.option_types import with_given
from tokenmill.options import ExportArguments, ExportOptions, LayoutOptions, RowOptions

SECONDS = 0.2  # between two updates of the line on the terminal


def add(commands: Any) -> None:
    command = add_command(
        commands,
        "export",
        _export,
        help="write a store in the format of another tool",
        description="Write the documents of a store, or rows of it, in the format of another tool. Run it again to continue,"
        " or to see that it is up to date.",
    )
    command.add_argument("store", help="folder of the store")
    command.add_argument("path", help="folder of the export")
    add_options(command, ExportOptions)
    rows = command.add_argument_group("rows")
    add_options(rows, ExportArguments, only=["seq_len", "dtype", "fields"])
    add_options(rows, LayoutOptions)
    add_options(rows, RowOptions, skip=["fields"])
    command.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    add_json(command)


def _export(options: argparse.Namespace) -> int:
    from tokenmill.exchange.api import export_files

    line = _Line(is_shown=not options.quiet and sys.stderr.isatty())
    arguments = with_given(ExportArguments, given_options(options, ExportArguments))
    try:
        done = export_files(options.store, arguments, line.advanced)
    finally:
        line.clear()
    state = "up to date" if not done.written else f"{some(done.written, 'file')} written"
    text = (
        f"export      {done.path}\nformat      {done.format}\nfiles       {done.files:,}, {human(done.bytes)}: {state}"
    )
    facts = {"path": str(done.path), "format": done.format, "files": done.files, "bytes": done.bytes}
    print_result({**facts, "written": done.written}, text, as_json=options.json)
    return 0


class _Line:
    """A line on the terminal that shows how much is written."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown, self._bytes = is_shown, 0
        self._began = self._updated = time.monotonic()

    def advanced(self, nbytes: int) -> None:
        self._bytes += nbytes
        now = time.monotonic()
        if self._is_shown and now - self._updated > SECONDS:
            self._updated = now
            rate = self._bytes / (now - self._began)
            print(
                printable(f"\r{human(self._bytes)} written, {human(int(rate))}/s "), end="", file=sys.stderr, flush=True
            )

    def clear(self) -> None:
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
