"""Texts -> Tokens: an engine, the ids around each document, and documents too long for one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tokenmill.batch import Tokens
from tokenmill.encoding.cutting import Rule, last_cut, safe_rules
from tokenmill.encoding.engines import Engine, Ids, Offsets, make_engine
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
    """A tokenizer ready to work in this process: engine, `bos`, `eos` and the dtype ids are stored in."""

    def __init__(
        self,
        engine_name: str,
        tokenizer_json: str,
        vocab_size: int,
        bos_id: int | None = None,
        eos_id: int | None = None,
    ) -> None:
        self.engine: Engine = make_engine(engine_name, tokenizer_json)
        self.vocab_size = vocab_size
        self.dtype = id_dtype(vocab_size)
        self.bos_id, self.eos_id = bos_id, eos_id
        self._engine_name, self._json = engine_name, tokenizer_json
        self._rules: list[Rule] | None = None

    def encode(self, values: pa.LargeStringArray) -> Tokens:
        """Encode documents whole; the result holds every id, `bos` and `eos` included, in the store's dtype."""
        ids, offsets = self._run(values)
        count = len(values)
        lead, trail = int(self.bos_id is not None), int(self.eos_id is not None)
        if not lead and not trail:
            return Tokens(ids.astype(self.dtype), offsets[1:].astype(np.int64))
        ends = offsets[1:] + np.arange(1, count + 1) * (lead + trail)
        out = np.empty(len(ids) + count * (lead + trail), self.dtype)
        own = np.ones(len(out), bool)
        if trail:
            own[ends - 1] = False
            out[ends - 1] = self.eos_id
        if lead:
            starts = ends - (offsets[1:] - offsets[:-1]) - lead - trail
            own[starts] = False
            out[starts] = self.bos_id
        out[own] = ids
        return Tokens(out, ends)

    def long_document(self) -> LongDocument:
        """Start a document that comes in parts."""
        return LongDocument(self)

    def refresh(self) -> None:
        """Load the engine anew: the caches of fast engines only ever grow."""
        self.engine = make_engine(self._engine_name, self._json)

    @property
    def rules(self) -> list[Rule]:
        """Where documents may be cut; proved on first use."""
        if self._rules is None:
            import tokenizers

            self._rules = safe_rules(tokenizers.Tokenizer.from_str(self._json))
        return self._rules

    def _run(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        """Call the engine, and check what no engine may do: fail, or give an id that is not in the vocabulary."""
        try:
            ids, offsets = self.engine.encode(values)
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
    """A document fed in parts. Holds at most the text since the last safe cut, never the whole."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._held = b""
        self._begun = False

    def feed(self, data: bytes) -> npt.NDArray[np.unsignedinteger]:
        """Take more of the document; returns the ids that are certain now."""
        self._held += data
        cut = last_cut(self._held, self._encoder.rules)
        if cut is None:
            if len(self._held) > UNCUT_BYTES:
                raise TooLong(f"no safe place to cut in {UNCUT_BYTES >> 20} MiB of text")
            return np.empty(0, self._encoder.dtype)
        first, rest = cut
        done, self._held = self._held[:first], self._held[rest:]
        return self._ids(done, last=False)

    def finish(self) -> npt.NDArray[np.unsignedinteger]:
        """The rest of the ids."""
        return self._ids(self._held, last=True)

    def _ids(self, data: bytes, last: bool) -> npt.NDArray[np.unsignedinteger]:
        import pyarrow as pa

        encoder = self._encoder
        buffers = [None, pa.py_buffer(np.array([0, len(data)], np.int64)), pa.py_buffer(data)]
        ids, _ = encoder._run(pa.Array.from_buffers(pa.large_string(), 1, buffers))
        around = [] if self._begun or encoder.bos_id is None else [encoder.bos_id]
        after = [encoder.eos_id] if last and encoder.eos_id is not None else []
        self._begun = True
        if not around and not after:
            return ids.astype(encoder.dtype)
        return np.concatenate((around, ids, after)).astype(encoder.dtype)


def id_dtype(vocab_size: int) -> np.dtype[np.unsignedinteger]:
    """The smallest dtype that holds every id of the vocabulary."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)
