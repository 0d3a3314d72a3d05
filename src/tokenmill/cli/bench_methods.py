"""What `tokenmill bench` measures: the reference in two ways, each exact engine, and whole builds; all compared id by id.

Every method runs in turn, several times, in new processes; the best time of each counts, by the clock. Loading the engine is not
part of it, except in builds.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.cli.bench_text import BenchText
from tokenmill.errors import StoreError
from tokenmill.formatting import some

if TYPE_CHECKING:
    from tokenmill.encoding.selection.verdicts import Choice, Encoded
    from tokenmill.encoding.tokenizer import Tokenizer

SECONDS = 2.5  # that one run of a method may take, about; a slower one runs on a part of the text
PROBE_BYTES = 500_000  # of text, from which the speed of a method is estimated
SAMPLE_BYTES = 4_000_000  # of text, on which engines are compared before any is measured
IN_PARALLEL = {"TOKENIZERS_PARALLELISM": "true", "RAYON_NUM_THREADS": ""}


@dataclass(slots=True)
class Method:
    """A way to tokenize, and the best of its runs. `failed` says why there is none."""

    name: str
    engine: str = ""  # without one, it is a build
    guard: Any = ()
    environment: dict[str, str] = field(default_factory=dict)
    workers: int = 0
    part: range = range(0)
    best: dict[str, float] = field(default_factory=dict)
    failed: str = ""
    compared: int = 0
    differing: int = 0


class Digests:
    """The ids of each document, by the first method that encoded it: the reference, where it did."""

    def __init__(self) -> None:
        self._first: dict[int, bytes] = {}

    def compare(self, method: Method, documents: Iterable[Any]) -> None:
        """Count the documents of a method's part that were known before, and those of them with other ids."""
        import numpy as np

        method.compared = method.differing = 0
        for number, ids in zip(method.part, documents, strict=True):
            digest = hashlib.blake2b(np.asarray(ids, np.uint32).tobytes(), digest_size=16).digest()
            known = self._first.setdefault(number, digest)
            method.compared += 1
            method.differing += known != digest


def measure(tokenizer: Tokenizer, text: BenchText, rounds: int, folder: Path) -> tuple[list[Method], Choice]:
    """All methods with their best times, slowest first as they are listed, and what is known about the engines."""
    from tokenmill.building.machine import usable_cores
    from tokenmill.encoding.selection.choosing import choose

    _say("comparing every engine with the reference")
    sample = [text.texts[number] for number in text.part(SAMPLE_BYTES)]
    choice = choose(tokenizer.definition, sample)
    tokenizer.definition.save(folder)
    text.save(folder / "text.jsonl")
    methods = list_methods(tokenizer.definition.reference, choice, usable_cores())
    digests = Digests()
    for turn in range(rounds):
        for method in (method for method in methods if not method.failed):
            _say(f"{method.name}, round {turn + 1} of {rounds}")
            if method.engine:
                _run_engine(method, text, folder, digests)
            else:
                _run_build(method, text, tokenizer, folder, digests)
    return methods, choice


def list_methods(reference: str, choice: Choice, cores: int) -> list[Method]:
    """The methods in the order of the table."""
    methods = [Method(f"{reference}, one document at a time", reference)]
    if reference == "tokenizers":
        methods.append(Method(f"tokenizers, encode_batch, {some(cores, 'core')}", reference, environment=IN_PARALLEL))
    for verdict in reversed(choice.verdicts):
        if verdict.agrees:
            methods.append(Method(f"{verdict.engine}, one process", verdict.engine, verdict.guard))
    methods += [Method(f"tokenmill build, {some(count, 'worker')}", workers=count) for count in sorted({1, cores})]
    return methods


def _run_engine(method: Method, text: BenchText, folder: Path, digests: Digests) -> None:
    """Time an engine in a process of its own, and compare its ids."""
    from tokenmill.encoding.selection.trial import Trial

    if not method.part:
        method.part = _part_in_time(method, text, folder)
    with Trial(method.engine, folder, **method.environment) as trial:
        if method.guard:
            trial.ask(guard=method.guard)
        found = trial.time_and_encode(_texts_file(text, method.part, folder))
    if isinstance(found, str):
        method.failed = found
        return
    run, encoded = found
    _keep(method, run["wall"], int(run["tokens"]))
    digests.compare(method, _documents(encoded))


def _part_in_time(method: Method, text: BenchText, folder: Path) -> range:
    """As much of the text as the engine encodes in `SECONDS`, about; found out with a small part."""
    from tokenmill.encoding.selection.trial import Trial

    probe = text.part(PROBE_BYTES)
    if probe.step == 1:
        return probe
    with Trial(method.engine, folder, **method.environment) as trial:
        run = trial.time(_texts_file(text, probe, folder))
    rate = run["bytes"] / max(run["wall"], 1e-9) if run else 0.0
    return text.part(max(rate * SECONDS, PROBE_BYTES))


def _texts_file(text: BenchText, part: range, folder: Path) -> Path:
    """The texts of a part as a file that trials read."""
    from tokenmill.encoding.selection.trial import write_texts

    path = folder / f"every-{part.step}.arrow"
    if not path.exists():
        write_texts(path, [text.texts[number] for number in part])
    return path


def _documents(encoded: Encoded) -> Iterable[Any]:
    ids, offsets = encoded
    return (ids[start:end] for start, end in pairwise(offsets))


def _run_build(method: Method, text: BenchText, tokenizer: Tokenizer, folder: Path, digests: Digests) -> None:
    """Time a whole build with a check of all checksums, and compare its ids. No eos is added: ids are the engine's."""
    from concurrent.futures import ThreadPoolExecutor
    from shutil import rmtree

    from tokenmill.building.api import build

    method.part, done = range(len(text.texts)), threading.Event()
    options: dict[str, Any] = {"workers": method.workers, "eos": "none", "progress": "quiet"}
    with ThreadPoolExecutor(1) as thread:
        peak = thread.submit(_peak_memory, done)
        began = time.perf_counter()
        try:
            store = build(folder / "text.jsonl", tokenizer, folder / "store", **options)
            damage = store.verify()
            seconds = time.perf_counter() - began
        finally:
            done.set()
    if damage or len(store) != len(text.texts):
        raise StoreError(f"the store has {some(len(store), 'document')} of {len(text.texts):,}: {damage[:3]}")
    peak_bytes = max(peak.result(), int(method.best.get("peak_bytes", 0)))
    _keep(method, seconds, store.num_tokens)
    method.best["peak_bytes"] = peak_bytes
    digests.compare(method, store[:])
    rmtree(store.path)


def _keep(method: Method, seconds: float, tokens: int) -> None:
    if not method.best or seconds < method.best["seconds"]:
        method.best = {"seconds": seconds, "tokens": tokens}


def _peak_memory(done: threading.Event) -> int:
    """The peak memory of this process and its children together, sampled every 20 ms until `done` is set."""
    import psutil

    from tokenmill.building.machine import resident_bytes

    process, peak = psutil.Process(), 0
    while not done.wait(0.02):
        pids = [process.pid, *(child.pid for child in process.children(recursive=True))]
        peak = max(peak, sum(map(resident_bytes, pids)))
    return peak


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
