"""Blocks of documents: text as Texts, tokens as Tokens. Neither has a Python object per document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

# About the best size per call of the fastest engine. Results do not depend on it.
BLOCK_BYTES = 4 << 20

# The reason of empty rows, such as blank lines between records: they are not documents, and not quarantined either.
BLANK = "blank"


class Skip(NamedTuple):
    """A run of source rows that gave no document: `rows` of them from `row` on, and why."""

    row: int
    rows: int
    reason: str
    detail: str = ""


@dataclass(slots=True)
class Texts:
    """Consecutive rows of a source.

    `values` is an Arrow large_string array of valid UTF-8, without nulls. `rows` counts the source rows that these
    documents came from; rows that gave no document are in `skips`, with row numbers relative to this block.
    If `unfinished`, the last document continues in the next Texts, and `rows` counts it only in the Texts where it ends.
    """

    values: pa.LargeStringArray
    rows: int
    skips: Sequence[Skip] = ()
    unfinished: bool = False

    def __repr__(self) -> str:
        return f"Texts({len(self.values):,} documents, {self.nbytes:,} bytes, rows={self.rows:,})"

    @property
    def nbytes(self) -> int:
        """Bytes of UTF-8 text, without offsets."""
        return text_bytes(self.values)

    def row_of(self, document: int) -> int:
        """The row of a document of this block, by its index in `values`."""
        return row_of(document, sorted(self.skips))


@dataclass(slots=True)
class Tokens:
    """The token ids of consecutive documents, and where each document ends.

    Ids after the last end belong to a document that continues in the next Tokens. `special` lists the documents, by index,
    whose text contains a special token. `columns` has the values of further columns by name: one per id, or one per end.
    """

    ids: npt.NDArray[np.unsignedinteger]
    ends: npt.NDArray[np.int64]
    special: npt.NDArray[np.int64] | tuple[int, ...] = ()
    columns: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Tokens({len(self.ends):,} documents, {len(self.ids):,} ids as {self.ids.dtype})"


def row_of(document: int, skips: Iterable[Sequence[Any]]) -> int:
    """The row of a document, given its number among the documents and the runs of rows without one, in order."""
    row = document
    for first, rows, *_ in skips:
        if first > row:
            break
        row += rows
    return row


def text_array(texts: Sequence[str]) -> pa.LargeStringArray:
    """Strings as an Arrow array."""
    import numpy as np

    parts = [text.encode() for text in texts]
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return text_values(offsets, b"".join(parts))


def text_values(offsets: Any, data: Any) -> pa.LargeStringArray:
    """UTF-8 as an Arrow array. Made from buffers, since pa.array imports pandas if it is installed."""
    import pyarrow as pa

    return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))


def text_offsets(values: pa.LargeStringArray) -> npt.NDArray[np.int64]:
    """Where each value starts and the last one ends in the buffer of the array. Does not copy."""
    import numpy as np

    return np.frombuffer(values.buffers()[1], np.int64, count=len(values) + 1, offset=8 * values.offset)


def flat_text(values: pa.LargeStringArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The bytes of all values, which are not copied, and where in them each starts and the last one ends."""
    import numpy as np

    bounds = text_offsets(values)
    return np.frombuffer(values.buffers()[2] or b"", np.uint8)[bounds[0] : bounds[-1]], bounds - bounds[0]


def text_bytes(values: pa.LargeStringArray) -> int:
    """Bytes of text in an Arrow string array. Constant time."""
    if len(values) == 0:
        return 0
    offsets = text_offsets(values)
    return int(offsets[-1] - offsets[0])


def merge_skips(skips: list[Skip]) -> list[Skip]:
    """Join adjacent runs with the same reason, so that a million bad rows are one line in a receipt."""
    merged: list[Skip] = []
    for skip in skips:
        last = merged[-1] if merged else None
        if last and last.row + last.rows == skip.row and last[2:] == skip[2:]:
            merged[-1] = last._replace(rows=last.rows + skip.rows)
        else:
            merged.append(skip)
    return merged
