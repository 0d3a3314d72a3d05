"""The registry of engines: what can be constructed, by name. A new engine is a class listed here."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np

from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines.base import Engine, EngineTraits, Ids, Offsets, ReferenceEngine
from tokenmill.encoding.engines.cpu import (
    BytesEngine,
    GigatokenEngine,
    LiveEngine,
    PythonEngine,
    SentencePieceEngine,
    TiktokenEngine,
    TokenizersEngine,
)
from tokenmill.encoding.gpu.engine import CUPY, GpuEngine
from tokenmill.encoding.libraries import installed_version
from tokenmill.errors import EncodingError

# Engines that may be chosen by name.
_NAMED = (GigatokenEngine, TokenizersEngine, TiktokenEngine, SentencePieceEngine, PythonEngine, BytesEngine, GpuEngine)
ENGINES: dict[str, type[Engine]] = {engine.name: engine for engine in _NAMED}
_ALL: dict[str, type[Engine]] = {**ENGINES, LiveEngine.name: LiveEngine}


def make_engine(name: str, definition: Definition, live: Any = None) -> Engine:
    """Construct an engine. `live` is the tokenizer object of an engine that exists only in this process."""
    engine: Any = _ALL[name]
    constructed: Engine = engine(definition, live) if engine.traits.in_process_only else engine(definition)
    return constructed


def import_fast_engine() -> None:
    """Import the libraries of the engine that is most often used, so that they are there when they are needed."""
    with suppress(ImportError):
        for library in ("gigatoken", "awkward"):
            import_module(library)


def make_reference(definition: Definition, live: Any = None) -> ReferenceEngine:
    """Construct the reference of a tokenizer that has no tokenizer.json; from `live`, if that is given."""
    engine = make_engine(definition.reference if live is None else LiveEngine.name, definition, live)
    assert isinstance(engine, ReferenceEngine)
    return engine


def runners(definition: Definition) -> list[str]:
    """The installed engines that can be tried with a tokenizer, the reference first. The GPU only if it is asked for."""
    names = [name for name, engine in ENGINES.items() if engine is not GpuEngine and engine.can_run(definition)]
    return [name for name in dict.fromkeys((definition.reference, *names)) if name in ENGINES and engine_version(name)]


def engine_traits(name: str) -> EngineTraits:
    return _ALL[name].traits


def engine_version(name: str) -> str:
    """The version of an engine's library, or "" if it is not installed."""
    libraries = CUPY if name == GpuEngine.name else (_ALL[name].library,)
    return next(filter(None, map(installed_version, libraries)), "")


def check_shape(name: str, count: int, ids: Ids, offsets: Offsets) -> None:
    """Raise EncodingError unless the offsets of an engine's result are those of `count` documents."""
    if len(offsets) != count + 1:
        raise EncodingError(f"{name} {engine_version(name)} gave {len(offsets) - 1} documents for {count}")
    if offsets[0] != 0 or offsets[-1] != len(ids) or (np.diff(offsets) < 0).any():
        raise EncodingError(f"{name} {engine_version(name)} gave {len(ids)} ids with offsets that do not span them")
