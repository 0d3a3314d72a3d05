"""Engines that are faster than `tokenizers`. They are used where they are proved to give the same ids."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

import numpy as np

from tokenmill.documents import flat_text, text_offsets
from tokenmill.encoding.definition import Definition, bytes_definition
from tokenmill.encoding.engines.base import Engine, EngineTraits, Ids, Offsets

if TYPE_CHECKING:
    import pyarrow as pa

# awkward misspells the name of this error handler, which nothing notices but `python -X dev`.
codecs.register_error("surrogatescape", codecs.lookup_error("surrogateescape"))
_BPE = re.compile(r'"type":\s*"BPE"')  # a quotation mark inside a token is escaped
_CHARACTERS, _STRINGS = {"__array__": "char"}, {"__array__": "string"}


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

        content = ak.contents.NumpyArray(np.frombuffer(values.buffers()[2] or b"", np.uint8), parameters=_CHARACTERS)
        texts = ak.contents.ListOffsetArray(ak.index.Index64(text_offsets(values)), content, parameters=_STRINGS)
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
