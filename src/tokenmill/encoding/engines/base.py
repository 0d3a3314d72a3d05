"""The contract of an engine: from an Arrow array of documents to one flat array of ids.

It treats special tokens in the text as its `Definition` says and adds nothing around the documents. Only the reference of a
tokenizer is trusted; every other engine has to be proved. `tokenmill.testing.engines` has the conformance tests for new ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.encoding.definition import Definition

if TYPE_CHECKING:
    import pyarrow as pa

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTraits:
    """What a build has to know about an engine."""

    device: Literal["cpu", "cuda"] = "cpu"  # where it computes
    in_process_only: bool = False  # it exists only in the process that created it, and cannot run in workers
    best_batch_bytes: int = 2 << 20  # how much text to pass to `encode` at once
    # Written in Python, well below 1 MB/s, and its own reference: a build uses small shards and every core.
    is_slow: bool = False
    can_fork: bool = True  # a process that has loaded it may be forked: it has no threads, and no CUDA in its process
    knows_unicode: bool = True  # its ids depend on properties of characters, and so on a version of Unicode


class Engine(ABC):
    """Turns documents into ids. Subclasses set `name`, `library` (the distribution it comes from) and `traits`."""

    name: str
    library: str
    traits: EngineTraits = EngineTraits()
    left_to_reference = 0  # documents so far that it has left to the reference
    device_lost: str = ""  # why it has lost the device it computes on, if it has; then the reference does its work

    @classmethod
    def can_run(cls, definition: Definition) -> bool:
        """Whether the engine can be tried with a tokenizer. By default: everything that has a tokenizer.json."""
        return definition.json is not None

    @abstractmethod
    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        """Return the ids of all documents concatenated, and len(values) + 1 offsets into them."""

    def preload(self) -> None:  # noqa: B027
        """Load what would otherwise be loaded when it is first needed. Called from another thread than `encode`."""


class Vocabulary(NamedTuple):
    """How many ids a tokenizer has, its added tokens by name, and the names of those that are special."""

    vocab_size: int
    added: dict[str, int]
    special_names: list[str]


class ReferenceEngine(Engine):
    """An engine that defines a tokenizer which may have no tokenizer.json. It also decodes and lists the vocabulary."""

    @classmethod
    def can_run(cls, definition: Definition) -> bool:
        return definition.reference == cls.name

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        return flatten(map(self.encode_one, values.to_pylist()))

    @abstractmethod
    def encode_one(self, text: str) -> list[int]: ...

    @abstractmethod
    def vocabulary(self) -> Vocabulary: ...

    @abstractmethod
    def decode_bytes(self, ids: list[int]) -> bytes:
        """Return the text of ids in UTF-8. The bytes are exact only if every token has bytes of its own."""


def offsets_of(lengths: Any) -> Offsets:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)), dtype=np.int64)


def flatten(documents: Iterable[list[int] | Ids]) -> tuple[Ids, Offsets]:
    """Lists of ids in the form that `Engine.encode` returns."""
    arrays = [np.empty(0, np.uint32), *(np.asarray(ids, np.uint32) for ids in documents)]
    return np.concatenate(arrays), np.cumsum([*map(len, arrays)], dtype=np.int64)


def interleaved(is_second: Any, first: tuple[Ids, Offsets], second: tuple[Ids, Offsets]) -> tuple[Ids, Offsets]:
    """The result for documents of which two engines have encoded a part each."""
    lengths = np.empty(len(is_second), np.int64)
    lengths[~is_second], lengths[is_second] = np.diff(first[1]), np.diff(second[1])
    offsets = offsets_of(lengths)
    ids = np.empty(int(offsets[-1]), np.uint32)
    of_second = np.repeat(is_second, lengths)
    ids[~of_second], ids[of_second] = first[0], second[0]
    return ids, offsets


def documents_at(positions: Offsets, offsets: Offsets) -> Offsets:
    """The documents in which these positions are, each once. np.unique would do that, and imports masked arrays for it."""
    documents = np.sort(np.searchsorted(offsets, positions, "right") - 1)
    return documents[np.diff(documents, prepend=-1) > 0]
