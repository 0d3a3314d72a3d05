"""Tokens that are in a finished shard already, for a shard that needs some of them again."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.store import check_shard, open_column, read_receipt


@dataclass(slots=True)
class HeldShard:
    """A finished shard to take pieces from, and where each begins in it."""

    pieces: list[dict[str, Any]]
    first_documents: list[int]
    first_tokens: list[int]
    ids: npt.NDArray[Any]
    ends: npt.NDArray[np.int64]

    @classmethod
    def opened(cls, shard: Path, dtype: np.dtype[Any]) -> HeldShard | None:
        """None where it is gone, or has a bit that is not as it was written: what is copied is made true by its new receipt."""
        receipt = read_receipt(shard.parent, shard.name)
        if receipt is None or check_shard(shard.parent, receipt):
            return None
        pieces = receipt["pieces"]
        return cls(
            pieces,
            [0, *accumulate(piece["documents"] for piece in pieces)],
            [0, *accumulate(piece["tokens"] for piece in pieces)],
            open_column(shard.with_name(f"{shard.name}.npy"), dtype, receipt["tokens"]),
            open_column(shard.with_name(f"{shard.name}.ends.npy"), np.dtype(np.int64), receipt["documents"]),
        )
