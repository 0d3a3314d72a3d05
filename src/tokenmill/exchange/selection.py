"""What is exported: the documents of a store, all of them or those of a split, in order and in bounded memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.exchange.file_ids import READ_TOKENS, FileIds
from tokenmill.packing.splits import Chooser, Split, chosen_by
from tokenmill.store.columns import HEADER_BYTES, IDS, column_path, open_column
from tokenmill.store.store import Store
from tokenmill.store.stream import Documents, all_documents

BLOCK_TOKENS = 1 << 22  # about so many are handled together; a longer document is a block of its own
Counts = npt.NDArray[np.int64]


class Block(NamedTuple):
    """Consecutive documents: their ids end to end, and the number of tokens of each."""

    ids: npt.NDArray[Any]
    lengths: Counts


class Selection:
    """Documents of a store: those that are in all of `splits`, or all documents."""

    def __init__(self, store: Store, splits: tuple[Split, ...] = ()) -> None:
        self.store, self.splits = store, splits

    @cached_property
    def _chooser(self) -> Chooser | None:
        return chosen_by(self.store, self.splits)

    @cached_property
    def shard_counts(self) -> list[tuple[int, int]]:
        """The documents and tokens that are chosen from each shard."""
        manifest = self.store._manifest
        if self._chooser is None:
            return list(zip(manifest.shard_documents, manifest.shard_tokens, strict=True))
        counts = [(0, 0)] * self.store.num_shards
        for documents in all_documents(self.store):
            chosen = documents.lengths[self._chooser(documents)]
            before = counts[documents.shard]
            counts[documents.shard] = before[0] + len(chosen), before[1] + int(chosen.sum())
        return counts

    @cached_property
    def _document_ends(self) -> list[int]:
        return list(accumulate(documents for documents, _ in self.shard_counts))

    @property
    def documents(self) -> int:
        return self._document_ends[-1] if self._document_ends else 0

    @cached_property
    def tokens(self) -> int:
        return sum(tokens for _, tokens in self.shard_counts)

    @cached_property
    def key(self) -> list[Any]:
        """What the tokens and the borders of the documents depend on, as JSON values."""
        manifest = self.store._manifest
        around = [manifest.tokenizer["fingerprint"], manifest.options["bos"], manifest.options["eos"], manifest.dtype]
        return [*around, [split.key(self.store) for split in self.splits]]

    def tokens_in(self, first: int, stop: int) -> int:
        """The tokens of the documents [first, stop), which are those of whole shards."""
        counts = zip(self._document_ends, self.shard_counts, strict=True)
        return sum(tokens for end, (_, tokens) in counts if first < end <= stop)

    def key_of(self, first: int, stop: int) -> list[Any]:
        """The same for the documents [first, stop) alone: the shards they are in, and where they are in these."""
        low, high = self._shard_of(first), self._shard_of(max(first, stop - 1))
        starts = [0, *self._document_ends]
        shards = self.store._manifest.shard_ids[low : high + 1]
        return [*self.key, shards, first - starts[low], stop - first]

    def _shard_of(self, document: int) -> int:
        return min(bisect_right(self._document_ends, document), max(0, self.store.num_shards - 1))

    def blocks(self, first: int = 0, stop: int | None = None) -> Iterator[Block]:
        """The documents [first, stop), numbered as in this selection."""
        stop = self.documents if stop is None else stop
        for documents, mask in self._chosen(first, stop):
            yield from self._read(documents, mask)

    def _chosen(self, first: int, stop: int) -> Iterator[tuple[Documents, npt.NDArray[np.bool_]]]:
        """The documents [first, stop) shard by shard: what is in the shards, and which of them these are."""
        if first >= stop:
            return
        shard = self._shard_of(first)
        number = self._document_ends[shard] - self.shard_counts[shard][0]  # of the next chosen document
        for documents in all_documents(self.store, shard):
            mask = np.ones(len(documents.lengths), bool) if self._chooser is None else self._chooser(documents)
            numbers = np.cumsum(mask) + (number - 1)
            number += int(mask.sum())
            mask = mask & (numbers >= first) & (numbers < stop)
            if mask.any():
                yield documents, mask
            if number >= stop:
                return

    def lengths(self, first: int = 0, stop: int | None = None) -> Iterator[Counts]:
        """The tokens of each of the documents [first, stop). Reads no ids."""
        for documents, mask in self._chosen(first, self.documents if stop is None else stop):
            yield documents.lengths[mask]

    def flat(self, first: int = 0, stop: int | None = None) -> Iterator[npt.NDArray[Any]]:
        """The ids of the documents [first, stop) end to end, in small parts."""
        stop = self.documents if stop is None else stop
        for documents, mask in self._chosen(first, stop):
            if not mask.all():
                yield from (block.ids for block in self._read(documents, mask))
                continue
            ids = self._ids(documents.shard)
            at = int(documents.starts[0]) - self.store._token_starts[documents.shard]
            end = at + int(documents.lengths.sum())
            for low in range(at, end, READ_TOKENS):
                yield ids[low : min(end, low + READ_TOKENS)]

    def _ids(self, shard: int) -> FileIds:
        """The ids of a shard. Raises CorruptError if its file is not what the manifest says."""
        manifest = self.store._manifest
        path = column_path(self.store.path / "shards", manifest.shard_ids[shard], IDS)
        column = open_column(path, self.store.dtype, manifest.shard_tokens[shard])
        if self.store._first_touch is not None:
            self.store._first_touch[IDS].check(shard, 0, len(column), column)
        return FileIds(path, self.store.dtype, HEADER_BYTES, manifest.shard_tokens[shard])

    def _read(self, documents: Documents, mask: npt.NDArray[np.bool_]) -> Iterator[Block]:
        """The chosen ones of some documents of a shard."""
        chosen = np.flatnonzero(mask)
        ids = self._ids(documents.shard)
        starts = documents.starts - self.store._token_starts[documents.shard]
        ends = starts + documents.lengths
        low, high = int(chosen[0]), int(chosen[-1]) + 1
        while low < high:
            fitting = int(ends[low:high].searchsorted(starts[low] + BLOCK_TOKENS, "right"))
            upto = low + max(1, fitting)
            kept, lengths = mask[low:upto], documents.lengths[low:upto]
            part = ids[int(starts[low]) : int(ends[upto - 1])]
            if not kept.all():
                part, lengths = part[np.repeat(kept, lengths)], lengths[kept]
            if len(lengths):
                yield Block(part, lengths)
            low = upto
