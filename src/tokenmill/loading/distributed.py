"""Which part of each batch is ours: as torch.distributed says, or torchrun's environment."""

from __future__ import annotations

import os
import sys

from tokenmill.errors import UsageError


def found_world() -> tuple[int, int]:
    """This process's rank and how many there are; 0 and 1 where nobody says."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    rank, world_size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    try:
        found = int(rank or 0), int(world_size or 1)
    except ValueError:
        found = -1, 0
    if not 0 <= found[0] < found[1] or (found[1] > 1 and rank is None):
        raise UsageError(
            f"the environment says RANK={rank} and WORLD_SIZE={world_size}, which names no rank; give rank and world_size, or"
            " make the loader after torch.distributed was initialised"
        )
    return found
