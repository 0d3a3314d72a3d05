"""The rank and world size of this process: from torch.distributed, or from torchrun's environment variables."""

from __future__ import annotations

import os
import sys

from tokenmill.errors import UsageError


def current_rank() -> tuple[int, int]:
    """The rank of this process and the number of ranks; 0 and 1 if nothing is set."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    rank, world_size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    try:
        number, count = int(rank or 0), int(world_size or 1)
    except ValueError:
        number, count = -1, 0
    if not 0 <= number < count or (count > 1 and rank is None):
        raise UsageError(
            f"the environment variables RANK={rank} and WORLD_SIZE={world_size} do not name a rank; give rank and world_size,"
            " or make the loader after torch.distributed is initialised"
        )
    return number, count
