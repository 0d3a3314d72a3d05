"""The trial of the engines of a tokenizer: each encodes the same texts, and is compared with the reference."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from tokenmill.child_process import end_idle_children
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines import engine_traits, engine_version
from tokenmill.encoding.engines.guarded import describe, guards, merged, outside
from tokenmill.encoding.selection import probes
from tokenmill.encoding.selection.race import race
from tokenmill.encoding.selection.rare_characters import explain_differences, unassigned
from tokenmill.encoding.selection.trial import Trial, write_texts
from tokenmill.encoding.selection.verdicts import Difference, Encoded, Verdict, VerdictCache, differing
from tokenmill.errors import TokenizerError

SUITE_BLOCK_BYTES = 1 << 16  # texts per call, about: a reference needs hundreds of times this memory for its results
CORPUS_PROBES = 500_000  # characters of the corpus that the reference encodes, about


def hold_trials(
    definition: Definition,
    cache: VerdictCache,
    cached: dict[str, Verdict | None],
    corpus: list[str],
    texts: list[str],
    *,
    until_one_agrees: bool = False,
    processes: int = 1,
) -> tuple[list[Verdict], dict[str, float]]:
    """Judge the engines on probes and on the corpus, and race those that agree on `texts`.

    An engine that was judged before only has to agree on the corpus. One that was refused before is not tried again.
    Returns all verdicts, and the rate of each engine in the race. With `until_one_agrees`, engines after the first that
    agrees are not tried. `processes` will share a device.
    """
    verdicts = {name: verdict for name, verdict in cached.items() if verdict is not None}
    names = [name for name in cached if name not in verdicts or verdicts[name].agrees]
    if not names:
        return list(verdicts.values()), {}
    end_idle_children()  # for their memory
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tokenmill-")))
        definition.save(folder)

        def start(name: str, **environment: str) -> Trial:
            return stack.enter_context(Trial(name, folder, **environment))

        # Engines load while the probes are made. The reference takes the longest: it may use all cores.
        reference = start(definition.reference, TOKENIZERS_PARALLELISM="true", RAYON_NUM_THREADS="")
        trials = {name: start(name) for name in (names[:1] if until_one_agrees else names)}
        suite, strict = _suite(definition, corpus, with_probes=len(verdicts) < len(cached))
        judge = _Judge(definition, suite, strict, reference, trials.values(), folder)
        for name in names:
            if name not in trials:
                trials[name] = start(name)
                judge.begin(trials[name])
            verdicts[name] = judge.verdict(trials[name], cached[name])
            if not trials[name].temporary:
                cache.put(verdicts[name])
            if verdicts[name].guard:
                trials[name].ask(guard=verdicts[name].guard)
            if until_one_agrees and verdicts[name].agrees:
                break
        agreeing = [trial for name, trial in trials.items() if verdicts[name].agrees]
        rates = race(reference, agreeing, texts, folder, processes)
        return [verdicts[name] for name in cached if name in verdicts], rates


def _suite(definition: Definition, corpus: list[str], *, with_probes: bool) -> tuple[list[str], list[str]]:
    """The texts of a trial: documents of the corpus and probes; and those that stand for many others."""
    if not with_probes:
        return list(_spread(corpus)), []
    return [*_spread(corpus), *probes.probes(definition)], probes.added_tokens_in_context(definition)


class _Judge:
    """Compares the ids of engines with those of the reference."""

    def __init__(
        self,
        definition: Definition,
        suite: list[str],
        strict: list[str],
        reference: Trial,
        trials: Iterable[Trial],
        folder: Path,
    ) -> None:
        """Let all engines encode the suite at the same time, and wait for the reference.

        `strict` are texts that stand for many others: a difference there is never explained by a character.
        """
        self._definition, self._reference, self._folder = definition, reference, folder
        self._suite, self._first_strict = [*suite, *strict], len(suite)
        self._path = folder / "suite.arrow"
        write_texts(self._path, self._suite, SUITE_BLOCK_BYTES)
        for trial in (reference, *trials):
            self.begin(trial)
        expected = reference.encoded()
        if isinstance(expected, str):
            raise TokenizerError(
                f"the reference, {reference.engine}, cannot run this tokenizer: {expected}. If the machine is short"
                " of time, memory or disk, try again later"
            )
        self._expected = expected

    def begin(self, trial: Trial) -> None:
        """Let an engine encode the suite."""
        trial.ask_encode(self._path)

    def verdict(self, trial: Trial, before: Verdict | None) -> Verdict:
        """Judge an engine by its ids of the suite. `before` is its verdict on an earlier suite."""
        version = engine_version(trial.engine)
        actual = trial.encoded()
        if isinstance(actual, str):
            return Verdict(trial.engine, version, False, actual)
        always = unassigned() if engine_traits(trial.engine).knows_unicode else ()
        guard = before.guard if before is not None else always
        differ = [i for i in differing(self._expected, actual) if not guards(guard, self._suite[i])]
        if before is not None and not differ:
            return before
        if plain := [i for i in differ if i < self._first_strict]:
            characters = probes.vocabulary_characters(self._definition)
            more = explain_differences(self._suite, plain, characters, lambda texts: self._compare(trial, texts))
            if more is None:
                return Verdict(trial.engine, version, False, self._why_refused(actual, differ))
            guard = merged((*guard, *more))
        if unexplained := [i for i in differ if not guards(guard, self._suite[i])]:
            return Verdict(trial.engine, version, False, self._why_refused(actual, unexplained))
        reference = self._reference.engine
        why = f"agrees with {reference} {engine_version(reference)} on {len(self._suite):,} texts"
        if found := outside(guard, always):
            why += f", but for those with {describe(found)}, which are left to {reference}"
        return Verdict(trial.engine, version, True, why, guard)

    def _why_refused(self, actual: Encoded, differ: list[int]) -> str:
        first = Difference.of(self._suite, self._expected, actual, differ[0])
        why = f"differs from {self._reference.engine} on {first.text[:20]!r}, at token {first.position}"
        others = len(differ) - 1
        return f"{why}, and on {others:,} more of {len(self._suite):,} texts" if others else why

    def _compare(self, trial: Trial, texts: list[str]) -> list[int]:
        """The indices of the texts that an engine encodes differently; all of them if it or the reference fails."""
        path = self._folder / "compare.arrow"
        write_texts(path, texts, SUITE_BLOCK_BYTES)
        results = []
        for one in (self._reference, trial):  # one after the other: each has the whole machine before it counts as hung
            one.ask_encode(path)
            results.append(one.encoded())
        expected, actual = results
        if isinstance(expected, str) or isinstance(actual, str):
            return list(range(len(texts)))
        return differing(expected, actual)


def _spread(texts: list[str]) -> Iterator[str]:
    """Documents from all over a sample, the first 50,000 characters of each: about 0.5 MB, at most 1 MB."""
    short = [text[:50_000] for text in texts]
    characters = 0
    for text in short[:: max(1, sum(map(len, short)) // CORPUS_PROBES)]:
        characters += len(text)
        if characters > 2 * CORPUS_PROBES:
            return
        yield text
