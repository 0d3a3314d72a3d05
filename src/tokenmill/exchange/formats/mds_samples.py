"""Samples of MDS shards, many at a time: the sizes of columns that vary, then the values of all columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.errors import InputError
from tokenmill.exchange.file_ids import FileIds, UnpackedBytes, offsets_in
from tokenmill.exchange.other_columns import LABELS, MASK, UnkeptLabels, count_differing, without_padding
from tokenmill.exchange.selection import BLOCK_TOKENS, Block, Counts
from tokenmill.option_types import option_name

IDS = ("input_ids", "tokens", "ids")  # columns that hold ids, if a shard has several
WHOLE_NUMBERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of arrays of whole numbers. Unless all are of one shape, each value begins with its shape."""

    number: int
    dtype: np.dtype[Any]
    has_shape: bool


class Samples:
    """How the samples of a shard are read, by its entry in the index. Raises InputError if no column holds ids."""

    def __init__(self, path: Path, shard: dict[str, Any], dtype: str | None) -> None:
        self._path, self._said = path, shard.get("samples")
        names, encodings = [str(name) for name in shard["column_names"]], list(map(str, shard["column_encodings"]))
        self._sizes = [int(size) if size else None for size in shard["column_sizes"]]
        if not len(names) == len(encodings) == len(self._sizes):
            raise InputError(f"{path}: the index has another number of columns than of their encodings; it is damaged")
        arrays = {name: _array(i, encoding) for i, (name, encoding) in enumerate(zip(names, encodings, strict=True))}
        columns = {name: column for name, column in arrays.items() if column is not None}
        chosen = next((name for name in IDS if name in names), next(iter(columns)) if len(columns) == 1 else "")
        if not chosen:
            raise InputError(f"{path}: columns {', '.join(names)}; none is called {', '.join(IDS)}")
        number = names.index(chosen)
        if encodings[number] == "bytes":
            columns |= {chosen: _of_bytes(path, chosen, number, dtype)}
        if chosen not in columns:
            raise InputError(
                f"{path}: {chosen} is a column of {encodings[number]}, not of ids (ndarray:uint16 and the like)"
            )
        self.ids, self._mask, self._labels = columns[chosen], columns.get(MASK), columns.get(LABELS)

    def blocks(self, raw: FileIds | UnpackedBytes, unkept: UnkeptLabels) -> Iterator[Block]:
        """The ids of the samples."""
        offsets = offsets_in(self._path, raw, self._said)
        low, count, step = 0, len(offsets) - 1, BLOCK_TOKENS * self.ids.dtype.itemsize
        while low < count:
            upto = min(count, low + max(1, int(offsets[low + 1 :].searchsorted(offsets[low] + step, "right"))))
            part = raw[int(offsets[low]) : int(offsets[upto])]
            yield self._block(part, offsets[low : upto + 1] - offsets[low], unkept)
            low = upto

    def _block(self, part: Bytes, offsets: Counts, unkept: UnkeptLabels) -> Block:
        places = self._places(part, offsets)
        ids = self._values(part, places, self.ids)
        mask = None if self._mask is None else self._values(part, places, self._mask)
        kept, stays = without_padding(self._path, ids, mask)
        if self._labels is not None:
            unkept.documents += count_differing(ids, self._values(part, places, self._labels), stays)
        return kept

    def _places(self, part: Bytes, offsets: Counts) -> list[tuple[Counts, Counts]]:
        """Where each column is in each sample, and how many bytes it has there."""
        starts, whole = offsets[:-1], np.diff(offsets)
        head = 4 * self._sizes.count(None)
        if (whole < head).any():
            raise InputError(f"{self._path}: a sample without the sizes of its columns; the shard is damaged")
        places, at, said = [], starts + head, starts.copy()
        for size in self._sizes:
            if size is None:
                sizes, said = _numbers(part, said, np.full(len(said), 4)), said + 4
            else:
                sizes = np.full(len(starts), size, np.int64)
            places.append((at, sizes))
            at = at + sizes
        if (at != offsets[1:]).any():
            raise InputError(f"{self._path}: a sample has another size than its columns; the shard is damaged")
        return places

    def _values(self, part: Bytes, places: list[tuple[Counts, Counts]], column: Column) -> Block:
        """The numbers of a column."""
        (at, sizes), width = places[column.number], column.dtype.itemsize
        if not column.has_shape:
            at, sizes = self._after_shapes(part, at, sizes, width)
        if (sizes % width).any():
            raise InputError(f"{self._path}: a sample is not a whole number of ids; the shard is damaged")
        return Block(_gathered(part, at, sizes).view(column.dtype.newbyteorder("<")), sizes // width)

    def _after_shapes(self, part: Bytes, at: Counts, sizes: Counts, width: int) -> tuple[Counts, Counts]:
        """Where the numbers of values are that begin with the width of a length and the length."""
        if (sizes < 2).any():
            raise InputError(f"{self._path}: a sample without a length; the shard is damaged")
        kinds = part[at]
        if (kinds >> 2 != 1).any() or (kinds & 3 > 2).any():
            raise InputError(f"{self._path}: a sample that is not a list of ids")
        heads = 1 + (1 << (kinds & 3)).astype(np.int64)
        if (sizes < heads).any() or (_numbers(part, at + 1, heads - 1) * width != sizes - heads).any():
            raise InputError(f"{self._path}: a sample has another length than it says; the shard is damaged")
        return at + heads, sizes - heads


def _array(number: int, encoding: str) -> Column | None:
    """A column by its encoding, such as ndarray:uint16 or ndarray:int32:2048; None if it holds no arrays of whole numbers."""
    kind, _, rest = encoding.partition(":")
    name, _, shape = rest.partition(":")
    return Column(number, np.dtype(name), bool(shape)) if kind == "ndarray" and name in WHOLE_NUMBERS else None


def _of_bytes(path: Path, name: str, number: int, dtype: str | None) -> Column:
    """A column of bytes, as llm-foundry wrote them before it wrote arrays."""
    if dtype is None:
        raise InputError(f"{path}: {name} is a column of bytes: say of which ids, with {option_name('dtype', 'int64')}")
    return Column(number, np.dtype(dtype), has_shape=True)


def _numbers(part: Bytes, at: Counts, widths: Counts) -> Counts:
    """The numbers of up to 4 bytes at these places."""
    found = np.zeros(len(at), np.int64)
    for i in range(4):
        these = widths > i
        found[these] |= part[at[these] + i].astype(np.int64) << 8 * i
    return found


def _gathered(part: Bytes, starts: Counts, sizes: Counts) -> Bytes:
    """The bytes of some ranges, which follow each other, without what is between them."""
    runs = np.empty(2 * len(starts) + 1, np.int64)
    ends = starts + sizes
    runs[0:-1:2], runs[1::2], runs[-1] = starts - np.concatenate(([0], ends[:-1])), sizes, len(part) - ends[-1]
    is_wanted = np.arange(len(runs)) % 2 == 1
    return np.asarray(part[np.repeat(is_wanted, runs)], np.uint8)
