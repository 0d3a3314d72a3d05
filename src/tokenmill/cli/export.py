"""tokenmill export."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from tokenmill.cli.build import failed_files
from tokenmill.cli.flags import add_command, add_json, add_options, given_options, print_result
from tokenmill.cli.progress_line import ProgressLine
from tokenmill.errors import UsageError
from tokenmill.option_types import declared, with_given
from tokenmill.options import ExportArguments, ExportOptions, LayoutOptions, RowOptions


def add(commands: Any) -> None:
    command = add_command(
        commands,
        "export",
        _export,
        help="write a store, or text, in the format of another tool",
        description="Write the documents of a store or of text, or rows of them, in the format of another tool. Run it again to"
        " continue, or to see that it is up to date.",
    )
    command.add_argument(
        "source",
        nargs="+",
        metavar="SOURCE",
        help="folder of a store, or its URL; with -t text, as for build; and then, without -o, PATH",
    )
    command.add_argument(
        "-t", "--tokenizer", help="the tokenizer of text, as for build: it is built into the cache first"
    )
    command.add_argument("-o", "--out", metavar="PATH", help=declared(ExportArguments)["out"].help_line)
    add_options(command, ExportArguments, only=["text_field"])
    add_options(command, ExportOptions)
    rows = command.add_argument_group("rows")
    add_options(rows, ExportArguments, only=["seq_len", "dtype", "fields"])
    add_options(rows, LayoutOptions)
    add_options(rows, RowOptions, skip=["fields"])
    command.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    add_json(command)


def _export(options: argparse.Namespace) -> int:
    from tokenmill.exchange.api import export_files

    source = list(options.source)
    out = options.out or (source.pop() if len(source) > 1 else None)
    if out is None:
        raise UsageError("give -o PATH too, the folder or the file of the export")
    given = {**given_options(options, ExportArguments), "out": out, "tokenizer": options.tokenizer}
    arguments, data = with_given(ExportArguments, given), source[0] if len(source) == 1 else tuple(source)
    with ProgressLine(is_quiet=options.quiet) as line:
        done = export_files(data, arguments, line.show, "quiet" if options.quiet else None)
    if options.json or not options.quiet:
        print_result({**asdict(done), "path": str(done.path)}, str(done), as_json=options.json)
    return failed_files(done.failed) if options.tokenizer is not None else 0
