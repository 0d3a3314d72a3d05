"""Which engine encodes: the fastest one that gives the same ids as the reference.

Each engine that can run a tokenizer is put on trial in a process of its own. It must give the reference's ids on all
probes, and on documents of the corpus if there is one. One differing id excludes it. Verdicts are cached by the
tokenizer's fingerprint and the versions of engine, reference and probes, so this takes a few seconds once, and a few
milliseconds after that.

How much is done depends on how much text there is. The reference is always right: it encodes what it can encode before a
trial would be over. For more text than that, engines are tried one after the other until one agrees. For a large corpus,
all are tried, and those that agree are raced on a sample of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines import engine_traits, engine_version, runners
from tokenmill.encoding.engines.gpu import GpuEngine
from tokenmill.encoding.selection.shipped import shipped_verdict
from tokenmill.encoding.selection.verdicts import Choice, Verdict, VerdictCache
from tokenmill.errors import TokenizerError
from tokenmill.python_sources import source_texts

RACE_BYTES = 2 << 30  # of text; for less, the fastest engine does not save the time that a race takes
REFERENCE_RATE = 1.5e6  # bytes of text that a reference encodes per second, about
TRIAL_SECONDS = 1.5  # of a trial on two cores, about,
TRIAL_SECONDS_PER_BYTE = 0.6e-6  # and for each byte of the tokenizer.json
SHORT_SUITE = 40  # one of so many characters and vocabulary tokens confirms a verdict that comes with tokenmill
CLOSE = 0.9  # an engine must be faster than 1 / 0.9 times the one before it in the list to be preferred
CODE_CHARACTERS = 4_000_000  # the sample where there is no corpus
# Documents for probes and the race. None: there is no corpus, and the race is on a sample of code.
Corpus = Sequence[str] | Callable[[], Sequence[str]] | None


def choose(
    definition: Definition,
    corpus: Corpus = None,
    wanted: str = "auto",
    corpus_key: str = "",
    text_bytes: int | None = None,
    processes: int | None = None,
) -> Choice:
    """Return the fastest engine proved for this tokenizer, on a sample of a corpus if one is given.

    `corpus_key` identifies the corpus in the cache; without one, a race on a corpus is not cached. A sample given as a
    function is read only if it is needed. `text_bytes` is how much text there is to encode, if that is known: for little
    text, less is found out. `processes` is how many will encode: where that is known, and there is a lot of text, a GPU is among
    the engines, if there is one. `wanted` names an engine to use instead, or "reference"; a TokenizerError says why an engine
    cannot be used.
    """
    reference, names = definition.reference, runners(definition)
    if reference not in names:
        raise TokenizerError(f"this tokenizer needs {reference}: pip install 'tokenmill[{reference}]'")
    if wanted in ("reference", reference):
        return Choice(reference, engine_version(reference), "chosen by hand; it is the reference")
    if wanted == GpuEngine.name:
        if refusal := GpuEngine.refusal(definition):
            raise TokenizerError(f"engine='gpu' cannot be used: {refusal}")
        return _prove(definition, wanted, corpus)
    if wanted not in ("auto", *names):
        raise TokenizerError(f"engine={wanted!r} cannot run this tokenizer; these may: {', '.join(names)}")
    if wanted != "auto":
        return _prove(definition, wanted, corpus)
    if text_bytes is not None and text_bytes < RACE_BYTES:
        return _first_that_agrees(definition, names, corpus, text_bytes)
    if processes is not None and GpuEngine.can_run(definition):
        names.append(GpuEngine.name)
    race_key = _race_key(names, corpus_key) if corpus is None or corpus_key else None
    return _race_all(definition, names, corpus, race_key, processes or 1)


def needs_trial(definition: Definition, text_bytes: int) -> bool:
    """Whether engines have to be tried before this much text is encoded with engine="auto"."""
    cache, names = VerdictCache(definition), _others(definition, runners(definition))
    verdicts = [cache.verdict(name) or shipped_verdict(definition, name) for name in names]
    is_proved = any(verdict is not None and verdict.agrees for verdict in verdicts)
    return not is_proved and not leaves_to_reference(definition, text_bytes)


def leaves_to_reference(definition: Definition, text_bytes: int) -> bool:
    """Whether the reference encodes this much text with engine="auto". Tries nothing."""
    cache, names = VerdictCache(definition), _others(definition, runners(definition))
    verdicts = [cache.verdict(name) for name in names]
    if any(verdict is not None and verdict.agrees for verdict in verdicts):
        return False
    return None not in verdicts or _reference_is_first(definition, text_bytes)


def trial_seconds(definition: Definition) -> float:
    """About how long a trial takes."""
    return TRIAL_SECONDS + TRIAL_SECONDS_PER_BYTE * len(definition.json or "")


def _reference_is_first(definition: Definition, text_bytes: int) -> bool:
    """Whether the reference encodes this much text before a trial would be over."""
    return text_bytes / REFERENCE_RATE < trial_seconds(definition)


def _others(definition: Definition, names: list[str]) -> list[str]:
    return [name for name in names if name != definition.reference]


def _race_key(names: list[str], corpus_key: str) -> str:
    return " ".join([corpus_key, *(f"{name} {engine_version(name)}" for name in names)])


def _first_that_agrees(definition: Definition, names: list[str], corpus: Corpus, text_bytes: int) -> Choice:
    """An engine that agrees with the reference, the first in the list unless others were tried too and were faster."""
    cache, others = VerdictCache(definition), _others(definition, names)
    verdicts = [verdict for name in others if (verdict := cache.verdict(name)) is not None]
    if not any(verdict.agrees for verdict in verdicts) and len(verdicts) < len(others):
        if _reference_is_first(definition, text_bytes):
            why = "it is the reference, which encodes this little text before a faster engine would be proved"
            return Choice(definition.reference, engine_version(definition.reference), why)
        verdicts = _confirm_shipped(definition, cache, others) or _try_in_turn(definition, cache, others, corpus)
    rates = cache.race(_race_key(names, "")) or {}
    return _fastest(definition.reference, verdicts, rates, "a sample of code")


def _prove(definition: Definition, engine: str, corpus: Corpus) -> Choice:
    """Use this engine if it agrees with the reference. There is no race."""
    cache = VerdictCache(definition)
    verdict = cache.verdict(engine)
    if verdict is None:
        from tokenmill.encoding.selection.judging import hold_trials

        [verdict], _ = hold_trials(definition, cache, {engine: None}, _documents(corpus), [])
        cache.save()
    if not verdict.agrees:
        raise TokenizerError(
            f"engine={engine!r} cannot be used with this tokenizer: {verdict.why}; leave the choice to engine='auto'"
        )
    return Choice(engine, engine_version(engine), verdict.why, verdict.guard, (verdict,))


def _confirm_shipped(definition: Definition, cache: VerdictCache, names: list[str]) -> list[Verdict]:
    """The verdict that comes with tokenmill on the first engine that agreed, if it agrees on a short suite here too."""
    from tokenmill.encoding.selection import probes
    from tokenmill.encoding.selection.judging import hold_trials

    for name in names:
        shipped = shipped_verdict(definition, name) if cache.verdict(name) is None else None
        if shipped is not None and shipped.agrees:
            suite = probes.probes(definition, SHORT_SUITE)
            verdicts, _ = hold_trials(definition, cache, {name: shipped}, suite, [])
            cache.save()
            return [verdict for verdict in verdicts if verdict.agrees]
    return []


def _try_in_turn(definition: Definition, cache: VerdictCache, names: list[str], corpus: Corpus) -> list[Verdict]:
    """The verdicts on engines, tried one after the other until one agrees."""
    from tokenmill.encoding.selection.judging import hold_trials

    cached = {name: cache.verdict(name) for name in names}
    verdicts, _ = hold_trials(definition, cache, cached, _documents(corpus), [], until_one_agrees=True)
    cache.save()
    return verdicts


def _race_all(definition: Definition, names: list[str], corpus: Corpus, race_key: str | None, processes: int) -> Choice:
    """Use the fastest of all engines that agree with the reference. What is in the cache is not found out again."""
    cache = VerdictCache(definition)
    cached = {name: cache.verdict(name) for name in _others(definition, names)}
    if corpus is not None:  # on which they are confirmed
        cached = {name: verdict or shipped_verdict(definition, name) for name, verdict in cached.items()}
    verdicts = [verdict for verdict in cached.values() if verdict is not None]
    rates = None if race_key is None else cache.race(race_key)
    if cached and (rates is None or len(verdicts) < len(cached)):
        from tokenmill.encoding.selection.judging import hold_trials

        documents = _documents(corpus)
        texts = _code() if corpus is None else documents
        verdicts, rates = hold_trials(definition, cache, cached, documents, texts, processes=processes)
        cache.save(race_key, rates)
    where = "a sample of code" if corpus is None else "a sample of this corpus"
    return _fastest(definition.reference, verdicts, rates or {}, where)


def _documents(corpus: Corpus) -> list[str]:
    return list(corpus() if callable(corpus) else corpus or ())


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
    """The rates in words. Those of engines that do not compute on the CPU are by wall time, and are marked."""
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
    for text in source_texts():
        texts.append(text)
        size += len(text)
        if size > CODE_CHARACTERS:
            break
    return texts
