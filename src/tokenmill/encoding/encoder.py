"""From texts to tokens: an engine, the ids around each document, and documents too long for one call."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.documents import Tokens, flat_text, text_values
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines import check_shape, make_engine
from tokenmill.encoding.engines.base import Engine, Ids, Offsets, documents_at
from tokenmill.encoding.engines.guarded import guarded
from tokenmill.encoding.safe_split import Rule, cached_rules, last_cut
from tokenmill.encoding.tokenizer_json import only_added_tokens, produced_names
from tokenmill.errors import EncodingError
from tokenmill.option_types import option_name

if TYPE_CHECKING:
    import pyarrow as pa

# A document up to this size is encoded in one call. A longer one is split where that is proved not to change ids.
WHOLE_BYTES = 16 << 20
# A document with no safe split in this many bytes is rejected: encoding it whole takes about ten times its size in memory.
UNCUT_BYTES = 256 << 20


class TooLong(Exception):
    """A document is too long to encode whole and has no place where it can be split."""


class EngineFailure(EncodingError):
    """An engine raised an exception, or panicked, on some documents."""


class Encoded(NamedTuple):
    """What an engine gave for some documents, and the largest of the ids; -1 if there are none."""

    ids: Ids
    offsets: Offsets
    largest: int


@dataclass(eq=False, repr=False)
class Encoder:
    """A tokenizer loaded in this process: engine, `bos`, `eos`, and the dtype in which ids are stored.

    A document whose text starts with the `bos` token does not get a second one.
    """

    definition: Definition
    engine_name: str
    vocab_size: int
    bos_id: int | None = None
    eos_id: int | None = None
    special_ids: Sequence[int] = ()
    special_names: Sequence[str] = ()
    produced_ids: Sequence[int] = ()
    guard: Sequence[Sequence[int]] = ()
    live: Any = None

    def __post_init__(self) -> None:
        self.engine = self._make()
        self._device_lost, self._left_to_reference = "", 0  # before the engine was last constructed
        self.dtype = id_dtype(self.vocab_size)
        self.special_tokens: _SpecialNames | _SpecialIds = (
            _SpecialNames(self.special_names) if self.definition.special_tokens == "text" else _SpecialIds(self)
        )

    def encode(self, values: pa.LargeStringArray) -> Tokens:
        """Encode whole documents. The result has every id, including `bos` and `eos`, in the dtype of the store."""
        encoded = self.run(values)
        special = self.special_tokens.find(values, encoded)
        ids, offsets = encoded.ids, encoded.offsets
        if self.bos_id is None and self.eos_id is None:
            return Tokens(ids.astype(self.dtype), offsets[1:].astype(np.int64), special)
        lengths = np.diff(offsets)
        before, after = np.zeros(len(lengths), np.int64), int(self.eos_id is not None)
        if self.bos_id is not None:
            before[:] = 1
            has_text = lengths > 0
            before[has_text] = ids[offsets[:-1][has_text]] != self.bos_id
        ends = np.cumsum(lengths + before + after)
        starts = ends - lengths - before - after
        out = np.empty(len(ids) + int(before.sum()) + after * len(ends), self.dtype)
        is_text = np.ones(len(out), bool)
        for places, number in ((starts[before > 0], self.bos_id), (ends - 1, self.eos_id)):
            if number is not None:
                is_text[places] = False
                out[places] = number
        out[is_text] = ids
        return Tokens(out, ends, special)

    def refresh(self) -> None:
        """Construct the engine again, to free the memory of its caches. Those of fast engines only grow."""
        self._device_lost, self._left_to_reference = self.device_lost, self.left_to_reference
        del self.engine  # before the next one takes as much again
        self.engine = self._make()

    @property
    def left_to_reference(self) -> int:
        """How many documents the engine has left to the reference so far."""
        return self._left_to_reference + self.engine.left_to_reference

    @property
    def device_lost(self) -> str:
        """Why the engine has lost the device it computes on, if it has."""
        return self.engine.device_lost or self._device_lost

    def _make(self) -> Engine:
        return guarded(make_engine(self.engine_name, self.definition, self.live), self.definition, self.guard)

    @cached_property
    def rules(self) -> list[Rule]:
        """Where documents can be split, whatever the engine. Empty unless the tokenizer.json defines the ids."""
        return cached_rules(self.definition.engine_json) if self.definition.reference == "tokenizers" else []

    def run(self, values: pa.LargeStringArray) -> Encoded:
        """Call the engine. Raises EngineFailure if it fails, EncodingError if its result cannot be right."""
        try:
            ids, offsets = self.engine.encode(values)
            check_shape(self.engine.name, len(values), ids, offsets)
        except (KeyboardInterrupt, SystemExit, EncodingError):
            raise
        except BaseException as error:  # a panic in a Rust engine is not an Exception
            raise EngineFailure(
                f"{self.engine.name} failed on some of {len(values)} documents: {type(error).__name__}: {error}."
                f" Worker processes can find and quarantine such a document: use {option_name('workers', 1)} or more"
            ) from error
        largest = int(ids.max()) if len(ids) else -1
        if largest >= self.vocab_size:
            raise EncodingError(
                f"{self.engine.name} gave id {largest}, outside the vocabulary of {self.vocab_size}"
                f" ({self.dtype} ids): the tokenizer file is inconsistent; nothing was stored"
            )
        return Encoded(ids, offsets, largest)


class LongDocument:
    """A document that arrives in parts. Keeps only the text since the last safe split in memory.

    After `finish`, `special` says whether the document has a special token.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._pending = b""
        self._tail = b""  # the end of the text encoded so far: the name of a special token may start there
        self._started = False
        self.special = False

    @property
    def pending(self) -> int:
        """Bytes that wait for a safe split."""
        return len(self._pending)

    def feed(self, data: bytes) -> npt.NDArray[np.unsignedinteger]:
        """Add the next part of the document. Returns the ids that are final."""
        self._pending += data
        cut = last_cut(self._pending, self._encoder.rules)
        if cut is None:
            if len(self._pending) > UNCUT_BYTES:
                raise TooLong(f"no safe place to split in {UNCUT_BYTES >> 20} MiB of text")
            return np.empty(0, self._encoder.dtype)
        first, rest = cut
        text, self._pending = self._pending[:rest], self._pending[rest:]
        return self._encode(text, first, is_last=False)

    def finish(self) -> npt.NDArray[np.unsignedinteger]:
        return self._encode(self._pending, len(self._pending), is_last=True)

    def _encode(self, text: bytes, end: int, *, is_last: bool) -> npt.NDArray[np.unsignedinteger]:
        """Encode text[:end]. What follows is a space that the tokenizer adds by itself before the next part."""
        encoder = self._encoder
        encoded = encoder.run(_one_document(text[:end]))
        ids = encoded.ids
        searched = self._tail + text
        self._tail = searched[max(0, len(searched) - encoder.special_tokens.reach) :]
        self.special |= len(encoder.special_tokens.find(_one_document(searched), encoded)) > 0
        if not self._started and not len(ids) and not is_last:
            return ids.astype(encoder.dtype)  # it is not known yet whether the document starts with bos
        has_bos = len(ids) > 0 and int(ids[0]) == encoder.bos_id
        before = [] if self._started or encoder.bos_id is None or has_bos else [encoder.bos_id]
        after = [encoder.eos_id] if is_last and encoder.eos_id is not None else []
        self._started = True
        return np.concatenate((before, ids, after), dtype=encoder.dtype, casting="unsafe")


class _SpecialIds:
    """Finds documents with special tokens by id. These are at the ends of a vocabulary, so min and max usually suffice.

    An id that the model also produces, such as that of the unknown token, counts only if the text has the token's name.
    """

    reach = 0

    def __init__(self, encoder: Encoder) -> None:
        ids, size = [*encoder.special_ids, *encoder.produced_ids], encoder.vocab_size
        self._low = max((i for i in ids if i < size // 2), default=-1)
        self._high = min((i for i in ids if i >= size // 2), default=size)
        self._is_special, self._is_produced = np.zeros((2, size), bool)
        self._is_special[list(encoder.special_ids)] = True
        self._is_produced[list(encoder.produced_ids)] = True
        self._definition = encoder.definition

    def find(self, values: pa.LargeStringArray, encoded: Encoded) -> Offsets:
        ids, offsets, largest = encoded
        if not len(ids) or (largest < self._high and (self._low < 0 or int(ids.min()) > self._low)):
            return np.empty(0, np.int64)
        found = documents_at(np.flatnonzero(self._is_special[ids]), offsets)
        if not self._is_produced.any():
            return found
        maybe = np.setdiff1d(documents_at(np.flatnonzero(self._is_produced[ids]), offsets), found)
        return np.union1d(found, self._named.among(maybe, values, encoded)) if len(maybe) else found

    @cached_property
    def _named(self) -> _ProducedNames:
        return _ProducedNames(self._definition)


class _ProducedNames:
    """Finds documents where the name of a special token is recognized that the model also produces for unknown text."""

    def __init__(self, definition: Definition) -> None:
        parsed = json.loads(definition.json or "{}")
        names, added = produced_names(parsed), parsed["added_tokens"]
        normalized = parsed["normalizer"] and any(t["normalized"] for t in added if t["content"] in names)
        self._search = None if normalized else _SpecialNames(list(names))
        self._matcher = make_engine("tokenizers", Definition(only_added_tokens(parsed)))
        self._is_produced = np.array([False, *(token["content"] in names for token in added)])

    def among(self, documents: Offsets, values: pa.LargeStringArray, encoded: Encoded) -> Offsets:
        if self._search is not None:
            documents = np.intersect1d(documents, self._search.find(values, encoded))
        ids, offsets = self._matcher.encode(values.take(documents))
        return documents[documents_at(np.flatnonzero(self._is_produced[ids]), offsets)]


class _SpecialNames:
    """Finds documents with the name of a special token as text, for the policy where such names do not become ids."""

    def __init__(self, names: Sequence[str]) -> None:
        encoded = sorted((name.encode() for name in names if name), key=len, reverse=True)
        self.reach = max(map(len, encoded), default=1) - 1  # how far before the end of a text an incomplete name starts
        self._starts = {name[:2] for name in encoded}
        self._pattern = re.compile(b"|".join(map(re.escape, encoded)) or rb"(?!)")

    def find(self, values: pa.LargeStringArray, _: Encoded) -> Offsets:
        data, bounds = flat_text(values)
        raw, at = data.tobytes(), 0
        documents: list[int] = []
        if any(start in raw for start in self._starts):
            while match := self._pattern.search(raw, at):
                document = int(np.searchsorted(bounds, match.start(), "right")) - 1
                at = int(bounds[document + 1])
                # A match that continues in the next document does not count, but this one may have a shorter or later one.
                if match.end() <= at or self._pattern.search(raw, match.start(), at):
                    documents.append(document)
        return np.array(documents, np.int64)


def _one_document(data: bytes) -> pa.LargeStringArray:
    return text_values(np.array([0, len(data)], np.int64), data)


def id_dtype(vocab_size: int) -> np.dtype[np.unsignedinteger]:
    """The smallest dtype that holds every id of the vocabulary."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)
