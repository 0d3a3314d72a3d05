"""Measure loading: batches a second beside Mosaic's streaming, litData and plain numpy; a run of 10^12 tokens resumed; what
first-touch verification costs.

All read the same tokens, random ids in documents like web pages, each in its own format, written and read once before the
clock starts: nothing here waits for a disk. Everything runs in processes of its own, in turns; ratios are of the best of each.

A pace is taken over full batches, between one and the next of a pass, after a second of warm-up: how long a library takes to
start, and to begin its next epoch, is not in it. Mosaic and litData run in Pythons of their own (`--mosaic`, `--litdata`), with
their defaults for local data, shuffled, without workers and with two of them, which stay from epoch to epoch; the better counts.
They and numpy give the ids alone, as int64, cast once a batch; so the load of one field is the like of theirs.
"""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from tokenmill.bench.builds import machine_facts, say
from tokenmill.bench.packing import (
    LONG_SHARD,
    SMALL_SHARD,
    TOKENS,
    against_bar,
    cell,
    child,
    long_shards,
    web_lengths,
    write_store,
)
from tokenmill.io.atomic import CHECK_BLOCK, digest
from tokenmill.store.manifest import read_manifest
from tokenmill.store.shard import HEADER_BYTES, RECEIPT_VERSION, receipt_path, sealed

SEQ_LEN, BATCH = 2048, 16
READ = 150_000_000  # tokens: 300 MB
SECONDS, WARM_UP = 3.0, 1.0
EPOCHS = 4  # of each kind in a round: a difference of some percent needs more turns than a ratio of 20
STEP, WORLD_SIZE = 10**6, 16  # at 10^12 tokens, the middle of an epoch
SHOWN = {1: "ids", 2: "ids and labels", 4: "all four fields"}

PACE = """
import json, sys, time, numpy as np
def pace(passes, seq_len, batch, warm_up, seconds):
    began, spent, count = None, 0.0, 0
    for one in passes:
        last = None
        for ids in one:
            now = time.perf_counter()
            began = began or now
            if ids.shape != (batch, seq_len):
                continue
            if last is not None and last - began >= warm_up:
                spent, count = spent + now - last, count + 1
            last = now
            if spent >= seconds:
                return count * batch * seq_len / spent
def again(loader):
    while True:
        yield loader
path, seq_len, batch, more = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[6:]
warm_up, seconds = float(sys.argv[4]), float(sys.argv[5])
"""

OURS = """
fields, prefetch, tensors = int(more[0]), int(more[1]), more[2] == "torch"
if not tensors:
    sys.modules["torch"] = None
import tokenmill as tm
from tokenmill.packing.layout import FIELDS
view = tm.pack(tm.open(path), seq_len, fields=FIELDS[:fields])
loader = tm.load(view, batch, prefetch=prefetch)
first = loader.batch(0)
if len(first) != fields or type(first["input_ids"]).__module__ != ("torch" if tensors else "numpy"):
    raise SystemExit(f"other batches than were asked for: {[type(value) for value in first.values()]}")
passes = [(b["input_ids"] for b in loader)]  # one, which never ends
print(json.dumps({"pace": pace(passes, seq_len, batch, warm_up, seconds)}))
"""

NUMPY = """
flat = np.load(path, mmap_mode="r")
flat = flat[: len(flat) // seq_len * seq_len].reshape(-1, seq_len)
rng = np.random.default_rng(0)
def epoch():
    order = rng.permutation(len(flat))
    for start in range(0, len(order), batch):
        yield flat[order[start : start + batch]].astype(np.int64)
print(json.dumps({"pace": pace((epoch() for _ in again(None)), seq_len, batch, warm_up, seconds)}))
"""

# Of Mosaic's streaming, the part for images is left out: it wants a torchvision that fits the torch beside it.
WRITE_MOSAIC = """
import sys, types, numpy as np
sys.modules["streaming.vision"] = types.ModuleType("streaming.vision")
import streaming
flat, out, seq_len = np.load(sys.argv[1], mmap_mode="r"), sys.argv[2], int(sys.argv[3])
with streaming.MDSWriter(out=out, columns={"ids": f"ndarray:{flat.dtype.name}:{seq_len}"}) as writer:
    for row in flat[: len(flat) // seq_len * seq_len].reshape(-1, seq_len):
        writer.write({"ids": np.asarray(row)})
print("0")
"""

MOSAIC = """
import types, warnings
warnings.filterwarnings("ignore", "The given NumPy array is not writable")
sys.modules["streaming.vision"] = types.ModuleType("streaming.vision")
import streaming, torch
from importlib.metadata import version
workers = int(more[0])
streaming.base.util.clean_stale_shared_memory()
dataset = streaming.StreamingDataset(local=path, shuffle=True, batch_size=batch)
loader = torch.utils.data.DataLoader(dataset, batch_size=batch, num_workers=workers, persistent_workers=workers > 0)
found = pace((map(lambda b: b["ids"].long(), one) for one in again(loader)), seq_len, batch, warm_up, seconds)
print(json.dumps({"pace": found, "name": f"Mosaic streaming {version('mosaicml-streaming')}"}))
"""

WRITE_LITDATA = """
import os, sys, numpy as np
os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"
import litdata
flat, out, seq_len = np.load(sys.argv[1], mmap_mode="r"), sys.argv[2], int(sys.argv[3])
part = seq_len * 2048
def read(start):
    return np.array(flat[start : min(start + part, len(flat) // seq_len * seq_len)])
litdata.optimize(read, list(range(0, len(flat) // seq_len * seq_len, part)), out, num_workers=1, chunk_bytes="64MB",
                 item_loader=litdata.TokensLoader(), start_method="fork")
print("0")
"""

LITDATA = """
import os
os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"
import litdata
workers = int(more[0])
dataset = litdata.StreamingDataset(path, item_loader=litdata.TokensLoader(block_size=seq_len), shuffle=True)
loader = litdata.StreamingDataLoader(dataset, batch_size=batch, num_workers=workers, persistent_workers=workers > 0)
found = pace((map(lambda b: b.long(), one) for one in again(loader)), seq_len, batch, warm_up, seconds)
print(json.dumps({"pace": found, "name": f"litData {litdata.__version__}"}))
"""

# A run gone on with, as a program would: open, pack, load, the state, one batch. The memory is what the kernel saw as resident,
# mapped files included (VmHWM: ru_maxrss of a child begins at what its parent held).
RESUME = """
import json, resource, sys, time
path, seq_len, batch, world_size, step = sys.argv[1], *map(int, sys.argv[2:6])
began = time.perf_counter()
if sys.argv[6] == "torch":
    import torch
else:
    sys.modules["torch"] = None
import tokenmill as tm
tm.open, tm.pack, tm.load
imported = time.perf_counter()
loader = tm.load(tm.pack(tm.open(path), seq_len), batch, rank=world_size // 2, world_size=world_size)
loaded = time.perf_counter()
loader.load_state_dict({**loader.state_dict(), "samples": step * batch * world_size})
got = next(iter(loader))
ended = time.perf_counter()
try:
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
except OSError:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
if loader.step != step + 1 or any((got[name] != value).any() for name, value in loader.batch(step).items()):
    raise SystemExit("the batch after the state is not the batch of that step")
print(json.dumps({"import": imported - began, "load": loaded - imported, "batch": ended - loaded, "peak": peak}))
"""

# One epoch in a process that has read nothing yet, so that every block of every shard is checked in it, once.
EPOCH = """
import json, sys, time
path, seq_len, batch, fields, verify, tensors = sys.argv[1], *map(int, sys.argv[2:5]), *sys.argv[5:7]
if tensors == "torch":
    import torch
    import tokenmill.loading.torch
else:
    sys.modules["torch"] = None
import tokenmill as tm
from tokenmill.packing.layout import FIELDS
view = tm.pack(tm.open(path), seq_len, fields=FIELDS[:fields])
tm.load
began = time.perf_counter()
loader = tm.load(view, batch, epochs=1, prefetch=0, verify=verify or None)
rows = sum(len(got["input_ids"]) for got in loader)
seconds = time.perf_counter() - began
if rows != len(view) // batch * batch:
    raise SystemExit(f"an epoch of {rows} rows, of a view of {len(view)}")
print(json.dumps(seconds))
"""


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
) -> dict[str, Any]:
    """All figures. Takes minutes, and 3 GB of disk at most; all is removed after use. Without `torch`, batches are arrays."""
    kind = "torch" if torch else "numpy"
    store = work / "store"
    say(f"a store of {read:,} tokens")
    write_store(store, web_lengths(max(1, read // 775)), store / "plain.npy")
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
        "notes": [note for section in sections for note in section["notes"]],
        "runs": [run for section in sections for run in section["runs"]],
        "bars": [bar for section in sections for bar in section["bars"]],
    }


def _paces(
    work: Path, store: Path, rounds: int, kind: str, clock: list[float], pythons: dict[str, str | None]
) -> dict[str, Any]:
    """Tokens a second of batches, shuffled, in one process beside its workers."""
    seconds, warm_up = clock
    common = SEQ_LEN, BATCH, warm_up, seconds
    commands: dict[tuple[str, str], tuple[Any, ...]] = {
        ("numpy", "memory map"): (PACE + NUMPY, store / "plain.npy", *common)
    }
    for fields, prefetch in product(SHOWN, (0, 2)):
        run = f"load, {SHOWN[fields]}", f"prefetch {prefetch}"
        commands[run] = (PACE + OURS, store, *common, fields, prefetch, kind)
    peers = {"mosaic": (WRITE_MOSAIC, MOSAIC), "litdata": (WRITE_LITDATA, LITDATA)}
    given = {name: str(python) for name, python in pythons.items() if python}
    for name, python in given.items():
        say(f"the same for {name}")
        child(peers[name][0], store / "plain.npy", work / name, SEQ_LEN, python=python)
        for workers in (0, 2):
            commands[name, f"{workers} workers"] = (PACE + peers[name][1], work / name, *common, workers)
    best: dict[tuple[str, str], float] = {}
    names: dict[str, str] = {}
    for turn in range(rounds):
        say(f"paces, round {turn + 1} of {rounds}")
        for run, command in commands.items():
            _read_through(Path(command[1]))
            found = child(*command, python=given[run[0]]) if run[0] in given else child(*command)
            best[run] = max(found["pace"], best.get(run, 0))
            names[run[0]] = found.get("name", run[0])
    for name in given:
        shutil.rmtree(work / name)
    paces: dict[str, float] = {}
    for (who, _), pace in best.items():
        paces[names[who]] = max(pace, paces.get(names[who], 0))
    others = [(names[name], bar) for name, bar in (("mosaic", 20), ("litdata", 5), ("numpy", 0.5)) if name in names]
    bars = [
        against_bar(
            f"pace of load, {SHOWN[fields]}, / {other}, ids",
            paces[f"load, {SHOWN[fields]}"] / paces[other],
            "x",
            ">=",
            bar,
        )
        for other, bar in others
        for fields in SHOWN
    ]
    runs = [{"what": f"{names[who]}, {how}", "pace": pace} for (who, how), pace in best.items()]
    return {"runs": runs, "bars": bars, "notes": []}


def _first_touch(store: Path, rounds: int, kind: str, epochs: int) -> dict[str, Any]:
    """An epoch with every block checked, and without, in turns."""
    best: dict[tuple[int, str], float] = {}
    for turn in range(rounds):
        say(f"epochs with and without verification, round {turn + 1} of {rounds}")
        _read_through(store / "shards")
        for _, fields, verify in product(range(epochs), (4, 1), ("", "first-touch")):
            took = child(EPOCH, store, SEQ_LEN, BATCH, fields, verify, kind)
            best[fields, verify] = min(took, best.get((fields, verify), took))
    runs, bars = [], []
    for fields in (4, 1):
        plain, checked = best[fields, ""], best[fields, "first-touch"]
        runs.append({"what": f"an epoch, {SHOWN[fields]}", "plain": plain, "checked": checked})
        if fields == 4:
            what = f"cost of verify=first-touch, {SHOWN[fields]}"
            bars.append(against_bar(what, (checked / plain - 1) * 100, "%", "<=", 5))
    notes = ["Epochs are loaded with prefetch 0, each by a process that has read nothing of the store before."]
    return {"runs": runs, "bars": bars, "notes": notes}


def _resumed(store: Path, tokens: int, rounds: int, kinds: tuple[str, ...]) -> dict[str, Any]:
    """A run over a store too large to look at, gone on with in a process that has done nothing else."""
    runs, bars = [], []
    for size in (LONG_SHARD, SMALL_SHARD):  # the second as builds make them
        shards = max(1, tokens // size)
        say(f"a store of {tokens:,} tokens in {shards:,} shards")
        write_store(store, long_shards(shards, tokens // shards))
        found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
        for _, kind in product(range(rounds), kinds):
            found[kind].append(child(RESUME, store, SEQ_LEN, BATCH, WORLD_SIZE, STEP, kind))
        shutil.rmtree(store)
        for kind, tries in found.items():
            name = f"step {STEP:,} of {tokens:.0e} tokens in {shards:,} shards"
            steps, peak = min(tries, key=_until_batch), max(run["peak"] for run in tries)
            runs.append({"what": f"{name}, {kind}", "steps": steps, "peak_mb": round(peak / 1e6)})
            if kind == "numpy":
                bars.append(against_bar(f"load and a batch: {name}", _until_batch(steps), "s", "<=", 1))
                bars.append(against_bar(f"peak memory, without torch: {name}", peak / 1e6, "MB", "<=", 100))
    note = (
        f"At {tokens:.0e} tokens no id is written. A step is {WORLD_SIZE} ranks of {BATCH} rows. Its time and memory are"
        " without torch, which cannot be imported there, and the time is without the imports; with torch is for comparison."
    )
    return {"runs": runs, "bars": bars, "notes": [note]}


def _until_batch(run: dict[str, Any]) -> float:
    return float(run["load"] + run["batch"])


def write_receipts(folder: Path) -> None:
    """Give a store of `write_store` the receipts a build would have written, with the checksums of its files."""
    manifest, home = read_manifest(folder), folder / "shards"
    columns = zip(manifest.shard_ids, manifest.shard_documents, manifest.shard_tokens, strict=True)
    manifest.receipts = []
    for shard_id, documents, tokens in columns:
        receipt = {
            "version": RECEIPT_VERSION,
            "id": shard_id,
            "documents": documents,
            "tokens": tokens,
            "dtype": manifest.dtype,
            "check_block": CHECK_BLOCK,
            "checksums": {"ids": _sums(home / f"{shard_id}.npy"), "ends": _sums(home / f"{shard_id}.ends.npy")},
        }
        receipt_path(home, shard_id).write_bytes(sealed(receipt))
        manifest.receipts.append(digest(sealed(receipt)))
    manifest.write(folder)


def _sums(path: Path) -> list[str]:
    data = np.memmap(path, np.uint8, "r", HEADER_BYTES)
    return [xxhash.xxh3_64_hexdigest(data[at : at + CHECK_BLOCK]) for at in range(0, len(data), CHECK_BLOCK)]


def _read_through(path: Path) -> None:
    """Have every file in memory, so that no run pays for the one before it."""
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            with open(file, "rb", buffering=0) as raw:
                while raw.read(1 << 24):
                    pass


def loading_table(result: dict[str, Any]) -> str:
    """The figures, to be read."""
    runs = result["runs"]
    batch = result["batch"] * result["seq_len"]
    lines = [
        ", ".join(f"{key} {value}" for key, value in result["machine"].items()),
        f"batches of {result['batch']} rows of {result['seq_len']}, shuffled; {result['tokens']:,} tokens;"
        f" best of {result['rounds']} rounds",
        "",
        f"{'run':<58}{'tokens/s':>16}{'us a batch':>12}",
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
    lines += ["", f"{'figure':<80}{'measured':>12}{'bar':>14}"]
    for bar in result["bars"]:
        measured = f"{bar['measured']:.4g} {bar['unit']}".rstrip()
        lines.append(f"{bar['what']:<80}{measured:>12}{bar['bar']:>14}   {'met' if bar['met'] else 'MISSED'}")
    return "\n".join([*lines, "", *result["notes"]])
