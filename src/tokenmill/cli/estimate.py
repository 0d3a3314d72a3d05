"""tokenmill estimate."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from tokenmill.cli.build import add_reading, add_tokens, add_what, source_of
from tokenmill.formatting import printable

if TYPE_CHECKING:
    from tokenmill.estimating.api import Estimate


def add(commands: Any) -> None:
    command = commands.add_parser(
        "estimate",
        help="from a sample, in seconds: tokens, disk and time of a build, and what is odd about the text",
        description="From a sample, in seconds: what a build would give and take, and what is worth mending before it.",
    )
    command.set_defaults(run=_estimate)
    add_what(command)
    add_reading(command)
    add_tokens(command)
    sampling = command.add_argument_group("sampling")
    sampling.add_argument("--sample", default="32MB", metavar="SIZE", help="text to encode, from all over (32MB)")
    sampling.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="for reading and encoding it; less is taken then (5)"
    )
    command.add_argument("--json", action="store_true", help="as JSON")


def _estimate(options: argparse.Namespace) -> int:
    from tokenmill.estimating.api import estimate

    found = estimate(
        source_of(options),
        options.tokenizer,
        eos=options.eos,
        bos=options.bos,
        special_tokens=options.special_tokens,
        engine=options.engine,
        sample=options.sample,
        seconds=options.seconds,
    )
    print(json.dumps(found.as_dict(), indent=1) if options.json else printable(_table(found)))
    return 0


def _table(found: Estimate) -> str:
    from tokenmill.formatting import human, human_time, some

    about = "" if found.exact else "about "
    between = "counted" if found.exact else f"between {_short(found.low)} and {_short(found.high)}, 19 times of 20"
    quantiles = found.quantiles
    spread = f"; half have up to {quantiles[0.5]:,}, 1 in 20 more than {quantiles[0.95]:,}" if quantiles else ""
    head = f"; {found.head_share:.0%} of the input lies behind heads and was not seen" if found.head_share else ""
    rows = [
        ("tokens", f"{about}{f'{found.tokens:,}' if found.exact else _short(found.tokens)} ({between})"),
        ("documents", f"{about}{found.documents:,}, {found.tokens_per_document:,.0f} tokens each{spread}"),
        ("text", f"{about}{human(found.text_bytes)}, {found.bytes_per_token:.2f} bytes a token"),
        ("source", f"{human(found.source_bytes)} in {some(found.files, 'file')}"),
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
    """A number with the digits that an estimate has."""
    for unit, size in (("trillion", 10**12), ("billion", 10**9), ("million", 10**6)):
        if number >= size:
            return f"{number / size:.4g} {unit}"
    return f"{number:,}"
