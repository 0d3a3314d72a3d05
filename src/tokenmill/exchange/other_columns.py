"""Columns beside the ids: an attention mask says which ids are padding; labels are compared, for a store does not keep them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.errors import InputError
from tokenmill.exchange.selection import Block, Counts

MASK, LABELS = "attention_mask", "labels"


@dataclass(slots=True)
class UnkeptLabels:
    """How many documents have labels that differ from their ids, of those that were read so far."""

    documents: int = 0


def without_padding(path: Path, block: Block, mask: Block | None) -> tuple[Block, npt.NDArray[np.bool_] | None]:
    """Documents without the ids where the mask is 0, and which ids stay; None if all do."""
    if mask is None:
        return block, None
    if not np.array_equal(mask.lengths, block.lengths):
        raise InputError(f"{path}: {MASK} has another number of values than the document has ids; it is damaged")
    stays = mask.ids.astype(np.bool_, copy=False)
    return (block, None) if stays.all() else (Block(block.ids[stays], _sums(stays, block.lengths)), stays)


def count_differing(block: Block, labels: Block, stays: npt.NDArray[np.bool_] | None) -> int:
    """How many documents have labels that are not their ids. Labels of padding do not matter."""
    ids, lengths = block
    same = lengths == labels.lengths
    values = labels.ids
    stays = np.ones(len(ids), np.bool_) if stays is None else stays
    if not same.all():
        here = np.repeat(same, lengths)
        ids, stays = ids[here], stays[here]
        values = values[np.repeat(same, np.maximum(labels.lengths, 0))]  # a null has no values
    differs = (ids != values) & stays
    documents = int((~same).sum())
    return documents + int((_sums(differs, lengths[same]) > 0).sum()) if differs.any() else documents


def _sums(flags: npt.NDArray[Any], lengths: Counts) -> Counts:
    """How many flags are set in each document."""
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(flags, dtype=np.int64)))
    ends = np.cumsum(lengths)
    return np.asarray(before[ends] - before[ends - lengths], np.int64)
