"""Engines that define what a tokenizer's ids are: the libraries that tokenizer.json, tiktoken and SentencePiece come from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines.base import Engine, Ids, Offsets, ReferenceEngine, Vocabulary, flatten
from tokenmill.encoding.hf_tokenizers import HfTokenizer
from tokenmill.encoding.libraries import import_library

if TYPE_CHECKING:
    import pyarrow as pa


class TokenizersEngine(Engine):
    """`tokenizers`: runs every tokenizer.json and is the reference for it. A few MB/s; a Python string per document."""

    name = library = "tokenizers"

    def __init__(self, definition: Definition) -> None:
        self._tokenizer = HfTokenizer(definition.engine_json)

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        return self._tokenizer.encode(values.to_pylist())


class TiktokenEngine(ReferenceEngine):
    """tiktoken: the reference for its own encodings."""

    name = library = "tiktoken"

    def __init__(self, definition: Definition) -> None:
        from tokenmill.encoding.conversion.tiktoken_bpe import Ranks

        self._ranks = Ranks.from_files(definition.files)
        self._encoding = self._ranks.encoding()
        self._allowed: Any = "all" if definition.special_tokens == "parse" else set()

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        encode, allowed = self._encoding.encode, self._allowed
        return flatten(encode(text, allowed_special=allowed, disallowed_special=()) for text in values.to_pylist())

    def vocabulary(self) -> Vocabulary:
        special = self._ranks.special
        size = max([*self._ranks.ranks.values(), *special.values()]) + 1
        return Vocabulary(size, special, list(special))

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

    def _named(self, is_wanted: Any) -> dict[str, int]:
        """The ids of some pieces, by name."""
        return {self._processor.id_to_piece(i): i for i in range(self._processor.get_piece_size()) if is_wanted(i)}

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        return flatten(map(self._encode_one, values.to_pylist()))

    def _encode_one(self, text: str) -> list[int]:
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
