"""The hash behind splits and shuffles. Frozen: the splits of existing stores and the order of existing runs depend on it."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

_MASK = (1 << 64) - 1
Bits = TypeVar("Bits", int, npt.NDArray[np.uint64])


def splitmix64(value: Bits) -> Bits:
    """The splitmix64 hash of a number, or of each number of an array."""
    bits: Any = value
    bits = (bits + 0x9E3779B97F4A7C15) & _MASK
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB & _MASK
    hashed: Bits = bits ^ (bits >> 31)
    return hashed
