"""How to run a slow Python tokenizer: in worker processes, or only in the process that has the object."""

from __future__ import annotations

import time
from typing import Any

from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines import engine_version
from tokenmill.encoding.engines.transformers_slow import LiveEngine, PythonEngine
from tokenmill.encoding.selection.choosing import Choice
from tokenmill.encoding.selection.suite import texts as suite_texts
from tokenmill.errors import TokenizerError

MAX_SECONDS = 1.0  # to encode texts with the original
EVERY = 97  # each 97th token of the vocabulary is among them: all would take minutes
TYPICAL_RATE = 100e6  # bytes per second of a fast engine


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
        if time.process_time() - start > MAX_SECONDS:
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
