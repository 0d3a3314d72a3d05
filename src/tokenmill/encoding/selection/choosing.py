"""Engine selection: the reference, or the fast engine where it is proved to give the same ids.

A proof takes about a second, once for a tokenizer; text that the reference encodes in less time is left to the reference. A
GPU is used if it is asked for, or if `tokenmill bench` found on this machine that it wins for this much text.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from tokenmill.display import fields_in_one_line
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines import engine_version, runners
from tokenmill.encoding.engines.cpu import BytesEngine, LiveEngine, PythonEngine
from tokenmill.encoding.engines.guarded import Ranges
from tokenmill.encoding.gpu.engine import GpuEngine, gpu_wins
from tokenmill.encoding.selection.proof import Proof, prove, remembered
from tokenmill.encoding.selection.suite import texts as suite_texts
from tokenmill.errors import TokenizerError

# Bytes of text that a reference encodes per second, about; of `tokenizers` by its line.
REFERENCE_RATE = {"tokenizers 0": 1.5e6, "tokenizers 1": 12e6, "tiktoken 0": 4e6, "sentencepiece 0": 1.5e6}
PROOF_SECONDS = 1.2  # of a proof on two cores, about,
PROOF_SECONDS_PER_BYTE = 0.3e-6  # and for each byte of the tokenizer.json
SLOW_SECONDS = 1.0  # to encode texts with a tokenizer written in Python
EVERY = 97  # each 97th token of the vocabulary is among them: all would take minutes
TYPICAL_RATE = 100e6  # bytes per second of a fast engine


@dataclass(frozen=True, slots=True)
class Choice:
    """The engine to use, and the reason in words."""

    engine: str
    why: str
    guard: Ranges = ()
    proof: Proof | None = None  # also of an engine that was refused

    __repr__ = fields_in_one_line

    @property
    def version(self) -> str:
        return engine_version(self.engine)


def choose(
    definition: Definition, wanted: str = "auto", text_bytes: int | None = None, processes: int | None = None
) -> Choice:
    """Return the engine for a tokenizer.

    `wanted` names an engine to use, or "reference"; a TokenizerError says why an engine cannot be used. `text_bytes` is how much
    text there is to encode, if that is known: little text is left to the reference. `processes` is how many will encode.
    """
    reference, names = definition.reference, runners(definition)
    if reference not in names:
        raise TokenizerError(f"this tokenizer needs {reference}: pip install 'tokenmill[{reference}]'")
    if wanted in ("reference", reference):
        return Choice(reference, "chosen by hand; it is the reference")
    if wanted != "auto":
        return _by_name(definition, wanted, names)
    name = fast_engine(definition)
    if name is None:
        return Choice(reference, "it is the reference, and no faster engine runs this tokenizer")
    if processes is not None and gpu_wins(definition, name, text_bytes or 0, processes):
        return _by_name(definition, GpuEngine.name, names)
    proof = remembered(definition, name)
    if proof is None and text_bytes is not None and _reference_is_first(definition, text_bytes):
        return Choice(
            reference, "it is the reference, which encodes this little text before a faster engine would be proved"
        )
    proof = proof or prove(definition, name)
    if not proof.agrees:
        return Choice(reference, f"it is the reference; refused: {name} {proof.why}", proof=proof)
    return Choice(name, proof.why, proof.guard, proof)


def fast_engine(definition: Definition) -> str | None:
    """The engine that is used for a tokenizer where it is proved; None if only the reference runs it."""
    others = [name for name in runners(definition) if name != definition.reference]
    return BytesEngine.name if BytesEngine.name in others else next(iter(others), None)


def known_engine(definition: Definition, text_bytes: int) -> str | None:
    """The engine of this much text with engine="auto", apart from GPUs; None if it has to be proved first."""
    name = fast_engine(definition)
    proof = None if name is None else remembered(definition, name)
    if proof is not None and proof.agrees:
        return name
    is_settled = name is None or proof is not None or _reference_is_first(definition, text_bytes)
    return definition.reference if is_settled else None


def reference_rate(definition: Definition) -> float:
    """Bytes of text that the reference encodes per second, about."""
    line = engine_version(definition.reference).partition(".")[0]
    return REFERENCE_RATE.get(f"{definition.reference} {line}", 1.5e6)


def proof_seconds(definition: Definition) -> float:
    """About how long a proof takes."""
    return PROOF_SECONDS + PROOF_SECONDS_PER_BYTE * len(definition.json or "")


def _reference_is_first(definition: Definition, text_bytes: int) -> bool:
    """Whether the reference encodes this much text before a proof would be made."""
    return text_bytes / reference_rate(definition) < proof_seconds(definition)


def _by_name(definition: Definition, wanted: str, names: list[str]) -> Choice:
    """Use this engine if it is proved."""
    if wanted == GpuEngine.name:
        if refusal := GpuEngine.refusal(definition):
            raise TokenizerError(f"engine='gpu' cannot be used: {refusal}")
    elif wanted not in names:
        raise TokenizerError(f"engine={wanted!r} cannot run this tokenizer; these may: {', '.join(names)}")
    proof = remembered(definition, wanted) or prove(definition, wanted)
    if not proof.agrees:
        why = f"engine={wanted!r} cannot be used with this tokenizer: {proof.why}"
        raise TokenizerError(f"{why}; leave the choice to engine='auto'")
    return Choice(wanted, proof.why, proof.guard, proof)


def choose_slow(definition: Definition, live: Any) -> Choice:
    """Choose "python", which can run in worker processes, if a copy loaded from the files gives the ids of `live`.

    If the class of `live` is defined in this process only, or its files do not describe it completely, choose "live".
    Without `live` the files are all there is.
    """
    original = PythonEngine(definition) if live is None else LiveEngine(definition, live)
    expected: dict[str, list[int]] = {}
    start = time.process_time()
    for text in suite_texts(definition, EVERY):
        if len(text) < 2000 and time.process_time() - start < SLOW_SECONDS:
            expected[text] = original.encode_one(text)
    rate = len("".join(expected).encode()) / max(time.process_time() - start, 1e-9)
    factor = max(1, round(TYPICAL_RATE / rate, -1))
    why = (
        f"slow Python tokenizer, {rate / 1e6:.2g} MB/s per core; a tokenizer.json would be about {factor:,.0f}x faster"
    )
    flaw = "" if live is None else _flaw_of_copy(definition, expected)
    if flaw:
        return Choice(LiveEngine.name, f"{why}; it runs only in this process: {flaw[:200]}")
    return Choice(PythonEngine.name, why)


def _flaw_of_copy(definition: Definition, expected: dict[str, list[int]]) -> str:
    """Why a copy loaded from the files cannot replace the object, or "" if it can."""
    try:
        copy = PythonEngine(definition)
        differ = (text for text, ids in expected.items() if copy.encode_one(text) != ids)
        return next((f"a copy loaded from its files differs on {text[:30]!r}" for text in differ), "")
    except TokenizerError as error:
        return str(error)
    except Exception as error:  # the tokenizer's own code may raise anything
        return f"it cannot be copied: {type(error).__name__}: {error}"
