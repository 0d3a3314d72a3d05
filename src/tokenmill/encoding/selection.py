"""Which engine: the fastest of those that prove themselves.

Every engine that may run a tokenizer is put on trial in a process of its own. It must give the reference's ids on the
whole adversarial suite, and on documents of the corpus where there is one; one differing id and it is out, with the reason
kept. Those that agree are raced on a sample. What was found is remembered by the tokenizer's fingerprint and the versions
of engine, reference and suite, so all of this happens once: a few seconds, then a few milliseconds.
"""

from __future__ import annotations

import json
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tokenmill.encoding import probes
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines import engine_version, runners
from tokenmill.encoding.guard import Ranges, attribute, describe, guards, merged
from tokenmill.encoding.trial import BLOCK_BYTES, Answer, Trial, write_texts
from tokenmill.errors import TokenizerError
from tokenmill.user_cache import cache_folder, read_cached, write_cached

RACE_TURNS = 8  # in which engines take a sample, at most: large ones, as in a build, where some engines do better
FAR_BEHIND = 3  # times slower than the fastest
CLOSE = 0.9  # the first of the engines is kept if no other is faster by more than this


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


def choose(
    definition: Definition,
    corpus: Sequence[str] | Callable[[], Sequence[str]] | None = None,
    wanted: str = "auto",
    corpus_key: str = "",
) -> Choice:
    """The fastest engine proved for this tokenizer, on this corpus if there is a sample of it; or the one wanted.

    The outcome is remembered for a `corpus_key` that stands for the corpus; a sample that is a function is asked for only
    if there is something to find out. An engine wanted by name must prove itself too: a TokenizerError says where it
    differs.
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
    races = wanted == "auto"  # with one engine wanted, there is no race to win
    key = None
    if races and (corpus is None or corpus_key):  # a sample that nothing stands for is not remembered
        key = " ".join([corpus_key, *(f"{name} {engine_version(name)}" for name in names)])
    rates = None if key is None else kept.race(key)
    if (None in verdicts.values() or (races and rates is None)) and len(names) > 1:
        if corpus is None:
            texts = _some_code() if races else []
        else:
            texts = list(corpus() if callable(corpus) else corpus)
        rates = _try(definition, kept, verdicts, texts, corpus is not None)
        kept.save(key, rates)
    found = [verdict for verdict in verdicts.values() if verdict is not None]
    if not races and not found[0].agrees:
        raise TokenizerError(
            f"engine={wanted!r} cannot be used with this tokenizer: {found[0].why}; leave the choice to engine='auto'"
        )
    return _fastest(definition, found, rates or {} if races else {}, corpus is not None)


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
            suite += probes.probes(definition)
        write_texts(folder / "suite.arrow", suite)
        for trial in trials.values():
            trial.ask(encode=str(folder / "suite.arrow"), out=str(folder / trial.engine))
        expected = trials[reference].ids(folder)
        if isinstance(expected, str):
            raise TokenizerError(
                f"the reference, {reference}, cannot run this tokenizer: {expected}. If the machine is short of time, memory"
                " or disk, try again when it is not"
            )
        for name in alive:
            found = trials[name].ids(folder)
            if isinstance(found, str):
                seen = Verdict(name, engine_version(name), False, found)
            else:
                again = _both(trials[reference], trials[name], folder)
                seen = _verdict(definition, name, suite, (expected, found), verdicts[name], again)
            verdicts[name] = seen if trials[name].passing else kept.put(seen, reference)
            if seen.guard:
                trials[name].ask(guard=seen.guard)
        return _race(trials[reference], [trials[n] for n in alive if _may_run(verdicts[n])], texts, folder)


def _may_run(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.agrees


def _race(reference: Trial, others: list[Trial], texts: list[str], folder: Path) -> dict[str, float]:
    """The rate of each engine: bytes of text a second of CPU, in the later half of the texts.

    They take turns at every part of the texts, so that a machine that is slow for a moment is so for all. The earlier half
    fills their caches, and the later half is done twice, since in a long build most words have been seen before: new text
    and old count alike. One that is far behind need not go on; the reference, which mostly is, gets a small part first.
    """
    trials = [*others, reference]
    parts = list(_parts(texts, max(sum(map(len, texts)) / RACE_TURNS, BLOCK_BYTES)))
    late = len(parts) // 2
    done = {trial.engine: [0.0, 0.0] for trial in trials}
    rates: dict[str, float] = {}
    for turn, part in enumerate(parts):
        path = folder / "part.arrow"
        write_texts(path, part)
        for trial in trials:
            early = turn < (1 if trial is reference else 2)
            behind = not early and rates[trial.engine] < max(rates.values()) / FAR_BEHIND
            if early and trial is reference:
                write_texts(path, next(_parts(part, 100_000)))
            took = [] if behind else [trial.time(path) for _ in range(1 if turn < late else 2)]
            if turn == late:
                done[trial.engine] = [0.0, 0.0]
            if took and all(took):
                done[trial.engine][0] += sum(one["bytes"] for one in took)
                done[trial.engine][1] += sum(one["cpu"] for one in took)
                rates[trial.engine] = done[trial.engine][0] / max(done[trial.engine][1], 1e-9)
            elif not behind:  # it failed, however fast it was before
                rates[trial.engine] = 0.0
    return rates


def _parts(texts: list[str], size: float) -> Iterator[list[str]]:
    part: list[str] = []
    held = 0
    for text in texts:
        part.append(text)
        held += len(text)
        if held >= size:
            yield part
            part, held = [], 0
    if part:
        yield part


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
        guard = merged((*guard, *found))
    why = f"agrees with {reference} {engine_version(reference)} on {len(suite):,} texts"
    if guard:
        why += f", but for those with {describe(guard)}, which are left to {reference}"
    return Verdict(engine, version, True, why, guard)


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
    if best == reference:
        why = f"no other engine can run it ({'; '.join(refused)})" if refused and not proved else "it is the reference"
    else:
        where = "a sample of this corpus" if is_corpus else "a sample of code"
        close = "" if rates.get(best, 0) >= max(rates.values(), default=0) else "about the "
        race = f"; {close}fastest on {where} (MB/s a core: {shown})" if shown else ""
        out = f"; refused: {'; '.join(refused)}" if refused else ""
        why = f"{proved[best].why}{race}{out}"
    guard = proved[best].guard if best in proved else ()
    return Choice(best, engine_version(best), why, guard, tuple(verdicts))


class _Kept:
    """What is remembered of one tokenizer: verdicts and races. A damaged or missing file is an empty one."""

    def __init__(self, fingerprint: str) -> None:
        self._path = cache_folder() / "proofs" / f"{fingerprint}.json"
        self._body = read_cached(self._path) or {"verdicts": {}, "races": {}}

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
        """Keep what was found, beside what others found in the meantime; a refusal stands whoever found it."""
        now = read_cached(self._path) or {"verdicts": {}, "races": {}}
        for name, verdict in now["verdicts"].items():
            if name not in self._body["verdicts"] or not verdict["agrees"]:
                self._body["verdicts"][name] = verdict
        races = {**now["races"], **self._body["races"]} | ({} if key is None else {key: rates})
        write_cached(self._path, {"verdicts": self._body["verdicts"], "races": dict([*races.items()][-100:])})

    @staticmethod
    def _key(engine: str, reference: str) -> str:
        versions = f"{engine} {engine_version(engine)}, {reference} {engine_version(reference)}"
        suite = f"suite {probes.VERSION} of Unicode {unicodedata.unidata_version}"
        return f"{versions}, tokenmill {engine_version('bytes')}, {suite}"


def _some_code() -> list[str]:
    """Text that is on every machine: modules of the standard library, about 4 MB."""
    texts: list[str] = []
    size = 0
    for path in sorted(Path(json.__file__).parent.parent.glob("*.py")):
        with suppress(OSError):
            texts.append(path.read_text("utf-8", errors="ignore"))
            size += len(texts[-1])
        if size > 4_000_000:
            break
    return texts


def _corpus_part(texts: list[str]) -> Iterator[str]:
    """Documents of the corpus for the reference: spread over the sample, about half a MB, and none too long."""
    short = [text[:50_000] for text in texts]
    held = 0
    for text in short[:: max(1, sum(map(len, short)) // 500_000)]:
        held += len(text)
        if held > 1_000_000:
            return
        yield text
