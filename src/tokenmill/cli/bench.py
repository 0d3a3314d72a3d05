"""tokenmill bench."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.cli.build import add_reading, add_what, source_of
from tokenmill.cli.types import count
from tokenmill.errors import UsageError
from tokenmill.formatting import printable

if TYPE_CHECKING:
    from tokenmill.encoding import Tokenizer
    from tokenmill.reading import Source

ENGINE_BYTES = 40_000_000  # of the text, for every engine that is exact
REFERENCE_BYTES = 2_000_000  # of the text, for the reference, which is slow


def add(commands: Any) -> None:
    command = commands.add_parser(
        "bench",
        help="measure engines and a build on your own text",
        description=f"Measure every engine for a tokenizer on the first {ENGINE_BYTES // 10**6} MB of the text, and a build"
        " of all of it, into a temporary store.",
    )
    command.set_defaults(run=_bench)
    add_what(command)
    add_reading(command)
    command.add_argument(
        "--rounds", type=count, default=3, metavar="N", help="repetitions; the best of each counts (3)"
    )
    command.add_argument("--json", action="store_true", help="print JSON")


def _bench(options: argparse.Namespace) -> int:
    from tokenmill.encoding import load_tokenizer

    source = source_of(options)
    if source.streams:
        raise UsageError("bench reads its text several times: give files, not standard input")
    tokenizer = load_tokenizer(options.tokenizer)
    texts = _first(_texts(source), ENGINE_BYTES)
    if not texts:
        raise UsageError("there is no text to measure with: the input holds no documents")
    result = {
        "tokenizer": tokenizer.name,
        "text_bytes": sum(len(text.encode()) for text in texts),
        "documents": len(texts),
        "rounds": options.rounds,
        "engines": _measure_engines(tokenizer, texts, options.rounds),
        "build": _measure_build(source, options.tokenizer, options.rounds),
    }
    print(json.dumps(result, indent=1) if options.json else printable(_table(result)))
    return 0


def _texts(source: Source) -> Iterator[str]:
    from tokenmill.reading import Piece, read_piece

    for file in source.files:
        for block in read_piece(Piece(file), source):
            if not block.unfinished:
                yield from block.values.to_pylist()


def _first(texts: Iterable[str], size: int) -> list[str]:
    """The first texts, of about `size` bytes in all."""
    first: list[str] = []
    for text in texts:
        first.append(text)
        size -= len(text.encode())
        if size <= 0:
            break
    return first


def _measure_engines(tokenizer: Tokenizer, texts: list[str], rounds: int) -> list[dict[str, Any]]:
    """The engines that are exact, with their speed, then those that were refused, with the reason."""
    from tokenmill.encoding.selection import choose
    from tokenmill.encoding.trial import Trial, write_texts

    definition = tokenizer.definition
    print("comparing the engines with the reference", file=sys.stderr)
    choice = choose(definition, texts)
    exact = {verdict.engine: verdict.guard for verdict in choice.verdicts if verdict.agrees} | {
        definition.reference: ()
    }
    reasons = {verdict.engine: verdict.why for verdict in choice.verdicts} | {definition.reference: "the reference"}
    rates = dict.fromkeys(exact, 0.0)
    with tempfile.TemporaryDirectory(prefix="tokenmill-bench-") as name:
        folder = Path(name)
        definition.save(folder)
        write_texts(folder / "texts.arrow", texts)
        write_texts(folder / "few.arrow", _first(texts, REFERENCE_BYTES))
        for turn in range(rounds):
            print(f"engines, round {turn + 1} of {rounds}", file=sys.stderr)
            for engine, guard in exact.items():
                with Trial(engine, folder) as trial:
                    if guard:
                        trial.ask(guard=guard)
                    run = trial.time(folder / ("few.arrow" if engine == definition.reference else "texts.arrow"))
                if run:
                    rates[engine] = max(rates[engine], run["bytes"] / max(run["cpu"], 1e-9) / 1e6)
    rows = [
        {
            "engine": engine,
            "exact": True,
            "mb_per_second": rate,
            "chosen": engine == choice.engine,
            "why": reasons[engine],
        }
        for engine, rate in sorted(rates.items(), key=lambda item: -item[1])
    ]
    refused = [verdict for verdict in choice.verdicts if not verdict.agrees]
    return rows + [
        {"engine": verdict.engine, "exact": False, "mb_per_second": None, "chosen": False, "why": verdict.why}
        for verdict in refused
    ]


def _measure_build(source: Source, tokenizer: str, rounds: int) -> dict[str, Any]:
    """The best time of several builds of the whole source, and the most memory of any."""
    from tokenmill.building import build

    best, peak = float("inf"), 0
    with tempfile.TemporaryDirectory(prefix="tokenmill-bench-") as folder:
        for turn in range(rounds):
            print(f"build, round {turn + 1} of {rounds}", file=sys.stderr)
            with _PeakMemory() as memory:
                began = time.perf_counter()
                store = build(source, tokenizer, Path(folder) / f"{turn}", progress="quiet")
                best = min(best, time.perf_counter() - began)
            peak = max(peak, memory.peak)
    size = sum(file.size for file in source.files)
    return {
        "seconds": best,
        "source_bytes": size,
        "mb_per_second": size / best / 1e6,
        "tokens": store.num_tokens,
        "tokens_per_second": store.num_tokens / best,
        "peak_bytes": peak,
    }


class _PeakMemory:
    """The peak memory of this process and its children together, sampled every 20 ms."""

    def __enter__(self) -> _PeakMemory:
        self.peak, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        import psutil

        from tokenmill.building.machine import resident_bytes

        process = psutil.Process()
        while not self._stop.wait(0.02):
            pids = [process.pid, *(child.pid for child in process.children(recursive=True))]
            self.peak = max(self.peak, sum(map(resident_bytes, pids)))


def _table(result: dict[str, Any]) -> str:
    from tokenmill.formatting import human

    build = result["build"]
    lines = [
        f"{result['tokenizer']}: {human(result['text_bytes'])} of text, {result['documents']:,} documents;"
        f" best of {result['rounds']}",
        "",
        f"{'engine':<14}{'MB/s per core':>14}",
    ]
    for row in result["engines"]:
        speed = f"{row['mb_per_second']:.1f}" if row["exact"] else "refused"
        lines.append(f"{row['engine']:<14}{speed:>14}  {'chosen; ' if row['chosen'] else ''}{row['why']}")
    return "\n".join(
        [
            *lines,
            "",
            f"build of {human(build['source_bytes'])}: {build['seconds']:.2f} s, {build['mb_per_second']:.1f} MB/s,"
            f" {build['tokens_per_second']:,.0f} tokens/s, {human(build['peak_bytes'])} of memory",
        ]
    )
