"""Engines on the CPU: the libraries that define what a tokenizer's ids are, and engines that are faster.

References are the libraries that tokenizer.json, tiktoken and SentencePiece come from; and slow tokenizers of `transformers`,
written in Python, which some models have nothing else than. The faster ones are used where they are proved to give the same ids.
"""

from __future__ import annotations

import codecs
import importlib
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill.documents import flat_text
from tokenmill.encoding.definition import Definition, bytes_definition
from tokenmill.encoding.engines.base import Engine, EngineTraits, Ids, Offsets, ReferenceEngine, Vocabulary, flatten
from tokenmill.encoding.hf_tokenizers import HfTokenizer
from tokenmill.encoding.libraries import import_library, installed_version, quiet_transformers
from tokenmill.errors import TokenizerError

if TYPE_CHECKING:
    import pyarrow as pa

# awkward misspells the name of this error handler, which nothing notices but `python -X dev`.
codecs.register_error("surrogatescape", codecs.lookup_error("surrogateescape"))
_BPE = re.compile(r'"type":\s*"BPE"')  # a quotation mark inside a token is escaped
_CHARACTERS, _STRINGS = {"__array__": "char"}, {"__array__": "string"}


class TokenizersEngine(Engine):
    """`tokenizers`: runs every tokenizer.json and is the reference for it. A few MB/s; a Python string per document."""

    name = library = "tokenizers"
    # 1.0 loads nothing in a forked process.
    traits = EngineTraits(can_fork=installed_version("tokenizers").startswith("0."))

    def __init__(self, definition: Definition) -> None:
        self._tokenizer = HfTokenizer(definition.engine_json)

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        return flatten(self._tokenizer.encode(values.to_pylist()))


class TiktokenEngine(ReferenceEngine):
    """tiktoken: the reference for its own encodings."""

    name = library = "tiktoken"

    def __init__(self, definition: Definition) -> None:
        from tokenmill.encoding.conversion.tiktoken_bpe import Ranks

        ranks = Ranks.from_files(definition.files)
        self._encoding, self._special = ranks.encoding(), ranks.special
        self._allowed: Any = "all" if definition.special_tokens == "parse" else set()

    def encode_one(self, text: str) -> list[int]:
        return list(self._encoding.encode(text, allowed_special=self._allowed, disallowed_special=()))

    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self._encoding.max_token_value + 1, self._special, list(self._special))

    def decode_bytes(self, ids: list[int]) -> bytes:
        return bytes(self._encoding.decode_bytes(ids))


class SentencePieceEngine(ReferenceEngine):
    """sentencepiece: the reference for its own models.

    sentencepiece never produces a control symbol from text. With the "parse" policy a text is split at their names, as
    `tokenizers` does with special tokens, and each part is encoded on its own.
    """

    name = library = "sentencepiece"

    def __init__(self, definition: Definition) -> None:
        sentencepiece = import_library("sentencepiece")
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=definition.files["tokenizer.model"])
        self._control = self._named(self._processor.is_control)
        parses = definition.special_tokens == "parse"
        self._parsed = self._control | self._named(self._processor.is_unknown) if parses else {}
        longest_first = sorted(self._parsed, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")") if longest_first else None

    def _named(self, is_wanted: Callable[[int], bool]) -> dict[str, int]:
        """The ids of some pieces, by name."""
        return {self._processor.id_to_piece(i): i for i in range(self._processor.get_piece_size()) if is_wanted(i)}

    def encode_one(self, text: str) -> list[int]:
        if self._split is None or self._split.search(text) is None:
            return list(self._processor.encode(text))
        ids: list[int] = []
        for part in self._split.split(text):
            symbol = self._parsed.get(part)
            ids += [symbol] if symbol is not None else self._processor.encode(part) if part else []
        return ids

    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self._processor.get_piece_size(), self._control, list(self._control))

    def decode_bytes(self, ids: list[int]) -> bytes:
        return str(self._processor.decode(ids)).encode()


class PythonEngine(ReferenceEngine):
    """A slow tokenizer, loaded from the files it saved, by a class of `transformers` or one this process can import.

    Well below 1 MB/s. Code that comes with a model is never run.
    """

    name, library = "python", "transformers"
    traits = EngineTraits(is_slow=True, can_fork=False)

    def __init__(self, definition: Definition, tokenizer: Any = None) -> None:
        self._tokenizer = _load_slow(definition) if tokenizer is None else tokenizer
        self._options = {"add_special_tokens": False}
        if definition.special_tokens != "parse":
            self._options["split_special_tokens"] = True

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
    traits = EngineTraits(is_slow=True, in_process_only=True)


def _load_slow(definition: Definition) -> Any:
    """Load a slow tokenizer from the files of its definition."""
    module, _, name = (definition.python_class or "").partition(":")
    with quiet_transformers() as transformers, tempfile.TemporaryDirectory() as folder:
        try:
            loaded_class = getattr(importlib.import_module(module), name)
            if module == "__main__" or not issubclass(loaded_class, transformers.PreTrainedTokenizerBase):
                raise TypeError(f"{name} of {module} cannot be imported by another process")
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            raise TokenizerError(f"cannot import its class {definition.python_class}: {error}") from error
        for file, content in definition.files.items():
            Path(folder, file).write_bytes(content)
        return loaded_class.from_pretrained(folder, trust_remote_code=False, local_files_only=True)


class GigatokenEngine(Engine):
    """gigatoken: hundreds of MB/s per core for BPE. Reads Arrow's buffers without a copy. Its caches only grow."""

    name = library = "gigatoken"

    def __init__(self, definition: Definition) -> None:
        import gigatoken

        self._tokenizer = gigatoken.Tokenizer.from_json(definition.engine_json)

    @classmethod
    def can_run(cls, definition: Definition) -> bool:
        return definition.json is not None and _BPE.search(definition.json) is not None

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        import awkward as ak

        data, offsets = flat_text(values)
        content = ak.contents.NumpyArray(data, parameters=_CHARACTERS)
        texts = ak.contents.ListOffsetArray(ak.index.Index64(offsets), content, parameters=_STRINGS)
        layout = self._tokenizer.encode_batch(ak.Array(texts), parallel=False).layout
        return np.asarray(layout.content.data), np.asarray(layout.offsets.data)


class BytesEngine(Engine):
    """Every byte of the UTF-8 text is an id. As fast as memory."""

    name, library = "bytes", "tokenmill"
    traits = EngineTraits(knows_unicode=False)

    def __init__(self, definition: Definition) -> None:
        added = definition.added if definition.special_tokens == "parse" else []
        self._special = {token["content"].encode(): token["id"] for token in added}
        self._pattern = re.compile(b"|".join(map(re.escape, self._special)) or rb"(?!)")

    @classmethod
    def can_run(cls, definition: Definition) -> bool:
        # To make the other one imports `tokenizers`, which takes a tenth of a second: it is made for small files only.
        return len(definition.json or "") < 1 << 16 and definition.json == bytes_definition().json

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        data, offsets = flat_text(values)
        ids, raw = data.astype(np.uint32), data.tobytes()
        if b"<|" not in raw:
            return ids, offsets
        keep = np.ones(len(ids), bool)
        for match in self._pattern.finditer(raw):
            start, stop = match.span()
            # A name that starts in one document and ends in the next is not a special token.
            if np.searchsorted(offsets, start, "right") == np.searchsorted(offsets, stop, "left"):
                ids[start] = self._special[match.group()]
                keep[start + 1 : stop] = False
        return ids[keep], np.concatenate(([0], np.cumsum(keep)))[offsets]
