"""tokenmill bench."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.cli.flags import add_command, add_groups, add_json, count, given_options, print_result
from tokenmill.errors import UsageError
from tokenmill.formatting import human, some
from tokenmill.options import ReadOptions

if TYPE_CHECKING:
    from tokenmill.bar_chart import Bar
    from tokenmill.cli.bench_methods import Method
    from tokenmill.cli.bench_text import BenchText
    from tokenmill.reading import Source

LITTLE_BYTES = 20_000_000


def add(commands: Any) -> None:
    command = add_command(
        commands,
        "bench",
        _bench,
        help="compare engines, builds and Hugging Face tokenizers on your own text",
        description="Measure how fast text is tokenized: by Hugging Face tokenizers one document at a time and in batches, by"
        " each engine that is proved exact, and by whole builds into a temporary store. The ids of all are compared; the exit"
        " code is 1 if any differ. Slow methods run on evenly chosen documents. Without arguments, the text is Python's own"
        " source files.",
    )
    command.add_argument("source", nargs="*", help="as for build, except standard input (Python's own source files)")
    command.add_argument("-t", "--tokenizer", help="as for tokenmill build (demo)")
    add_groups(command, ReadOptions)
    command.add_argument("--num-docs", type=count, metavar="N", help="only the first N documents (all, up to 128 MB)")
    command.add_argument(
        "--validate",
        action="store_true",
        help="compare all documents with the reference, or as many as it encodes in 20 s",
    )
    command.add_argument("--rounds", type=count, metavar="N", help="repeats; the best counts (3; 1 with --validate)")
    command.add_argument("--plot", type=Path, metavar="FILE", help="also draw a chart, as .svg or .png")
    add_json(command)


def _bench(options: argparse.Namespace) -> int:
    from tempfile import TemporaryDirectory

    from tokenmill.bar_chart import check_chart, save_chart
    from tokenmill.building.machine import machine_facts
    from tokenmill.cli.bench_methods import measure
    from tokenmill.cli.bench_text import MOST_BYTES, MOST_DEMO_BYTES, read_text
    from tokenmill.encoding.api import load_tokenizer

    if options.plot is not None:
        check_chart(options.plot)
    source = _source(options)
    tokenizer = load_tokenizer(options.tokenizer or "demo")
    text = read_text(source, options.num_docs, MOST_BYTES if options.source else MOST_DEMO_BYTES)
    if not text.texts:
        raise UsageError("the input holds no documents to measure with")
    rounds = options.rounds or (1 if options.validate else 3)
    with TemporaryDirectory(prefix="tokenmill-bench-") as folder:
        methods, choice = measure(tokenizer, text, rounds, Path(folder), validate=options.validate)
    result = {
        "machine": machine_facts(),
        "tokenizer": tokenizer.name,
        "text": ", ".join(options.source) or "Python's own source files",
        "documents": len(text.texts),
        "text_bytes": text.num_bytes,
        "source_bytes": sum(file.size for file in source.files),
        "num_docs": options.num_docs,
        "rounds": rounds,
        "chosen": choice.engine,
        "methods": method_rows(methods, text),
        "refused": [
            {"engine": each.engine, "why": each.why} for each in (choice.proof,) if each is not None and not each.agrees
        ],
    }
    print_result(result, bench_table(result), as_json=options.json)
    if options.plot is not None:
        save_chart(f"MB of text per second: {_about_text(result)}", chart_bars(result), options.plot)
    return 1 if any(method.differing for method in methods) else 0


def _source(options: argparse.Namespace) -> Source:
    from tokenmill.demo_data import demo_globs
    from tokenmill.reading import read

    given = given_options(options, ReadOptions)
    if "-" in options.source:
        raise UsageError("bench reads its text several times: give files, not standard input")
    if not options.source and given:
        raise UsageError("options for reading need files: tokenmill bench FILES ...; else Python's own are read")
    return read(*options.source, **given) if options.source else read(*demo_globs(), format="text")


def method_rows(methods: list[Method], text: BenchText) -> list[dict[str, Any]]:
    """The figures of each method. The speedup is over the first, which encodes one document at a time."""
    rows: list[dict[str, Any]] = []
    for method in methods:
        row: dict[str, Any] = {"method": method.name, "failed": method.failed or None}
        if not method.failed:
            seconds, size = max(method.best["seconds"], 1e-9), sum(text.sizes[number] for number in method.part)
            row |= {"documents": len(method.part), "text_bytes": size, **method.best}
            row |= {
                "docs_per_second": len(method.part) / seconds,
                "tokens_per_second": method.best["tokens"] / seconds,
                "mb_per_second": size / seconds / 1e6,
            }
            row |= {"compared": method.compared, "differing": method.differing}
        rows.append(row)
    first = rows[0].get("mb_per_second")
    for row in rows:
        row["speedup"] = row["mb_per_second"] / first if first and not row["failed"] else None
    return rows


def bench_table(result: dict[str, Any]) -> str:
    """The figures as text: the machine, the text, a line per method, and what the comparison of ids found."""
    machine = result["machine"]
    versions = ", ".join(f"{name} {machine[name]}" for name in ("tokenmill", "gigatoken", "tokenizers"))
    hardware = f"{machine['cpu']}, {some(machine['cores'], 'core')}, {machine['memory_gb']} GB of memory"
    head = f"{'Method':<38}{'Time':>9}{'Docs/sec':>11}{'Tokens/sec':>14}{'MB/s':>9}{'Speedup':>9}"
    lines = [f"{hardware}; python {machine['python']}, {versions}", _about_text(result), "", head]
    for row in result["methods"]:
        lines.append(_row_line(row, result["text_bytes"]))
    lines += ["", *_comparison(result), f"Engine that a build uses: {result['chosen']}"]
    lines += [f"Refused: {each['engine']} {each['why']}" for each in result["refused"]]
    return "\n".join(lines)


def _about_text(result: dict[str, Any]) -> str:
    text = f"{human(result['text_bytes'])} in {some(result['documents'], 'document')} of {result['text']}"
    return f"{text}; tokenizer {result['tokenizer']}; best of {some(result['rounds'], 'round')}"


def _row_line(row: dict[str, Any], all_bytes: int) -> str:
    if row["failed"]:
        return f"{row['method']:<38}{row['failed']}"
    speedup = "" if row["speedup"] is None else f"{row['speedup']:,.1f}x"
    part = "" if row["text_bytes"] == all_bytes else f"  on {human(row['text_bytes'])}"
    if row["differing"]:
        part += f"  OTHER IDS in {some(row['differing'], 'document')}"
    return (
        f"{row['method']:<38}{row['seconds']:>7.2f} s{row['docs_per_second']:>11,.0f}"
        f"{row['tokens_per_second']:>14,.0f}{row['mb_per_second']:>9.3g}{speedup:>9}{part}"
    )


def _comparison(result: dict[str, Any]) -> list[str]:
    """Whether all methods gave the same ids, and what else a reader has to know about the figures."""
    ran = [row for row in result["methods"] if not row["failed"]]
    lines = [
        f"{row['method']} gave other ids in {row['differing']:,} of {some(row['compared'], 'document')}"
        for row in ran
        if row["differing"]
    ]
    reference = result["methods"][0]["method"].partition(",")[0]
    known = max((row["documents"] for row in ran if row["method"].startswith(f"{reference},")), default=0)
    # By two methods at least: a part has all documents of smaller ones.
    compared = sorted([0, 0, *(row["documents"] for row in ran)])[-2]
    partly = f", {known:,} of them" if known < compared else ""
    lines = lines or [f"{some(compared, 'document')} compared{partly} with {reference}, the reference: 0 differ"]
    if result["text_bytes"] < LITTLE_BYTES:
        lines.append(f"With less than {human(LITTLE_BYTES)} of text, most of the time of a build is its start.")
    return lines


def chart_bars(result: dict[str, Any]) -> list[Bar]:
    """A bar for each method that ran; builds stand out."""
    from tokenmill.bar_chart import Bar

    return [
        Bar(row["method"], row["mb_per_second"], f"{row['mb_per_second']:.3g}", own="build" in row["method"])
        for row in result["methods"]
        if not row["failed"]
    ]
