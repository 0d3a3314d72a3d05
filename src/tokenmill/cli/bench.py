"""tokenmill bench."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.cli.flags import add_command, add_corpus, add_groups, add_json, count, given_options, print_result
from tokenmill.errors import UsageError
from tokenmill.formatting import human, some
from tokenmill.options import ReadOptions

if TYPE_CHECKING:
    from tokenmill.encoding.tokenizer import Tokenizer
    from tokenmill.reading import Source

ENGINE_BYTES = 16_000_000  # of the text, for each exact engine


def add(commands: Any) -> None:
    command = add_command(
        commands,
        "bench",
        _bench,
        help="measure engines and a build on your own text",
        description=f"Measure every engine for a tokenizer on the first {ENGINE_BYTES // 10**6} MB of the text, and a build"
        " of all of it into a temporary store.",
    )
    add_corpus(command)
    add_groups(command, ReadOptions)
    command.add_argument("--num-docs", type=count, metavar="N", help="only the first N documents (all)")
    command.add_argument(
        "--rounds", type=count, default=3, metavar="N", help="repetitions; the best of each counts (3)"
    )
    add_json(command)


def _bench(options: argparse.Namespace) -> int:
    from tempfile import TemporaryDirectory

    from tokenmill.encoding.api import load_tokenizer
    from tokenmill.reading import read

    source = read(*options.source, **given_options(options, ReadOptions))
    if source.streams:
        raise UsageError("bench reads its text several times: give files, not standard input")
    tokenizer = load_tokenizer(options.tokenizer)
    with TemporaryDirectory(prefix="tokenmill-bench-") as folder:
        if options.num_docs is not None:
            source = _first_documents(source, options.num_docs, Path(folder) / "documents.jsonl")
        texts = _first_texts(source, ENGINE_BYTES)
        if not texts:
            raise UsageError("the input holds no documents to measure with")
        result = {
            "tokenizer": tokenizer.name,
            "text_bytes": sum(len(text.encode()) for text in texts),
            "documents": len(texts),
            "num_docs": options.num_docs,
            "rounds": options.rounds,
            "engines": _measure_engines(tokenizer, texts, options.rounds),
            "build": _measure_build(source, options.tokenizer, options.rounds),
        }
    print_result(result, bench_table(result), as_json=options.json)
    return 0


def _first_documents(source: Source, number: int, path: Path) -> Source:
    """The first documents of a source, written to a file: a build with a limit would run in one process."""
    from itertools import chain, islice

    from tokenmill.reading import read

    with open(path, "w", encoding="utf-8") as out:
        for text in islice(chain.from_iterable(_blocks(source)), number):
            out.write(json.dumps({"text": text}) + "\n")
    return read(path)


def _first_texts(source: Source, size: int) -> list[str]:
    """The first documents of a source, of about `size` bytes in all."""
    texts: list[str] = []
    for block in _blocks(source):
        texts += block
        size -= sum(map(len, block))
        if size <= 0:
            break
    return texts


def _blocks(source: Source) -> Iterator[list[str]]:
    """The documents of a source, except those too long for one block."""
    from tokenmill.reading import Piece, read_piece

    for file in source.files:
        for block in read_piece(Piece(file), source):
            yield [] if block.unfinished else block.values.to_pylist()


def _measure_engines(tokenizer: Tokenizer, texts: list[str], rounds: int) -> list[dict[str, Any]]:
    """The exact engines with their speed, fastest first, then those that were refused with the reason."""
    from tempfile import TemporaryDirectory

    from tokenmill.encoding.selection.choosing import choose
    from tokenmill.encoding.selection.trial import Trial, write_texts
    from tokenmill.encoding.selection.verdicts import Verdict

    print("comparing every engine with the reference", file=sys.stderr)
    definition, choice = tokenizer.definition, choose(tokenizer.definition, texts)
    rows = []
    with TemporaryDirectory(prefix="tokenmill-bench-") as name:
        folder = Path(name)
        definition.save(folder)
        write_texts(folder / "texts.arrow", texts)
        for verdict in (*choice.verdicts, Verdict(definition.reference, "", True, "the reference")):
            speed = 0.0
            if verdict.agrees:
                print(f"measuring {verdict.engine}, {some(rounds, 'round')}", file=sys.stderr)
            for _ in range(rounds if verdict.agrees else 0):
                with Trial(verdict.engine, folder) as trial:
                    if verdict.guard:
                        trial.ask(guard=verdict.guard)
                    run = trial.time(folder / "texts.arrow")
                speed = max(speed, run["bytes"] / max(run["seconds"], 1e-9) / 1e6 if run else 0.0)
            row = {"engine": verdict.engine, "exact": verdict.agrees, "why": verdict.why}
            rows.append({**row, "mb_per_second": speed or None, "chosen": verdict.engine == choice.engine})
    return sorted(rows, key=lambda row: -(row["mb_per_second"] or 0.0))


def _measure_build(source: Source, tokenizer: str, rounds: int) -> dict[str, Any]:
    """The best time of several builds of the whole source, and the most memory of any."""
    from concurrent.futures import ThreadPoolExecutor
    from tempfile import TemporaryDirectory

    from tokenmill.building.api import build

    seconds, peaks, done = [], [], threading.Event()
    with TemporaryDirectory(prefix="tokenmill-bench-") as folder, ThreadPoolExecutor(1) as thread:
        for turn in range(rounds):
            print(f"build, round {turn + 1} of {rounds}", file=sys.stderr)
            done.clear()
            peak = thread.submit(_peak_memory, done)
            began = time.perf_counter()
            try:
                tokens = build(source, tokenizer, Path(folder) / f"{turn}", progress="quiet").num_tokens
            finally:
                done.set()
            seconds.append(time.perf_counter() - began)
            peaks.append(peak.result())
    best, size = min(seconds), sum(file.size for file in source.files)
    speeds = {"mb_per_second": size / best / 1e6, "tokens_per_second": tokens / best}
    return {"seconds": best, "source_bytes": size, "tokens": tokens, **speeds, "peak_bytes": max(peaks)}


def _peak_memory(done: threading.Event) -> int:
    """The peak memory of this process and its children together, sampled every 20 ms until `done` is set."""
    import psutil

    from tokenmill.building.machine import resident_bytes

    process, peak = psutil.Process(), 0
    while not done.wait(0.02):
        pids = [process.pid, *(child.pid for child in process.children(recursive=True))]
        peak = max(peak, sum(map(resident_bytes, pids)))
    return peak


def bench_table(result: dict[str, Any]) -> str:
    text = f"{human(result['text_bytes'])} of text, {some(result['documents'], 'document')}; best of {result['rounds']}"
    lines = [f"{result['tokenizer']}: {text}", "", f"{'engine':<14}{'MB/s per core':>14}"]
    for row in result["engines"]:
        speed = f"{row['mb_per_second'] or 0:.1f}" if row["exact"] else "refused"
        lines.append(f"{row['engine']:<14}{speed:>14}  {'chosen; ' if row['chosen'] else ''}{row['why']}")
    build = result["build"]
    speeds = f"{build['mb_per_second']:.1f} MB/s, {build['tokens_per_second']:,.0f} tokens/s"
    took = f"{build['seconds']:.2f} s, {speeds}, {human(build['peak_bytes'])} of memory"
    return "\n".join([*lines, "", f"build of {human(build['source_bytes'])}: {took}"])
