"""Rows as arrays: ids, labels, position ids, document ids and masks, for many rows at once."""

from __future__ import annotations

from functools import cached_property, lru_cache
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.errors import UsageError
from tokenmill.packing.best_fit import Numbers
from tokenmill.packing.layout import RowFormat
from tokenmill.packing.row_index import RowIndex, RowPieces
from tokenmill.store.store import Store
from tokenmill.store.stream import slices

IGNORED = -100  # the label that torch's cross-entropy ignores
Arrays = dict[str, Any]


def make_rows(store: Store, row_index: RowIndex, row_format: RowFormat, index: Numbers) -> Arrays:
    """The rows `index`, stacked. Costs one slice of the store per stretch of tokens, and only the arrays of the format."""
    return _Batch(store, row_index, row_format, index).arrays()


class _Batch:
    """Rows that are being made into arrays. Positions are flat: row after row, `width` positions each."""

    def __init__(self, store: Store, row_index: RowIndex, row_format: RowFormat, index: Numbers) -> None:
        self.store, self.row_index, self.row_format, self.index = store, row_index, row_format, index
        self.width = row_index.width(index)
        self.shape = (len(index), self.width)
        self.stretches = row_index.stretches(index)
        self.short = min(self.stretches.filled.tolist(), default=self.width) < self.width
        needs_ids = "input_ids" in row_format.fields or "labels" in row_format.fields
        self.ids = self._ids() if needs_ids else np.empty(0, store.dtype)

    def arrays(self) -> Arrays:
        row_format = self.row_format
        # One block for all fields: the allocator reuses it. Several large arrays would be returned to the system and mapped
        # in again, page by page, at every call.
        block = np.empty((len(row_format.plain_fields), *self.shape), row_format.dtype)
        arrays: Arrays = dict(zip(row_format.plain_fields, block, strict=True))
        if "input_ids" in arrays:
            arrays["input_ids"].reshape(-1)[:] = self.ids
        if "labels" in arrays:
            self._labels(arrays["labels"], arrays.get("input_ids"))
        if row_format.tells_documents:
            self._documents(arrays)
        if "attention_mask" in row_format.fields:
            arrays["attention_mask"] = (~self.padding).astype(np.int8)
        return arrays

    def _ids(self) -> npt.NDArray[np.unsignedinteger]:
        """The tokens of all rows with their padding, flat, in the dtype of the store."""
        parts = slices(self.store, self.stretches.starts.tolist(), self.stretches.lengths.tolist())
        if self.short:
            padding = np.full(self.width, self.row_format.pad_id, self.store.dtype)
            gaps, right = (self.width - self.stretches.filled).tolist(), self.row_format.padding_side == "right"
            rows: list[list[npt.NDArray[np.unsignedinteger]]] = [[] for _ in gaps]
            for row, part in zip(self.stretches.rows.tolist(), parts, strict=True):
                rows[row].append(part)
            for row, gap in enumerate(gaps):
                rows[row].insert(len(rows[row]) if right else 0, padding[:gap])
            parts = list(chain.from_iterable(rows))
        return np.concatenate(parts) if parts else np.empty(0, self.store.dtype)

    def _labels(self, labels: npt.NDArray[Any], ids: npt.NDArray[Any] | None) -> None:
        row_format, flat = self.row_format, labels.reshape(-1)
        if row_format.labels == "same":
            flat[:] = self.ids if ids is None else ids.reshape(-1)
            if "first" in row_format.mask_labels:
                flat[self.pieces.places] = IGNORED
        else:
            flat[:-1] = self.ids[1:]
            if self.short:
                labels[self.padding] = row_format.pad_id
            self._labels_at_ends(flat)
        if self.short and "padding" in row_format.mask_labels:
            labels[self.padding] = IGNORED
        if "overlap" in row_format.mask_labels:
            position = _positions(flat.size).reshape(self.shape) - self.row_places[:, None]
            seen = np.minimum(self.row_index.seen(self.index), self.stretches.filled)
            labels[(position >= 0) & (position < seen[:, None])] = IGNORED

    def _labels_at_ends(self, flat: npt.NDArray[Any]) -> None:
        """The shifted labels at the ends of pieces: the token that follows in the store or in the row, or none."""
        pieces = self.pieces
        follows, continues = self.row_index.after(self.index, self.stretches, pieces)
        last = pieces.places + pieces.lengths - 1
        flat[last[np.cumsum(pieces.in_rows) - 1]] = IGNORED
        elsewhere = follows >= 0
        if elsewhere.any():
            flat[last[elsewhere]] = np.concatenate(slices(self.store, follows[elsewhere].tolist(), repeat(1)))
        if "first" in self.row_format.mask_labels:
            flat[last[~continues]] = IGNORED

    def _documents(self, arrays: Arrays) -> None:
        """The arrays that tell documents apart. Padding counts as a piece of its own, with number -1."""
        begins, lengths, numbers = self._numbered_pieces()
        fields = self.row_format.fields
        if "position_ids" in arrays:
            flat = arrays["position_ids"].reshape(-1)
            np.subtract(_positions(flat.size), np.repeat(begins, lengths), out=flat, casting="same_kind")
            if self.short:
                arrays["position_ids"][self.padding] = 0
        if "document_ids" in arrays:
            arrays["document_ids"].reshape(-1)[:] = np.repeat(numbers, lengths)
        if "cu_seqlens" in fields:
            arrays |= self._sequence_lengths(begins, lengths)
        if "document_mask" in fields or "attention_mask_4d" in fields:
            mask = self._document_mask(np.repeat(numbers, lengths).reshape(self.shape))
            arrays |= {"document_mask": mask} if "document_mask" in fields else {}
            arrays |= {"attention_mask_4d": mask[:, None]} if "attention_mask_4d" in fields else {}

    def _numbered_pieces(self) -> tuple[Numbers, Numbers, Numbers]:
        """The flat position, length and number in its row of each piece, and of the padding of each row, in order."""
        _, begins, lengths, in_rows = self.pieces
        numbers = np.arange(len(begins)) - np.repeat(np.cumsum(in_rows) - in_rows, in_rows)
        if not self.short:
            return begins, lengths, numbers
        gaps = self.width - self.stretches.filled
        padded = np.flatnonzero(gaps)
        at = padded * self.width + (self.stretches.filled[padded] if self.row_format.padding_side == "right" else 0)
        begins = np.concatenate((begins, at))
        order = np.argsort(begins)
        lengths = np.concatenate((lengths, gaps[padded]))[order]
        numbers = np.concatenate((numbers, np.full(len(at), -1)))[order]
        return begins[order], lengths, numbers

    def _sequence_lengths(self, begins: Numbers, lengths: Numbers) -> Arrays:
        """cu_seqlens and max_seqlen, as FlashAttention takes them."""
        positions = self.shape[0] * self.width
        if positions > np.iinfo(np.int32).max:
            raise UsageError(
                f"cu_seqlens: {self.shape[0]:,} rows of {self.width:,} have more positions than int32 can count; take fewer rows"
            )
        cu_seqlens = np.append(begins, positions).astype(np.int32)
        return {"cu_seqlens": cu_seqlens, "max_seqlen": int(lengths.max()) if len(lengths) else 0}

    def _document_mask(self, documents: Numbers) -> npt.NDArray[np.int8]:
        """1 where a position may attend to another: the same document, and not later."""
        same = (documents[:, :, None] == documents[:, None, :]) & (documents >= 0)[:, :, None]
        mask: npt.NDArray[np.int8] = (same & np.tri(self.width, dtype=np.bool_)).astype(np.int8)
        return mask

    @cached_property
    def pieces(self) -> RowPieces:
        return self.row_index.pieces(self.stretches, self.row_places)

    @cached_property
    def row_places(self) -> Numbers:
        """The flat position of the first token of each row."""
        left = self.row_format.padding_side == "left"
        return np.arange(len(self.index)) * self.width + (self.width - self.stretches.filled if left else 0)

    @cached_property
    def padding(self) -> npt.NDArray[np.bool_]:
        """Which positions hold no token."""
        place, filled = np.arange(self.width), self.stretches.filled[:, None]
        return place >= filled if self.row_format.padding_side == "right" else place < self.width - filled


@lru_cache(maxsize=1)
def _positions(count: int) -> Numbers:
    """0 to count - 1; cached, since most batches have the same size."""
    return np.arange(count)
