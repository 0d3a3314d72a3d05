"""Ragged arrays for gigatoken, which takes and returns arrays of the library `awkward`.

To import `awkward` takes a fifth of a second, on some machines a whole one, and gigatoken needs little of it. In processes that
run nothing but tokenmill, a stand-in with just that takes its place in `sys.modules`, for versions of gigatoken that were tried
with it.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.child_process import runs_only_tokenmill

TRIED_VERSIONS = {"0.10.0"}  # of gigatoken


class Rows:
    """Rows of different lengths: all their values, and the length of each."""

    def __init__(self, values: npt.NDArray[Any], lengths: npt.NDArray[np.int64]) -> None:
        self.values, self.lengths = values, lengths


class _StandIn(ModuleType):
    """What gigatoken calls of `awkward`."""

    Array = Rows

    @staticmethod
    def without_parameters(array: Rows) -> Rows:
        return array

    @staticmethod
    def flatten(array: Rows) -> npt.NDArray[Any]:
        return array.values

    @staticmethod
    def num(array: Rows) -> npt.NDArray[np.int64]:
        return array.lengths

    @staticmethod
    def to_numpy(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return array

    @staticmethod
    def unflatten(values: npt.NDArray[Any], lengths: npt.NDArray[np.int64]) -> Rows:
        return Rows(values, lengths)


def import_awkward(gigatoken_version: str) -> None:
    """Import `awkward`, or put the stand-in in its place."""
    if runs_only_tokenmill() and gigatoken_version in TRIED_VERSIONS:
        sys.modules.setdefault("awkward", _StandIn("awkward"))
    else:
        import awkward  # noqa: F401


def strings(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> Any:
    """An array of strings, for gigatoken to encode. `offsets` are where they start and end in `data`."""
    import awkward as ak

    if isinstance(ak, _StandIn):
        return Rows(data[offsets[0] : offsets[-1]], np.diff(offsets))
    content = ak.contents.NumpyArray(data, parameters={"__array__": "char"})
    index = ak.index.Index64(offsets)
    return ak.Array(ak.contents.ListOffsetArray(index, content, parameters={"__array__": "string"}))


def values_and_offsets(result: Any) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """The ids in what gigatoken returned, and where each document starts and ends in them."""
    if isinstance(result, Rows):
        offsets = np.zeros(len(result.lengths) + 1, np.int64)
        np.cumsum(result.lengths, out=offsets[1:])
        return result.values, offsets
    layout = result.layout
    return np.asarray(layout.content.data), np.asarray(layout.offsets.data)
