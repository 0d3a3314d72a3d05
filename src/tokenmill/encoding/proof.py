"""Which engine: the fastest of those that prove themselves.

Every engine that may run a tokenizer is put on trial in a process of its own. It must give the reference's ids on the
whole adversarial suite, and on documents of the corpus where there is one; one differing id and it is out, with the reason
kept. Those that agree are raced on a sample. What was found is remembered by the tokenizer's fingerprint and the versions
of engine, reference and suite, so all of this happens once: a second or two, then a few milliseconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.batch import text_array
from tokenmill.encoding import probes
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines import ONE_THREAD, Ids, Offsets, engine_version, runners
from tokenmill.encoding.guard import Ranges, attribute, describe, guards
from tokenmill.errors import TokenizerError

PATIENCE = 120.0  # seconds an engine may take over the suite before it counts as hung
RACE_SECONDS = 0.3  # of CPU, for each engine
CLOSE = 0.9  # the first of the engines is kept if no other is faster by more than this
SLOW_EVERY = 97  # slow references get a part of the suite, or it would take minutes
TYPICAL_RATE = 100e6  # bytes a second of a fast engine: what a slow tokenizer's user is missing
_BLOCK = 1 << 20
Answer = tuple[Ids, Offsets]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a trial found of one engine: whether it agrees with the reference, and why it is out if not.

    It may agree but for documents that hold a character in `guard`.
    """

    engine: str
    version: str
    agrees: bool
    why: str
    guard: Ranges = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """The engine to use, and why, in words for people."""

    engine: str
    version: str
    why: str
    guard: Ranges = ()
    verdicts: tuple[Verdict, ...] = ()


def choose(definition: Definition, corpus: Sequence[str] | None = None, wanted: str = "auto") -> Choice:
    """The fastest engine proved for this tokenizer, on this corpus if there is a sample of it; or the one wanted.

    An engine wanted by name must prove itself too: a TokenizerError says where it differs.
    """
    names = runners(definition)
    reference = definition.reference
    if reference not in names:
        raise TokenizerError(f"this tokenizer needs {reference}: pip install 'tokenmill[{reference}]'")
    if wanted in ("reference", reference):
        return Choice(reference, engine_version(reference), "chosen by hand; it is the reference")
    if wanted != "auto":
        if wanted not in names:
            raise TokenizerError(f"engine={wanted!r} cannot run this tokenizer; these may: {', '.join(names)}")
        names = [reference, wanted]
    kept = _Kept(definition.fingerprint)
    verdicts = {name: kept.verdict(name, reference) for name in names if name != reference}
    texts = list(corpus) if corpus is not None else _some_code() if wanted == "auto" else []
    key = _digest([*texts, *(f"{name} {engine_version(name)}" for name in names)])
    rates = kept.race(key) if wanted == "auto" else {}
    if (None in verdicts.values() or rates is None) and len(names) > 1:
        rates = _try(definition, kept, verdicts, texts, corpus is not None)
        kept.save(key, rates)
    proved = [verdict for verdict in verdicts.values() if verdict is not None and verdict.agrees]
    if wanted != "auto" and len(names) > 1 and not proved:
        refused = verdicts[wanted]
        assert refused is not None
        raise TokenizerError(
            f"engine={wanted!r} cannot be used with this tokenizer: {refused.why}; leave the choice to engine='auto'"
        )
    entered = rates if wanted == "auto" else None  # with one engine wanted, there is no race to win
    return _fastest(definition, [v for v in verdicts.values() if v is not None], entered or {}, corpus is not None)


def differing(expected: Answer, found: Answer) -> list[int]:
    """The documents whose ids differ."""
    if np.array_equal(expected[1], found[1]) and np.array_equal(expected[0], found[0]):
        return []
    return [
        i
        for i in range(len(expected[1]) - 1)
        if not np.array_equal(expected[0][expected[1][i] : expected[1][i + 1]], found[0][found[1][i] : found[1][i + 1]])
    ]


@dataclass(frozen=True, slots=True)
class Difference:
    """A text that an engine encodes otherwise than the reference."""

    text: str
    expected: list[int]
    found: list[int]

    @classmethod
    def of(cls, texts: Sequence[str], expected: Answer, found: Answer, i: int) -> Difference:
        """That of document `i`."""
        ids = (side[0][side[1][i] : side[1][i + 1]].tolist() for side in (expected, found))
        return cls(texts[i], *ids)

    @property
    def position(self) -> int:
        """The first token that differs."""
        pairs = zip(self.expected, self.found, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(self.expected), len(self.found)))

    def __str__(self) -> str:
        at = self.position
        low = max(0, at - 4)

        def shown(ids: list[int]) -> str:
            dots = ("... " if low else "", " ..." if len(ids) > at + 12 else "")
            return f"[{dots[0]}{', '.join(map(str, ids[low : at + 12]))}{dots[1]}]"

        return f"first at token {at}: {shown(self.expected)} by the reference, {shown(self.found)} by the engine"


def refuse(definition: Definition, engine: str, why: str) -> None:
    """Write down that an engine was caught giving other ids than the reference: it is not to be chosen again."""
    kept = _Kept(definition.fingerprint)
    kept.put(Verdict(engine, engine_version(engine), False, why), definition.reference)
    kept.save(None, None)


def cache_folder() -> Path:
    """Where tokenmill keeps what it learned: TOKENMILL_CACHE, or tokenmill in the user's cache folder."""
    own = os.environ.get("TOKENMILL_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokenmill"


def read_kept(path: Path) -> dict[str, Any] | None:
    """What `write_kept` wrote; None where it is not there or not whole."""
    try:
        checksum, body = path.read_bytes().split(b"\n", 1)
        if checksum == hashlib.sha256(body).hexdigest().encode():
            return dict(json.loads(body))
    except (OSError, ValueError):
        pass
    return None


def write_kept(path: Path, value: dict[str, Any]) -> None:
    """Keep something learned, whole or not at all. Only a cache: a read-only home is no reason to fail."""
    body = json.dumps(value).encode()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(f".{os.getpid()}.tmp")
        beside.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        os.replace(beside, path)


def _try(
    definition: Definition,
    kept: _Kept,
    verdicts: dict[str, Verdict | None],
    texts: list[str],
    is_corpus: bool,
) -> dict[str, float]:
    """Hold trials: fills in what is missing of `verdicts`; returns the rate of each engine that agrees."""
    reference = definition.reference
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tokenmill-")))
        definition.save(folder)
        alive = [name for name, verdict in verdicts.items() if verdict is None or verdict.agrees]
        if not alive:
            return {}
        trials = {name: stack.enter_context(Trial(name, folder)) for name in [reference, *alive]}
        suite = list(_corpus_part(texts)) if is_corpus else []
        if None in verdicts.values():
            suite += probes.probes(definition, SLOW_EVERY if reference == "python" else 1)
        write_texts(folder / "suite.arrow", suite)
        write_texts(folder / "sample.arrow", texts)
        for trial in trials.values():
            trial.ask(encode=str(folder / "suite.arrow"), out=str(folder / trial.engine))
        expected = trials[reference].ids(folder)
        if isinstance(expected, str):
            raise TokenizerError(f"the reference, {reference}, cannot run this tokenizer: {expected}")
        for name in alive:
            found = trials[name].ids(folder)
            if isinstance(found, str):
                seen = Verdict(name, engine_version(name), False, found)
            else:
                again = _both(trials[reference], trials[name], folder)
                seen = _verdict(definition, name, suite, (expected, found), verdicts[name], again)
            verdicts[name] = kept.put(seen, reference)
        rates = {}
        for name, trial in trials.items() if texts else ():
            verdict = verdicts.get(name)
            if verdict is None or verdict.agrees:
                rates[name] = trial.time(folder / "sample.arrow", RACE_SECONDS).get("rate", 0.0)
        return rates


def _verdict(
    definition: Definition,
    engine: str,
    suite: list[str],
    answers: tuple[Answer, Answer],
    before: Verdict | None,
    again: Callable[[list[str]], list[int]],
) -> Verdict:
    """What the ids of an engine say of it, beside the reference's. Where they differ, `again` finds out more."""
    reference, version = definition.reference, engine_version(engine)
    guard = before.guard if before is not None else ()
    differ = [i for i in differing(*answers) if not guards(guard, suite[i])]
    if before is not None and not differ:
        return before
    if differ:
        found = attribute(suite, differ, probes.vocabulary_characters(definition), again)
        if found is None:
            first = Difference.of(suite, *answers, differ[0])
            why = f"differs from {reference} on {first.text[:20]!r}, at token {first.position}"
            why += f", and on {len(differ) - 1:,} more of {len(suite):,} texts" if len(differ) > 1 else ""
            return Verdict(engine, version, False, why)
        guard = (*guard, *found) if guard else found
    why = f"agrees with {reference} {engine_version(reference)} on {len(suite):,} texts"
    if guard:
        why += f", but for those with {describe(guard)}, which are left to {reference}"
    return Verdict(engine, version, True, why, tuple(sorted(guard)))


def _both(reference: Trial, trial: Trial, folder: Path) -> Callable[[list[str]], list[int]]:
    """A function that has an engine and the reference encode texts, and tells which differ: all, if there is no answer."""

    def again(texts: list[str]) -> list[int]:
        write_texts(folder / "again.arrow", texts)
        answers = []
        for one in (reference, trial):
            one.ask(encode=str(folder / "again.arrow"), out=str(folder / one.engine))
            answers.append(one.ids(folder))
        right, found = answers
        if isinstance(right, str) or isinstance(found, str):
            return list(range(len(texts)))
        return differing(right, found)

    return again


def _fastest(definition: Definition, verdicts: list[Verdict], rates: dict[str, float], is_corpus: bool) -> Choice:
    reference = definition.reference
    proved = {verdict.engine: verdict for verdict in verdicts if verdict.agrees}
    refused = [f"{verdict.engine} {verdict.why}" for verdict in verdicts if not verdict.agrees]
    entered = [name for name in (*proved, reference) if rates.get(name, 0) > 0] or [*proved, reference]
    best = entered[0]
    for name in entered[1:]:
        if rates.get(name, 0) * CLOSE > rates.get(best, 0):
            best = name
    shown = ", ".join(f"{name} {rates[name] / 1e6:.3g}" for name in entered if name in rates)
    if best == "python":
        rate = rates.get("python") or 1e5
        why = f"slow Python tokenizer; a tokenizer.json would be about {max(1, round(TYPICAL_RATE / rate)):,}x faster"
    elif best == reference:
        why = f"no other engine can run it ({'; '.join(refused)})" if refused and not proved else "it is the reference"
    else:
        where = "a sample of this corpus" if is_corpus else "a sample of code"
        race = f"; fastest on {where} (MB/s a core: {shown})" if shown else ""
        out = f"; refused: {'; '.join(refused)}" if refused else ""
        why = f"{proved[best].why}{race}{out}"
    guard = proved[best].guard if best in proved else ()
    return Choice(best, engine_version(best), why, guard, tuple(verdicts))


class _Kept:
    """What is remembered of one tokenizer: verdicts and races. A damaged or missing file is an empty one."""

    def __init__(self, fingerprint: str) -> None:
        self._path = cache_folder() / "proofs" / f"{fingerprint}.json"
        self._body = read_kept(self._path) or {"verdicts": {}, "races": {}}

    def verdict(self, engine: str, reference: str) -> Verdict | None:
        found = self._body["verdicts"].get(self._key(engine, reference))
        return None if found is None else Verdict(**{**found, "guard": tuple(map(tuple, found["guard"]))})

    def put(self, verdict: Verdict, reference: str) -> Verdict:
        self._body["verdicts"][self._key(verdict.engine, reference)] = asdict(verdict)
        return verdict

    def race(self, key: str) -> dict[str, float] | None:
        found: dict[str, float] | None = self._body["races"].get(key)
        return found

    def save(self, key: str | None, rates: dict[str, float] | None) -> None:
        if key is not None:
            self._body["races"] = dict([*self._body["races"].items()][-99:]) | {key: rates}
        write_kept(self._path, self._body)

    @staticmethod
    def _key(engine: str, reference: str) -> str:
        versions = f"{engine} {engine_version(engine)}, {reference} {engine_version(reference)}"
        return f"{versions}, tokenmill {engine_version('bytes')}, suite {probes.VERSION}"


class Trial:
    """An engine in a process of its own, from the parent's side."""

    def __init__(self, engine: str, folder: Path, **environment: str) -> None:
        self.engine = engine
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tokenmill.encoding.trial"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**ONE_THREAD, **os.environ, **environment},
        )
        self._buffer = b""
        self._ended = ""
        self.ask(folder=str(folder), engine=engine, path=sys.path)

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, **request: Any) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it died: the answer will say so
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def ids(self, folder: Path) -> Answer | str:
        """What it made of the suite; or, in words, why there is nothing."""
        answer = self._answer("encoded")
        if "refused" in answer:
            return f"cannot run it: {answer['refused']}"
        lengths = np.load(folder / f"{self.engine}.lengths.npy")
        return np.load(folder / f"{self.engine}.ids.npy"), np.concatenate(([0], np.cumsum(lengths)))

    def time(self, path: Path, limit: float | None = None, documents: int | None = None) -> dict[str, float]:
        """How fast it encodes the texts of a file, so many documents a call; empty where it does not."""
        self.ask(time=str(path), seconds=limit, documents=documents)
        answer = self._answer("rate")
        return {} if "refused" in answer else answer

    def _answer(self, key: str) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while not self._ended:
            for answer in self._lines(until):
                if "refused" in answer:
                    self._ended = answer["refused"]
                elif key in answer:
                    return answer
        return {"refused": self._ended}

    def _lines(self, until: float) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], max(0, until - time.monotonic()))
        chunk = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
        if not chunk:
            self._ended = (
                f"no answer in {PATIENCE:.0f} s" if not ready else f"it crashed ({_how(self._process.wait())})"
            )
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in lines:
            try:
                answer = json.loads(line)
            except ValueError:  # something printed before the trial took over standard output
                continue
            if isinstance(answer, dict):
                yield answer


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit {code}"


def _some_code() -> list[str]:
    """Text that is on every machine: modules of the standard library, about 2 MB."""
    texts: list[str] = []
    size = 0
    for path in sorted(Path(json.__file__).parent.parent.glob("*.py")):
        with suppress(OSError):
            texts.append(path.read_text("utf-8", errors="ignore"))
            size += len(texts[-1])
        if size > 2_000_000:
            break
    return texts


def _corpus_part(texts: list[str]) -> Iterator[str]:
    """Documents of the corpus for the reference: spread over the sample, about half a MB, and none too long."""
    short = [text for text in texts if len(text) <= 50_000]
    held = 0
    for text in short[:: max(1, sum(map(len, short)) // 500_000)]:
        held += len(text)
        if held > 1_000_000:
            return
        yield text


def write_texts(path: Path, texts: list[str]) -> None:
    """Texts as an Arrow file, in blocks of a good size for engines."""
    import pyarrow as pa

    schema = pa.schema([("text", pa.large_string())])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        start = size = 0
        for i, text in enumerate(texts):
            size += len(text)
            if size >= _BLOCK or i == len(texts) - 1:
                writer.write_batch(pa.record_batch([text_array(texts[start : i + 1])], schema=schema))
                start, size = i + 1, 0


def _digest(texts: Sequence[str]) -> str:
    found = hashlib.sha256()
    for text in texts:
        found.update(f"{len(text)} ".encode())
        found.update(text.encode())
    return found.hexdigest()[:32]
