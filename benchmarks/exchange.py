"""Exports and imports of every format beside `cp` of the same tokens, and beside the writers of the formats' own libraries.

Everything is synced to the disk. `cp`, exports and imports take turns, so that each meets the same state of the disk; the best of
all rounds counts.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Result, against_bar, bar_lines, figure, machine_line, say
from tokenmill.building.machine import machine_facts
from tokenmill.exchange.api import export
from tokenmill.exchange.importing import import_tokens
from tokenmill.exchange.registry import FORMATS
from tokenmill.store.store import Store

EOS = 7
MEAN = 800  # tokens of a document
PER_BLOCK = 1 << 24
HALF_OF_CP = ("nanogpt", "megatron", "llmc")
PEER_TOKENS = 2_000_000  # that the libraries' own writers write: one document at a time
PEERS = ("datatrove", "litdata", "mds", "megatron")  # libraries that write the format themselves
HERE = ("hf", "parquet")  # by `datasets`, which is installed beside this package
PEER_SCRIPT = Path(__file__).parents[1] / "scripts" / "format_peers.py"


def measure_exchange(work: Path, tokens: int, rounds: int, environments: Path | None) -> Result:
    """Seconds of each export and import, and what they are beside `cp`."""
    source = work / "train.bin"
    _write_ids(source, tokens)
    store = import_tokens(source, work / "store", eos=EOS, dtype="uint16")
    names = [name for name, format in FORMATS.items() if "documents" in format.takes]
    best: dict[str, float] = {}
    sizes: dict[str, int] = {"cp": source.stat().st_size}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        _keep(best, "cp", _timed(lambda: _copy(source, work / "copy.bin")))
        (work / "copy.bin").unlink()
        for name in names:
            _keep(best, f"export {name}", _timed(lambda name=name: export(store, work / "out", format=name)))
            sizes[name] = sum(path.stat().st_size for path in (work / "out").rglob("*") if path.is_file())
            _keep(best, f"import {name}", _timed(lambda: import_tokens(work / "out", work / "back")))
            shutil.rmtree(work / "out")
            shutil.rmtree(work / "back")
    rates = {what: sizes[what.split()[-1]] / 1e6 / seconds for what, seconds in best.items()}
    runs = {what: {"seconds": round(seconds, 3), "mb_per_second": round(rates[what])} for what, seconds in best.items()}
    bars = []
    for what in runs.keys() - {"cp"}:
        ratio, says = rates[what] / rates["cp"], f"{what} / cp, MB/s"
        is_flat = what.split()[-1] in HALF_OF_CP
        bars.append(against_bar(says, ratio, "", ">=", 0.5) if is_flat else figure(says, ratio, ""))
    bars.sort(key=lambda bar: (not bar["bar"], bar["what"]))
    if environments is not None:
        bars += _peers(work, store, environments, best, tokens)
    return {"machine": machine_facts(), "rounds": rounds, "tokens": tokens, "runs": runs, "bars": bars, "notes": []}


def exchange_table(result: Result) -> str:
    """The figures as text."""
    lines = [machine_line(result), f"{result['tokens']:,} tokens", "", f"{'':<24}{'seconds':>10}{'MB/s':>10}"]
    lines += [f"{what:<24}{run['seconds']:>10.2f}{run['mb_per_second']:>10,}" for what, run in result["runs"].items()]
    return "\n".join([*lines, *bar_lines(result)])


def _write_ids(path: Path, tokens: int) -> None:
    """Ids of a GPT-2 vocabulary, with an eos about every `MEAN` of them."""
    draw = np.random.default_rng(0)
    with path.open("wb") as out:
        for low in range(0, tokens, PER_BLOCK):
            ids = draw.integers(8, 50_000, min(PER_BLOCK, tokens - low), dtype=np.uint16)
            ids[draw.integers(0, len(ids), len(ids) // MEAN)] = EOS
            ids.tofile(out)


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", str(source), str(target)], check=True)
    subprocess.run(["sync", str(target)], check=True)


def _timed(run: Any) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _keep(best: dict[str, float], what: str, seconds: float) -> None:
    best[what] = min(best.get(what, seconds), seconds)


def _peers(work: Path, store: Store, environments: Path, best: dict[str, float], tokens: int) -> list[Result]:
    """How much faster exports are than the libraries' own writers, per token. The start of the library is not counted."""
    documents = int(store.stream_ends.searchsorted(PEER_TOKENS)) + 1
    ends = store.stream_ends[:documents]
    np.save(work / "ids.npy", np.concatenate(store[:documents]))
    np.save(work / "ends.npy", ends)
    bars = []
    for name in (*PEERS, *HERE):
        python = sys.executable if name in HERE else environments / name / "bin" / "python"
        (work / "peer").mkdir()
        say(f"the writer of {name}")
        arguments = [name, work / "ids.npy", work / "ends.npy", work / "peer", store.tokenizer.vocab_size]
        done = subprocess.run(
            [python, PEER_SCRIPT, "write", *map(str, arguments)], capture_output=True, text=True, check=True
        )
        seconds = float(done.stdout.splitlines()[-1])
        ratio = (seconds / int(ends[-1])) / (best[f"export {name}"] / tokens)
        bars.append(against_bar(f"export {name} / its own writer, tokens per second", ratio, "", ">=", 5))
        shutil.rmtree(work / "peer")
    return bars
