"""tokenmill show."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from tokenmill.cli.types import token_range
from tokenmill.formatting import printable


def add(commands: Any) -> None:
    command = commands.add_parser(
        "show",
        help="documents as tokens, text and origin",
        description="Show documents: where each came from, its ids and its text.",
    )
    command.set_defaults(run=_show)
    command.add_argument("store", help="folder of the store")
    command.add_argument(
        "--doc", type=int, nargs="+", default=[0], metavar="N", help="documents, from 0; -1 is the last (0)"
    )
    command.add_argument(
        "--tokens",
        type=token_range,
        default=slice(0, 200),
        metavar="N",
        help="so many ids of each, or a range of them, as 1000:1200 (200)",
    )
    command.add_argument("--json", action="store_true", help="as JSON, a line each")


def _show(options: argparse.Namespace) -> int:
    from tokenmill.encoding import load_tokenizer
    from tokenmill.store import open_store

    store = open_store(options.store)
    tokenizer = load_tokenizer(store.tokenizer.path)
    for number in options.doc:
        try:
            ids = store[number]
            file, row = store.locate(number)
        except IndexError as error:
            print(f"tokenmill: {error}", file=sys.stderr)
            return 2
        start, stop, _ = options.tokens.indices(len(ids))
        some = ids[start:stop].tolist()
        text = tokenizer.decode(ids, start, stop)
        if options.json:
            print(
                json.dumps(
                    {"document": number, "file": file, "row": row, "tokens": len(ids), "ids": some, "text": text}
                )
            )
            continue
        cut = len(ids) > stop
        more = f" ... and {len(ids) - stop:,} more" if cut else ""
        since = f" from {start:,}" if start else ""
        number %= len(store)
        print(
            printable(
                f"document {number}: {file}, row {row}; {len(ids):,} tokens{since}\n{some}{more}\n{text}{' ...' if cut else ''}\n"
            )
        )
    return 0
