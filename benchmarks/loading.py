"""Loading: batches per second beside Mosaic's streaming, litData and numpy; a run of 10^12 tokens resumed; what first-touch
verification costs.

All read the same tokens, random ids in documents like web pages, each in its own format, written and read once before the
clock starts, so that nothing here waits for a disk. Everything runs in processes of its own, in turns; ratios are of the best
of each.

A pace is taken over full batches, between one and the next of a pass, after a second of warm-up: it does not include the time
a library needs to start, or to begin its next epoch. Mosaic and litData run in Pythons of their own (`--mosaic`, `--litdata`),
with their defaults for local data, shuffled, without workers and with two persistent ones; the better counts. They and numpy
give the ids alone, as int64, cast once per batch; `tm.load` with one field is the equivalent.
"""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path
from typing import Any

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
    LONG_SHARD,
    MEAN,
    SMALL_SHARD,
    TOKENS,
    long_shards,
    web_lengths,
    write_receipts,
    write_store,
)
from tokenmill.building.machine import machine_facts

SEQ_LEN, BATCH = 2048, 16
READ = 150_000_000  # tokens: 300 MB
SECONDS, WARM_UP = 3.0, 1.0
EPOCHS = 4  # of each kind in a round: a difference of a few percent needs more turns than a ratio of 20
STEP, WORLD_SIZE = 10**6, 16  # at 10^12 tokens, the middle of an epoch
FIELD_NAMES = {1: "ids", 2: "ids and labels", 4: "all four fields"}
PEER_BARS = {"mosaic": 20, "litdata": 5, "numpy": 0.5}  # how many times their pace ours should be


def measure_loading(
    work: Path,
    rounds: int,
    *,
    mosaic: str | None = None,
    litdata: str | None = None,
    torch: bool = True,
    read: int = READ,
    tokens: int = TOKENS,
    seconds: float = SECONDS,
    warm_up: float = WARM_UP,
    epochs: int = EPOCHS,
) -> Result:
    """All figures. Takes minutes, and 3 GB of disk at most; all is removed after use. Without `torch`, batches are arrays."""
    kind = "torch" if torch else "numpy"
    store = work / "store"
    say(f"a store of {read:,} tokens")
    write_store(store, web_lengths(max(1, read // MEAN)), store / "plain.npy")
    write_receipts(store)
    sections = [
        _paces(work, store, rounds, kind, [seconds, warm_up], {"mosaic": mosaic, "litdata": litdata}),
        _first_touch(store, rounds, kind, epochs),
    ]
    shutil.rmtree(store)
    sections.append(_resumed(work / "trillion", tokens, rounds, ("numpy", "torch") if torch else ("numpy",)))
    return {
        "machine": machine_facts(),
        "seq_len": SEQ_LEN,
        "batch": BATCH,
        "tokens": read,
        "rounds": rounds,
        **joined(sections),
    }


def _paces(
    work: Path, store: Path, rounds: int, kind: str, clock: list[float], pythons: dict[str, str | None]
) -> Result:
    """Tokens per second of batches, shuffled, in one process beside its workers."""
    seconds, warm_up = clock
    common = SEQ_LEN, BATCH, warm_up, seconds
    plain = store / "plain.npy"
    commands: dict[tuple[str, str], tuple[Any, ...]] = {
        ("numpy", "memory map"): (PEERS / "numpy_read.py", plain, *common)
    }
    for fields, prefetch in product(FIELD_NAMES, (0, 2)):
        run = f"load, {FIELD_NAMES[fields]}", f"prefetch {prefetch}"
        commands[run] = (PEERS / "tokenmill_read.py", store, *common, fields, prefetch, kind)
    installed = {name: python for name, python in pythons.items() if python}
    for name, python in installed.items():
        say(f"writing the tokens for {name}")
        child(PEERS / f"{name}_write.py", plain, work / name, SEQ_LEN, python=python)
        for workers in (0, 2):
            commands[name, f"{workers} workers"] = (PEERS / f"{name}_read.py", work / name, *common, workers)
    best: dict[tuple[str, str], float] = {}
    names: dict[str, str] = {}
    for turn in range(rounds):
        say(f"paces, round {turn + 1} of {rounds}")
        for run, command in commands.items():
            _read_through(Path(command[1]))
            answer = child(*command, python=installed[run[0]]) if run[0] in installed else child(*command)
            best[run] = max(answer["pace"], best.get(run, 0))
            names[run[0]] = answer.get("name", run[0])
    for name in installed:
        shutil.rmtree(work / name)
    runs = [{"what": f"{names[who]}, {how}", "pace": pace} for (who, how), pace in best.items()]
    return {"runs": runs, "bars": _pace_bars(best, names), "notes": []}


def _pace_bars(best: dict[tuple[str, str], float], names: dict[str, str]) -> list[Result]:
    """Our best pace with 1, 2 and 4 fields against the best of each peer."""
    paces: dict[str, float] = {}
    for (who, _), pace in best.items():
        paces[who] = max(pace, paces.get(who, 0))
    bars = []
    for peer, bar in PEER_BARS.items():
        for fields in FIELD_NAMES.values() if peer in names else ():
            what, ratio = f"pace of load, {fields}, / {names[peer]}, ids", paces[f"load, {fields}"] / paces[peer]
            bars.append(against_bar(what, ratio, "x", ">=", bar))
    return bars


def _first_touch(store: Path, rounds: int, kind: str, epochs: int) -> Result:
    """An epoch with each block checked, and without, in turns."""
    best: dict[tuple[int, str], float] = {}
    for turn in range(rounds):
        say(f"epochs with and without verification, round {turn + 1} of {rounds}")
        _read_through(store / "shards")
        for _, fields, verify in product(range(epochs), (4, 1), ("", "first-touch")):
            took = child(PROGRAMS / "epoch.py", store, SEQ_LEN, BATCH, fields, verify, kind)
            best[fields, verify] = min(took, best.get((fields, verify), took))
    runs, bars = [], []
    for fields in (4, 1):
        plain, checked = best[fields, ""], best[fields, "first-touch"]
        runs.append({"what": f"an epoch, {FIELD_NAMES[fields]}", "plain": plain, "checked": checked})
        if fields == 4:
            what = f"cost of verify=first-touch, {FIELD_NAMES[fields]}"
            bars.append(against_bar(what, (checked / plain - 1) * 100, "%", "<=", 5))
    notes = ["Epochs are loaded with prefetch 0, each in a new process."]
    return {"runs": runs, "bars": bars, "notes": notes}


def _resumed(store: Path, tokens: int, rounds: int, kinds: tuple[str, ...]) -> Result:
    """A run over a store far larger than memory, resumed in a new process."""
    runs, bars = [], []
    for size in (LONG_SHARD, SMALL_SHARD):  # the second is what builds produce
        shards = max(1, tokens // size)
        say(f"a store of {tokens:,} tokens in {shards:,} shards")
        write_store(store, long_shards(shards, tokens // shards))
        tries: dict[str, list[Result]] = {kind: [] for kind in kinds}
        for _, kind in product(range(rounds), kinds):
            tries[kind].append(child(PROGRAMS / "resume.py", store, SEQ_LEN, BATCH, WORLD_SIZE, STEP, kind))
        shutil.rmtree(store)
        for kind, runs_of_kind in tries.items():
            name = f"step {STEP:,} of {tokens:.0e} tokens in {shards:,} shards"
            steps, peak = min(runs_of_kind, key=_until_batch), max(run["peak"] for run in runs_of_kind)
            runs.append({"what": f"{name}, {kind}", "steps": steps, "peak_mb": round(peak / 1e6)})
            if kind == "numpy":
                bars.append(against_bar(f"load and a batch: {name}", _until_batch(steps), "s", "<=", 1))
                bars.append(against_bar(f"peak memory, without torch: {name}", peak / 1e6, "MB", "<=", 100))
    note = (
        f"At {tokens:.0e} tokens no id is written. A step is {WORLD_SIZE} ranks of {BATCH} rows. The bars are for"
        " a process that cannot import torch, and the time does not include imports; the figures with torch are for comparison."
    )
    return {"runs": runs, "bars": bars, "notes": [note]}


def _until_batch(run: Result) -> float:
    return float(run["load"] + run["batch"])


def _read_through(path: Path) -> None:
    """Bring every file into the page cache, so that no run pays for the one before it."""
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            with open(file, "rb", buffering=0) as raw:
                while raw.read(1 << 24):
                    pass


def loading_table(result: Result) -> str:
    """The figures as text."""
    runs = result["runs"]
    batch = result["batch"] * result["seq_len"]
    lines = [
        machine_line(result),
        f"batches of {result['batch']} rows of {result['seq_len']}, shuffled; {result['tokens']:,} tokens;"
        f" best of {result['rounds']} rounds",
        "",
        f"{'run':<58}{'tokens/s':>16}{'us/batch':>12}",
    ]
    for run in (run for run in runs if "pace" in run):
        lines.append(f"{run['what']:<58}{run['pace']:>16,.0f}{batch / run['pace'] * 1e6:>12,.1f}")
    lines += ["", f"{'run':<58}{'seconds':>10}{'checked':>10}{'cost %':>10}"]
    for run in (run for run in runs if "plain" in run):
        cost = (run["checked"] / run["plain"] - 1) * 100
        lines.append(f"{run['what']:<58}{run['plain']:>10.3f}{run['checked']:>10.3f}{cost:>10.1f}")
    steps = ("import", "load", "batch")
    lines += ["", f"{'run':<58}{''.join(f'{step} ms'.rjust(12) for step in steps)}{'peak MB':>10}"]
    for run in (run for run in runs if "steps" in run):
        cells = [cell(run["steps"][step], ",.1f", 12, 1e3) for step in steps]
        lines.append(f"{run['what']:<58}{''.join(cells)}{run['peak_mb']:>10}")
    return "\n".join([*lines, *bar_lines(result)])
