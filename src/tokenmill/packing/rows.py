"""Rows as arrays: ids, labels, position ids, document ids and masks, for many rows at once."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.errors import UsageError
from tokenmill.packing.best_fit import Numbers
from tokenmill.packing.layout import RowFormat
from tokenmill.packing.row_index import RowIndex
from tokenmill.packing.token_ranges import TokenRanges

IGNORED = -100  # the label that torch's cross-entropy ignores
Arrays = dict[str, Any]
Rows = dict[str, npt.NDArray[np.integer]]  # as users get them; only "max_seqlen" is an int


class PreparedRows:
    """Rows whose tokens and documents are found in the store. `arrays` copies the tokens of some of them.

    Finding takes about as many calls for a thousand rows as for one, so loaders prepare the rows of several batches together.
    """

    def __init__(self, tokens: TokenRanges, row_index: RowIndex, row_format: RowFormat, index: Numbers) -> None:
        self.tokens, self.row_index, self.row_format, self.index = tokens, row_index, row_format, index
        self.stretches = row_index.stretches(index)
        fields = row_format.fields
        needs_ids = "input_ids" in fields or "labels" in fields
        self.slices = tokens.slices(self.stretches.starts, self.stretches.lengths) if needs_ids else []
        one_each = len(self.stretches.rows) == len(index)
        self.slice_ends = (
            range(len(index) + 1) if one_each else _ends(np.bincount(self.stretches.rows, minlength=len(index)))
        )
        self.width = row_index.layout.seq_len
        self.short = bool(len(index)) and int(self.stretches.filled.min()) < self.width
        self.narrow = np.int16 if self.width <= 1 << 15 else np.int32  # holds positions and numbers in a row, and -1
        shifted = "labels" in fields and row_format.labels != "same"
        if row_format.tells_documents or shifted or "first" in row_format.mask_labels:
            self.pieces = row_index.pieces(self.stretches)
            self.piece_ends = _ends(self.pieces.in_rows)
            in_rows = self.pieces.in_rows
            first = np.repeat(np.cumsum(in_rows) - in_rows, in_rows)  # of the pieces in the same row
            self.numbers = (np.arange(len(first)) - first).astype(self.narrow)
            self.begins = self.pieces.begins.astype(self.narrow)
        if shifted:
            self.follows, self.continues = row_index.after(index, self.stretches, self.pieces)

    def arrays(self, low: int, high: int) -> Arrays:
        """The rows from `low` to `high` of those that were prepared, stacked."""
        return _Batch(self, low, high).arrays()


def _ends(counts: Numbers) -> list[int]:
    """0 and the running totals: what belongs to row i is from entry i to entry i + 1."""
    return [0, *np.cumsum(counts).tolist()]


class _Batch:
    """Rows that are being made into arrays. Flat positions count row after row, `width` positions each.

    Ids, positions and numbers are computed in a narrow dtype and widened when they are written to their array: most of the
    time goes into moving bytes.
    """

    def __init__(self, prepared: PreparedRows, low: int, high: int) -> None:
        self.prepared, self.low, self.high = prepared, low, high
        self.row_format = prepared.row_format
        self.index, self.filled = prepared.index[low:high], prepared.stretches.filled[low:high]
        self.width = prepared.row_index.width(self.index)
        self.shape = (high - low, self.width)
        self.short = prepared.short and min(self.filled.tolist(), default=self.width) < self.width

    def arrays(self) -> Arrays:
        row_format = self.row_format
        # One block for all fields: the allocator reuses it. Several large arrays would be returned to the system and mapped
        # in again, page by page, at every call.
        block = np.empty((len(row_format.plain_fields), *self.shape), row_format.dtype)
        arrays: Arrays = dict(zip(row_format.plain_fields, block, strict=True))
        ids = self._ids() if self.prepared.slices else np.empty(0, self.prepared.tokens.store.dtype)
        if "input_ids" in arrays:
            arrays["input_ids"].reshape(-1)[:] = ids
        if "labels" in arrays:
            self._labels(arrays["labels"], ids)
        if row_format.tells_documents:
            self._documents(arrays)
        if "attention_mask" in row_format.fields:
            arrays["attention_mask"] = np.ones(self.shape, np.int8)
            self._fill_padding(arrays["attention_mask"], 0)
        return arrays

    def _ids(self) -> npt.NDArray[np.unsignedinteger]:
        """The tokens of all rows with their padding, flat, in the dtype of the store."""
        ends, dtype = self.prepared.slice_ends, self.prepared.tokens.store.dtype
        parts = self.prepared.slices[ends[self.low] : ends[self.high]]
        if self.short:
            padding, right = np.full(self.width, self.row_format.pad_id, dtype), self.row_format.padding_side == "right"
            rows = [self.prepared.slices[ends[row] : ends[row + 1]] for row in range(self.low, self.high)]
            for row, gap in zip(rows, (self.width - self.filled).tolist(), strict=True):
                row.insert(len(row) if right else 0, padding[:gap])
            parts = list(chain.from_iterable(rows))
        return np.concatenate(parts) if parts else np.empty(0, dtype)

    def _fill_padding(self, array: npt.NDArray[Any], value: int) -> None:
        """Write one value to all positions that hold no token."""
        if self.short:
            right = self.row_format.padding_side == "right"
            for row, filled in enumerate(self.filled.tolist()):
                if right:
                    array[row, filled:] = value
                else:
                    array[row, : self.width - filled] = value

    def _labels(self, labels: npt.NDArray[Any], ids: npt.NDArray[np.unsignedinteger]) -> None:
        row_format, flat = self.row_format, labels.reshape(-1)
        if row_format.labels == "same":
            flat[:] = ids
            if "first" in row_format.mask_labels:
                flat[self._piece_places()] = IGNORED
        else:
            flat[:-1] = ids[1:]
            self._fill_padding(labels, row_format.pad_id)
            self._labels_at_ends(flat)
        if "padding" in row_format.mask_labels:
            self._fill_padding(labels, IGNORED)
        if "overlap" in row_format.mask_labels:
            position = np.arange(self.width) - self.gaps_before[:, None]
            seen = np.minimum(self.prepared.row_index.seen(self.index), self.filled)
            labels[(position >= 0) & (position < seen[:, None])] = IGNORED

    def _labels_at_ends(self, flat: npt.NDArray[Any]) -> None:
        """The shifted labels at the ends of pieces: the token that follows in the store or in the row, or none."""
        prepared, pieces = self.prepared, self._pieces
        last = self._piece_places() + prepared.pieces.lengths[pieces] - 1
        flat[last[np.cumsum(prepared.pieces.in_rows[self.low : self.high]) - 1]] = IGNORED
        follows = prepared.follows[pieces]
        elsewhere = follows >= 0
        if elsewhere.any():
            follows = follows[elsewhere]
            flat[last[elsewhere]] = np.concatenate(prepared.tokens.slices(follows, np.ones_like(follows)))
        if "first" in self.row_format.mask_labels:
            flat[last[~prepared.continues[pieces]]] = IGNORED

    def _documents(self, arrays: Arrays) -> None:
        """The arrays that tell documents apart. Padding counts as a piece of its own, with number -1."""
        fields, (begins, lengths, numbers) = self.row_format.fields, self._numbered_pieces()
        if "position_ids" in arrays:
            positions = np.repeat(begins, lengths)
            np.subtract(_positions(*self.shape, self.prepared.narrow), positions, out=positions)
            arrays["position_ids"].reshape(-1)[:] = positions
            self._fill_padding(arrays["position_ids"], 0)
        if "document_ids" in arrays:
            arrays["document_ids"].reshape(-1)[:] = np.repeat(numbers, lengths)
        if "cu_seqlens" in fields:
            arrays |= self._sequence_lengths(lengths)
        if "document_mask" in fields or "attention_mask_4d" in fields:
            mask = self._document_mask(np.repeat(numbers, lengths).reshape(self.shape))
            arrays |= {"document_mask": mask} if "document_mask" in fields else {}
            arrays |= {"attention_mask_4d": mask[:, None]} if "attention_mask_4d" in fields else {}

    def _numbered_pieces(self) -> tuple[npt.NDArray[Any], Numbers, npt.NDArray[Any]]:
        """The position, length and number in its row of each piece, and of the padding of each row, in order."""
        prepared, pieces = self.prepared, self._pieces
        begins, lengths, numbers = prepared.begins[pieces], prepared.pieces.lengths[pieces], prepared.numbers[pieces]
        if not self.short:
            return begins, lengths, numbers
        gaps = self.width - self.filled
        padded, before = np.flatnonzero(gaps), self.gaps_before
        at = padded * self.width + (self.filled - before)[padded] * (self.row_format.padding_side == "right")
        order = np.argsort(np.concatenate((self._piece_places(), at)))
        begins = begins + np.repeat(before, prepared.pieces.in_rows[self.low : self.high]).astype(begins.dtype)
        begins = np.concatenate((begins, np.zeros(len(at), begins.dtype)))[order]
        lengths = np.concatenate((lengths, gaps[padded]))[order]
        numbers = np.concatenate((numbers, np.full(len(at), -1, numbers.dtype)))[order]
        return begins, lengths, numbers

    def _sequence_lengths(self, lengths: Numbers) -> Arrays:
        """cu_seqlens and max_seqlen, as FlashAttention takes them."""
        positions = self.shape[0] * self.width
        if positions > np.iinfo(np.int32).max:
            raise UsageError(
                f"cu_seqlens: {self.shape[0]:,} rows of {self.width:,} have more positions than int32 can count; take fewer rows"
            )
        cu_seqlens = np.append(0, np.cumsum(lengths)).astype(np.int32)
        return {"cu_seqlens": cu_seqlens, "max_seqlen": int(lengths.max()) if len(lengths) else 0}

    def _document_mask(self, documents: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
        """1 where a position may attend to another: the same document, and not later."""
        same = (documents[:, :, None] == documents[:, None, :]) & (documents >= 0)[:, :, None]
        mask: npt.NDArray[np.int8] = (same & np.tri(self.width, dtype=np.bool_)).astype(np.int8)
        return mask

    @property
    def _pieces(self) -> slice:
        """Which of the prepared pieces are in these rows."""
        return slice(self.prepared.piece_ends[self.low], self.prepared.piece_ends[self.high])

    def _piece_places(self) -> Numbers:
        """The flat position of the first token of each piece."""
        pieces = self.prepared.pieces
        places = (pieces.rows[self._pieces] - self.low) * self.width + pieces.begins[self._pieces]
        if self.short and self.row_format.padding_side == "left":
            places += np.repeat(self.gaps_before, pieces.in_rows[self.low : self.high])
        return places

    @property
    def gaps_before(self) -> Numbers:
        """The padding before the first token of each row."""
        gaps = self.width - self.filled
        return gaps if self.row_format.padding_side == "left" else np.zeros_like(gaps)


@lru_cache(maxsize=1)
def _positions(rows: int, width: int, dtype: type[np.signedinteger[Any]]) -> npt.NDArray[np.signedinteger[Any]]:
    """0 to width - 1 for each row; cached, since most batches have the same size."""
    return np.tile(np.arange(width, dtype=dtype), rows)
