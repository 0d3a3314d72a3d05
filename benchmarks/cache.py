"""The cache: time to the first batch of a text that was tokenized before, the cost of finding that nothing changed, of a small
change, and of hashing.

The text is real, in JSON lines, with the documents spread evenly over the files. Builds are run by the command line, into a
cache of their own, each in a new process. Engines are tried out before the clock starts, as happens once per machine. Text and
stores are in the page cache: nothing here waits for a disk. Rounds go through everything in turns, and the best of each counts.

A file that changed within the last two seconds is read again by the next build, by design: the benchmark waits that long before
a build that should find nothing changed.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.corpus import first_texts, saved_tokenizer
from benchmarks.harness import (
    PEERS,
    PROGRAMS,
    Result,
    against_bar,
    bar_lines,
    cell,
    figure,
    joined,
    machine_line,
    say,
)
from tokenmill.building.machine import machine_facts
from tokenmill.building.source_index import SETTLING
from tokenmill.store.manifest import read_manifest

FILES, MANY, IN_FOLDER = 200, 100_000, 1000
SAMPLE = 12_000_000  # bytes of text for the reference, which would take minutes for all of it
SEQ_LEN, BATCH = 2048, 8
TURNS = 3  # in each process that checks files repeatedly


@dataclass(slots=True)
class Run:
    """What a process took: seconds to its first line of output and to its end, CPU time; and its output."""

    first_line: float
    seconds: float
    cpu: float
    output: str
    errors: str


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache directory for the benchmark, and the commands that use it."""

    folder: Path
    tokenizer: Path
    engine: str

    def build(self, source: Any) -> Run:
        """`tokenmill build`."""
        command = [sys.executable, "-P", "-m", "tokenmill.cli", "build", str(source)]
        return _run(self.folder, [*command, "-t", str(self.tokenizer), "--engine", self.engine])

    def run(self, program: Path, *arguments: Any) -> Run:
        return _run(self.folder, [sys.executable, str(program), *map(str, arguments)])

    def empty(self) -> None:
        """Remove all stores; keep what is known about engines."""
        for name in ("stores", "builds"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def shards(self) -> set[str]:
        """The shards of all stores."""
        return {shard for store in (self.folder / "stores").iterdir() for shard in read_manifest(store).shard_ids}


def measure_cache(
    work: Path,
    inputs: list[str],
    spec: str | None,
    size: int,
    rounds: int,
    *,
    torch: bool = True,
    engine: str = "auto",
    kinds: tuple[str, ...] = ("folder", "glob", "paths"),
    files: int = FILES,
    many: int = MANY,
    sample: int = SAMPLE,
) -> Result:
    """All figures, over `size` bytes of text. Takes minutes, and 2 GB of disk; all is removed after use."""
    load = os.getloadavg()[0]
    tokenizer = saved_tokenizer(spec, work / "tokenizer")
    say(f"collecting {size / 1e6:.0f} MB of text")
    corpus = _write_corpus(work, inputs, size, files, sample)
    _write_many(work / "many", many)
    cache = Cache(work / "cache", work / "tokenizer", engine)
    sections = [
        _builds(work, cache, corpus, rounds, ("numpy", "torch") if torch else ("numpy",)),
        _hashing(work, cache, rounds),
        _checks(work, cache, many, rounds, kinds),
    ]
    for name in ("corpus", "many", "cache", "tokenizer"):
        shutil.rmtree(work / name)
    for name in ("sample.jsonl", "many.txt"):
        (work / name).unlink()
    return {
        "machine": machine_facts(),
        "load": round(load, 2),
        "tokenizer": f"{tokenizer.name} ({tokenizer.vocab_size:,} ids)",
        **{name: corpus[name] for name in ("text_bytes", "documents", "files", "sample_bytes")},
        "many": many,
        "rounds": rounds,
        **joined(sections),
    }


def _builds(work: Path, cache: Cache, corpus: Result, rounds: int, kinds: tuple[str, ...]) -> Result:
    """The life of a corpus, once per round: built, found unchanged, loaded, one file of it changed."""
    text, tokenizer, count = work / "corpus", cache.tokenizer, corpus["files"]
    tries: dict[str, list[Run]] = {}
    reference: list[float] = []
    new_shards: list[tuple[int, int]] = []

    def keep(name: str, run: Run) -> None:
        tries.setdefault(name, []).append(run)

    say("trying out engines")
    cache.build(text)
    for turn in range(rounds):
        say(f"builds, round {turn + 1} of {rounds}")
        edited = _file(text, turn * 37 % count)
        _settle()
        cache.empty()
        keep("first build of one file", cache.build(edited))
        cache.empty()
        keep("first build", cache.build(text))
        keep("up to date", _up_to_date(cache.build(text)))
        for kind in kinds:
            load = PROGRAMS / "first_batch.py", text, tokenizer, SEQ_LEN, BATCH, kind
            keep(f"first batch, {kind}", _up_to_date(cache.run(*load)))
        encode = PEERS / "tokenizers_encode.py", work / "sample.jsonl", tokenizer / "tokenizer.json"
        reference.append(_answer(cache.run(*encode)))
        before = cache.shards()
        _edit(edited, turn)
        keep("one file changed", cache.build(text))
        new_shards.append((len(cache.shards() - before), len(before)))
    best = {name: _best(runs) for name, runs in tries.items()}
    scaled = min(reference) * corpus["text_bytes"] / corpus["sample_bytes"]
    new, shards = max(new_shards)
    bars = [
        *_reference_bars(best, scaled, kinds),
        *_change_figures(best, count),
        figure(f"new shards after one file of {count} changed, of {shards}", new, ""),
    ]
    runs: list[Result] = []
    for what, run in best.items():
        ready = {"first_line": run.first_line} if what.startswith("first batch") else {}
        runs.append({"what": what, "seconds": run.seconds, "cpu": run.cpu, **ready})
    runs.append({"what": "tokenizers.encode_batch, the sample", "seconds": min(reference)})
    runs.append({"what": "tokenizers.encode_batch, scaled to the text", "seconds": scaled})
    note = (
        f"tokenizers encoded {corpus['sample_bytes'] / 1e6:.1f} MB of the text, every n-th document, on all cores; its time"
        " is scaled by bytes. A first batch is timed from the start of the process, imports and the tokenizer included; the"
        " process for numpy cannot import torch. Other work on the machine slows the reference, on all cores, more than a first"
        " batch, on one: that ratio is meaningful only on a quiet machine."
    )
    return {"runs": runs, "bars": bars, "notes": [note]}


def _reference_bars(best: dict[str, Run], scaled: float, kinds: tuple[str, ...]) -> list[Result]:
    """The time of the reference over the whole text, against a first batch from the cache."""
    whole = "tokenizers.encode_batch of the text"
    bars = []
    for kind in kinds:
        what, ratio = f"{whole} / first batch from the cache, {kind}", scaled / best[f"first batch, {kind}"].first_line
        bars.append(against_bar(what, ratio, "x", ">=", 50) if kind == "numpy" else figure(what, ratio, "x"))
    bars.append(figure(f"{whole} / tokenmill build, up to date", scaled / best["up to date"].seconds, "x"))
    return bars


def _change_figures(best: dict[str, Run], count: int) -> list[Result]:
    """What one changed file of `count` costs, in wall and CPU time."""
    figures = []
    for name, unit in (("seconds", "wall time"), ("cpu", "CPU")):
        took = {what: float(getattr(run, name)) for what, run in best.items()}
        others = {
            "first build": took["first build"],
            f"(1/{count} of it + up to date)": took["first build"] / count + took["up to date"],
            "first build of one file": took["first build of one file"],
        }
        for what, other in others.items():
            ratio = took["one file changed"] / other
            figures.append(figure(f"{unit} after one file of {count} changed / {what}", ratio, "x"))
    return figures


def _hashing(work: Path, cache: Cache, rounds: int) -> Result:
    """The cost of hashing: of files that were touched, and within a first build."""
    common = work / "corpus", cache.tokenizer
    builds: dict[str, list[Result]] = {"hashed": [], "not hashed": [], "clocked": []}
    touched: list[Result] = []
    cache.build(common[0])
    for turn in range(rounds):
        say(f"hashing, round {turn + 1} of {rounds}")
        touched.append(_answer(cache.run(PROGRAMS / "touch_files.py", *common, TURNS, cache.engine)))
        for how, tries in builds.items():
            tries.append(_answer(cache.run(PROGRAMS / "hash_cost.py", *common, work / how, how, cache.engine)))
            shutil.rmtree(work / how)
    seconds, size = min(run["seconds"] for run in touched), touched[0]["bytes"]
    clocked = min(builds["clocked"], key=lambda run: float(run["spent"]))
    cpu = {how: sorted(run["cpu"] for run in tries) for how, tries in builds.items()}
    bars = [
        figure("build after touching every file, in a warm process", size / seconds / 1e6, "MB/s"),
        figure("CPU of hashing / CPU of a first build, clocked in it", clocked["spent"] / clocked["cpu"] * 100, "%"),
        figure("CPU of a first build / the same with nothing hashed", cpu["hashed"][0] / cpu["not hashed"][0], "x"),
    ]
    runs: list[Result] = [{"what": "all files touched, in a warm process", "seconds": seconds}]
    runs += [{"what": f"first build inside one process, {how}", "cpu": tries[0]} for how, tries in cpu.items()]
    spread = "; ".join(f"{how} {tries[0]:.2f} to {tries[-1]:.2f} s" for how, tries in cpu.items())
    notes = [
        f"{size / 1e6:.0f} MB were hashed after touching all files, {clocked['bytes'] / 1e6:.0f} MB within a first build."
        f" CPU of first builds inside one process over the rounds: {spread}; a smaller difference is noise."
    ]
    return {"runs": runs, "bars": bars, "notes": notes}


def _checks(work: Path, cache: Cache, many: int, rounds: int, kinds: tuple[str, ...]) -> Result:
    """The cost of finding that none of very many small files changed."""
    folder, listed = work / "many", work / "many.txt"
    listed.write_text("".join(f"{path}\n" for path in sorted(folder.glob("*/*.txt"))), "utf-8")
    named = {"folder": folder, "glob": f"{folder}/**/*.txt", "paths": f"@{listed}"}
    commands = {how: named[how] for how in kinds}
    warm: dict[str, list[dict[str, float]]] = {how: [] for how in commands}
    whole: dict[str, list[float]] = {how: [] for how in commands}
    for turn in range(rounds):
        for how, source in commands.items():
            say(f"{many:,} files by {how}, round {turn + 1} of {rounds}")
            warm[how].append(
                _answer(cache.run(PROGRAMS / "check_files.py", folder, how, cache.tokenizer, TURNS, cache.engine))
            )
            if how == "paths" and not turn:
                cache.build(source)  # a list in a file is a different input, although the files are the same
            whole[how].append(_up_to_date(cache.build(source)).seconds)
    stat = min(best["stat"] for tries in warm.values() for best in tries)
    runs, bars = [], []
    for how, tries in warm.items():
        steps = {name: min(best[name] for best in tries) for name in ("read", "build")}
        runs.append({"what": f"{many:,} files, by {how}", "stat": stat, **steps, "process": min(whole[how])})
        what = f"check of {many:,} files, by {how} / os.stat of each"
        bars.append(against_bar(what, sum(steps.values()) / stat, "x", "<=", 5))
    for how, seconds in whole.items():
        bars.append(
            figure(f"tokenmill build of {many:,} files, up to date, by {how} / os.stat", min(seconds) / stat, "x")
        )
    return {"runs": runs, "bars": bars, "notes": ["By paths: the command gets a list, @many.txt."]}


def _run(cache: Path, command: list[str]) -> Run:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENMILL_CACHE": str(cache)}
    with open(cache.with_name("errors"), "w+b") as stderr:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, env=environment)
        assert process.stdout is not None
        line = process.stdout.readline()
        first_line = time.perf_counter() - began
        rest, _ = process.communicate()
        seconds = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        stderr.seek(0)
        errors = stderr.read().decode(errors="replace")
    cache.with_name("errors").unlink()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[-4:])} failed: {errors[-2000:]}")
    os.sync()  # the next run does not pay for what this one left to write
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(first_line, seconds, cpu, (line + rest).decode(errors="replace"), errors)


def _answer(run: Run) -> Any:
    return json.loads(run.output.splitlines()[-1])


def _up_to_date(run: Run) -> Run:
    """Check that a run found nothing to build."""
    if "up to date" not in run.errors:
        raise RuntimeError(f"nothing had changed, but it was built again: {run.errors[-2000:]}")
    return run


def _best(runs: list[Run]) -> Run:
    first_line, seconds, cpu = (min(getattr(run, name) for run in runs) for name in ("first_line", "seconds", "cpu"))
    return Run(first_line, seconds, cpu, "", "")


def _settle() -> None:
    """Wait until recently written files count as unchanged."""
    time.sleep(SETTLING / 1e9 + 0.1)


def _file(corpus: Path, number: int) -> Path:
    return corpus / f"{number:04}.jsonl"


def _edit(path: Path, turn: int) -> None:
    """Append to the document in the middle of a file."""
    lines = path.read_bytes().splitlines(keepends=True)
    record = json.loads(lines[len(lines) // 2])
    record["text"] += f" Changed in round {turn}."
    lines[len(lines) // 2] = json.dumps(record, ensure_ascii=False).encode() + b"\n"
    path.write_bytes(b"".join(lines))


def _write_corpus(work: Path, inputs: list[str], size: int, files: int, sample: int) -> Result:
    """Real text spread evenly over the files, and every n-th document as the sample for the reference."""
    texts, text_bytes = first_texts(inputs, size)
    lines = [json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n" for text in texts]
    folder = work / "corpus"
    folder.mkdir()
    for number in range(files):
        _file(folder, number).write_bytes(b"".join(lines[number::files]))
    step = max(1, round(text_bytes / sample))
    (work / "sample.jsonl").write_bytes(b"".join(lines[::step]))
    sample_bytes = sum(len(text.encode()) for text in texts[::step])
    return {"text_bytes": text_bytes, "documents": len(texts), "files": files, "sample_bytes": sample_bytes}


def _write_many(folder: Path, many: int) -> None:
    for number in range(many):
        home = folder / f"{number // IN_FOLDER:04}"
        if not number % IN_FOLDER:
            home.mkdir(parents=True)
        (home / f"{number:06}.txt").write_text(f"A document that says little but its number, {number}.\n", "utf-8")


def cache_table(result: Result) -> str:
    """The figures as text."""
    runs = result["runs"]
    lines = [
        machine_line(result),
        f"{result['text_bytes'] / 1e6:.0f} MB of text, {result['documents']:,} documents in {result['files']:,} files;"
        f" {result['tokenizer']}; best of {result['rounds']} rounds; load {result['load']} at the start",
        "",
        f"{'run':<50}{'first batch s':>14}{'seconds':>10}{'CPU s':>10}",
    ]
    for run in (run for run in runs if "stat" not in run):
        cells = [
            cell(run.get(name), ".3f", width) for name, width in (("first_line", 14), ("seconds", 10), ("cpu", 10))
        ]
        lines.append(f"{run['what']:<50}{''.join(cells)}")
    steps = ("stat", "read", "build", "process")
    lines += ["", f"{'up to date':<50}{''.join(f'{step} s'.rjust(12) for step in steps)}"]
    for run in (run for run in runs if "stat" in run):
        lines.append(f"{run['what']:<50}{''.join(cell(run[step], '.3f', 12) for step in steps)}")
    return "\n".join([*lines, *bar_lines(result)])
