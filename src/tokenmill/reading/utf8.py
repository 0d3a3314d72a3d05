"""Arrow string arrays: UTF-8 checks, joins, single values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.documents import Skip, Texts, text_array
from tokenmill.reading.template import Template

# Arrays are made from buffers: pa.array() imports pandas if it is installed, which costs every worker 65 MB. `pyarrow.compute` is
# imported where it is needed, because that takes a tenth of the time of a small build.


def one_text(data: bytes, kind: pa.DataType | None = None) -> pa.Array:
    """An array of one value, large_binary by default. Does not copy the bytes."""
    offsets = np.array([0, len(data)], np.int64)
    return pa.Array.from_buffers(kind or pa.large_binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


EMPTY = text_array([])


def places(mask: pa.BooleanArray) -> npt.NDArray[np.int64]:
    """The indices where a mask is true."""
    import pyarrow.compute as pc

    indices = pc.indices_nonzero(mask)
    return np.frombuffer(indices.buffers()[1], np.uint64, count=len(indices)).astype(np.int64)


def struct_field(array: pa.StructArray, path: list[str]) -> pa.Array:
    """A field of a column, null where one of the structs around it is."""
    import pyarrow.compute as pc

    return pc.struct_field(array, path)


def take(values: pa.Array, where: npt.NDArray[np.int64]) -> pa.Array:
    """The values at these indices."""
    where = np.ascontiguousarray(where, np.int64)
    return values.take(pa.Array.from_buffers(pa.int64(), len(where), [None, pa.py_buffer(where)]))


def join(arrays: list[pa.LargeStringArray]) -> pa.LargeStringArray:
    """Concatenate arrays; a single one is not copied."""
    if len(arrays) == 1:
        return arrays[0]
    return pa.concat_arrays(arrays) if arrays else EMPTY


def no_text(skip: Skip) -> Texts:
    """Texts of rows that gave no document."""
    return Texts(EMPTY, skip.rows, [skip])


def join_columns(template: Template, columns: list[pa.Array]) -> pa.Array:
    """A template over columns of large strings or bytes; null where any of them is. The result is bytes, not yet checked."""
    columns = [column.view(pa.large_binary()) for column in columns]
    if not any(template.literals) and len(columns) == 1:
        return columns[0]
    import pyarrow.compute as pc

    literals = [pa.scalar(literal.encode(), pa.large_binary()) for literal in template.literals]
    inputs = [literals[0]]
    for column, literal in zip(columns, literals[1:], strict=True):
        inputs += [column, literal]
    return pc.binary_join_element_wise(*inputs, pa.scalar(b"", pa.large_binary()), null_handling="emit_null")


def valid_texts(values: pa.Array, rows: np.ndarray | None) -> tuple[pa.LargeStringArray, list[Skip]]:
    """The values that are valid UTF-8, and a skip for each that is not.

    `values` is large_binary or large_string without nulls; `rows` gives their row numbers if those are not 0, 1, 2, ...
    Arrow checks a block at many GB/s; only a block that fails is checked value by value.
    """
    text = values.view(pa.large_string()) if values.type != pa.large_string() else values
    try:
        text.validate(full=True)
        return text, []
    except pa.ArrowInvalid:
        pass
    binary = values.view(pa.large_binary())
    good = np.ones(len(values), bool)
    skips = []
    for i, value in enumerate(binary):
        try:
            value.as_py().decode()
        except UnicodeDecodeError as error:
            good[i] = False
            skips.append(Skip(int(i if rows is None else rows[i]), 1, "invalid utf-8", f"at byte {error.start}"))
    return take(binary, np.flatnonzero(good)).view(pa.large_string()), skips


def whole_characters(data: bytes) -> int:
    """How many of these bytes are whole characters: less than all if the last character is cut."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            return len(data)
        if byte >= 0xC0:
            width = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) if width <= back else len(data) - back
    return len(data)
