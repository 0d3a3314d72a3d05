"""Rows as arrays: ids, labels, positions, documents and masks, for many rows at once."""

from __future__ import annotations

from functools import cached_property, lru_cache
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.errors import UsageError
from tokenmill.packing.layout import RowFormat
from tokenmill.packing.row_index import Geometry, Numbers, RowPieces
from tokenmill.store import Store
from tokenmill.store.stream import slices

IGNORED = -100  # the label that cross-entropy leaves out
Arrays = dict[str, Any]


def show(store: Store, geometry: Geometry, look: RowFormat, index: Numbers) -> Arrays:
    """The rows `index`, stacked. Makes what was asked for and nothing else; a slice of the store per stretch of tokens."""
    return _Batch(store, geometry, look, index).arrays()


class _Batch:
    """Some rows on their way to arrays. Everything is laid out flat: row after row, `width` positions each."""

    def __init__(self, store: Store, geometry: Geometry, look: RowFormat, index: Numbers) -> None:
        self.store, self.geometry, self.look, self.index = store, geometry, look, index
        self.width = geometry.width(index)
        self.shape = (len(index), self.width)
        self.stretches = geometry.stretches(index)
        self.short = min(self.stretches.filled.tolist(), default=self.width) < self.width
        self.ids = self._ids() if "input_ids" in look.fields or "labels" in look.fields else np.empty(0, store.dtype)

    def arrays(self) -> Arrays:
        look = self.look
        # One block for all fields: the allocator keeps and reuses it, where several large arrays would go back to the
        # system and be mapped in again, page by page, at every call.
        block = np.empty((len(look.fields), *self.shape), look.dtype)
        found: Arrays = dict(zip(look.fields, block, strict=True))
        if "input_ids" in found:
            found["input_ids"].reshape(-1)[:] = self.ids
        if "labels" in found:
            self._labels(found["labels"], found.get("input_ids"))
        if look.tells_documents:
            self._documents(found)
        if "attention_mask" in look.extra:
            found["attention_mask"] = (~self.padding).astype(np.int8)
        return found

    def _ids(self) -> npt.NDArray[np.unsignedinteger]:
        """The tokens of all rows with their padding, flat, as the store has them."""
        parts = slices(self.store, self.stretches.starts.tolist(), self.stretches.lengths.tolist())
        if self.short:
            padding = np.full(self.width, self.look.pad_id, self.store.dtype)
            room, right = (self.width - self.stretches.filled).tolist(), self.look.padding_side == "right"
            rows: list[list[npt.NDArray[np.unsignedinteger]]] = [[] for _ in room]
            for row, part in zip(self.stretches.rows.tolist(), parts, strict=True):
                rows[row].append(part)
            for row, more in enumerate(room):
                rows[row].insert(len(rows[row]) if right else 0, padding[:more])
            parts = list(chain.from_iterable(rows))
        return np.concatenate(parts) if parts else np.empty(0, self.store.dtype)

    def _labels(self, labels: npt.NDArray[Any], ids: npt.NDArray[Any] | None) -> None:
        look, flat = self.look, labels.reshape(-1)
        if look.labels == "same":
            flat[:] = self.ids if ids is None else ids.reshape(-1)
            if "first" in look.mask_labels:
                flat[self.pieces.places] = IGNORED
        else:
            flat[:-1] = self.ids[1:]
            if self.short:
                labels[self.padding] = look.pad_id
            self._follow(flat)
        if self.short and "padding" in look.mask_labels:
            labels[self.padding] = IGNORED
        if "overlap" in look.mask_labels:
            before = _upto(flat.size).reshape(self.shape) - self.row_places[:, None]
            seen = np.minimum(self.geometry.seen(self.index), self.stretches.filled)
            labels[(before >= 0) & (before < seen[:, None])] = IGNORED

    def _follow(self, flat: npt.NDArray[Any]) -> None:
        """Shifted labels where a piece ends: what follows it in the store, in the row, or nothing."""
        pieces = self.pieces
        follows, continues = self.geometry.after(self.index, self.stretches, pieces)
        last = pieces.places + pieces.lengths - 1
        flat[last[np.cumsum(pieces.in_rows) - 1]] = IGNORED
        elsewhere = follows >= 0
        if elsewhere.any():
            flat[last[elsewhere]] = np.concatenate(slices(self.store, follows[elsewhere].tolist(), repeat(1)))
        if "first" in self.look.mask_labels:
            flat[last[~continues]] = IGNORED

    def _documents(self, found: Arrays) -> None:
        """Everything that tells documents apart. Padding is laid out as a piece of its own, with number -1."""
        look, (_, begins, lengths, in_rows) = self.look, self.pieces
        numbers = np.arange(len(begins)) - np.repeat(np.cumsum(in_rows) - in_rows, in_rows)
        if self.short:
            room = self.width - self.stretches.filled
            padded = np.flatnonzero(room)
            at = padded * self.width + (self.stretches.filled[padded] if look.padding_side == "right" else 0)
            order = np.argsort(np.concatenate((begins, at)))
            begins = np.concatenate((begins, at))[order]
            lengths = np.concatenate((lengths, room[padded]))[order]
            numbers = np.concatenate((numbers, np.full(len(at), -1)))[order]
        if "position_ids" in found:
            flat = found["position_ids"].reshape(-1)
            np.subtract(_upto(flat.size), np.repeat(begins, lengths), out=flat, casting="same_kind")
            if self.short:
                found["position_ids"][self.padding] = 0
        if "document_ids" in found:
            found["document_ids"].reshape(-1)[:] = np.repeat(numbers, lengths)
        if "cu_seqlens" in look.extra:
            if self.shape[0] * self.width > np.iinfo(np.int32).max:
                raise UsageError(
                    f"cu_seqlens: {self.shape[0]:,} rows of {self.width:,} are more positions than int32 counts; take fewer rows"
                )
            found["cu_seqlens"] = np.append(begins, self.shape[0] * self.width).astype(np.int32)
            found["max_seqlen"] = int(lengths.max()) if len(lengths) else 0
        if "block_mask" in look.extra or "block_mask_4d" in look.extra:
            owners = np.repeat(numbers, lengths).reshape(self.shape)
            same = (owners[:, :, None] == owners[:, None, :]) & (owners >= 0)[:, :, None]
            mask = (same & np.tri(self.width, dtype=np.bool_)).astype(np.int8)
            found |= {"block_mask": mask} if "block_mask" in look.extra else {}
            found |= {"block_mask_4d": mask[:, None]} if "block_mask_4d" in look.extra else {}

    @cached_property
    def pieces(self) -> RowPieces:
        return self.geometry.pieces(self.stretches, self.row_places)

    @cached_property
    def row_places(self) -> Numbers:
        """Where the tokens of each row begin."""
        left = self.look.padding_side == "left"
        return np.arange(len(self.index)) * self.width + (self.width - self.stretches.filled if left else 0)

    @cached_property
    def padding(self) -> npt.NDArray[np.bool_]:
        """Which positions hold no token."""
        place, filled = np.arange(self.width), self.stretches.filled[:, None]
        return place >= filled if self.look.padding_side == "right" else place < self.width - filled


@lru_cache(maxsize=1)
def _upto(count: int) -> Numbers:
    """The positions of a batch; kept, since most batches are of one size."""
    return np.arange(count)
