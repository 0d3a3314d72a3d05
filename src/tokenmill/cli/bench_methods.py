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

from tokenmill.child_process import ChildDied
from tokenmill.cli.bench_text import BenchText
from tokenmill.encoding.engines import engine_traits
from tokenmill.errors import StoreError, TokenmillError
from tokenmill.formatting import some

if TYPE_CHECKING:
    from tokenmill.encoding.selection.choosing import Choice
    from tokenmill.encoding.selection.examination import Encoded, Examined
    from tokenmill.encoding.tokenizer import Tokenizer

SECONDS = 2.5  # that one run of an engine may take, about; a slower one runs on a part of the text
BUILD_SECONDS = 10.0  # the same for a build, by the speed of the engines
VALIDATION_SECONDS = 20.0  # the same for the fastest way to run the reference, with `--validate`
PROBE_BYTES = 500_000  # of text, from which the speed of a method is estimated


@dataclass(slots=True)
class Method:
    """A way to tokenize, and the best of its runs. `failed` says why there is none."""

    name: str
    engine: str = ""  # without one, it is a build
    guard: Any = ()
    threads: bool = False  # it may use all cores
    workers: int = 0
    seconds: float = SECONDS
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


def measure(
    tokenizer: Tokenizer, text: BenchText, rounds: int, folder: Path, *, validate: bool
) -> tuple[list[Method], Choice]:
    """All methods with their best times, slowest first as they are listed, and what is known about the engines.

    `validate`: the reference encodes all of the text if it can in `VALIDATION_SECONDS`.
    """
    from tokenmill.building.machine import usable_cores
    from tokenmill.encoding.gpu.engine import GpuEngine, remember_rates
    from tokenmill.encoding.selection.choosing import choose

    definition = tokenizer._definition
    _say("comparing the fast engine with the reference")
    choice = choose(definition)
    proved = [choice] if choice.engine != definition.reference else []
    if GpuEngine.is_installed() and not GpuEngine.refusal(definition):
        proved.append(choose(definition, GpuEngine.name))
    definition.save(folder)
    methods = list_methods(definition.reference, proved, usable_cores(), validate=validate)
    digests = Digests()
    for turn in range(rounds):
        for method in (method for method in methods if not method.failed):
            _say(f"{method.name}, round {turn + 1} of {rounds}")
            if method.engine:
                _run_engine(method, text, folder, digests)
            else:
                fastest = max((_rate(each, text) for each in methods if each.engine and each.best), default=0.0)
                method.part = method.part or text.part(max(BUILD_SECONDS * fastest, PROBE_BYTES))
                _run_build(method, text, tokenizer, folder, digests)
    remember_rates(definition, {each.engine: _rate(each, text) for each in methods if each.engine and each.best})
    return methods, choice


def list_methods(reference: str, proved: list[Choice], cores: int, *, validate: bool) -> list[Method]:
    """The methods in the order of the table."""
    methods = [Method(f"{reference}, one document at a time", reference)]
    if reference == "tokenizers":
        methods.append(Method(f"tokenizers, encode_batch, {some(cores, 'core')}", reference, threads=True))
    methods[-1].seconds = VALIDATION_SECONDS if validate else SECONDS
    methods += [Method(f"{each.engine}, one process", each.engine, each.guard) for each in proved]
    methods += [Method(f"tokenmill build, {some(count, 'worker')}", workers=count) for count in sorted({1, cores})]
    return methods


def _rate(method: Method, text: BenchText) -> float:
    return sum(text.sizes[number] for number in method.part) / max(method.best["seconds"], 1e-9)


def _run_engine(method: Method, text: BenchText, folder: Path, digests: Digests) -> None:
    """Time an engine in a process of its own, and compare its ids."""
    from tokenmill.encoding.selection.examination import Examined

    with Examined(method.engine, threads=method.threads) as engine:
        try:
            _encode(engine, method, text, folder, text.part(1))  # loads it
            method.part = method.part or _part_in_time(engine, method, text, folder)
            encoded, run = _encode(engine, method, text, folder, method.part)
        except (ChildDied, OSError, RuntimeError, TokenmillError) as error:
            method.failed = f"cannot run it: {error}"
            return
    _keep(method, run["wall"], len(encoded[0]))
    digests.compare(method, _documents(encoded))


def _part_in_time(engine: Examined, method: Method, text: BenchText, folder: Path) -> range:
    """As much of the text as the engine encodes in the seconds of the method, about; found out with a small part."""
    probe = text.part(PROBE_BYTES)
    if probe.step == 1:
        return probe
    _, run = _encode(engine, method, text, folder, probe)
    return text.part(max(run["bytes"] / max(run["wall"], 1e-9) * method.seconds, PROBE_BYTES))


def _encode(
    engine: Examined, method: Method, text: BenchText, folder: Path, part: range
) -> tuple[Encoded, dict[str, float]]:
    texts = [text.texts[number] for number in part]
    engine.ask(folder, texts, engine_traits(method.engine).best_batch_bytes, guard=method.guard)
    return engine.timed()


def _documents(encoded: Encoded) -> Iterable[Any]:
    ids, offsets = encoded
    return (ids[start:end] for start, end in pairwise(offsets))


def _run_build(method: Method, text: BenchText, tokenizer: Tokenizer, folder: Path, digests: Digests) -> None:
    """Time a whole build with a check of all checksums, and compare its ids. No eos is added: ids are the engine's."""
    from concurrent.futures import ThreadPoolExecutor
    from shutil import rmtree

    from tokenmill.building.api import build

    done = threading.Event()
    source = folder / f"{method.part.step}.jsonl"
    if not source.exists():
        text.save(source, method.part)
    options: dict[str, Any] = {"workers": method.workers, "eos": "none", "progress": "quiet"}
    with ThreadPoolExecutor(1) as thread:
        peak = thread.submit(_peak_memory, done)
        began = time.perf_counter()
        try:
            store = build(source, tokenizer, folder / "store", **options)
            damage = store.verify()
            seconds = time.perf_counter() - began
        finally:
            done.set()
    if damage or len(store) != len(method.part):
        raise StoreError(f"the store has {some(len(store), 'document')} of {len(method.part):,}: {damage[:3]}")
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
