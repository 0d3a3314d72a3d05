"""Tokenizers that have no tokenizer.json form: slow ones in Python, and the rarer SentencePiece models and tiktoken ranks."""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tokenmill.encoding import probes
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines import PythonEngine, engine_version
from tokenmill.encoding.selection import Choice
from tokenmill.encoding.tiktoken_bpe import Ranks
from tokenmill.errors import TokenizerError

_SECONDS = 1.0  # to compare and to measure
EVERY = 97  # of the suite's characters and vocabulary, or it would take minutes
TYPICAL_RATE = 100e6  # bytes a second of a fast engine: what a slow tokenizer's user is missing


def slow_choice(definition: Definition, live: Any) -> Choice:
    """How to run a slow tokenizer: in worker processes, if a copy made from its files gives the ids of the one at hand.

    Where it cannot be made again (its class is only in this process, or its files do not tell all) it is "live": it runs
    in this one process. Without one at hand (`live` is None) the files are all there is.
    """
    held = _engine(definition, live)
    texts = [text for text in probes.probes(definition, EVERY) if len(text) < 2000]
    expected: list[list[int]] = []
    size, began = 0, time.process_time()
    for text in texts:
        expected.append(held.one(text))
        size += len(text.encode())
        if time.process_time() - began > _SECONDS:
            break
    rate = size / max(time.process_time() - began, 1e-9)
    times = max(1, round(TYPICAL_RATE / rate, -1))
    why = f"slow Python tokenizer, {rate / 1e6:.2g} MB/s a core; a tokenizer.json would be about {times:,.0f}x faster"
    version = engine_version("python")
    if live is None:
        return Choice("python", version, why)
    try:
        copy = _engine(definition)
        differs = next((t for t, ids in zip(texts, expected, strict=False) if copy.one(t) != ids), None)
        apart = f"a copy made from its files differs on {differs[:30]!r}" if differs is not None else ""
    except TokenizerError as error:
        apart = str(error)
    except Exception as error:  # whatever a tokenizer's own code raises
        apart = f"no copy can be made of it: {type(error).__name__}: {error}"
    if apart:
        return Choice("live", version, f"{why}; it runs in this process alone, since {apart[:200]}")
    return Choice("python", version, why)


def decoder(definition: Definition, live: Any) -> Callable[[list[int]], bytes]:
    """What turns ids into text, by the reference: in bytes, which for tiktoken are exact."""
    if definition.reference == "tiktoken":
        own: Callable[[list[int]], bytes] = Ranks.from_files(definition.files).encoding().decode_bytes
        return own
    if definition.reference == "sentencepiece":
        processor = _processor(definition)
        return lambda ids: str(processor.decode(ids)).encode()
    slow = _engine(definition, live).slow
    return lambda ids: str(slow.decode(ids, skip_special_tokens=False)).encode()


def vocabulary(definition: Definition, live: Any) -> dict[str, Any]:
    """How many ids there are, the added tokens, and which of them are special."""
    if definition.reference == "sentencepiece":
        processor = _processor(definition)
        count = processor.get_piece_size()
        control = {processor.id_to_piece(i): i for i in range(count) if processor.is_control(i)}
        return {"vocab_size": count, "added": control, "special_names": list(control)}
    if definition.reference == "tiktoken":
        ranks = Ranks.from_files(definition.files)
        size = max([*ranks.ranks.values(), *ranks.special.values()]) + 1
        return {"vocab_size": size, "added": ranks.special, "special_names": list(ranks.special)}
    slow = _engine(definition, live).slow
    added = {token.content: number for number, token in sorted(slow.added_tokens_decoder.items())}
    size = max([*slow.get_vocab().values(), *added.values(), len(slow) - 1], default=-1) + 1
    special = [name for name in added if name in set(slow.all_special_tokens) and name != slow.unk_token]
    return {"vocab_size": size, "added": added, "special_names": special}


@contextmanager
def quiet_transformers(who: str = "this tokenizer") -> Iterator[Any]:
    """transformers, without its advice on the terminal: that there is no PyTorch is no news to who wants a tokenizer.

    Only while it is imported and used here; and if the user asked it to be louder or quieter, nothing is changed.
    """
    logger = logging.getLogger("transformers")
    logger.addFilter(_is_trouble)
    try:
        module = importlib.import_module("transformers")
    except ImportError as error:
        raise TokenizerError(f"{who} needs transformers: pip install 'tokenmill[transformers]'") from error
    finally:
        logger.removeFilter(_is_trouble)
    level = logger.level
    if level == logging.WARNING:  # the default
        logger.setLevel(logging.ERROR)
    try:
        yield module
    finally:
        logger.setLevel(level)


def _is_trouble(record: logging.LogRecord) -> bool:
    return record.levelno > logging.WARNING


def _engine(definition: Definition, live: Any = None) -> PythonEngine:
    with quiet_transformers():
        return PythonEngine(definition, live)


def _processor(definition: Definition) -> Any:
    from tokenmill.encoding.engines import SentencePieceEngine

    return SentencePieceEngine(definition).processor
