"""Texts -> Tokens: an engine, the ids around each document, and documents too long for one call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tokenmill.documents import Tokens, text_offsets
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines import Engine, Ids, Offsets, PythonEngine, check_shape, make_engine
from tokenmill.encoding.guard import guarded
from tokenmill.encoding.safe_split import Rule, last_cut, safe_rules
from tokenmill.errors import EncodingError

if TYPE_CHECKING:
    import pyarrow as pa

# A document up to this size is encoded whole, in one call; a longer one is cut where that is proved harmless.
WHOLE_BYTES = 16 << 20
# A document with no safe place to cut in this many bytes is refused: encoding it whole would take about 10x in memory.
UNCUT_BYTES = 256 << 20


class TooLong(Exception):
    """A document is too long to encode whole and has no place where it may be cut."""


class EngineFailure(EncodingError):
    """An engine raised, or panicked, on some documents."""


class Encoder:
    """A tokenizer ready to work in this process: engine, `bos`, `eos` and the dtype ids are stored in.

    A document that begins with `bos` already, because its text says so, does not get another.
    """

    def __init__(
        self,
        definition: Definition,
        engine_name: str,
        vocab_size: int,
        bos_id: int | None = None,
        eos_id: int | None = None,
        special_ids: Sequence[int] = (),
        special_names: Sequence[str] = (),
        guard: Sequence[Sequence[int]] = (),
        live: Any = None,
    ) -> None:
        self._definition, self._engine_name, self._guard, self._live = definition, engine_name, tuple(guard), live
        self.engine: Engine = self._make()
        self.vocab_size = vocab_size
        self.dtype = id_dtype(vocab_size)
        self.bos_id, self.eos_id = bos_id, eos_id
        in_text = definition.special_tokens == "text"
        self.special_tokens: _SpecialNames | _SpecialIds = (
            _SpecialNames(special_names) if in_text else _SpecialIds(special_ids, vocab_size)
        )
        self._rules: list[Rule] | None = None

    def encode(self, values: pa.LargeStringArray) -> Tokens:
        """Encode documents whole; the result holds every id, `bos` and `eos` included, in the store's dtype."""
        ids, offsets = self.run(values)
        special = self.special_tokens.find(values, ids, offsets)
        if self.bos_id is None and self.eos_id is None:
            return Tokens(ids.astype(self.dtype), offsets[1:].astype(np.int64), special)
        lengths = offsets[1:] - offsets[:-1]
        lead = self._lead(ids, offsets, lengths)
        trail = int(self.eos_id is not None)
        ends = np.cumsum(lengths + lead + trail)
        out = np.empty(int(ends[-1]) if len(ends) else 0, self.dtype)
        own = np.ones(len(out), bool)
        if trail:
            own[ends - 1] = False
            out[ends - 1] = self.eos_id
        if self.bos_id is not None:
            starts = (ends - lengths - lead - trail)[lead > 0]
            own[starts] = False
            out[starts] = self.bos_id
        out[own] = ids
        return Tokens(out, ends, special)

    def _lead(self, ids: Ids, offsets: Offsets, lengths: Offsets) -> Offsets:
        """How many ids go before each document: one, or none where it begins with `bos` as it is."""
        if self.bos_id is None:
            return np.zeros(len(lengths), np.int64)
        first = ids[np.minimum(offsets[:-1], max(len(ids) - 1, 0))] if len(ids) else np.zeros(len(lengths), np.uint32)
        return np.where((lengths > 0) & (first == self.bos_id), 0, 1)

    def long_document(self) -> LongDocument:
        """Start a document that comes in parts."""
        return LongDocument(self)

    def refresh(self) -> None:
        """Load the engine anew: the caches of fast engines only ever grow."""
        self.engine = self._make()

    def _make(self) -> Engine:
        if self._engine_name == "live":
            return PythonEngine(self._definition, self._live)
        return guarded(make_engine(self._engine_name, self._definition), self._definition, self._guard)

    @property
    def rules(self) -> list[Rule]:
        """Where documents may be cut; proved on first use. None where the tokenizer.json is not what decides."""
        if self._rules is None:
            self._rules = []
            if self._definition.reference == "tokenizers":  # whichever engine runs it: all cut alike, or none does
                import tokenizers

                self._rules = safe_rules(tokenizers.Tokenizer.from_str(self._definition.engine_json))
        return self._rules

    def run(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        """Call the engine, and check what no engine may do: fail, or give an id that is not in the vocabulary."""
        try:
            ids, offsets = self.engine.encode(values)
            check_shape(self.engine.name, len(values), ids, offsets)
        except (KeyboardInterrupt, SystemExit, EncodingError):
            raise
        except BaseException as error:  # a panic in a Rust engine is not an Exception
            raise EngineFailure(
                f"{self.engine.name} failed on some of {len(values)} documents: {type(error).__name__}: {error}."
                " Worker processes find and quarantine such a document: give --workers 1 or more"
            ) from error
        if len(ids) and int(ids.max()) >= self.vocab_size:
            raise EncodingError(
                f"{self.engine.name} gave id {int(ids.max())}, outside the vocabulary of {self.vocab_size}"
                f" ({self.dtype} ids): the tokenizer file does not match itself; nothing was stored"
            )
        return ids, offsets


class LongDocument:
    """A document fed in parts. Holds at most the text since the last safe cut, never the whole.

    `special` says, at the end, whether it held a special token.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._held = b""
        self._passed = b""  # the last of what was encoded: a name may begin there and end in what comes
        self._begun = False
        self.special = False

    def feed(self, data: bytes) -> npt.NDArray[np.unsignedinteger]:
        """Take more of the document; returns the ids that are certain now."""
        self._held += data
        cut = last_cut(self._held, self._encoder.rules)
        if cut is None:
            if len(self._held) > UNCUT_BYTES:
                raise TooLong(f"no safe place to cut in {UNCUT_BYTES >> 20} MiB of text")
            return np.empty(0, self._encoder.dtype)
        first, rest = cut
        text, self._held = self._held[:rest], self._held[rest:]
        return self._ids(text, first, last=False)

    def finish(self) -> npt.NDArray[np.unsignedinteger]:
        """The rest of the ids."""
        return self._ids(self._held, len(self._held), last=True)

    def _ids(self, text: bytes, end: int, last: bool) -> npt.NDArray[np.unsignedinteger]:
        """The ids of a part. What stands after `end` is left out of it, but is part of the text."""
        encoder = self._encoder
        ids, offsets = encoder.run(_one_document(text[:end]))
        seen = self._passed + text
        self._passed = seen[max(0, len(seen) - encoder.special_tokens.reach) :]
        self.special |= len(encoder.special_tokens.find(_one_document(seen), ids, offsets)) > 0
        if not self._begun and not len(ids) and not last:
            return ids.astype(encoder.dtype)  # whether it begins with bos is not known yet
        has_bos = len(ids) > 0 and int(ids[0]) == encoder.bos_id
        around = [] if self._begun or encoder.bos_id is None or has_bos else [encoder.bos_id]
        after = [encoder.eos_id] if last and encoder.eos_id is not None else []
        self._begun = True
        if not around and not after:
            return ids.astype(encoder.dtype)
        return np.concatenate((around, ids, after)).astype(encoder.dtype)


class _SpecialIds:
    """Finds documents with special tokens by their ids. Those lie at the ends of a vocabulary: most blocks need two looks."""

    reach = 0

    def __init__(self, ids: Sequence[int], vocab_size: int) -> None:
        self._low = max((i for i in ids if i < vocab_size // 2), default=-1)
        self._high = min((i for i in ids if i >= vocab_size // 2), default=vocab_size)
        self._is_special = np.zeros(vocab_size, bool)
        self._is_special[list(ids)] = True

    def find(self, values: pa.LargeStringArray, ids: Ids, offsets: Offsets) -> Offsets:
        if not len(ids) or (int(ids.min()) > self._low and int(ids.max()) < self._high):
            return np.empty(0, np.int64)
        return _documents_of(np.flatnonzero(self._is_special[ids]), offsets)


class _SpecialNames:
    """Finds documents that hold the name of a special token as text, where such names have no ids."""

    def __init__(self, names: Sequence[str]) -> None:
        found = sorted((name.encode() for name in names if name), key=len, reverse=True)
        self.reach = max(map(len, found), default=1) - 1  # so far back may a name begin that is not whole yet
        self._starts = {name[:2] for name in found}
        self._pattern = re.compile(b"|".join(map(re.escape, found)) or rb"(?!)")

    def find(self, values: pa.LargeStringArray, ids: Ids, offsets: Offsets) -> Offsets:
        del ids, offsets
        bounds = text_offsets(values)
        raw = memoryview(values.buffers()[2] or b"")[int(bounds[0]) : int(bounds[-1])].tobytes()
        found: list[int] = []
        if any(start in raw for start in self._starts):
            bounds, at = bounds - bounds[0], 0
            while match := self._pattern.search(raw, at):
                document = int(np.searchsorted(bounds, match.start(), "right")) - 1
                at = int(bounds[document + 1])
                # One that reaches into the next document is none; but a shorter or a later one may lie in this.
                if match.end() <= at or self._pattern.search(raw, match.start(), at):
                    found.append(document)
        return np.array(found, np.int64)


def _documents_of(positions: Offsets, offsets: Offsets) -> Offsets:
    """Which documents some positions in the ids lie in."""
    return np.unique(np.searchsorted(offsets, positions, "right") - 1)


def _one_document(data: bytes) -> pa.LargeStringArray:
    import pyarrow as pa

    buffers = [None, pa.py_buffer(np.array([0, len(data)], np.int64)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), 1, buffers)


def id_dtype(vocab_size: int) -> np.dtype[np.unsignedinteger]:
    """The smallest dtype that holds every id of the vocabulary."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)
