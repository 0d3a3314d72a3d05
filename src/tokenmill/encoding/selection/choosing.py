"""Engine selection: the reference, or the fast engine where it is proved to give the same ids.

The reference is always right. gigatoken is 1.5 to 100 times faster on BPE, so it is used where it is proved, see `proof`. A proof
takes about a second, once for a tokenizer; text that the reference encodes in less time is left to the reference. A GPU is used
if it is asked for, or if `tokenmill bench` found on this machine that it wins for this much text.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.display import fields_in_one_line
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines import engine_version, runners
from tokenmill.encoding.engines.fast import BytesEngine
from tokenmill.encoding.engines.guarded import Ranges
from tokenmill.encoding.engines.references import LiveEngine, PythonEngine
from tokenmill.encoding.gpu.engine import GpuEngine
from tokenmill.encoding.selection.proof import Proof, prove, remembered
from tokenmill.encoding.selection.suite import texts as suite_texts
from tokenmill.errors import TokenizerError
from tokenmill.user_cache import cache_folder, read_cached, write_cached

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
    version: str
    why: str
    guard: Ranges = ()
    proof: Proof | None = None  # also of an engine that was refused

    __repr__ = fields_in_one_line


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
        return Choice(reference, engine_version(reference), "chosen by hand; it is the reference")
    if wanted != "auto":
        return _by_name(definition, wanted, names)
    name = fast_engine(definition)
    if name is None:
        return Choice(
            reference, engine_version(reference), "it is the reference, and no faster engine runs this tokenizer"
        )
    if processes is not None and _gpu_wins(definition, name, text_bytes or 0, processes):
        return _by_name(definition, GpuEngine.name, names)
    proof = remembered(definition, name)
    if proof is None and text_bytes is not None and _reference_is_first(definition, text_bytes):
        why = "it is the reference, which encodes this little text before a faster engine would be proved"
        return Choice(reference, engine_version(reference), why)
    proof = proof or prove(definition, name)
    if not proof.agrees:
        why = f"it is the reference; refused: {name} {proof.why}"
        return Choice(reference, engine_version(reference), why, (), proof)
    return Choice(name, proof.version, proof.why, proof.guard, proof)


def fast_engine(definition: Definition) -> str | None:
    """The engine that is used for a tokenizer where it is proved; None if only the reference runs it."""
    others = [name for name in runners(definition) if name != definition.reference]
    return BytesEngine.name if BytesEngine.name in others else next(iter(others), None)


def needs_proof(definition: Definition, text_bytes: int) -> bool:
    """Whether an engine has to be proved before this much text is encoded with engine="auto"."""
    name = fast_engine(definition)
    unknown = name is not None and remembered(definition, name) is None
    return unknown and not _reference_is_first(definition, text_bytes)


def leaves_to_reference(definition: Definition, text_bytes: int) -> bool:
    """Whether the reference encodes this much text with engine="auto". Proves nothing."""
    name = fast_engine(definition)
    proof = None if name is None else remembered(definition, name)
    return not proof.agrees if proof is not None else name is None or _reference_is_first(definition, text_bytes)


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
    return Choice(wanted, proof.version, proof.why, proof.guard, proof)


def choose_slow(definition: Definition, live: Any) -> Choice:
    """Choose "python", which can run in worker processes, if a copy loaded from the files gives the ids of `live`.

    If the class of `live` is defined in this process only, or its files do not describe it completely, choose "live".
    Without `live` the files are all there is.
    """
    original = PythonEngine(definition) if live is None else LiveEngine(definition, live)
    texts = [text for text in suite_texts(definition, EVERY) if len(text) < 2000]
    expected: list[list[int]] = []
    size, start = 0, time.process_time()
    for text in texts:
        expected.append(original.encode_one(text))
        size += len(text.encode())
        if time.process_time() - start > SLOW_SECONDS:
            break
    rate = size / max(time.process_time() - start, 1e-9)
    factor = max(1, round(TYPICAL_RATE / rate, -1))
    why = (
        f"slow Python tokenizer, {rate / 1e6:.2g} MB/s per core; a tokenizer.json would be about {factor:,.0f}x faster"
    )
    flaw = "" if live is None else _flaw_of_copy(definition, texts[: len(expected)], expected)
    if flaw:
        return Choice(
            LiveEngine.name, engine_version(LiveEngine.name), f"{why}; it runs only in this process: {flaw[:200]}"
        )
    return Choice(PythonEngine.name, engine_version(PythonEngine.name), why)


def _flaw_of_copy(definition: Definition, texts: list[str], expected: list[list[int]]) -> str:
    """Why a copy loaded from the files cannot replace the object, or "" if it can."""
    try:
        copy = PythonEngine(definition)
        for text, ids in zip(texts, expected, strict=True):
            if copy.encode_one(text) != ids:
                return f"a copy loaded from its files differs on {text[:30]!r}"
    except TokenizerError as error:
        return str(error)
    except Exception as error:  # the tokenizer's own code may raise anything
        return f"it cannot be copied: {type(error).__name__}: {error}"
    return ""


# What `tokenmill bench` measured on this machine: bytes per second of a GPU with all processes, and of an engine per process.


def remember_rates(definition: Definition, rates: dict[str, float]) -> None:
    write_cached(_rates_path(definition), {"rates": rates})


def _gpu_wins(definition: Definition, other: str, text_bytes: int, processes: int) -> bool:
    """Whether a GPU encodes this much text sooner than another engine on all cores, by what was measured on this machine."""
    measured = (read_cached(_rates_path(definition)) or {"rates": {}})["rates"]
    if GpuEngine.name not in measured or other not in measured or not GpuEngine.is_installed():
        return False
    start = GpuEngine.START_SECONDS
    return start + text_bytes / float(measured[GpuEngine.name]) < text_bytes / (float(measured[other]) * processes)


def _rates_path(definition: Definition) -> Path:
    return cache_folder() / "rates" / f"{definition.fingerprint}.json"
