"""What is handed out: arrays as they are, or torch's tensors, pinned or on a device."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tokenmill.errors import UsageError
from tokenmill.packing.rows import Arrays


@dataclass(frozen=True, slots=True)
class Shown:
    """Arrays on their way to the caller. Kept free of torch, so that a loader can be sent to a worker and imports it there."""

    as_tensors: bool
    device: Any = None
    pin_memory: bool = False

    def __call__(self, arrays: Arrays) -> Any:
        if not self.as_tensors:
            return arrays
        return _tensors()(arrays, self.device, self.pin_memory)


@lru_cache(maxsize=1)
def _tensors() -> Callable[[Arrays, Any, bool], Any]:
    """Imported when the first batch is made, and looked up once."""
    from tokenmill.loading.torch import tensors

    return tensors


def shown(device: Any, pin_memory: bool | None) -> Shown:
    """Tensors where torch is installed; pinned where they go to a GPU, unless said otherwise."""
    if importlib.util.find_spec("torch") is None:
        if device is not None or pin_memory:
            raise UsageError("device and pin_memory need torch: pip install 'tokenmill[torch]'")
        return Shown(False)
    if str(device) == "cuda":  # which of them is a matter of the thread; a loader's thread would take the first
        import torch

        device = f"cuda:{torch.cuda.current_device()}"
    pinned = str(device).startswith("cuda") if pin_memory is None else bool(pin_memory)
    return Shown(True, device, pinned)
