"""Packed rows in exports: which views have rows that fit into files, and which rows go into which file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tokenmill.errors import UsageError
from tokenmill.exchange.selection import BLOCK_TOKENS
from tokenmill.options import ExportOptions
from tokenmill.packing.view import View

WITHOUT_ROWS = ("cu_seqlens", "attention_mask_4d", "document_mask")  # not one value per position


def check_rows(view: View) -> None:
    """Raise UsageError for a view whose rows have no common width, or arrays of another shape."""
    if view._layout.buckets:
        raise UsageError("rows of several widths (buckets) do not fit into one table: pack without buckets")
    if wrong := [name for name in view._row_format.fields if name in WITHOUT_ROWS]:
        raise UsageError(f"{wrong[0]} has no value per position: leave it out of fields")


def row_ranges(view: View, options: ExportOptions, tokens: int) -> list[tuple[int, int]]:
    """The rows of each file."""
    check_rows(view)
    step = options.rows_per_file or max(1, tokens // view.seq_len)
    ranges = [(low, min(len(view), low + step)) for low in range(0, len(view), step)] or [(0, 0)]
    return ranges if options.max_chunks is None else ranges[: options.max_chunks]


def row_dtype(view: View, name: str) -> np.dtype[Any]:
    """The dtype of an array of a row: masks are small."""
    return np.dtype("int8" if "mask" in name else str(view._row_format.dtype))


def row_bytes(view: View) -> int:
    """The bytes of the arrays of a row."""
    return view.seq_len * sum(row_dtype(view, name).itemsize for name in view._row_format.fields)


def row_blocks(view: View, first: int, stop: int) -> Iterator[dict[str, Any]]:
    """The arrays of the rows [first, stop), some rows at a time."""
    step = max(1, BLOCK_TOKENS // view.seq_len // max(1, len(view._row_format.fields)))
    for low in range(first, stop, step):
        yield view.rows(range(low, min(stop, low + step)))


def row_key(view: View, first: int, stop: int) -> list[Any]:
    """What the bytes of some rows depend on."""
    return [view.fingerprint, list(view._row_format.fields), str(view._row_format.dtype), first, stop]
