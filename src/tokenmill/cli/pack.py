"""tokenmill pack."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from tokenmill.cli.types import widths
from tokenmill.formatting import printable

PACK_OPTIONS = ("stride", "overlap", "tail", "row_start", "buckets", "long_docs", "min_doc_tokens")


def add(commands: Any) -> None:
    command = commands.add_parser(
        "pack",
        help="what rows for training would cost: padding, tokens lost, documents split",
        description="Plan rows for training and show what they cost. No token is copied; the plan is kept for tm.pack.",
    )
    command.set_defaults(run=_pack)
    command.add_argument("store", help="folder of the store")
    command.add_argument("--seq-len", type=int, required=True, metavar="L", help="positions of a row")
    which = command.add_mutually_exclusive_group()
    which.add_argument("--strategy", metavar="NAME", help="concat, best_fit, pad or windows (concat)")
    which.add_argument("--compare", action="store_true", help="every strategy, side by side")
    rows = command.add_argument_group("rows")
    rows.add_argument("--stride", type=int, metavar="N", help="concat, windows: tokens from row to row (L)")
    rows.add_argument("--overlap", type=int, metavar="N", help="the same the other way: tokens that rows share (0)")
    rows.add_argument("--tail", metavar="WHAT", help="concat: keep or drop a last row that is not full (keep)")
    rows.add_argument(
        "--row-start", metavar="WHERE", help="anywhere, or document: cut off what crosses a row's end (anywhere)"
    )
    rows.add_argument("--buckets", type=widths, metavar="N,N", help="pad: shorter widths for short rows, as 128,512")
    documents = command.add_argument_group("documents")
    documents.add_argument("--long-docs", metavar="WHAT", help="longer than a row: split, truncate or drop (split)")
    documents.add_argument("--min-doc-tokens", type=int, metavar="N", help="leave out documents with fewer tokens (0)")
    command.add_argument("--plot", metavar="FILE", help="also draw it, as .png or .svg (pip install 'tokenmill[plot]')")
    command.add_argument("--json", action="store_true", help="as JSON")


def _pack(options: argparse.Namespace) -> int:
    from tokenmill.packing.comparison import compare, comparison_table, measure
    from tokenmill.packing.plot import check_picture, draw
    from tokenmill.packing.stats import stats_table
    from tokenmill.store import open_store

    if options.plot is not None:
        check_picture(options.plot)
    store = open_store(options.store)
    given = {name: getattr(options, name) for name in PACK_OPTIONS if getattr(options, name) is not None}
    strategy = "concat" if options.strategy is None else options.strategy
    if options.compare:
        packed = compare(store, options.seq_len, given)
        facts: Any = [one.as_dict() for one in packed]
        table = comparison_table(packed)
    else:
        packed = [measure(store, options.seq_len, strategy, given)]
        facts, table = packed[0].stats.as_dict(), stats_table(packed[0].stats)
        keywords = "".join(f", {name}={value!r}" for name, value in {"strategy": strategy, **given}.items())
        table += f"\n\nin Python: view = tm.pack({options.store!r}, {options.seq_len}{keywords}); view[:8]['input_ids']"
    print(json.dumps(facts, indent=1) if options.json else printable(table))
    if options.plot is not None:
        draw(packed, options.plot)
        print(printable(f"drawn: {options.plot}"), file=sys.stderr)
    return 0
