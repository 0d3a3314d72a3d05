"""tokenmill export."""

from __future__ import annotations

import argparse
from typing import Any

from tokenmill.cli.flags import add_command, add_json, add_options, given_options, print_result
from tokenmill.cli.progress_line import ProgressLine
from tokenmill.formatting import human, some
from tokenmill.option_types import with_given
from tokenmill.options import ExportArguments, ExportOptions, LayoutOptions, RowOptions


def add(commands: Any) -> None:
    command = add_command(
        commands,
        "export",
        _export,
        help="write a store in the format of another tool",
        description="Write the documents of a store, or rows of it, in the format of another tool. Run it again to continue,"
        " or to see that it is up to date.",
    )
    command.add_argument("store", help="folder of the store, or its URL")
    command.add_argument("path", help="folder of the export")
    add_options(command, ExportOptions)
    rows = command.add_argument_group("rows")
    add_options(rows, ExportArguments, only=["seq_len", "dtype", "fields"])
    add_options(rows, LayoutOptions)
    add_options(rows, RowOptions, skip=["fields"])
    command.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    add_json(command)


def _export(options: argparse.Namespace) -> int:
    from tokenmill.exchange.api import export_files

    arguments = with_given(ExportArguments, given_options(options, ExportArguments))
    with ProgressLine(is_quiet=options.quiet) as line:
        done = export_files(options.store, arguments, line.show)
    state = "up to date" if not done.written else f"{some(done.written, 'file')} written"
    text = (
        f"export      {done.path}\nformat      {done.format}\nparts       {', '.join(done.parts)}\n"
        f"files       {done.files:,}, {human(done.bytes)}: {state}"
    )
    facts = {"path": str(done.path), "format": done.format, "files": done.files, "bytes": done.bytes}
    if options.json or not options.quiet:
        print_result({**facts, "written": done.written, "parts": done.parts}, text, as_json=options.json)
    return 0
