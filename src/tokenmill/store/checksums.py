"""Checksums compared as data is first read: training stops at a damaged shard, by name, instead of learning noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.errors import CorruptError
from tokenmill.io.atomic import CHECK_BLOCK

if TYPE_CHECKING:
    from tokenmill.store.store import Store


def as_written(values: npt.NDArray[Any], block: int, sums: list[str]) -> bool:
    """Whether a block of 4 MiB of a column is what its checksum was made of."""
    data = values.view(np.uint8)[block * CHECK_BLOCK : (block + 1) * CHECK_BLOCK]
    return block < len(sums) and xxhash.xxh3_64_hexdigest(data) == sums[block]


class FirstTouch:
    """Which blocks of which shards were compared already. A block of 4 MiB takes some 0.4 ms, once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._shards: dict[int, tuple[list[str], set[int]]] = {}  # checksums, and blocks that were not compared yet

    def ids(self, shard: int, start: int, stop: int, values: npt.NDArray[Any]) -> None:
        """Compare the blocks that hold ids `start` to `stop` of a shard, unless they were."""
        known = self._shards.get(shard)
        if known is None:
            sums = self.store.receipt_of(shard)["checksums"]["ids"]
            known = self._shards.setdefault(shard, (sums, set(range(len(sums)))))  # two threads may come here at once
        sums, left = known
        if left:
            for block in range(start * values.itemsize // CHECK_BLOCK, (stop * values.itemsize - 1) // CHECK_BLOCK + 1):
                if block in left:
                    self._compare(shard, ".npy", values, block, sums)
                    left.discard(block)

    def ends(self, shard: int, values: npt.NDArray[np.int64]) -> None:
        """Compare all ends of a shard."""
        for block, _ in enumerate(sums := self.store.receipt_of(shard)["checksums"]["ends"]):
            self._compare(shard, ".ends.npy", values, block, sums)

    def _compare(self, shard: int, suffix: str, values: npt.NDArray[Any], block: int, sums: list[str]) -> None:
        if not as_written(values, block, sums):
            path = self.store.path / "shards" / f"{self.store.manifest.shard_ids[shard]}{suffix}"
            raise CorruptError(f"{path} is damaged (block {block}); run: tokenmill verify {self.store.path} --repair")
