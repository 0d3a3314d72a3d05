"""tokenmill import."""

from __future__ import annotations

import argparse
from typing import Any

from tokenmill.cli.flags import add_command, add_json, add_options, given_options
from tokenmill.cli.info import print_info
from tokenmill.cli.progress_line import ProgressLine
from tokenmill.option_types import with_given
from tokenmill.options import ImportArguments


def add(commands: Any) -> None:
    command = add_command(
        commands,
        "import",
        _import,
        help="make a store from tokens that another tool has written",
        description="Make a store from tokens in the format of another tool. Nothing is tokenized: ids are taken as they are.",
    )
    command.add_argument("source", help="folder, file or prefix of the tokens")
    command.add_argument("out", help="folder of the store")
    command.add_argument(
        "-t", "--tokenizer", help="the tokenizer that the ids are of: a path, a folder or a name, as for build"
    )
    add_options(command, ImportArguments, skip=["out", "tokenizer"])
    command.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    add_json(command)


def _import(options: argparse.Namespace) -> int:
    from tokenmill.exchange.importing import import_files

    arguments = with_given(ImportArguments, {**given_options(options, ImportArguments), "tokenizer": options.tokenizer})
    with ProgressLine(is_quiet=options.quiet) as line:
        store = import_files(options.source, arguments, line.show)
    if options.json or not options.quiet:
        print_info(store.name, as_json=options.json, brief=True)
    return 0
