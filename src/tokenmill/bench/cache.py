"""Measure the cache: how soon a text that was tokenized before gives batches, what it costs to find that nothing changed, what
a small change costs, and what hashing costs.

The text is real, in JSON lines, as many documents in each file as in the others. Builds are the command line's, into a cache
of their own, each a process. Engines stand trial before the clock starts, as they do once on a machine. Text and stores are in
the page cache: nothing here waits for a disk to read. Rounds go through everything in turns, and the best of each is compared.

A file that was changed within the last two seconds is read again by the next build, by design: before anything is to be found
unchanged, those seconds are waited for.
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

from tokenmill.bench.builds import corpus_texts, machine_facts, say
from tokenmill.bench.cache_programs import CHECK, HASHED, LOAD, REFERENCE, TOUCHED
from tokenmill.bench.packing import against_bar, cell
from tokenmill.building.source_index import TICK
from tokenmill.store.manifest import read_manifest

FILES, MANY, IN_FOLDER = 200, 100_000, 1000
SAMPLE = 12_000_000  # bytes of text for the reference, which needs minutes for all of it
SEQ_LEN, BATCH = 2048, 8
TURNS = 3  # in each process that looks at files again and again


@dataclass(slots=True)
class Run:
    """What a process took: until its first line of output, to its end, of all cores; and what it said."""

    first_line: float
    seconds: float
    cpu: float
    output: str
    errors: str


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache of the benchmark's own, and how stores come into it."""

    folder: Path
    tokenizer: Path
    engine: str

    def build(self, source: Any) -> Run:
        """`tokenmill build`."""
        command = [
            "-P",
            "-m",
            "tokenmill.cli",
            "build",
            str(source),
            "-t",
            str(self.tokenizer),
            "--engine",
            self.engine,
        ]
        return _run(self.folder, [sys.executable, *command])

    def python(self, script: str, *arguments: Any) -> Run:
        return _run(self.folder, [sys.executable, "-c", script, *map(str, arguments)])

    def empty(self) -> None:
        """No text was tokenized before; what is known of engines stays."""
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
) -> dict[str, Any]:
    """All figures, over so many bytes of text. Takes minutes, and 2 GB of disk; all is removed after use."""
    from tokenmill.demo_data import demo_tokenizer
    from tokenmill.encoding import load_tokenizer

    load = os.getloadavg()[0]
    tokenizer = load_tokenizer(spec or demo_tokenizer())
    (work / "tokenizer").mkdir(parents=True, exist_ok=True)
    tokenizer.definition.save(work / "tokenizer")
    say(f"collecting {size / 1e6:.0f} MB of text")
    corpus = _write_corpus(work, inputs, size, files, sample)
    _write_many(work / "many", many)
    cache = Cache(work / "cache", work / "tokenizer", engine)
    sections = [
        _builds(work, cache, corpus, rounds, torch),
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
        "runs": [run for section in sections for run in section["runs"]],
        "bars": [bar for section in sections for bar in section["bars"]],
        "notes": [note for section in sections for note in section["notes"]],
    }


def _builds(work: Path, cache: Cache, corpus: dict[str, Any], rounds: int, torch: bool) -> dict[str, Any]:
    """The life of a corpus, once a round: built, found as it was, one file of it changed, all of it touched."""
    text, tokenizer = work / "corpus", cache.tokenizer
    count, kinds = corpus["files"], ("numpy", "torch") if torch else ("numpy",)
    found: dict[str, list[Run]] = {}
    reference: list[float] = []
    new_shards: list[tuple[int, int]] = []

    def note(name: str, run: Run) -> None:
        found.setdefault(name, []).append(run)

    say("engines on trial")
    cache.build(text)
    for turn in range(rounds):
        say(f"builds, round {turn + 1} of {rounds}")
        edited = _file(text, turn * 37 % count)
        _settle()
        cache.empty()
        note("first build of one file", cache.build(edited))
        cache.empty()
        note("first build", cache.build(text))
        note("up to date", _up_to_date(cache.build(text)))
        for kind in kinds:
            script = (LOAD, text, tokenizer, SEQ_LEN, BATCH, kind)
            note(f"first batch, {kind}", _up_to_date(cache.python(*script)))
        reference.append(_answer(cache.python(REFERENCE, work / "sample.jsonl", tokenizer / "tokenizer.json")))
        before = cache.shards()
        _edit(edited, turn)
        note("one file changed", cache.build(text))
        new_shards.append((len(cache.shards() - before), len(before)))
    best = {name: _best(tries) for name, tries in found.items()}
    scaled = min(reference) * corpus["text_bytes"] / corpus["sample_bytes"]
    whole = "tokenizers.encode_batch of the text"
    bars = []
    for kind in kinds:
        what, ratio = f"{whole} / first batch from the cache, {kind}", scaled / best[f"first batch, {kind}"].first_line
        bars.append(against_bar(what, ratio, "x", ">=", 50) if kind == "numpy" else _figure(what, ratio, "x"))
    bars.append(_figure(f"{whole} / tokenmill build, up to date", scaled / best["up to date"].seconds, "x"))
    for name, unit in (("seconds", "wall time"), ("cpu", "CPU")):
        took = {what: getattr(run, name) for what, run in best.items()}
        changed, fixed = took["one file changed"], took["up to date"]
        beside = {
            "first build": took["first build"],
            f"(1/{count} of it + up to date)": took["first build"] / count + fixed,
            "first build of one file": took["first build of one file"],
        }
        for what, other in beside.items():
            bars.append(_figure(f"{unit} after one file of {count} changed / {what}", changed / other, "x"))
    new, shards = max(new_shards)
    bars.append(_figure(f"new shards after one file of {count} changed, of {shards}", new, ""))
    runs: list[dict[str, Any]] = []
    for what, run in best.items():
        ready = {"first_line": run.first_line} if what.startswith("first batch") else {}
        runs.append({"what": what, "seconds": run.seconds, "cpu": run.cpu, **ready})
    runs.append({"what": "tokenizers.encode_batch, the sample", "seconds": min(reference)})
    runs.append({"what": "tokenizers.encode_batch, scaled to the text", "seconds": scaled})
    note_of_it = (
        f"tokenizers encoded {corpus['sample_bytes'] / 1e6:.1f} MB of the text, every n-th document, on all cores; its time"
        " is scaled by bytes. A first batch is timed from the start of the process, imports and the tokenizer included; with"
        " numpy, torch cannot be imported there. Other work on the machine slows the reference, on all cores, more than a"
        " first batch, on one: only on a quiet machine does that ratio mean something."
    )
    return {"runs": runs, "bars": bars, "notes": [note_of_it]}


def _hashing(work: Path, cache: Cache, rounds: int) -> dict[str, Any]:
    """Contents alone, of files that were touched; and beside all else that a first build does."""
    common = work / "corpus", cache.tokenizer
    builds: dict[str, list[dict[str, Any]]] = {"hashed": [], "not hashed": [], "clocked": []}
    touched: list[dict[str, Any]] = []
    cache.build(common[0])
    for turn in range(rounds):
        say(f"hashing, round {turn + 1} of {rounds}")
        touched.append(_answer(cache.python(TOUCHED, *common, TURNS, cache.engine)))
        for how, tries in builds.items():
            tries.append(_answer(cache.python(HASHED, *common, work / how, how, cache.engine)))
            shutil.rmtree(work / how)
    seconds, size = min(run["seconds"] for run in touched), touched[0]["bytes"]
    clocked = min(builds["clocked"], key=lambda run: float(run["spent"]))
    cpu = {how: sorted(run["cpu"] for run in tries) for how, tries in builds.items()}
    bars = [
        _figure("build after touching every file, in a warm process", size / seconds / 1e6, "MB/s"),
        _figure("CPU of hashing / CPU of a first build, clocked in it", clocked["spent"] / clocked["cpu"] * 100, "%"),
        _figure("CPU of a first build / the same with nothing hashed", cpu["hashed"][0] / cpu["not hashed"][0], "x"),
    ]
    runs: list[dict[str, Any]] = [{"what": "all files touched, in a warm process", "seconds": seconds}]
    runs += [{"what": f"first build inside one process, {how}", "cpu": tries[0]} for how, tries in cpu.items()]
    spread = "; ".join(f"{how} {tries[0]:.2f} to {tries[-1]:.2f} s" for how, tries in cpu.items())
    notes = [
        f"Hashed were {size / 1e6:.0f} MB of files after touching, {clocked['bytes'] / 1e6:.0f} MB within a first build."
        f" CPU of first builds inside one process over the rounds: {spread}; a difference smaller than that is none."
    ]
    return {"runs": runs, "bars": bars, "notes": notes}


def _checks(work: Path, cache: Cache, many: int, rounds: int, kinds: tuple[str, ...]) -> dict[str, Any]:
    """Whether any of very many small files changed."""
    folder, listed = work / "many", work / "many.txt"
    listed.write_text("".join(f"{path}\n" for path in sorted(folder.glob("*/*.txt"))), "utf-8")
    named = {"folder": folder, "glob": f"{folder}/**/*.txt", "paths": f"@{listed}"}
    commands = {how: named[how] for how in kinds}
    warm: dict[str, list[dict[str, float]]] = {how: [] for how in commands}
    whole: dict[str, list[float]] = {how: [] for how in commands}
    for turn in range(rounds):
        for how, source in commands.items():
            say(f"{many:,} files by {how}, round {turn + 1} of {rounds}")
            warm[how].append(_answer(cache.python(CHECK, folder, how, cache.tokenizer, TURNS, cache.engine)))
            if how == "paths" and not turn:
                cache.build(source)  # a list in a file is another input, although the files are the same
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
            _figure(f"tokenmill build of {many:,} files, up to date, by {how} / os.stat", min(seconds) / stat, "x")
        )
    return {"runs": runs, "bars": bars, "notes": ["By paths, the command is given a list, @many.txt."]}


def _figure(what: str, measured: float, unit: str) -> dict[str, Any]:
    """Something worth knowing that has no bar."""
    return {"what": what, "measured": measured, "unit": unit, "bar": "", "met": None}


def _run(cache: Path, command: list[str]) -> Run:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENMILL_CACHE": str(cache)}
    with open(cache.with_name("errors"), "w+b") as said:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, env=environment)
        assert process.stdout is not None
        line = process.stdout.readline()
        first_line = time.perf_counter() - began
        rest, _ = process.communicate()
        seconds = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        said.seek(0)
        errors = said.read().decode(errors="replace")
    cache.with_name("errors").unlink()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[-4:])} failed: {errors[-2000:]}")
    os.sync()  # what one leaves to be written is not the next one's burden
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(first_line, seconds, cpu, (line + rest).decode(errors="replace"), errors)


def _answer(run: Run) -> Any:
    return json.loads(run.output.splitlines()[-1])


def _up_to_date(run: Run) -> Run:
    """A figure of the cache is none if there was something to build."""
    if "up to date" not in run.errors:
        raise RuntimeError(f"nothing had changed, but it was built again: {run.errors[-2000:]}")
    return run


def _best(runs: list[Run]) -> Run:
    first_line, seconds, cpu = (min(getattr(run, name) for run in runs) for name in ("first_line", "seconds", "cpu"))
    return Run(first_line, seconds, cpu, "", "")


def _settle() -> None:
    """Wait until what was just written counts as left alone."""
    time.sleep(TICK / 1e9 + 0.1)


def _file(corpus: Path, number: int) -> Path:
    return corpus / f"{number:04}.jsonl"


def _edit(path: Path, turn: int) -> None:
    """Make the document in the middle of a file a little longer."""
    lines = path.read_bytes().splitlines(keepends=True)
    record = json.loads(lines[len(lines) // 2])
    record["text"] += f" Changed in round {turn}."
    lines[len(lines) // 2] = json.dumps(record, ensure_ascii=False).encode() + b"\n"
    path.write_bytes(b"".join(lines))


def _write_corpus(work: Path, inputs: list[str], size: int, files: int, sample: int) -> dict[str, Any]:
    """Real text dealt out to so many files, so that each is like the whole; and every n-th document for the reference."""
    texts: list[bytes] = []
    held = 0
    for text in corpus_texts(inputs):
        texts.append(json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n")
        held += len(text.encode())
        if held >= size:
            break
    folder = work / "corpus"
    folder.mkdir()
    for number in range(files):
        _file(folder, number).write_bytes(b"".join(texts[number::files]))
    some = texts[:: max(1, round(held / sample))]
    (work / "sample.jsonl").write_bytes(b"".join(some))
    sample_bytes = sum(len(json.loads(line)["text"].encode()) for line in some)
    return {"text_bytes": held, "documents": len(texts), "files": files, "sample_bytes": sample_bytes}


def _write_many(folder: Path, many: int) -> None:
    for number in range(many):
        home = folder / f"{number // IN_FOLDER:04}"
        if not number % IN_FOLDER:
            home.mkdir(parents=True)
        (home / f"{number:06}.txt").write_text(f"A document that says little but its number, {number}.\n", "utf-8")


def cache_table(result: dict[str, Any]) -> str:
    """The figures, to be read."""
    runs = result["runs"]
    lines = [
        ", ".join(f"{key} {value}" for key, value in result["machine"].items()),
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
    lines += ["", f"{'figure':<80}{'measured':>12}{'bar':>10}"]
    for bar in result["bars"]:
        measured = f"{bar['measured']:.4g} {bar['unit']}".rstrip()
        met = {True: "   met", False: "   MISSED", None: ""}[bar["met"]]
        lines.append(f"{bar['what']:<80}{measured:>12}{bar['bar']:>10}{met}".rstrip())
    return "\n".join([*lines, "", *result["notes"]])
