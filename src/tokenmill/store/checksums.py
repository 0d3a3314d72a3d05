"""One checksum (XXH3-64) per 4 MiB block of a column: computed while writing, compared while reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.io.mirror import mirrored_url

CHECK_BLOCK = 4 << 20  # bytes per checksum


def repair_hint(store: Path) -> str:
    """What an error about a damaged file tells the user to do."""
    return f"run: tokenmill verify {mirrored_url(store) or store} --repair"


class BlockHasher:
    """Computes the checksums of a stream of bytes, block by block."""

    def __init__(self) -> None:
        self._complete: list[str] = []
        self._hash = xxhash.xxh3_64()
        self._filled = 0  # bytes in the block that is being hashed

    def update(self, data: memoryview) -> None:
        while len(data):
            part = data[: CHECK_BLOCK - self._filled]
            self._hash.update(part)
            self._filled += len(part)
            data = data[len(part) :]
            if self._filled == CHECK_BLOCK:
                self._complete.append(self._hash.hexdigest())
                self._hash, self._filled = xxhash.xxh3_64(), 0

    def copy(self) -> BlockHasher:
        """An independent copy, to return to after a rollback."""
        other = BlockHasher()
        other._complete, other._hash, other._filled = list(self._complete), self._hash.copy(), self._filled
        return other

    def checksums(self) -> list[str]:
        """The checksums of all blocks, including an incomplete last one."""
        return [*self._complete, self._hash.hexdigest()] if self._filled else list(self._complete)


def block_count(nbytes: int) -> int:
    """How many checksums a column of `nbytes` has."""
    return -(-nbytes // CHECK_BLOCK)


def block_matches(values: npt.NDArray[Any], block: int, checksums: list[str]) -> bool:
    """Whether one block of a column matches its checksum."""
    data = values.view(np.uint8)[block * CHECK_BLOCK : (block + 1) * CHECK_BLOCK]
    return block < len(checksums) and xxhash.xxh3_64_hexdigest(data) == checksums[block]
