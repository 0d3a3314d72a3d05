"""The two currencies: text travels as Texts, tokens as Tokens. Neither holds a Python object per document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

# About what the fastest engine likes best per call; results never depend on it.
BLOCK_BYTES = 4 << 20

# Rows that hold nothing at all (a blank line between records) are not documents and are not quarantined.
BLANK = "blank"


class Skip(NamedTuple):
    """A run of source rows that became no document: `rows` of them from `row` on, and why."""

    row: int
    rows: int
    reason: str
    detail: str = ""


@dataclass(slots=True)
class Texts:
    """Some consecutive rows of a source.

    `values` is an Arrow large_string array, without nulls, of valid UTF-8. `rows` counts the source rows these
    documents came from; those that gave no document are in `skips`, with row numbers from the start of this block.
    With `unfinished`, the last document goes on in the next Texts (and `rows` counts it only when it ends).
    """

    values: pa.LargeStringArray
    rows: int
    skips: Sequence[Skip] = ()
    unfinished: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of UTF-8 text, without offsets."""
        return text_bytes(self.values)


@dataclass(slots=True)
class Tokens:
    """Token ids end to end, and where each document ends.

    Ids after the last end belong to a document that goes on in the next Tokens. `special` are the documents, by index,
    whose text holds a special token. `columns` has the values of further columns by name: one per id, or one per end.
    """

    ids: npt.NDArray[np.unsignedinteger]
    ends: npt.NDArray[np.int64]
    special: npt.NDArray[np.int64] | tuple[int, ...] = ()
    columns: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


def text_array(texts: Sequence[str]) -> pa.LargeStringArray:
    """Strings as an Arrow array, made from buffers: pa.array would import pandas, where there is one."""
    import numpy as np
    import pyarrow as pa

    parts = [text.encode() for text in texts]
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(pa.large_string(), len(parts), buffers)


def text_offsets(values: pa.LargeStringArray) -> npt.NDArray[np.int64]:
    """Where each value begins and the last one ends, in the array's own buffer; no copy."""
    import numpy as np

    return np.frombuffer(values.buffers()[1], np.int64, count=len(values) + 1, offset=8 * values.offset)


def text_bytes(values: pa.LargeStringArray) -> int:
    """Bytes of text in an Arrow string array; constant time."""
    if len(values) == 0:
        return 0
    offsets = text_offsets(values)
    return int(offsets[-1] - offsets[0])


def merge_skips(skips: list[Skip]) -> list[Skip]:
    """Join neighbouring runs of the same reason, so that a million bad rows are one line in a receipt."""
    merged: list[Skip] = []
    for skip in skips:
        last = merged[-1] if merged else None
        if last and last.row + last.rows == skip.row and last[2:] == skip[2:]:
            merged[-1] = last._replace(rows=last.rows + skip.rows)
        else:
            merged.append(skip)
    return merged
