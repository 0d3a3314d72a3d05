"""Slow tokenizers: those of `transformers` that are written in Python. For some models there is nothing else."""

from __future__ import annotations

import importlib
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines.base import (
    EngineTraits,
    Ids,
    Offsets,
    ReferenceEngine,
    Vocabulary,
    flatten,
    import_library,
)
from tokenmill.errors import TokenizerError

if TYPE_CHECKING:
    import pyarrow as pa


class PythonEngine(ReferenceEngine):
    """A slow tokenizer, loaded from the files it saved, by a class of `transformers` or one this process can import.

    Well below 1 MB/s. Code that comes with a model is never run.
    """

    name = "python"
    library = "transformers"
    traits = EngineTraits(is_slow=True)

    def __init__(self, definition: Definition) -> None:
        with quiet_transformers():
            self._use(_load(definition), definition)

    def _use(self, tokenizer: Any, definition: Definition) -> None:
        self._tokenizer = tokenizer
        self._options = {"add_special_tokens": False}
        if definition.special_tokens != "parse":
            self._options["split_special_tokens"] = True

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        return flatten(map(self.encode_one, values.to_pylist()))

    def encode_one(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, **self._options))

    def vocabulary(self) -> Vocabulary:
        slow = self._tokenizer
        added = {token.content: number for number, token in sorted(slow.added_tokens_decoder.items())}
        size = max([*slow.get_vocab().values(), *added.values(), len(slow) - 1], default=-1) + 1
        special = set(slow.all_special_tokens) - {slow.unk_token}
        return Vocabulary(size, added, [name for name in added if name in special])

    def decode_bytes(self, ids: list[int]) -> bytes:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False)).encode()


class LiveEngine(PythonEngine):
    """A slow tokenizer object of the user's. Used where no equal copy can be loaded from its files."""

    name = "live"
    traits = EngineTraits(is_slow=True, processes=0)

    def __init__(self, definition: Definition, tokenizer: Any) -> None:
        self._use(tokenizer, definition)


def _load(definition: Definition) -> Any:
    """Load the tokenizer from the files of its definition."""
    module, _, name = (definition.python_class or "").partition(":")
    base = import_library("transformers").PreTrainedTokenizerBase
    try:
        loaded_class = getattr(importlib.import_module(module), name)
        if module == "__main__" or not issubclass(loaded_class, base):
            raise TypeError(f"{name} of {module} cannot be imported by another process")
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise TokenizerError(f"cannot import its class {definition.python_class}: {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        for file, content in definition.files.items():
            (Path(folder) / file).write_bytes(content)
        return loaded_class.from_pretrained(folder, trust_remote_code=False, local_files_only=True)


@contextmanager
def quiet_transformers(needed_by: str = "this tokenizer") -> Iterator[Any]:
    """Import transformers and hide its warnings while it is in use here, such as the one that PyTorch is not installed.

    If the user has changed the level of its logger, that level is kept.
    """
    logger = logging.getLogger("transformers")
    logger.addFilter(_is_error)
    try:
        module = import_library("transformers", needed_by)
    finally:
        logger.removeFilter(_is_error)
    level = logger.level
    if level == logging.WARNING:  # the default
        logger.setLevel(logging.ERROR)
    try:
        yield module
    finally:
        logger.setLevel(level)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno > logging.WARNING
