"""Whole commands of other pipelines beside `tokenmill build`: the same bytes, the same tokenizer, the same cores.

Each peer has an environment of its own. In a round each peer runs once, right after a `tokenmill build`, from process start to
exit. A peer's best is compared with the best of the builds before it, so that both have as many tries. What a peer wrote is read
back and compared with tokenmill's store, document by document.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tokenmill as tm
from benchmarks.corpus import corpus_texts
from benchmarks.harness import PEERS, Result, against_bar, bar_lines, figure, machine_line, say
from tokenmill.building.machine import machine_facts, usable_cores
from tokenmill.demo_data import demo_tokenizer
from tokenmill.errors import TokenmillError

FILES_PER_CORE = 4  # some peers run in parallel over files only
MOST_SECONDS = 1800  # for one run of a peer
SHORT_SECONDS, SHORT_TURNS = 15, 3  # a peer that is over so soon runs so often in each round: short times vary the most
FASTER = 25  # the bar for pipelines that encode with `tokenizers`
BUILD = "tokenmill build"


@dataclass(frozen=True, slots=True)
class Peer:
    """A pipeline of another library. `environment` is the folder of its Python, `library` the package with its version."""

    name: str
    environment: str
    library: str
    program: str = ""  # in `peers/`; without one, the command line of the library is run
    uses_tokenizers: bool = True
    parts: str = ""  # glob for the folders it wrote, each a stream of documents; without one, it is one folder
    row: int = 0  # tokens of a row, for a peer that writes rows: what is left after the last full one is dropped
    what: str = ""


ALL = (
    Peer("datatrove", "datatrove", "datatrove", "datatrove_build.py", what="JsonlReader, DocumentTokenizer"),
    Peer("dolma", "dolma", "dolma", what="dolma tokens"),
    Peer(
        "datasets.map",
        "datasets",
        "datasets",
        "datasets_build.py",
        parts="saved",
        what="a fast tokenizer, batched; save_to_disk",
    ),
    Peer("litData", "litdata", "litdata", "litdata_build.py", what="optimize with TokensLoader"),
    Peer(
        "Mosaic streaming",
        "mosaic",
        "mosaicml-streaming",
        "mosaic_build.py",
        parts="[0-9]*",
        row=2048,
        what="rows of 2,048 by MDSWriter, as llm-foundry converts",
    ),
    Peer(
        "Megatron, gigatoken",
        "megatron",
        "gigatoken",
        "megatron_build.py",
        uses_tokenizers=False,
        what="encode_files in memory, .bin and .idx by numpy",
    ),
)


@dataclass(frozen=True, slots=True)
class Run:
    """What a command took, with its child processes: by the clock, and of the processors."""

    seconds: float
    cpu: float


@dataclass(slots=True)
class Written:
    """What a pipeline wrote: a digest of the ids of each document, and how many tokens there are in how many streams."""

    digests: Counter[bytes]
    tokens: int
    streams: int


class PeerError(Exception):
    """A peer could not run; the message is the reason for the table."""


def measure_peers(
    work: Path, inputs: list[str], spec: str | None, size: int, rounds: int, environments: Path, names: list[str]
) -> Result:
    """Seconds of each peer's command and of the builds between, over about `size` bytes of text."""
    os.environ["TOKENMILL_CACHE"] = str(work / "cache")  # empty: nothing is known about engines
    shutil.copytree(
        spec or demo_tokenizer(), work / "tokenizer"
    )  # a folder, with the tokenizer.json as all peers read it
    tokenizer = tm.load_tokenizer(work / "tokenizer")
    assert tokenizer.eos_id is not None, "documents are told apart by their eos"
    cores = usable_cores()
    say(f"collecting {size / 1e6:.0f} MB of text")
    text = write_corpus(work / "text", inputs, size, cores * FILES_PER_CORE, eos=tokenizer.decode([tokenizer.eos_id]))
    say("the first build, which finds out about engines")
    first = _build(work, cores)
    expected = written_documents([tm.open(work / "store")], tokenizer.eos_id)
    result = {
        "machine": machine_facts(),
        "tokenizer": f"{Path(spec or 'demo').name} ({tokenizer.vocab_size:,} ids)",
        "text_bytes": text["bytes"],
        "documents": text["documents"],
        "files": cores * FILES_PER_CORE,
        "rounds": rounds,
        "runs": {f"{BUILD}, first use of the tokenizer": _figures(first.seconds, first.cpu, text["bytes"])},
        "bars": [],
        "notes": [],
    }
    tried = [_Tried(peer) for peer in ALL if not names or peer.environment in names]
    for turn in range(rounds):
        for one in (one for one in tried if not one.failed):
            say(f"round {turn + 1} of {rounds}: {one.peer.name}")
            for _ in range(SHORT_TURNS):
                _take_turn(one, work, environments, cores, tokenizer.eos_id, expected)
                if one.failed or one.runs[-1].seconds > SHORT_SECONDS:
                    break
    result["peers"] = [_row(one) for one in tried]
    return summarized(result)


@dataclass(slots=True)
class _Tried:
    """The runs of a peer, those of the builds before each, and what was found in what it wrote."""

    peer: Peer
    version: str = ""
    runs: list[Run] = field(default_factory=list)
    builds: list[Run] = field(default_factory=list)
    compared: Result = field(default_factory=dict)
    failed: str = ""


def _take_turn(one: _Tried, work: Path, environments: Path, cores: int, eos: int, expected: Written) -> None:
    """A build and then the peer. What the peer writes is compared the first time."""
    try:
        one.version = one.version or _version(one.peer, environments)
        build = _build(work, cores)
        shutil.rmtree(work / "out", ignore_errors=True)
        (work / "out").mkdir()
        run = run_command(_command(one.peer, work, environments, cores, eos), work)
        one.compared = one.compared or compare(written_documents(_stores(one.peer, work), eos), expected, one.peer.row)
    except PeerError as error:
        one.failed = str(error)
        say(f"  {one.peer.name}: {error}")
        return
    one.builds.append(build)
    one.runs.append(run)
    say(f"  {run.seconds:.2f} s, tokenmill {build.seconds:.2f} s; CPU {run.cpu:.2f} s, {build.cpu:.2f} s")


def _row(one: _Tried) -> Result:
    """The best of a peer's runs, and of the builds before each."""
    row: Result = {"name": one.peer.name, "version": one.version, "what": one.peer.what, "failed": one.failed or None}
    if one.failed:
        return row
    row |= {"seconds": min(run.seconds for run in one.runs), "cpu": min(run.cpu for run in one.runs)}
    row |= {"build_seconds": min(run.seconds for run in one.builds), "build_cpu": min(run.cpu for run in one.builds)}
    return {**row, "compared": one.compared}


def _command(peer: Peer, work: Path, environments: Path, cores: int, eos: int) -> list[str]:
    binaries = environments / peer.environment / "bin"
    text, tokenizer, out = work / "text", work / "tokenizer", work / "out"
    if peer.program:
        return [str(binaries / "python"), str(PEERS / peer.program), *map(str, (text, tokenizer, out, cores, eos))]
    options = {
        "documents": f"{text}/*.jsonl",
        "destination": out,
        "tokenizer.name_or_path": tokenizer / "tokenizer.json",
        "tokenizer.eos_token_id": eos,
        "tokenizer.pad_token_id": eos,
        "processes": cores,
        "dtype": "uint16" if tm.load_tokenizer(tokenizer).vocab_size <= 1 << 16 else "uint32",
    }
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return [str(binaries / "dolma"), "tokens", *flags]


def _build(work: Path, cores: int) -> Run:
    shutil.rmtree(work / "store", ignore_errors=True)
    command = [sys.executable, "-P", "-m", "tokenmill.cli", "build", str(work / "text"), "-t", str(work / "tokenizer")]
    return run_command([*command, "-o", str(work / "store"), "--workers", str(cores), "-q"], work)


def _version(peer: Peer, environments: Path) -> str:
    """The version of a peer's library, or a PeerError that says why it is not there."""
    python = environments / peer.environment / "bin" / "python"
    log = environments / f"{peer.environment}.log"
    asked = f"from importlib.metadata import version; print(version({peer.library!r}))"
    if python.exists():
        done = subprocess.run([str(python), "-c", asked], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.strip()
    said = [line for line in log.read_text("utf-8").splitlines() if line.strip()] if log.exists() else []
    raise PeerError(f"not installed: {said[-1] if said else f'there is no {python}; run make bench-peers'}")


def run_command(command: list[str], work: Path) -> Run:
    """Run a command, from process start to exit. What it leaves to write to the disk is not counted."""
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "LITDATA_DISABLE_VERSION_CHECK": "1",
        "HF_HOME": str(work / "hf"),
    }
    with open(work / "output.txt", "w+", encoding="utf-8", errors="replace") as output:
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        try:
            done = subprocess.run(
                command, stdout=output, stderr=output, env=environment, timeout=MOST_SECONDS, cwd=work
            )
        except subprocess.TimeoutExpired:
            raise PeerError(f"took more than {MOST_SECONDS // 60} minutes") from None
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        output.seek(0)
        said = [line.strip() for line in output if line.strip()]
    if done.returncode:
        raise PeerError(f"failed with exit code {done.returncode}: {said[-1][:300] if said else ''}")
    os.sync()  # the next run does not pay for what this one left to write
    return Run(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def write_corpus(folder: Path, inputs: list[str], size: int, files: int, eos: str) -> dict[str, int]:
    """Real text dealt out to JSON-lines files, without white space around documents, empty ones and those with eos in them.

    Tools differ on purpose in what they do with these (dolma strips documents), and it is their speed that is compared.
    """
    folder.mkdir()
    outputs = [open(folder / f"{number:03}.jsonl", "w", encoding="utf-8") for number in range(files)]
    documents = total = 0
    for whole in corpus_texts(inputs):
        text = whole.strip()
        if not text or eos in text:
            continue
        line = {"id": str(documents), "text": text, "source": "corpus"}
        outputs[documents % files].write(json.dumps(line, ensure_ascii=False) + "\n")
        documents, total = documents + 1, total + len(text.encode())
        if total >= size:
            break
    for output in outputs:
        output.close()
    return {"documents": documents, "bytes": total}


def _stores(peer: Peer, work: Path) -> Iterator[Any]:
    """What a peer wrote, as stores; each is gone when the next is asked for."""
    for part in sorted((work / "out").glob(peer.parts)) if peer.parts else [work / "out"]:
        shutil.rmtree(work / "back", ignore_errors=True)
        try:
            yield tm.import_tokens(part, work / "back")
        except TokenmillError as error:
            raise PeerError(f"what it wrote cannot be read: {error}") from error


def written_documents(stores: Iterable[Any], eos: int) -> Written:
    """The documents in streams of tokens: each ends with eos. What follows the last eos of a stream is in no document."""
    found = Written(Counter(), 0, 0)
    for store in stores:
        stream = np.concatenate([*store[:], np.empty(0, np.uint16)]).astype(np.uint32)
        documents = np.split(stream, np.flatnonzero(stream == eos) + 1)[:-1]
        found.digests.update(hashlib.blake2b(ids.tobytes(), digest_size=16).digest() for ids in documents)
        found.tokens += len(stream)
        found.streams += 1
    return found


def compare(found: Written, expected: Written, row: int) -> Result:
    """How many documents are those of tokenmill, id by id; in any order, as some peers shuffle them."""
    documents, equal = expected.digests.total(), (expected.digests & found.digests).total()
    dropped, others = expected.tokens - found.tokens, found.digests.total() - equal
    same = equal == documents and not dropped and not others
    same_rows = row > 0 and not others and 0 <= dropped < row * found.streams  # the rest of each stream is missing
    return {"documents": documents, "equal": equal, "dropped_tokens": dropped, "same": same or same_rows}


def summarized(result: Result) -> Result:
    """The result with its runs, figures and notes."""
    size, cpu_bars = result["text_bytes"], []
    for row in result["peers"]:
        about = f"{row['name']} {row['version']}".strip()
        if row["failed"]:
            result["notes"].append(f"{about} did not run: {row['failed']}")
            continue
        row["times"] = row["seconds"] / row["build_seconds"]
        result["runs"][f"{about}: {row['what']}"] = _figures(row["seconds"], row["cpu"], size)
        result["runs"][f"{BUILD} before {row['name']}"] = _figures(row["build_seconds"], row["build_cpu"], size)
        uses_tokenizers = next(peer.uses_tokenizers for peer in ALL if peer.name == row["name"])
        what, times = f"wall time of {about} / {BUILD}", float(f"{row['times']:.3g}")
        result["bars"].append(
            against_bar(what, times, "x", ">=", FASTER) if uses_tokenizers else figure(what, times, "x")
        )
        cpu_bars.append(figure(f"CPU time of {about} / {BUILD}", float(f"{row['cpu'] / row['build_cpu']:.3g}"), "x"))
    result["bars"] += cpu_bars
    result["notes"] += list(_comparisons(result["peers"]))
    return result


def _figures(seconds: float, cpu: float, size: int) -> Result:
    return {"seconds": round(seconds, 2), "cpu": round(cpu, 2), "mb_per_second": float(f"{size / 1e6 / seconds:.3g}")}


def _comparisons(rows: list[Result]) -> Iterator[str]:
    """What the comparison of the tokens found, in words."""
    compared = [row for row in rows if not row["failed"]]
    equal = [row["name"] for row in compared if row["compared"]["equal"] == row["compared"]["documents"]]
    if equal:
        yield f"Equal to tokenmill's, id by id, in all {compared[0]['compared']['documents']:,} documents: {', '.join(equal)}."
    for row in compared:
        found = row["compared"]
        if not found["same"]:
            missing = found["documents"] - found["equal"]
            yield f"{row['name']} DIFFERS: {missing:,} of {found['documents']:,} documents are not as tokenmill wrote them."
        elif found["dropped_tokens"]:
            yield (
                f"{row['name']}: equal in {found['equal']:,} documents; the last {found['dropped_tokens']:,} tokens,"
                " which fill no row, are dropped."
            )


def peers_table(result: Result) -> str:
    """The figures as text."""
    text = f"{result['text_bytes'] / 1e6:.0f} MB of text in {result['documents']:,} documents, {result['files']} jsonl files"
    lines = [machine_line(result), f"{text}; {result['tokenizer']}; best of {result['rounds']} rounds", ""]
    lines.append(f"{'command':<84}{'seconds':>10}{'CPU s':>10}{'MB/s':>8}")
    for name, run in result["runs"].items():
        lines.append(f"{name:<84}{run['seconds']:>10.2f}{run['cpu']:>10.2f}{run['mb_per_second']:>8.3g}")
    return "\n".join([*lines, *bar_lines(result)])
