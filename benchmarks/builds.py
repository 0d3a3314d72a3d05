"""A whole build against the other ways to do its job.

Everything runs in processes of its own, in turns, several times; the best of each is compared, because a shared machine is
never quiet. Peak memory is the sum over all processes of a run; what several of them share is counted once (PSS). The figures are
ratios: they hold on other machines, the seconds do not.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.corpus import first_texts, saved_tokenizer
from benchmarks.harness import PEERS, Result, against_bar, machine_line, say
from tokenmill.building.machine import machine_facts, proportional_bytes
from tokenmill.encoding.tokenizer import Tokenizer
from tokenmill.io.checked_lines import read_lines

KINDS = ("jsonl", "parquet")
STARTUP = ("import numpy", "import tokenmill", "tokenmill --help")  # short, so run five times per round
REFERENCE = "tokenizers, a sample"


@dataclass(slots=True)
class Run:
    """What a command took."""

    seconds: float
    cpu: float
    peak: int


def measure_builds(work: Path, inputs: list[str], spec: str | None, size: int, rounds: int) -> Result:
    """All figures, over `size` bytes of text. Takes minutes, and leaves corpus and stores in `work`."""
    os.environ["TOKENMILL_CACHE"] = str(work / "cache")  # empty: nothing is known about engines
    tokenizer = saved_tokenizer(spec, work / "tokenizer")
    say(f"collecting {size / 1e6:.0f} MB of text")
    corpus = _corpus(work, inputs, size)
    commands = _commands(work, corpus, tokenizer)
    first = {}
    for kind in KINDS:  # engines are tried out once; the rounds measure every later build
        first[f"first build {kind}"] = _run(commands[f"build {kind}"])
        shutil.rmtree(work / "store", ignore_errors=True)
    runs, samplings = _run_rounds(commands, work / "store", rounds)
    best = {name: _best(tries) for name, tries in runs.items()}
    peaks = {name: max(run.peak for run in tries) for name, tries in runs.items()}
    peaks |= {name: run.peak for name, run in first.items()}
    return {
        "machine": machine_facts(),
        "tokenizer": f"{tokenizer.name} ({tokenizer.vocab_size:,} ids)",
        "text_bytes": corpus["text_bytes"],
        "documents": corpus["documents"],
        "rounds": rounds,
        "runs": {
            name: {"seconds": round(run.seconds, 3), "cpu": round(run.cpu, 3), "peak_mb": round(peaks[name] / 1e6)}
            for name, run in {**first, **best}.items()
        },
        "bars": _bars(runs, best, peaks, corpus, samplings),
    }


def _commands(work: Path, corpus: Result, tokenizer: Tokenizer) -> dict[str, list[str]]:
    """The commands to run, by name."""
    python = sys.executable
    eos, dtype = str(tokenizer.eos_id), tokenizer.dtype.name
    tokenizer_json, out = str(work / "tokenizer" / "tokenizer.json"), str(work / "out")
    build = [python, "-m", "tokenmill.cli", "build", "-t", str(work / "tokenizer"), "-o", str(work / "store"), "-q"]
    commands: dict[str, list[str]] = {}
    for kind in KINDS:
        path = str(corpus[kind])
        one_shot = [python, str(PEERS / "gigatoken_one_shot.py")]
        bare = [python, str(PEERS / "bare_stages.py"), kind, path, tokenizer_json, out]
        commands[f"build {kind}"] = [*build, path]
        commands[f"one-shot {kind}"] = [*one_shot, kind, path, tokenizer_json, out, eos, dtype]
        commands[f"build 4x {kind}"] = [*build, *map(str, corpus[f"4x {kind}"])]
        commands[f"bare {kind}"] = [*bare, "1", dtype]
        commands[f"bare 4x {kind}"] = [*bare, "4", dtype]
    reference = [python, str(PEERS / "tokenizers_build.py")]
    commands[REFERENCE] = [*reference, str(corpus["sample"]), tokenizer_json, out, eos, dtype]
    commands["import numpy"] = [python, "-c", "import numpy"]
    commands["import tokenmill"] = [python, "-c", "import tokenmill"]
    commands["tokenmill --help"] = [python, "-P", "-m", "tokenmill.cli", "--help"]
    return commands


def _run_rounds(
    commands: dict[str, list[str]], store: Path, rounds: int
) -> tuple[dict[str, list[Run]], dict[str, list[float]]]:
    """Run all commands in turns; also returns the share of each build that went into checking samples."""
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    samplings: dict[str, list[float]] = {}
    for turn in range(rounds):
        say(f"round {turn + 1} of {rounds}")
        for name, command in commands.items():
            if name == REFERENCE and turn:
                continue  # takes minutes, and is far from the bar
            for _ in range(5 if name in STARTUP else 1):
                shutil.rmtree(store, ignore_errors=True)
                runs[name].append(_run(command))
                if name.startswith("build"):
                    samplings.setdefault(name, []).append(_sampling_share(store, runs[name][-1]))
    return runs, samplings


def _best(tries: list[Run]) -> Run:
    return Run(min(run.seconds for run in tries), min(run.cpu for run in tries), min(run.peak for run in tries))


def _sampling_share(store: Path, run: Run) -> float:
    """The part of a build's CPU time that went into encoding samples with the reference."""
    finished = [event for event in read_lines(store / "events.jsonl") if event["event"] == "finished"]
    return float(finished[-1]["spot_check_seconds"]) / run.cpu


def _cpu_ratio(runs: dict[str, list[Run]], kind: str) -> float:
    """CPU time of three more copies of the input, build / bare stages: the median over the rounds."""
    ratios = []
    for one, four, bare, bare_four in zip(
        *(runs[f"{name} {kind}"] for name in ("build", "build 4x", "bare", "bare 4x")), strict=True
    ):
        growth = bare_four.cpu - bare.cpu
        ratios.append((four.cpu - one.cpu) / growth if growth > 0 else 0.0)  # 0: too little text to measure
    return statistics.median(ratios)


def _bars(
    runs: dict[str, list[Run]],
    best: dict[str, Run],
    peaks: dict[str, int],
    corpus: Result,
    samplings: dict[str, list[float]],
) -> list[Result]:
    """Each bar: what was compared, the ratio, the bar, and whether it was met."""
    text = corpus["text_bytes"]
    bars: list[tuple[str, float, str, float]] = []
    for kind in ("jsonl", "parquet"):
        whole, shot = best[f"build {kind}"], best[f"one-shot {kind}"]
        bars.append((f"wall time of build / one-shot, {kind}", whole.seconds / shot.seconds, "<=", 0.67))
        memory = peaks[f"build {kind}"] / peaks[f"one-shot {kind}"]
        bars.append((f"peak memory of build / one-shot, {kind}", memory, "<=", 0.4))
        bars.append((f"CPU per byte of build / bare stages, {kind}", _cpu_ratio(runs, kind), "<=", 1.15))
        memory = peaks[f"build 4x {kind}"] / peaks[f"build {kind}"]
        bars.append((f"peak memory with 4x the input, {kind}", memory, "<=", 1.05))
        for name in (f"build {kind}", f"build 4x {kind}"):
            share = statistics.median(samplings[name])
            bars.append((f"CPU of sampling by the reference / {name}", share, "<=", 0.02))
    speed = text / best["build jsonl"].seconds
    reference = corpus["sample_bytes"] / best[REFERENCE].seconds
    bars.append(("MB/s of build / tokenizers.encode_batch, jsonl", speed / reference, ">=", 30.0))
    for name in ("import tokenmill", "tokenmill --help"):
        bars.append((f"{name} / import numpy", best[name].seconds / best["import numpy"].seconds, "<=", 2.0))
    return [_bar(*bar) for bar in bars]


def _bar(what: str, ratio: float, sign: str, bar: float) -> Result:
    """A ratio of 0 or less is not a measurement, and meets no bar."""
    compared = against_bar(what, ratio, "", sign, bar)
    return {"what": what, "ratio": round(ratio, 3), "bar": compared["bar"], "met": ratio > 0 and compared["met"]}


def _run(command: list[str]) -> Run:
    """Run a command; CPU time and memory include all its child processes."""
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
    os.sync()  # the next run does not pay for what this one left to write
    return Run(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, peak)


class _PeakMemory:
    """The peak memory of a process and its children together, sampled every 20 ms."""

    def __init__(self, pid: int) -> None:
        self._process, self._peak = psutil.Process(pid), 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            total = 0
            try:
                for process in (self._process, *self._process.children(recursive=True)):
                    total += proportional_bytes(process.pid)
            except psutil.Error:
                continue
            self._peak = max(self._peak, total)

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self._peak


def _corpus(work: Path, inputs: list[str], size: int) -> Result:
    """Real text as one jsonl and one parquet (zstd) file, four copies of each, and a sample for the slow reference."""
    texts, text_bytes = first_texts(inputs, size)
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
        "text_bytes": text_bytes,
        "documents": len(texts),
    }


def builds_table(result: Result) -> str:
    """The figures as text."""
    text = result["text_bytes"]
    lines = [
        machine_line(result),
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
        lines.append("The bars apply to 250 MB of text or more: with less, most of the time is start-up.")
    return "\n".join(lines)
