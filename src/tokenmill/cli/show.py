"""tokenmill show."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from tokenmill.cli.flags import add_command, token_range
from tokenmill.formatting import fitted, printable, some


def add(commands: Any) -> None:
    command = add_command(
        commands,
        "show",
        _show,
        help="show documents: origin, text and ids",
        description="Show documents: where each came from, its text and its ids.",
    )
    command.add_argument("store", help="folder of the store, or its URL")
    command.add_argument(
        "--doc", type=int, nargs="+", default=[0], metavar="N", help="numbers of documents, from 0; -1 is the last (0)"
    )
    command.add_argument(
        "--tokens",
        type=token_range,
        default=slice(0, 200),
        metavar="N",
        help="show the first N ids of each, or a range such as 1000:1200 (200)",
    )
    command.add_argument("--json", action="store_true", help="print a line of JSON for each document")


def _show(options: argparse.Namespace) -> int:
    from tokenmill.store.store import open_store

    store = open_store(options.store)
    for number in options.doc:
        try:
            ids = store[number]
            file, row = store.locate(number)
        except IndexError as error:
            print(f"tokenmill: {error}", file=sys.stderr)
            return 2
        number %= len(store)
        start, stop, _ = options.tokens.indices(len(ids))
        shown_ids, text = ids[start:stop].tolist(), store.tokenizer.decode(ids, start, stop)
        if options.json:
            facts = {"document": number, "file": file, "row": row, "tokens": len(ids), "ids": shown_ids, "text": text}
            print(json.dumps(facts))
            continue
        first = f" from {start:,}" if start else ""
        more, dots = (f" ... and {len(ids) - stop:,} more", " ...") if len(ids) > stop else ("", "")
        head = fitted(printable(f"document {number}: {file}, row {row}; {some(len(ids), 'token')}{first}"), sys.stdout)
        numbers = fitted(f"ids: {shown_ids}{more}", sys.stdout)
        print(f"{head}\n{printable(text)}{dots}\n{numbers}\n")
    return 0
