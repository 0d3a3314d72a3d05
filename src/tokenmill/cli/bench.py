"""tokenmill bench."""

from __future__ import annotations

import argparse
from typing import Any

from tokenmill.cli.types import count


def add(commands: Any) -> None:
    command = commands.add_parser(
        "bench",
        help="measure this machine against the bars",
        description="Measure whole builds against one-shot tokenization, bare stages and the reference, in one run.",
    )
    command.set_defaults(run=_bench)
    command.add_argument(
        "--corpus", nargs="*", default=[], help="text files for the corpus (this Python's own sources)"
    )
    command.add_argument("-t", "--tokenizer", help="a tokenizer, named as for build (tokenmill's demo tokenizer)")
    command.add_argument(
        "--tokenizers",
        nargs="+",
        metavar="TOKENIZER",
        help="instead, race the engines for these tokenizers, beside the loops people write",
    )
    command.add_argument(
        "--packing", action="store_true", help="instead, measure packing: plans, and rows against numpy"
    )
    command.add_argument("--documents", type=count, default=10_000_000, help="for --packing: to plan (10,000,000)")
    command.add_argument("--large", action="store_true", help="for --packing: 100 million documents too")
    command.add_argument("--peer", metavar="PYTHON", help="for --packing: a Python with TRL in it, to compare with")
    command.add_argument(
        "--loading", action="store_true", help="instead, measure loading: batches, resuming, verification"
    )
    command.add_argument("--mosaic", metavar="PYTHON", help="for --loading: a Python with mosaicml-streaming in it")
    command.add_argument("--litdata", metavar="PYTHON", help="for --loading: a Python with litdata in it")
    command.add_argument(
        "--cache", action="store_true", help="instead, measure the cache: up to date, a file changed, hashing"
    )
    command.add_argument(
        "--size", help="text to measure with (300MB; 40MB of each kind for --tokenizers, 250MB for --cache)"
    )
    command.add_argument("--rounds", type=int, default=3, help="repetitions; the best of each is compared (3)")
    command.add_argument("--work", help="folder for the corpus and stores (a temporary one)")
    command.add_argument("--json", action="store_true", help="as JSON")


def _bench(options: argparse.Namespace) -> int:
    from tokenmill.bench import bench

    return bench(options)
