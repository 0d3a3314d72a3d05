"""tokenmill info."""

from __future__ import annotations

import argparse
import json
from typing import Any

from tokenmill.cli.flags import add_json
from tokenmill.formatting import printable


def add(commands: Any) -> None:
    command = commands.add_parser(
        "info",
        help="describe a store",
        description="Describe a store from its manifest: counts, tokenizer, fingerprint.",
    )
    command.set_defaults(run=_info)
    command.add_argument("store", help="folder of the store")
    add_json(command)


def _info(options: argparse.Namespace) -> int:
    print_info(options.store, as_json=options.json)
    return 0


def print_info(path: str, *, as_json: bool) -> None:
    """Describe a store on standard output; `tokenmill build` ends with it."""
    from tokenmill.store.facts import info, info_table

    facts = info(path)
    print(json.dumps(facts, indent=1) if as_json else printable(info_table(facts)))
