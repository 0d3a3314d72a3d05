"""Slow tokenizers: those of `transformers` that are written in Python. For some models there is nothing else."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines.base import EngineTraits, Ids, Offsets, ReferenceEngine, Vocabulary, flatten
from tokenmill.encoding.libraries import quiet_transformers
from tokenmill.errors import TokenizerError

if TYPE_CHECKING:
    import pyarrow as pa


class PythonEngine(ReferenceEngine):
    """A slow tokenizer, loaded from the files it saved, by a class of `transformers` or one this process can import.

    Well below 1 MB/s. Code that comes with a model is never run.
    """

    name = "python"
    library = "transformers"
    traits = EngineTraits(is_slow=True, can_fork=False)

    def __init__(self, definition: Definition, tokenizer: Any = None) -> None:
        self._tokenizer = _load(definition) if tokenizer is None else tokenizer
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


def _load(definition: Definition) -> Any:
    """Load the tokenizer from the files of its definition."""
    module, _, name = (definition.python_class or "").partition(":")
    with quiet_transformers() as transformers, tempfile.TemporaryDirectory() as folder:
        try:
            loaded_class = getattr(importlib.import_module(module), name)
            if module == "__main__" or not issubclass(loaded_class, transformers.PreTrainedTokenizerBase):
                raise TypeError(f"{name} of {module} cannot be imported by another process")
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            raise TokenizerError(f"cannot import its class {definition.python_class}: {error}") from error
        for file, content in definition.files.items():
            (Path(folder) / file).write_bytes(content)
        return loaded_class.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
