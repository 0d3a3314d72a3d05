"""tokenmill stats, also called tokenmill pack."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tokenmill.cli.flags import add_command, add_json, add_options, given_options, print_result
from tokenmill.formatting import printable
from tokenmill.options import LayoutOptions, PackOptions


def add(commands: Any) -> None:
    command = add_command(
        commands,
        "stats",
        _stats,
        help="show what rows for training cost: padding, tokens lost, documents split",
        description="Plan rows for training and show what they cost. No token is copied; tm.pack reuses the plan. The"
        " same as tokenmill pack.",
    )
    command.add_argument("store", help="folder of the store, or its URL")
    add_options(command, PackOptions, only=["seq_len", "split"])
    strategy = command.add_mutually_exclusive_group()
    add_options(strategy, LayoutOptions, only=["strategy"])
    strategy.add_argument("--compare", action="store_true", help="show all strategies side by side")
    add_options(command.add_argument_group("rows"), LayoutOptions, skip=["strategy"])
    command.add_argument(
        "--plot", metavar="FILE", help="also draw a chart, as .png or .svg (pip install 'tokenmill[plot]')"
    )
    add_json(command)


def _stats(options: argparse.Namespace) -> int:
    from tokenmill.packing.comparison import compare, comparison_table, measure
    from tokenmill.packing.plot import check_picture, draw
    from tokenmill.packing.stats import stats_table
    from tokenmill.store.store import open_store

    if options.plot is not None:
        check_picture(options.plot)
    store = open_store(options.store)
    given, split = given_options(options, LayoutOptions), getattr(options, "split", None)
    strategy = given.pop("strategy", "concat")
    if options.compare:
        packed = compare(store, options.seq_len, given, split)
        facts: Any = [one.as_dict() for one in packed]
        table = comparison_table(packed)
    else:
        packed = [measure(store, options.seq_len, strategy, given, split=split)]
        facts, table = packed[0].stats.as_dict(), stats_table(packed[0].stats)
        keywords = {"strategy": strategy, **given, **({} if split is None else {"split": split})}
        written = "".join(f", {name}={value!r}" for name, value in keywords.items())
        table += f"\n\nin Python: view = tm.pack({options.store!r}, {options.seq_len}{written}); view[:8]['input_ids']"
    print_result(facts, table, as_json=options.json)
    if options.plot is not None:
        draw(packed, options.plot)
        print(printable(f"chart written to {options.plot}"), file=sys.stderr)
    return 0
