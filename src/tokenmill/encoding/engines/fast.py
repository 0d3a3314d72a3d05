"""Engines that are faster than `tokenizers`. They are used where a trial proves that they give the same ids."""

from __future__ import annotations

import re
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokenmill.documents import text_offsets
from tokenmill.encoding.definition import Definition, bytes_definition
from tokenmill.encoding.engines.base import Engine, EngineTraits, Ids, Offsets, offsets_of
from tokenmill.encoding.engines.light_awkward import import_awkward, strings, values_and_offsets

if TYPE_CHECKING:
    import pyarrow as pa


SMALL_JSON = 1 << 16  # characters; that of the bytes tokenizer is smaller


class GigatokenEngine(Engine):
    """gigatoken: hundreds of MB/s per core for BPE. Reads Arrow's buffers without a copy. Its caches only grow."""

    name = library = "gigatoken"

    def __init__(self, definition: Definition) -> None:
        import gigatoken

        import_awkward(version(self.library))
        self._tokenizer = gigatoken.Tokenizer.from_json(definition.engine_json)

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
        return values_and_offsets(self._tokenizer.encode_batch(strings(data, text_offsets(values)), parallel=False))


class FastokensEngine(Engine):
    """fastokens: the fastest for CJK and for SentencePiece BPE as in Llama 2. Creates a Python string per document."""

    name = library = "fastokens"

    def __init__(self, definition: Definition) -> None:
        import fastokens

        self._tokenizer = fastokens.Tokenizer.from_json_str(definition.engine_json)

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        ids, offsets = self._tokenizer.encode_batch_flat(values.to_pylist())
        return np.frombuffer(ids, np.uint32), np.frombuffer(offsets, np.uint64).astype(np.int64)


class TokieEngine(Engine):
    """tokie: the fastest for WordPiece. Creates a Python string per document."""

    name = library = "tokie"

    def __init__(self, definition: Definition) -> None:
        import tokie

        with tempfile.TemporaryDirectory() as folder:  # it only reads files
            path = Path(folder) / "tokenizer.json"
            path.write_text(definition.engine_json, "utf-8")
            self._tokenizer = tokie.Tokenizer.from_json(str(path))

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        ids, lengths = self._tokenizer.encode_batch_flat(values.to_pylist(), add_special_tokens=False)
        return ids, offsets_of(lengths)


class BytesEngine(Engine):
    """Every byte of the UTF-8 text is an id. As fast as memory."""

    name = "bytes"
    library = "tokenmill"
    traits = EngineTraits(knows_unicode=False)

    def __init__(self, definition: Definition) -> None:
        self._special = {}
        if definition.special_tokens == "parse":
            self._special = {token["content"].encode(): token["id"] for token in definition.added}
        self._pattern = re.compile(b"|".join(map(re.escape, self._special)) or rb"(?!)")

    @classmethod
    def can_run(cls, definition: Definition) -> bool:
        return len(definition.json or "") < SMALL_JSON and definition.json == bytes_definition().json

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        offsets = text_offsets(values)
        data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
        offsets = offsets - offsets[0]
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
