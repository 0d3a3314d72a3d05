"""Packing: plans over millions of documents, a store of 10^12 tokens, and rows against plain numpy.

The stores are synthetic (`synthetic.py`). Their ids are sparse files, which no plan reads; only the rows are taken from a store
with ids. Everything runs in processes of its own, in turns; ratios are of the best of each. Peak memory is what the kernel
reports as resident, mapped files included.

TRL (`pack_dataset`) runs in a Python of its own, given by `--trl`, on as many documents as fit comfortably in memory, and is
compared per document: it packs in batches of 1000, so its time grows linearly. It gets ids of one byte, all 0, in memory, so
that almost none of its time goes into copying.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import (
    PEERS,
    PROGRAMS,
    Result,
    against_bar,
    bar_lines,
    cell,
    child,
    joined,
    machine_line,
    say,
)
from benchmarks.synthetic import (
    LONG_DOCUMENTS,
    LONG_SHARD,
    MEAN,
    MEDIAN,
    SIGMA,
    SMALL_SHARD,
    TOKENS,
    first_lengths,
    long_shards,
    web_lengths,
    write_store,
)
from tokenmill.building.machine import machine_facts

SEQ_LEN = 4096
LARGE = 100_000_000
TRL_DOCUMENTS = 1_000_000
ROW_LEN, ROW_TOKENS = 2048, 150_000_000
TURNS = 500
STRATEGIES: dict[str, dict[str, Any]] = {  # tried on 10^12 tokens
    "concat": {},
    "pad": {"long_docs": "truncate"},
    "best_fit": {},
}


def measure_packing(
    work: Path,
    documents: int,
    rounds: int,
    *,
    trl: str | None = None,
    large: int = 0,
    tokens: int = TOKENS,
    row_tokens: int = ROW_TOKENS,
    turns: int = TURNS,
) -> Result:
    """All figures. Takes minutes, and 6 GB of disk at most; each store is removed after use."""
    sections = [_plans(work / "plans", documents, rounds, trl)]
    if large > documents:
        sections.append(_plans(work / "large", large, 1, None))
    sections.append(_trillion(work / "trillion", tokens, rounds))
    sections.append(_rows(work / "rows", row_tokens, turns))
    return {
        "machine": machine_facts(),
        "documents": documents,
        "lengths": f"log-normal, median {MEDIAN}, sigma {SIGMA}",
        "seq_len": SEQ_LEN,
        "rounds": rounds,
        **joined(sections),
    }


def _plans(store: Path, documents: int, rounds: int, trl: str | None) -> Result:
    """Best-fit over this many documents, against TRL on the first of them."""
    say(f"a store of {documents:,} documents")
    write_store(store, web_lengths(documents))
    sample = store / "lengths.npy"
    np.save(sample, first_lengths(web_lengths(documents), TRL_DOCUMENTS))
    ours: list[Result] = []
    theirs: dict[str, Result] = {}
    for turn in range(rounds):
        say(f"best_fit, round {turn + 1} of {rounds}")
        shutil.rmtree(store / "plans", ignore_errors=True)
        ours.append(child(PROGRAMS / "pack.py", store, SEQ_LEN, json.dumps({"strategy": "best_fit"}), "stats"))
        if trl:
            _run_trl(trl, sample, theirs, one_batch=turn == 0)  # all in one batch: slower, and fuller; once is enough
    shutil.rmtree(store)
    best = min(ours, key=lambda run: float(run["steps"]["pack"]))
    name = f"best_fit, {documents:,} documents"
    per_million = best["steps"]["pack"] * 1e6 / documents
    bars = []
    for who, run in theirs.items():
        ratio = _per_million(run) / per_million
        bars.append(against_bar(f"time of {who} / best_fit", ratio, "x", ">=", 20))
    for who, run in theirs.items():
        bars.append(against_bar(f"fill, with {who} as the bar", best["fill"], "", ">=", run["fill"]))
    peak = max(run["peaks"]["stats"] for run in ours)
    bars.append(against_bar(f"tokens lost by {name}", best["lost"], "", "<=", 0))
    bars.append(against_bar(f"peak memory of {name}", peak / 1e6, "MB", "<=", 2000))
    runs = [{"what": name, "per_million": per_million, **best, "peak_mb": round(peak / 1e6)}]
    runs += [{"what": who, "per_million": _per_million(run), **run} for who, run in theirs.items()]
    note = (
        f"TRL packed the first {min(documents, TRL_DOCUMENTS):,} of the documents, as ids of one byte in memory; its time is"
        " compared per document. Its bfd cuts documents longer than a row and loses the rest; bfd_split does not."
    )
    return {"runs": runs, "bars": bars, "notes": [note] if theirs else []}


def _run_trl(python: str, sample: Path, best: dict[str, Result], *, one_batch: bool) -> None:
    """Run TRL's strategies once, and keep the best time of each."""
    for strategy in ("bfd", "bfd_split"):
        for batch in (1000, None) if one_batch else (1000,):
            run = child(PEERS / "trl_pack.py", sample, SEQ_LEN, strategy, json.dumps(batch), python=python)
            name = f"TRL {run['version']} {strategy}, {f'batches of {batch}' if batch else 'one batch'}"
            if name not in best or run["seconds"] < best[name]["seconds"]:
                best[name] = run


def _per_million(run: Result) -> float:
    return float(run["seconds"] * 1e6 / run["documents"])


def _trillion(store: Path, tokens: int, rounds: int) -> Result:
    """A store far larger than memory: open it, pack it and take one row, in a new process."""
    shards, many = max(1, tokens // LONG_SHARD), max(1, tokens // SMALL_SHARD)
    notes = [f"The store of {tokens:.0e} tokens has {shards:,} shards of {LONG_DOCUMENTS} documents; no id is written."]
    tries: dict[str, list[Result]] = {}
    say(f"a store of {tokens:,} tokens")
    write_store(store, long_shards(shards, tokens // shards))
    for strategy, options in STRATEGIES.items():
        say(strategy)
        name = f"{strategy}{''.join(f' {key} {value}' for key, value in options.items())} of {tokens:.0e} tokens"
        command = PROGRAMS / "pack.py", store, SEQ_LEN, json.dumps({"strategy": strategy, **options}), "stats"
        if strategy != "concat":  # which has no plan
            first = child(*command)
            size = sum(path.stat().st_size for path in (store / "plans").iterdir())
            notes.append(
                f"The plan of {name}, {first['rows']:,} rows, took {first['steps']['pack']:.1f} s,"
                f" {max(first['peaks'].values()) / 1e6:.0f} MB of memory and {size / 1e6:.1f} MB of disk, once."
            )
            name += ", planned before"
        tries[name] = [child(*command) for _ in range(rounds)]
        shutil.rmtree(store / "plans", ignore_errors=True)
    shutil.rmtree(store)
    say("the same in shards of the size that builds produce")
    row = (-(-tokens // SEQ_LEN) * 2 // 3) * SEQ_LEN // (tokens // many)  # the shard of the row that is taken
    write_store(store, long_shards(many, tokens // many), only=(row, row + 1))
    tries[f"concat of {tokens:.0e} tokens in {many:,} shards"] = [
        child(PROGRAMS / "pack.py", store, SEQ_LEN, "{}") for _ in range(rounds)
    ]
    notes.append(
        f"The store of {many:,} shards, of the size that builds produce by default, has only the files of one row."
    )
    shutil.rmtree(store)
    runs, bars = [], []
    for name, some in tries.items():
        best, peak = min(some, key=_until_row), max(run["peaks"]["row"] for run in some)
        runs.append({"what": name, **best, "peak_mb": round(peak / 1e6)})
        bars.append(against_bar(f"open, view and a row: {name}", _until_row(best) * 1e3, "ms", "<", 100))
        bars.append(against_bar(f"peak memory: {name}", peak / 1e6, "MB", "<=", 100))
    return {"runs": runs, "bars": bars, "notes": notes}


def _until_row(run: Result) -> float:
    return float(run["steps"]["open"] + run["steps"]["pack"] + run["steps"]["row"])


def _rows(store: Path, tokens: int, turns: int) -> Result:
    """Random rows through a view, against the same from one flat file with numpy."""
    say(f"rows of a store of {tokens:,} tokens with ids")
    documents = max(1, tokens // MEAN)
    plain = store / "plain.npy"
    write_store(store, web_lengths(documents), plain)
    results = child(PROGRAMS / "rows.py", store, plain, ROW_LEN, turns)
    shutil.rmtree(store)
    runs, bars = [], []
    for run in results:
        name = f"16 rows of {ROW_LEN}, {run['strategy']}, {run['fields']} of 4 fields"
        runs.append({"what": name, "micros": run["view"] * 1e6, "numpy_micros": run["numpy"] * 1e6})
        bars.append(against_bar(f"{name}: speed / numpy", run["numpy"] / run["view"], "x", ">=", 0.5))
    return {"runs": runs, "bars": bars, "notes": []}


def packing_table(result: Result) -> str:
    """The figures as text."""
    steps = ("open", "pack", "row", "stats")
    plans = [run for run in result["runs"] if "micros" not in run]
    lines = [
        machine_line(result),
        f"rows of {result['seq_len']}; lengths {result['lengths']}; best of {result['rounds']} rounds",
        "",
        f"{'run':<58}{'s/million':>10}{'fill':>10}{'lost':>16}"
        f"{''.join(f'{step} ms'.rjust(10) for step in steps)}{'peak MB':>9}",
    ]
    for run in plans:
        cells = [
            cell(run.get("per_million"), ".3f", 10),
            cell(run.get("fill"), ".6f", 10),
            cell(run.get("lost"), ",", 16),
        ]
        cells += [cell(run.get("steps", {}).get(step), ",.1f", 10, 1e3) for step in steps]
        lines.append(f"{run['what']:<58}{''.join(cells)}{cell(run.get('peak_mb'), '', 9)}")
    lines += ["", f"{'run':<58}{'microseconds':>14}{'numpy':>10}"]
    for run in result["runs"][len(plans) :]:
        lines.append(f"{run['what']:<58}{run['micros']:>14.1f}{run['numpy_micros']:>10.1f}")
    return "\n".join([*lines, *bar_lines(result, digits=6)])
