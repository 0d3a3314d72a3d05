"""Which engine encodes: the fastest one that gives the same ids as the reference.

Each engine that can run a tokenizer is put on trial in a process of its own. It must give the reference's ids on all
probes, and on documents of the corpus if there is one. One differing id excludes it. The engines that agree are raced on
a sample. Verdicts and races are cached by the tokenizer's fingerprint and the versions of engine, reference and probes,
so this takes a few seconds once, and a few milliseconds after that.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines import engine_traits, engine_version, runners
from tokenmill.encoding.engines.guarded import describe, guards, merged
from tokenmill.encoding.selection import probes
from tokenmill.encoding.selection.race import race
from tokenmill.encoding.selection.rare_characters import explain_differences
from tokenmill.encoding.selection.trial import Trial, write_texts
from tokenmill.encoding.selection.verdicts import Choice, Difference, Encoded, Verdict, VerdictCache, differing
from tokenmill.errors import TokenizerError

CLOSE = 0.9  # an engine must be faster than 1 / 0.9 times the one before it in the list to be preferred
CODE_CHARACTERS = 4_000_000  # the sample where there is no corpus
CORPUS_PROBES = 500_000  # characters of the corpus that the reference encodes, about
# Documents for probes and the race. None: there is no corpus, and the race is on a sample of code.
Corpus = Sequence[str] | Callable[[], Sequence[str]] | None


def choose(definition: Definition, corpus: Corpus = None, wanted: str = "auto", corpus_key: str = "") -> Choice:
    """Return the fastest engine proved for this tokenizer, on a sample of a corpus if one is given.

    `corpus_key` identifies the corpus in the cache; without one, a race on a corpus is not cached. A sample given as a
    function is read only if it is needed. `wanted` names an engine to use instead, or "reference"; a TokenizerError says
    why an engine cannot be used.
    """
    reference, names = definition.reference, runners(definition)
    if reference not in names:
        raise TokenizerError(f"this tokenizer needs {reference}: pip install 'tokenmill[{reference}]'")
    if wanted in ("reference", reference):
        return Choice(reference, engine_version(reference), "chosen by hand; it is the reference")
    if wanted not in ("auto", *names):
        raise TokenizerError(f"engine={wanted!r} cannot run this tokenizer; these may: {', '.join(names)}")
    if wanted != "auto":
        return _prove(definition, wanted, corpus)
    race_key = None
    if corpus is None or corpus_key:
        race_key = " ".join([corpus_key, *(f"{name} {engine_version(name)}" for name in names)])
    return _race_all(definition, names, corpus, race_key)


def _prove(definition: Definition, engine: str, corpus: Corpus) -> Choice:
    """Use this engine if it agrees with the reference. There is no race."""
    cache = VerdictCache(definition)
    verdict = cache.verdict(engine)
    if verdict is None:
        [verdict], _ = _hold_trials(definition, cache, {engine: None}, _documents(corpus), [])
        cache.save()
    if not verdict.agrees:
        raise TokenizerError(
            f"engine={engine!r} cannot be used with this tokenizer: {verdict.why}; leave the choice to engine='auto'"
        )
    return Choice(engine, engine_version(engine), verdict.why, verdict.guard, (verdict,))


def _race_all(definition: Definition, names: list[str], corpus: Corpus, race_key: str | None) -> Choice:
    """Use the fastest of all engines that agree with the reference. What is in the cache is not found out again."""
    cache = VerdictCache(definition)
    cached = {name: cache.verdict(name) for name in names if name != definition.reference}
    verdicts = [verdict for verdict in cached.values() if verdict is not None]
    rates = None if race_key is None else cache.race(race_key)
    if cached and (rates is None or len(verdicts) < len(cached)):
        documents = _documents(corpus)
        verdicts, rates = _hold_trials(definition, cache, cached, documents, _code() if corpus is None else documents)
        cache.save(race_key, rates)
    where = "a sample of code" if corpus is None else "a sample of this corpus"
    return _fastest(definition.reference, verdicts, rates or {}, where)


def _documents(corpus: Corpus) -> list[str]:
    return list(corpus() if callable(corpus) else corpus or ())


def _hold_trials(
    definition: Definition, cache: VerdictCache, cached: dict[str, Verdict | None], corpus: list[str], texts: list[str]
) -> tuple[list[Verdict], dict[str, float]]:
    """Judge the engines on probes and on the corpus, and race those that agree on `texts`.

    An engine that was judged before only has to agree on the corpus. One that was refused before is not tried again.
    Returns all verdicts, and the rate of each engine in the race.
    """
    verdicts = {name: verdict for name, verdict in cached.items() if verdict is not None}
    names = [name for name in cached if name not in verdicts or verdicts[name].agrees]
    if not names:
        return list(verdicts.values()), {}
    suite = list(_spread(corpus))
    if len(verdicts) < len(cached):
        suite += probes.probes(definition)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tokenmill-")))
        definition.save(folder)
        reference = stack.enter_context(Trial(definition.reference, folder))
        trials = {name: stack.enter_context(Trial(name, folder)) for name in names}
        judge = _Judge(definition, suite, reference, trials.values(), folder)
        for name, trial in trials.items():
            verdicts[name] = judge.verdict(trial, cached[name])
            if not trial.temporary:
                cache.put(verdicts[name])
            if verdicts[name].guard:
                trial.ask(guard=verdicts[name].guard)
        agreeing = [trial for name, trial in trials.items() if verdicts[name].agrees]
        return [verdicts[name] for name in cached], race(reference, agreeing, texts, folder)


class _Judge:
    """Compares the ids of engines with those of the reference."""

    def __init__(
        self, definition: Definition, suite: list[str], reference: Trial, trials: Iterable[Trial], folder: Path
    ) -> None:
        """Let all engines encode the suite at the same time, and wait for the reference."""
        self._definition, self._suite, self._reference, self._folder = definition, suite, reference, folder
        write_texts(folder / "suite.arrow", suite)
        for trial in (reference, *trials):
            trial.ask_encode(folder / "suite.arrow")
        expected = reference.encoded()
        if isinstance(expected, str):
            raise TokenizerError(
                f"the reference, {reference.engine}, cannot run this tokenizer: {expected}. If the machine is short"
                " of time, memory or disk, try again later"
            )
        self._expected = expected

    def verdict(self, trial: Trial, before: Verdict | None) -> Verdict:
        """Judge an engine by its ids of the suite. `before` is its verdict on an earlier suite."""
        version = engine_version(trial.engine)
        actual = trial.encoded()
        if isinstance(actual, str):
            return Verdict(trial.engine, version, False, actual)
        guard = before.guard if before is not None else ()
        differ = [i for i in differing(self._expected, actual) if not guards(guard, self._suite[i])]
        if before is not None and not differ:
            return before
        if differ:
            characters = probes.vocabulary_characters(self._definition)
            more = explain_differences(self._suite, differ, characters, lambda texts: self._compare(trial, texts))
            if more is None:
                return Verdict(trial.engine, version, False, self._why_refused(actual, differ))
            guard = merged((*guard, *more))
        reference = self._reference.engine
        why = f"agrees with {reference} {engine_version(reference)} on {len(self._suite):,} texts"
        if guard:
            why += f", but for those with {describe(guard)}, which are left to {reference}"
        return Verdict(trial.engine, version, True, why, guard)

    def _why_refused(self, actual: Encoded, differ: list[int]) -> str:
        first = Difference.of(self._suite, self._expected, actual, differ[0])
        why = f"differs from {self._reference.engine} on {first.text[:20]!r}, at token {first.position}"
        others = len(differ) - 1
        return f"{why}, and on {others:,} more of {len(self._suite):,} texts" if others else why

    def _compare(self, trial: Trial, texts: list[str]) -> list[int]:
        """The indices of the texts that an engine encodes differently; all of them if it or the reference fails."""
        path = self._folder / "compare.arrow"
        write_texts(path, texts)
        results = []
        for one in (self._reference, trial):  # one after the other: each has the whole machine before it counts as hung
            one.ask_encode(path)
            results.append(one.encoded())
        expected, actual = results
        if isinstance(expected, str) or isinstance(actual, str):
            return list(range(len(texts)))
        return differing(expected, actual)


def _fastest(reference: str, verdicts: list[Verdict], rates: dict[str, float], where: str) -> Choice:
    """The fastest of the engines that agree. `where` says what was measured."""
    proved = {verdict.engine: verdict for verdict in verdicts if verdict.agrees}
    refused = "; ".join(f"{verdict.engine} {verdict.why}" for verdict in verdicts if not verdict.agrees)
    candidates = [*proved, reference]
    candidates = [name for name in candidates if rates.get(name, 0) > 0] or candidates
    best = candidates[0]
    for name in candidates[1:]:
        if rates.get(name, 0) * CLOSE > rates.get(best, 0):
            best = name
    version = engine_version(best)
    if best not in proved:
        why = f"no other engine can run it ({refused})" if refused and not proved else "it is the reference"
        return Choice(best, version, why, (), tuple(verdicts))
    verdict = proved[best]
    why = verdict.why + _race_result(best, candidates, rates, where) + (f"; refused: {refused}" if refused else "")
    return Choice(best, version, why, verdict.guard, tuple(verdicts))


def _race_result(best: str, candidates: list[str], rates: dict[str, float], where: str) -> str:
    """The rates in words. Those of engines that do not compute on the CPU are not per core, and are marked."""
    shown = []
    for name in candidates:
        if name in rates:
            device = engine_traits(name).device
            on_device = "" if device == "cpu" else f" on {device}, by wall time"
            shown.append(f"{name} {rates[name] / 1e6:.3g}{on_device}")
    if not shown:
        return ""
    close = "" if rates.get(best, 0) >= max(rates.values()) else "about the "
    return f"; {close}fastest on {where} (MB/s per core: {', '.join(shown)})"


def _code() -> list[str]:
    """A sample that exists on every machine: modules of the standard library, about 4 MB."""
    texts: list[str] = []
    size = 0
    for path in sorted(Path(json.__file__).parent.parent.glob("*.py")):
        with suppress(OSError):
            texts.append(path.read_text("utf-8", errors="ignore"))
            size += len(texts[-1])
        if size > CODE_CHARACTERS:
            break
    return texts


def _spread(texts: list[str]) -> Iterator[str]:
    """Documents from all over a sample, the first 50,000 characters of each: about 0.5 MB, at most 1 MB."""
    short = [text[:50_000] for text in texts]
    characters = 0
    for text in short[:: max(1, sum(map(len, short)) // CORPUS_PROBES)]:
        characters += len(text)
        if characters > 2 * CORPUS_PROBES:
            return
        yield text
