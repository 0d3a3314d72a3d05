"""tokenmill estimate."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tokenmill.cli.flags import add_command, add_corpus, add_groups, add_json, given_options, print_result
from tokenmill.formatting import human, human_time, in_words, some
from tokenmill.options import EstimateArguments, ReadOptions, SampleOptions, TokenOptions

if TYPE_CHECKING:
    from tokenmill.estimating.api import Estimate


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

    found = estimate(tuple(options.source), options.tokenizer, **given_options(options, EstimateArguments))
    print_result(found.as_dict(), _table(found), as_json=options.json)
    return 0


def _table(found: Estimate) -> str:
    about = "" if found.exact else "about "
    between = "counted" if found.exact else f"95% interval: {_short(found.low)} to {_short(found.high)}"
    quantiles = found.quantiles
    spread = f"; median {quantiles[0.5]:,}, p95 {quantiles[0.95]:,}" if quantiles else ""
    head = f"; {found.head_share:.0%} of the input is beyond the heads that were read" if found.head_share else ""
    rows = [
        ("tokens", f"{about}{f'{found.tokens:,}' if found.exact else _short(found.tokens)} ({between})"),
        ("documents", f"{about}{found.documents:,}, {found.tokens_per_document:,.0f} tokens each{spread}"),
        ("text", f"{about}{human(found.text_bytes)}, {found.bytes_per_token:.2f} bytes per token"),
        ("source", f"{human(found.source_bytes)} in {some(found.files, 'file')}"),
        *([("ignored", in_words(found.ignored))] if found.ignored else []),
        ("store", f"{about}{human(found.disk_bytes)} on disk, ids as {found.dtype}"),
        (
            "build",
            f"about {human_time(found.seconds)} with {some(found.workers, 'worker')} of {found.engine},"
            f" {human(found.memory)} of memory",
        ),
        (
            "sample",
            f"{human(found.sampled_bytes)} of text, {some(found.sampled_documents, 'document')}"
            f" from {some(found.sampled_files, 'file')}{head}",
        ),
    ]
    lines = [f"{name:<12}{value}" for name, value in rows]
    return "\n".join([*lines, *(["", *(f"warning: {one}" for one in found.warnings)] if found.warnings else [])])


def _short(number: int) -> str:
    """A number rounded to the four digits an estimate is good for."""
    for unit, size in (("trillion", 10**12), ("billion", 10**9), ("million", 10**6)):
        if number >= size:
            return f"{number / size:.4g} {unit}"
    return f"{number:,}"
