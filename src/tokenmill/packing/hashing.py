"""A hash of numbers, frozen: the splits of old stores and the order of old runs hang on it."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

_MASK = (1 << 64) - 1
Bits = TypeVar("Bits", int, npt.NDArray[np.uint64])


def mixed(value: Bits) -> Bits:
    """64 bits, each of which depends on every bit of the value; of one number, or of each of an array of them."""
    bits: Any = value
    bits = (bits + 0x9E3779B97F4A7C15) & _MASK
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB & _MASK
    found: Bits = bits ^ (bits >> 31)
    return found
