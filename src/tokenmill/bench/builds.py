"""Measure a whole build against the other ways to do its job, in one run, on this machine.

Everything runs in processes of its own, in turns, several times over; the best of each is compared, since a shared
machine is never still. Peak memory is the sum over all processes of a run, shared pages counted each time. The figures
are ratios: they hold where the seconds do not.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tokenmill.building.machine import usable_cores

# The one-shot recipe: everything in memory, one call, flatten, insert eos, write.
ONE_SHOT = """
import sys, numpy as np, gigatoken
kind, path, tokenizer, out, eos, dtype = sys.argv[1:]
source = (gigatoken.JsonlFileSource if kind == "jsonl" else gigatoken.ParquetFileSource)([path])
layout = gigatoken.Tokenizer(tokenizer).encode_files(source).layout
flat, offsets = np.asarray(layout.content.data), np.asarray(layout.offsets.data)
np.save(out + ".npy", np.insert(flat.astype(dtype), offsets[1:], int(eos)))
np.save(out + ".ends.npy", offsets[1:] + np.arange(1, len(offsets)))
"""

# The stages alone, over and over in one process: read (and decompress), parse, encode at the best batch size, write.
BARE = """
import sys, time, numpy as np, pyarrow as pa, pyarrow.json as pj, pyarrow.parquet as pq, awkward as ak, gigatoken
kind, path, tokenizer, out, repeats, dtype = sys.argv[1:]
engine = gigatoken.Tokenizer(tokenizer)
schema = pj.ParseOptions(explicit_schema=pa.schema([("text", pa.string())]), unexpected_field_behavior="ignore")
def jsonl():
    with open(path, "rb", buffering=0) as raw:
        held = b""
        while fresh := raw.read(4 << 20):
            held += fresh
            cut = held.rfind(b"\\n") + 1
            block, held = held[:cut], held[cut:]
            if block:
                options = pj.ReadOptions(use_threads=False, block_size=len(block) + 1)
                yield pj.read_json(pa.BufferReader(block), read_options=options, parse_options=schema)["text"].chunk(0)
def parquet():
    table = pq.ParquetFile(path)
    for group in range(table.num_row_groups):
        meta = table.metadata.row_group(group)
        rows = max(1, (4 << 20) * meta.num_rows // max(meta.total_byte_size, 1))
        for batch in table.iter_batches(rows, row_groups=[group], columns=["text"], use_threads=False):
            yield batch.column(0)
with open(out, "wb", buffering=0) as sink:
    for _ in range(int(repeats)):
        for text in jsonl() if kind == "jsonl" else parquet():
            _, offsets, data = text.cast(pa.large_string()).buffers()
            characters = ak.contents.NumpyArray(np.frombuffer(data, np.uint8), parameters={"__array__": "char"})
            offsets = ak.index.Index64(np.frombuffer(offsets, np.int64)[: len(text) + 1])
            strings = ak.contents.ListOffsetArray(offsets, characters, parameters={"__array__": "string"})
            ids = np.asarray(engine.encode_batch(ak.Array(strings), parallel=False).layout.content.data)
            sink.write(ids.astype(dtype))
"""

# What people write today: tokenizers in batches, on every core, and a plain write.
REFERENCE = """
import sys, json, numpy as np, tokenizers
path, tokenizer, out, eos, dtype = sys.argv[1:]
engine = tokenizers.Tokenizer.from_file(tokenizer)
with open(path, "rb") as lines, open(out, "wb") as sink:
    texts = [json.loads(line)["text"] for line in lines]
    for start in range(0, len(texts), 1000):
        for encoding in engine.encode_batch(texts[start : start + 1000], add_special_tokens=False):
            sink.write(np.array([*encoding.ids, int(eos)], dtype).tobytes())
"""


@dataclass(slots=True)
class Run:
    """What a command took."""

    seconds: float
    cpu: float
    peak: int


def measure_builds(work: Path, inputs: list[str], spec: str | None, size: int, rounds: int) -> dict[str, Any]:
    """All figures, over so many bytes of text. Takes minutes, and leaves corpus and stores in `work`."""
    from tokenmill.demo_data import demo_tokenizer
    from tokenmill.encoding import load_tokenizer

    os.environ["TOKENMILL_CACHE"] = str(work / "cache")  # nothing is known at the start
    tokenizer = load_tokenizer(spec or demo_tokenizer())
    (work / "tokenizer").mkdir(parents=True, exist_ok=True)
    tokenizer.definition.save(work / "tokenizer")
    say(f"collecting {size / 1e6:.0f} MB of text")
    return _measure(work, _corpus(work, inputs, size), tokenizer, rounds)


def _measure(work: Path, corpus: dict[str, Any], tokenizer: Any, rounds: int) -> dict[str, Any]:
    around = [str(tokenizer.eos_id), tokenizer.dtype.name]
    tokenizer_json = str(work / "tokenizer" / "tokenizer.json")
    build = [
        sys.executable,
        "-m",
        "tokenmill.cli",
        "build",
        "-t",
        str(work / "tokenizer"),
        "-o",
        str(work / "store"),
        "-q",
    ]
    out = str(work / "out")
    commands: dict[str, list[str]] = {}
    for kind in ("jsonl", "parquet"):
        path = str(corpus[kind])
        commands[f"build {kind}"] = [*build, path]
        commands[f"one-shot {kind}"] = [sys.executable, "-c", ONE_SHOT, kind, path, tokenizer_json, out, *around]
        commands[f"build 4x {kind}"] = [*build, *map(str, corpus[f"4x {kind}"])]
        bare = [sys.executable, "-c", BARE, kind, path, tokenizer_json, out]
        commands[f"bare {kind}"] = [*bare, "1", around[1]]
        commands[f"bare 4x {kind}"] = [*bare, "4", around[1]]
    commands["tokenizers, a sample"] = [
        sys.executable,
        "-c",
        REFERENCE,
        str(corpus["sample"]),
        tokenizer_json,
        out,
        *around,
    ]
    commands["import numpy"] = [sys.executable, "-c", "import numpy"]
    commands["import tokenmill"] = [sys.executable, "-c", "import tokenmill"]
    commands["tokenmill --help"] = [sys.executable, "-P", "-m", "tokenmill.cli", "--help"]
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    samplings: dict[str, list[float]] = {}
    first = {}
    for kind in ("jsonl", "parquet"):  # engines are put on trial once; the rounds are what every other build is like
        first[f"first build {kind}"] = _run(commands[f"build {kind}"])
        shutil.rmtree(work / "store", ignore_errors=True)
    for turn in range(rounds):
        say(f"round {turn + 1} of {rounds}")
        for name, command in commands.items():
            if name.startswith("tokenizers") and turn:
                continue  # minutes long, and nowhere near
            for _ in range(5 if "import" in name or "--help" in name else 1):
                shutil.rmtree(work / "store", ignore_errors=True)
                runs[name].append(_run(command))
                if name.startswith("build"):
                    samplings.setdefault(name, []).append(_sampling_share(work / "store", runs[name][-1]))
    best = {
        name: Run(*(min(getattr(r, f) for r in rs) for f in ("seconds", "cpu", "peak"))) for name, rs in runs.items()
    }
    peaks = {name: max(r.peak for r in rs) for name, rs in runs.items()} | {name: r.peak for name, r in first.items()}
    return {
        "machine": machine_facts(),
        "tokenizer": f"{tokenizer.name} ({tokenizer.vocab_size:,} ids)",
        "text_bytes": corpus["text_bytes"],
        "documents": corpus["documents"],
        "rounds": rounds,
        "runs": {
            name: {"seconds": round(r.seconds, 3), "cpu": round(r.cpu, 3), "peak_mb": round(peaks[name] / 1e6)}
            for name, r in {**first, **best}.items()
        },
        "bars": _bars(runs, best, peaks, corpus, samplings),
    }


def _sampling_share(store: Path, run: Run) -> float:
    """The part of a build's CPU time that went into encoding samples with the reference."""
    from tokenmill.io.checked_lines import read_lines

    finished = [event for event in read_lines(store / "events.jsonl") if event["event"] == "finished"]
    return float(finished[-1]["spot_check_seconds"]) / run.cpu


def _cpu_ratio(runs: dict[str, list[Run]], kind: str) -> float:
    """CPU for three times the input more, build / bare: taken within each round, and of those the median."""
    ratios = []
    for one, four, bare, bare_four in zip(
        *(runs[f"{name} {kind}"] for name in ("build", "build 4x", "bare", "bare 4x")), strict=True
    ):
        growth = bare_four.cpu - bare.cpu
        ratios.append((four.cpu - one.cpu) / growth if growth > 0 else 0.0)  # 0: too little text to tell
    return statistics.median(ratios)


def _bars(
    runs: dict[str, list[Run]],
    best: dict[str, Run],
    peaks: dict[str, int],
    corpus: dict[str, Any],
    samplings: dict[str, list[float]],
) -> list[dict[str, Any]]:
    """Each bar: what was compared, the ratio, the bar, and whether it was met."""
    text = corpus["text_bytes"]
    bars: list[tuple[str, float, str, float]] = []
    for kind in ("jsonl", "parquet"):
        whole, shot = best[f"build {kind}"], best[f"one-shot {kind}"]
        bars.append((f"wall time of build / one-shot, {kind}", whole.seconds / shot.seconds, "<", 1.0))
        memory = peaks[f"build {kind}"] / peaks[f"one-shot {kind}"]
        bars.append((f"peak memory of build / one-shot, {kind}", memory, "<=", 0.5))
        bars.append((f"CPU per byte of build / bare stages, {kind}", _cpu_ratio(runs, kind), "<=", 1.25))
        memory = peaks[f"build 4x {kind}"] / peaks[f"build {kind}"]
        bars.append((f"peak memory with 4x the input, {kind}", memory, "<=", 1.1))
        for name in (f"build {kind}", f"build 4x {kind}"):
            share = statistics.median(samplings[name])
            bars.append((f"CPU of sampling by the reference / {name}", share, "<=", 0.02))
    speed = text / best["build jsonl"].seconds
    reference = corpus["sample_bytes"] / best["tokenizers, a sample"].seconds
    bars.append(("MB/s of build / tokenizers.encode_batch, jsonl", speed / reference, ">=", 30.0))
    for name in ("import tokenmill", "tokenmill --help"):
        bars.append((f"{name} / import numpy", best[name].seconds / best["import numpy"].seconds, "<=", 2.0))
    return [
        {
            "what": what,
            "ratio": round(ratio, 3),
            "bar": f"{sign} {bar:g}",
            "met": ratio > 0 and (ratio < bar if sign == "<" else ratio <= bar if sign == "<=" else ratio >= bar),
        }
        for what, ratio, sign, bar in bars
    ]


def _run(command: list[str]) -> Run:
    """Run a command to its end; CPU and memory of it and all its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    watch = _PeakMemory(process.pid)
    _, errors = process.communicate()
    seconds = time.perf_counter() - began
    peak = watch.stop()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise RuntimeError(f"{command[:4]} failed: {errors.decode(errors='replace')[-2000:]}")
    os.sync()  # what one leaves to be written is not the next one's burden
    return Run(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, peak)


class _PeakMemory:
    """The most memory a process and its children held at once, looked at every few milliseconds."""

    def __init__(self, pid: int) -> None:
        import psutil

        self._psutil, self._process, self._peak = psutil, psutil.Process(pid), 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.01):
            total = 0
            try:
                for process in (self._process, *self._process.children(recursive=True)):
                    total += process.memory_info().rss
            except self._psutil.Error:
                continue
            self._peak = max(self._peak, total)

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self._peak


def _corpus(work: Path, inputs: list[str], size: int) -> dict[str, Any]:
    """Real text as one jsonl and one parquet (zstd) file, four copies of each, and a sample for the slow reference."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts: list[str] = []
    held = 0
    for text in corpus_texts(inputs):
        texts.append(text)
        held += len(text.encode())
        if held >= size:
            break
    jsonl, parquet, sample = work / "corpus.jsonl", work / "corpus.parquet", work / "sample.jsonl"
    sample_bytes = 0
    step = max(1, len(texts) // 400)
    with open(jsonl, "w", encoding="utf-8") as lines, open(sample, "w", encoding="utf-8") as few:
        for i, text in enumerate(texts):
            line = json.dumps({"id": i, "text": text}, ensure_ascii=False) + "\n"
            lines.write(line)
            if i % step == 0 and sample_bytes < 6_000_000:
                few.write(line)
                sample_bytes += len(text.encode())
    pq.write_table(pa.table({"text": texts}), parquet, compression="zstd", row_group_size=1000)
    copies: dict[str, list[Path]] = {}
    for kind, path in (("jsonl", jsonl), ("parquet", parquet)):
        copies[kind] = [path]
        for i in range(3):
            copies[kind].append(work / f"copy{i}.{kind}")
            shutil.copyfile(path, copies[kind][-1])
    return {
        "jsonl": jsonl,
        "parquet": parquet,
        "4x jsonl": copies["jsonl"],
        "4x parquet": copies["parquet"],
        "sample": sample,
        "sample_bytes": sample_bytes,
        "text_bytes": held,
        "documents": len(texts),
    }


def corpus_texts(inputs: list[str]) -> Iterator[str]:
    """The documents of the files named, then those of this Python installation."""
    from tokenmill.demo_data import demo_globs
    from tokenmill.reading import Piece, read, read_piece

    sources = [read(*inputs)] if inputs else []
    for source in [*sources, read(*demo_globs(), format="text")]:
        for file in source.files:
            for texts in read_piece(Piece(file), source):
                if not texts.unfinished:
                    yield from texts.values.to_pylist()


def machine_facts() -> dict[str, Any]:
    import psutil

    model = platform.processor() or platform.machine()
    try:
        names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip()
    except (OSError, IndexError):
        pass
    return {
        "cpu": model,
        "cores": usable_cores(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("tokenmill", "gigatoken", "tokenizers", "pyarrow", "numpy")},
    }


def builds_table(result: dict[str, Any]) -> str:
    machine = ", ".join(f"{key} {value}" for key, value in result["machine"].items())
    text = result["text_bytes"]
    lines = [
        machine,
        f"{text / 1e6:.0f} MB of text in {result['documents']:,} documents; {result['tokenizer']};"
        f" best of {result['rounds']} rounds",
        "",
        f"{'run':<22}{'seconds':>10}{'CPU s':>10}{'peak MB':>10}",
    ]
    for name, run in result["runs"].items():
        lines.append(f"{name:<22}{run['seconds']:>10.2f}{run['cpu']:>10.2f}{run['peak_mb']:>10}")
    lines += ["", f"{'ratio':<50}{'measured':>10}{'bar':>10}"]
    for bar in result["bars"]:
        lines.append(f"{bar['what']:<50}{bar['ratio']:>10.3g}{bar['bar']:>10}   {'met' if bar['met'] else 'MISSED'}")
    if text < 250e6:
        lines.append("The bars are meant for 250 MB of text and more: with less, starting up is most of the work.")
    return "\n".join(lines)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
