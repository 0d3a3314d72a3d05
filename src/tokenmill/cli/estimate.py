"""tokenmill estimate."""

from __future__ import annotations

import argparse
from typing import Any

from tokenmill.cli.flags import add_command, add_corpus, add_groups, add_json, given_options, print_result
from tokenmill.options import EstimateArguments, ReadOptions, SampleOptions, TokenOptions


def add(commands: Any) -> None:
    command = add_command(
        commands,
        "estimate",
        _estimate,
        help="estimate tokens, disk space and time of a build from a sample, in seconds",
        description="Estimate the result and the cost of a build from a sample, and warn about problems in the text.",
    )
    add_corpus(command)
    add_groups(command, ReadOptions, TokenOptions, SampleOptions)
    add_json(command)


def _estimate(options: argparse.Namespace) -> int:
    from tokenmill.estimating.api import estimate
    from tokenmill.estimating.result import estimate_table

    found = estimate(tuple(options.source), options.tokenizer, **given_options(options, EstimateArguments))
    print_result(found.as_dict(), estimate_table(found), as_json=options.json)
    return 0
