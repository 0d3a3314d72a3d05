"""Columns as Arrow arrays that share the memory of the mapped files. Imports pyarrow, so import it where it is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def arrow_values(values: npt.NDArray[Any]) -> pa.Array:
    """An array over the memory of `values`. Only bool is copied: Arrow packs it into bits."""
    if values.dtype == np.bool_:
        return pa.array(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def arrow_lists(values: npt.NDArray[Any], ends: npt.NDArray[np.int64]) -> pa.LargeListArray:
    """One list per document over the memory of `values`. The offsets are copied: 8 bytes per document."""
    offsets = np.concatenate(([0], ends))
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), arrow_values(values))
