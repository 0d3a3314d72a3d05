"""tokenmill info."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tokenmill.cli.flags import add_command, add_json, print_result
from tokenmill.formatting import fitted


def add(commands: Any) -> None:
    command = add_command(
        commands,
        "info",
        _info,
        help="describe a store",
        description="Describe a store: counts, size, dates, tokenizer, fingerprint.",
    )
    command.add_argument("store", help="folder of the store, or its URL")
    add_json(command)


def _info(options: argparse.Namespace) -> int:
    print_info(options.store, as_json=options.json)
    return 0


def print_info(path: str, *, as_json: bool, brief: bool = False) -> None:
    """Describe a store on standard output. `brief`: without the proof of the engine, as after a build."""
    from tokenmill.store.facts import NAMES, info, info_table

    facts = info(path)
    print_result(facts, fitted(info_table(facts, brief=brief), sys.stdout, NAMES), as_json=as_json)
