"""tokenmill info; a build ends with the same."""

from __future__ import annotations

import json
from typing import Any

from tokenmill.formatting import printable


def add(commands: Any) -> None:
    command = commands.add_parser(
        "info", help="what a store holds", description="What a store holds, from its manifest."
    )
    command.set_defaults(run=lambda options: print_info(options.store, options.json))
    command.add_argument("store", help="folder of the store")
    command.add_argument("--json", action="store_true", help="as JSON")


def print_info(path: str, as_json: bool) -> int:
    from tokenmill.store.facts import info, info_table

    facts = info(path)
    print(json.dumps(facts, indent=1) if as_json else printable(info_table(facts)))
    return 0
