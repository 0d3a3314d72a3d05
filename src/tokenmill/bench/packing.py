"""Measure packing: plans over millions of documents, a store of 10^12 tokens, and rows against plain numpy.

The stores are made for it: lengths like those of web pages, log-normal with a median of 400 tokens and sigma 1.15 (a
mean of 775, 2% of the documents longer than 4096), always the same; the ids are files with nothing in them, which no
plan reads. Only the rows are taken from a store with ids. Everything runs in processes of its own, in turns; ratios are
of the best of each. Peak memory is what the kernel saw as resident in the process, mapped files included.

TRL (`pack_dataset`) runs in a Python of its own, given by `--peer`, on as many documents as memory sensibly holds, and
is compared by documents: it packs in batches of 1000, so that its time grows with them and not faster. It gets ids of
one byte, all 0, in memory, so that next to nothing of its time goes into copying.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.bench.builds import machine_facts, say
from tokenmill.store import Manifest, store_fingerprint
from tokenmill.store.shard import HEADER_BYTES, npy_header

SEQ_LEN = 4096
MEDIAN, SIGMA = 400, 1.15
SHARD_DOCUMENTS = 10_000  # about what a build puts into a shard: 8 million tokens
LARGE = 100_000_000
PEER_DOCUMENTS = 1_000_000
TOKENS = 10**12
LONG_SHARD, LONG_DOCUMENTS = 500_000_000, 500  # of the store of 10^12 tokens: a million documents in 2000 shards
SMALL_SHARD = 8_000_000  # what 32 MB of text come to
ROW_LEN, ROW_TOKENS = 2048, 150_000_000
TURNS = 500
STRATEGIES: dict[str, dict[str, Any]] = {  # those tried on 10^12 tokens
    "concat": {},
    "pad": {"long_docs": "truncate"},
    "best_fit": {},
}

# One packing, as a program would do it: open, pack, one row, the stats. The clock starts after the imports. The memory
# of the kernel's books is VmHWM where there is one: ru_maxrss of a child begins at what its parent held.
PACK = """
import json, resource, sys, time
import tokenmill as tm
path, seq_len, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
def peak():
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
steps, peaks = {}, {}
def step(name, began):
    steps[name], peaks[name] = time.perf_counter() - began, peak()
tm.open, tm.pack
began = time.perf_counter()
store = tm.open(path)
step("open", began)
began = time.perf_counter()
view = tm.pack(store, seq_len, **options)
step("pack", began)
began = time.perf_counter()
view[len(view) * 2 // 3]
step("row", began)
found = {"rows": len(view)}
if "stats" in sys.argv[4:]:
    began = time.perf_counter()
    stats = view.stats
    step("stats", began)
    found |= {"fill": stats.fill, "lost": stats.tokens + stats.repeated - (stats.positions - stats.padding)}
print(json.dumps({"steps": steps, "peaks": peaks, **found}))
"""

PEER = """
import json, sys, time, numpy as np, pyarrow as pa, datasets, trl
path, seq_len, strategy, batch = sys.argv[1], int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
datasets.disable_caching()
datasets.disable_progress_bars()
lengths = np.load(path)
chunks = []
for part in np.array_split(lengths, 1 + int(lengths.sum()) // (1 << 30)):
    offsets = np.concatenate(([0], np.cumsum(part))).astype(np.int32)
    chunks.append(pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.zeros(offsets[-1], np.int8))))
dataset = datasets.Dataset(pa.table({"input_ids": pa.chunked_array(chunks)}))
began = time.perf_counter()
packed = trl.pack_dataset(dataset, seq_len, strategy=strategy, map_kwargs={"batch_size": batch})
seconds = time.perf_counter() - began
assert not packed.cache_files
kept = sum(len(chunk.flatten()) for chunk in packed.data.column("input_ids").chunks)
print(json.dumps({"seconds": seconds, "documents": len(lengths), "rows": len(packed), "version": trl.__version__,
                  "fill": kept / len(packed) / seq_len, "lost": int(lengths.sum()) - kept}))
"""

# Random batches of 16 rows, numpy and a view in turns; the same rows of the same tokens where the packing is concat.
ROWS = """
import json, statistics, sys, time, numpy as np, tokenmill as tm
path, plain, seq_len, turns = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
flat = np.load(plain, mmap_mode="r")
flat = flat[: len(flat) // seq_len * seq_len].reshape(-1, seq_len)
store = tm.open(path)
flat.max(), max(int(ids.max()) for ids in store)  # every page of both files is mapped in before the clock starts
fields = ("input_ids", "labels", "position_ids", "document_ids")
views = {}
for strategy in ("concat", "best_fit"):
    for count in (1, 2, 4):
        views[strategy, count] = tm.pack(store, seq_len, strategy=strategy, fields=fields[:count])
rng = np.random.default_rng(0)
taken = {key: ([], []) for key in views}
for turn in range(-turns // 10, turns):
    for key, view in views.items():
        rows = rng.integers(0, len(flat), 16)
        began = time.perf_counter()
        ids = flat[rows].astype(np.int64)
        middle = time.perf_counter()
        batch = view.rows(rows)
        ended = time.perf_counter()
        if turn >= 0:
            taken[key][0].append(middle - began)
            taken[key][1].append(ended - middle)
        elif key[0] == "concat" and not (batch["input_ids"] == ids).all():
            raise SystemExit("the rows of concat are not those of the plain file")
print(json.dumps([
    {"strategy": strategy, "fields": count, "numpy": statistics.median(plain), "view": statistics.median(ours)}
    for (strategy, count), (plain, ours) in taken.items()
]))
"""


def measure_packing(
    work: Path,
    documents: int,
    rounds: int,
    *,
    peer: str | None = None,
    large: int = 0,
    tokens: int = TOKENS,
    row_tokens: int = ROW_TOKENS,
    turns: int = TURNS,
) -> dict[str, Any]:
    """All figures. Takes minutes, and 6 GB of disk at most; each store is removed after use."""
    sections = [_plans(work / "plans", documents, rounds, peer)]
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
        "notes": [note for section in sections for note in section["notes"]],
        "runs": [run for section in sections for run in section["runs"]],
        "bars": [bar for section in sections for bar in section["bars"]],
    }


def _plans(store: Path, documents: int, rounds: int, peer: str | None) -> dict[str, Any]:
    """Best-fit over so many documents, against TRL's on the first of them."""
    say(f"a store of {documents:,} documents")
    write_store(store, web_lengths(documents))
    sample = store / "lengths.npy"
    np.save(sample, _first(web_lengths(documents), PEER_DOCUMENTS))
    ours: list[dict[str, Any]] = []
    theirs: dict[str, dict[str, Any]] = {}
    for turn in range(rounds):
        say(f"best_fit, round {turn + 1} of {rounds}")
        shutil.rmtree(store / "plans", ignore_errors=True)
        ours.append(child(PACK, store, SEQ_LEN, json.dumps({"strategy": "best_fit"}), "stats"))
        for strategy in ("bfd", "bfd_split") if peer else ():
            for batch in (1000,) if turn else (1000, None):  # all in one batch: slower, and fuller; once will do
                run = child(PEER, sample, SEQ_LEN, strategy, json.dumps(batch), python=str(peer))
                name = f"TRL {run['version']} {strategy}, {f'batches of {batch}' if batch else 'one batch'}"
                if name not in theirs or run["seconds"] < theirs[name]["seconds"]:
                    theirs[name] = run
    shutil.rmtree(store)
    best = min(ours, key=lambda run: float(run["steps"]["pack"]))
    name = f"best_fit, {documents:,} documents"
    seconds = best["steps"]["pack"] * 1e6 / documents  # for a million documents
    bars = []
    for peer_name, run in theirs.items():
        ratio = run["seconds"] * 1e6 / run["documents"] / seconds
        bars.append(against_bar(f"time of {peer_name} / best_fit", ratio, "x", ">=", 20))
    for peer_name, run in theirs.items():
        bars.append(against_bar(f"fill, with {peer_name} as the bar", best["fill"], "", ">=", run["fill"]))
    peak = max(run["peaks"]["stats"] for run in ours)
    bars.append(against_bar(f"tokens lost by {name}", best["lost"], "", "<=", 0))
    bars.append(against_bar(f"peak memory of {name}", peak / 1e6, "MB", "<=", 2000))
    runs = [{"what": name, "per_million": seconds, **best, "peak_mb": round(peak / 1e6)}]
    runs += [{"what": who, "per_million": r["seconds"] * 1e6 / r["documents"], **r} for who, r in theirs.items()]
    notes = []
    if theirs:
        notes.append(
            f"TRL packed the first {min(documents, PEER_DOCUMENTS):,} of the documents, as ids of one byte in memory;"
            " its time is compared by documents. Its bfd cuts documents longer than a row and loses the rest; bfd_split"
            " does not."
        )
    return {"runs": runs, "bars": bars, "notes": notes}


def _trillion(store: Path, tokens: int, rounds: int) -> dict[str, Any]:
    """A store too large to look at: opened and packed, and one row, in a process that has done nothing else."""
    shards, many = max(1, tokens // LONG_SHARD), max(1, tokens // SMALL_SHARD)
    notes = [f"The store of {tokens:.0e} tokens has {shards:,} shards of {LONG_DOCUMENTS} documents; no id is written."]
    found: dict[str, list[dict[str, Any]]] = {}
    say(f"a store of {tokens:,} tokens")
    write_store(store, long_shards(shards, tokens // shards))
    for strategy, options in STRATEGIES.items():
        say(strategy)
        name = f"{strategy}{''.join(f' {key} {value}' for key, value in options.items())} of {tokens:.0e} tokens"
        command = PACK, store, SEQ_LEN, json.dumps({"strategy": strategy, **options}), "stats"
        if strategy != "concat":  # which has no plan
            first = child(*command)
            size = sum(path.stat().st_size for path in (store / "plans").iterdir())
            notes.append(
                f"The plan of {name}, {first['rows']:,} rows, took {first['steps']['pack']:.1f} s,"
                f" {max(first['peaks'].values()) / 1e6:.0f} MB of memory and {size / 1e6:.1f} MB of disk, once."
            )
            name += ", planned before"
        found[name] = [child(*command) for _ in range(rounds)]
        shutil.rmtree(store / "plans", ignore_errors=True)
    shutil.rmtree(store)
    say("the same in shards as builds make them")
    row = (-(-tokens // SEQ_LEN) * 2 // 3) * SEQ_LEN // (tokens // many)  # the shard of the row that is asked for
    write_store(store, long_shards(many, tokens // many), only=(row, row + 1))
    found[f"concat of {tokens:.0e} tokens in {many:,} shards"] = [
        child(PACK, store, SEQ_LEN, "{}") for _ in range(rounds)
    ]
    notes.append(f"The store of {many:,} shards, as builds make them by default, has the files of one row only.")
    shutil.rmtree(store)
    runs, bars = [], []
    for name, tries in found.items():
        best, peak = min(tries, key=_until_row), max(run["peaks"]["row"] for run in tries)
        runs.append({"what": name, **best, "peak_mb": round(peak / 1e6)})
        bars.append(against_bar(f"open, view and a row: {name}", _until_row(best) * 1e3, "ms", "<", 100))
        bars.append(against_bar(f"peak memory: {name}", peak / 1e6, "MB", "<=", 100))
    return {"runs": runs, "bars": bars, "notes": notes}


def _until_row(run: dict[str, Any]) -> float:
    return float(run["steps"]["open"] + run["steps"]["pack"] + run["steps"]["row"])


def _rows(store: Path, tokens: int, turns: int) -> dict[str, Any]:
    """Random rows through a view, against the same from one flat file with numpy."""
    say(f"rows of a store of {tokens:,} tokens with ids")
    documents = max(1, tokens // 775)
    plain = store / "plain.npy"
    write_store(store, web_lengths(documents), plain)
    found = child(ROWS, store, plain, ROW_LEN, turns)
    shutil.rmtree(store)
    runs, bars = [], []
    for run in found:
        name = f"16 rows of {ROW_LEN}, {run['strategy']}, {run['fields']} of 4 fields"
        runs.append({"what": name, "micros": run["view"] * 1e6, "numpy_micros": run["numpy"] * 1e6})
        bars.append(against_bar(f"{name}: speed / numpy", run["numpy"] / run["view"], "x", ">=", 0.5))
    return {"runs": runs, "bars": bars, "notes": []}


def write_store(
    folder: Path,
    shards: Iterable[npt.NDArray[np.int64]],
    plain: Path | None = None,
    only: tuple[int, ...] | None = None,
) -> None:
    """A store of documents of these lengths. Its ids are holes in files, or, with `plain`, random and in that file too.

    With `only`, no other shards have files at all.
    """
    home = folder / "shards"
    home.mkdir(parents=True)
    dtype, ends_dtype = np.dtype(np.uint16), np.dtype(np.int64)
    rng = np.random.default_rng(0)
    documents: list[int] = []
    tokens: list[int] = []
    with open(plain, "wb") if plain else nullcontext() as flat:
        for number, lengths in enumerate(shards):
            ends = np.cumsum(lengths)
            documents.append(len(ends))
            tokens.append(int(ends[-1]))
            if only is not None and number not in only:
                continue
            with open(home / f"{number:06}.npy", "wb") as out:
                out.write(npy_header(dtype, tokens[-1]))
                if flat:
                    some = rng.integers(0, 50_000, tokens[-1], dtype)
                    out.write(some.data)
                    flat.seek(HEADER_BYTES + dtype.itemsize * sum(tokens[:-1]))
                    flat.write(some.data)
                else:
                    out.truncate(out.tell() + tokens[-1] * dtype.itemsize)
            with open(home / f"{number:06}.ends.npy", "wb") as out:
                out.write(npy_header(ends_dtype, len(ends)))
                out.write(ends.data)
        if flat:
            flat.seek(0)
            flat.write(npy_header(dtype, sum(tokens)))
    ids = [f"{number:06}" for number in range(len(tokens))]
    tokenizer = dict.fromkeys(("name", "fingerprint", "engine", "engine_version", "proof"), "bench")
    Manifest(
        options={},
        source={},
        tokenizer={**tokenizer, "vocab_size": 50_000, "eos_id": 0, "bos_id": None},
        dtype=dtype.name,
        complete=True,
        documents=sum(documents),
        tokens=sum(tokens),
        shard_ids=ids,
        shard_documents=documents,
        shard_tokens=tokens,
        row_starts=[0] * len(ids),
        receipts=[""] * len(ids),
        fingerprint=store_fingerprint("bench", [0, None], dtype.name, [f"{n}" for n in tokens]),
    ).write(folder)


def web_lengths(documents: int) -> Iterator[npt.NDArray[np.int64]]:
    """The lengths of so many documents like web pages, a shard at a time."""
    for number, first in enumerate(range(0, documents, SHARD_DOCUMENTS)):
        rng = np.random.default_rng([0, number])
        lengths = np.exp(rng.normal(np.log(MEDIAN), SIGMA, min(SHARD_DOCUMENTS, documents - first)))
        yield np.maximum(1, lengths.round()).astype(np.int64)


def _first(shards: Iterable[npt.NDArray[np.int64]], documents: int) -> npt.NDArray[np.int64]:
    held: list[npt.NDArray[np.int64]] = []
    for lengths in shards:
        held.append(lengths)
        if len(held) * SHARD_DOCUMENTS >= documents:
            break
    return np.concatenate(held)[:documents]


def long_shards(shards: int, tokens: int) -> Iterator[npt.NDArray[np.int64]]:
    """Shards of exactly so many tokens, in a few documents of uneven lengths."""
    for number in range(shards):
        weights = np.random.default_rng([1, number]).lognormal(0, SIGMA, LONG_DOCUMENTS)
        ends = np.round(np.cumsum(weights) / weights.sum() * tokens).astype(np.int64)
        yield np.diff(ends, prepend=0)


def child(script: str, *arguments: Any, python: str = sys.executable) -> Any:
    """Run a script in a process of its own; what it prints last is its answer."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [python, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{python} {' '.join(command[3:])} failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def against_bar(what: str, measured: float, unit: str, sign: str, bar: float) -> dict[str, Any]:
    met = measured >= bar if sign == ">=" else measured <= bar if sign == "<=" else measured < bar
    return {"what": what, "measured": measured, "unit": unit, "bar": f"{sign} {bar:.6g}", "met": met}


def packing_table(result: dict[str, Any]) -> str:
    """The figures, to be read."""
    steps = ("open", "pack", "row", "stats")
    plans = [run for run in result["runs"] if "micros" not in run]
    lines = [
        ", ".join(f"{key} {value}" for key, value in result["machine"].items()),
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
    lines += ["", f"{'figure':<80}{'measured':>12}{'bar':>14}"]
    for bar in result["bars"]:
        measured = f"{bar['measured']:.6g} {bar['unit']}".rstrip()
        lines.append(f"{bar['what']:<80}{measured:>12}{bar['bar']:>14}   {'met' if bar['met'] else 'MISSED'}")
    return "\n".join([*lines, "", *result["notes"]])


def cell(value: float | None, form: str, width: int, scale: float = 1) -> str:
    return f"{'' if value is None else format(value * scale, form):>{width}}"
