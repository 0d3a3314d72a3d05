"""The command line of the benchmarks, and of their chart. The exit code is 0 whatever the figures are."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.chart import write_chart
from tokenmill.cli.flags import count
from tokenmill.formatting import parse_size


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.run is write_chart:
        write_chart(options.results, options.output)
        return 0
    work = Path(options.work or tempfile.mkdtemp(prefix="tokenmill-bench-"))
    try:
        result, table = options.run(work, options)
    finally:
        if not options.work:
            shutil.rmtree(work, ignore_errors=True)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps(result, indent=1) if options.json else table(result))
    return 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m benchmarks", description="Run the benchmarks of tokenmill.")
    commands = top.add_subparsers(title="benchmarks", required=True, metavar="BENCHMARK")

    builds = _add(
        commands, "builds", _builds, "a whole build against one-shot tokenization, bare stages, and tokenizers"
    )
    _add_text(builds, "300MB")
    _add_tokenizer(builds)

    engines = _add(
        commands, "engines", _engines, "the engines side by side for several tokenizers, beside simple loops"
    )
    engines.add_argument("tokenizers", nargs="+", metavar="TOKENIZER", help="tokenizers, named as for tokenmill build")
    _add_text(engines, "40MB", "text of each kind")

    parsing = _add(commands, "parsing", _parsing, "ways to get the text out of JSON lines")
    _add_text(parsing, "40MB", "lines of each kind")

    packing = _add(commands, "packing", _packing, "plans, a store of 10^12 tokens, and rows against numpy")
    packing.add_argument("--documents", type=count, default=10_000_000, help="documents to plan (10,000,000)")
    packing.add_argument("--large", action="store_true", help="100 million documents too")
    packing.add_argument("--trl", metavar="PYTHON", help="a Python with TRL installed, to compare with")

    loading = _add(commands, "loading", _loading, "batches per second, resuming a run, verification")
    loading.add_argument("--mosaic", metavar="PYTHON", help="a Python with mosaicml-streaming installed")
    loading.add_argument("--litdata", metavar="PYTHON", help="a Python with litdata installed")

    cache = _add(commands, "cache", _cache, "time to the first batch, checks for changes, hashing")
    _add_text(cache, "250MB")
    _add_tokenizer(cache)

    exchange = _add(
        commands, "exchange", _exchange, "exports and imports, beside cp and the writers of other libraries"
    )
    exchange.add_argument("--tokens", type=count, default=200_000_000, help="tokens to write (200,000,000)")
    exchange.add_argument("--environments", type=Path, metavar="DIR", help="a folder with an environment per format")

    peers = _add(commands, "peers", _peers, "whole commands of other pipelines beside tokenmill build")
    _add_text(peers, "200MB")
    _add_tokenizer(peers)
    peers.add_argument("--environments", type=Path, required=True, metavar="DIR", help="a folder with one per peer")
    peers.add_argument("--only", nargs="*", default=[], metavar="PEER", help="only these, named as their environments")

    ray = _add(commands, "ray", _ray, "a build with workers of a Ray cluster on this machine, against local workers")
    _add_text(ray, "1GB")
    _add_tokenizer(ray)

    dashboard = _add(commands, "dashboard", _dashboard, "a build with --dashboard and its page, against one without")
    _add_text(dashboard, "600MB")
    _add_tokenizer(dashboard)

    chart = commands.add_parser("chart", help="draw the speeds of a result of peers", description=write_chart.__doc__)
    chart.set_defaults(run=write_chart)
    chart.add_argument("results", type=Path, help="JSON that `peers --output` has written")
    chart.add_argument("-o", "--output", type=Path, required=True, help="the SVG file to write")
    return top


def _add(commands: Any, name: str, run: Callable[..., Any], about: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=about, description=f"Measure {about}.")
    command.set_defaults(run=run)
    command.add_argument("--rounds", type=count, default=3, help="repetitions; the best of each counts (3)")
    command.add_argument("--work", metavar="DIR", help="directory for text and stores (a temporary one)")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument("--output", type=Path, metavar="FILE", help="also write the JSON to a file")
    return command


def _add_text(command: argparse.ArgumentParser, size: str, what: str = "text") -> None:
    command.add_argument("--corpus", nargs="*", default=[], help="text files (Python's own source files)")
    command.add_argument("--size", default=size, help=f"{what} to measure with ({size})")


def _add_tokenizer(command: argparse.ArgumentParser) -> None:
    command.add_argument("-t", "--tokenizer", help="a tokenizer, named as for tokenmill build (the demo tokenizer)")


def _builds(work: Path, options: argparse.Namespace) -> tuple[Any, Callable[[Any], str]]:
    from benchmarks.builds import builds_table, measure_builds

    size = parse_size(options.size, "size")
    return measure_builds(work, options.corpus, options.tokenizer, size, options.rounds), builds_table


def _engines(work: Path, options: argparse.Namespace) -> tuple[Any, Callable[[Any], str]]:
    from benchmarks.corpus import corpus_texts
    from benchmarks.engines import engines_table, measure_engines

    size = parse_size(options.size, "size")
    return measure_engines(options.tokenizers, corpus_texts(options.corpus), size, options.rounds), engines_table


def _parsing(work: Path, options: argparse.Namespace) -> tuple[Any, Callable[[Any], str]]:
    from benchmarks.parsing import measure_parsing, parsing_table

    return measure_parsing(work, options.corpus, parse_size(options.size, "size"), options.rounds), parsing_table


def _packing(work: Path, options: argparse.Namespace) -> tuple[Any, Callable[[Any], str]]:
    from benchmarks.packing import LARGE, measure_packing, packing_table

    large = LARGE if options.large else 0
    return measure_packing(work, options.documents, options.rounds, trl=options.trl, large=large), packing_table


def _loading(work: Path, options: argparse.Namespace) -> tuple[Any, Callable[[Any], str]]:
    from benchmarks.loading import loading_table, measure_loading

    return measure_loading(work, options.rounds, mosaic=options.mosaic, litdata=options.litdata), loading_table


def _cache(work: Path, options: argparse.Namespace) -> tuple[Any, Callable[[Any], str]]:
    from benchmarks.cache import cache_table, measure_cache

    size = parse_size(options.size, "size")
    return measure_cache(work, options.corpus, options.tokenizer, size, options.rounds), cache_table


def _exchange(work: Path, options: argparse.Namespace) -> tuple[Any, Callable[[Any], str]]:
    from benchmarks.exchange import exchange_table, measure_exchange

    return measure_exchange(work, options.tokens, options.rounds, options.environments), exchange_table


def _peers(work: Path, options: argparse.Namespace) -> tuple[Any, Callable[[Any], str]]:
    from benchmarks.peer_pipelines import measure_peers, peers_table

    size, environments = parse_size(options.size, "size"), options.environments.absolute()
    inputs = (options.corpus, options.tokenizer, size, options.rounds, environments, options.only)
    return measure_peers(work.absolute(), *inputs), peers_table


def _ray(work: Path, options: argparse.Namespace) -> tuple[Any, Callable[[Any], str]]:
    from benchmarks.ray_overhead import measure_ray_overhead, ray_overhead_table

    size = parse_size(options.size, "size")
    return measure_ray_overhead(work, options.corpus, options.tokenizer, size, options.rounds), ray_overhead_table


def _dashboard(work: Path, options: argparse.Namespace) -> tuple[Any, Callable[[Any], str]]:
    from benchmarks.dashboard import dashboard_table, measure_dashboard

    size = parse_size(options.size, "size")
    return measure_dashboard(work, options.corpus, options.tokenizer, size, options.rounds), dashboard_table


if __name__ == "__main__":
    raise SystemExit(main())
