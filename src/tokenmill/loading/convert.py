"""Batches as numpy arrays, or as torch tensors, pinned or on a device."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tokenmill.errors import UsageError
from tokenmill.packing.rows import Arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorConverter:
    """Converts arrays to what the caller gets. Holds nothing of torch, so that a loader can be sent to a worker process."""

    as_tensors: bool
    device: Any = None
    pin_memory: bool = False

    def __call__(self, arrays: Arrays) -> Any:
        if not self.as_tensors:
            return arrays
        return _tensors()(arrays, device=self.device, pin_memory=self.pin_memory)


@lru_cache(maxsize=1)
def _tensors() -> Callable[..., Any]:
    """torch is imported for the first batch, and the function is looked up once."""
    from tokenmill.loading.torch import tensors

    return tensors


def converter_for(device: Any, *, pin_memory: bool | None) -> TensorConverter:
    """Tensors if torch is installed, else arrays. Tensors for a GPU are pinned unless `pin_memory` is False."""
    if importlib.util.find_spec("torch") is None:
        if device is not None or pin_memory:
            raise UsageError("device and pin_memory need torch: pip install 'tokenmill[torch]'")
        return TensorConverter(as_tensors=False)
    if str(device) == "cuda":  # the current device is per thread: the loader's thread would use the first
        import torch

        device = f"cuda:{torch.cuda.current_device()}"
    pinned = str(device).startswith("cuda") if pin_memory is None else bool(pin_memory)
    return TensorConverter(as_tensors=True, device=device, pin_memory=pinned)
