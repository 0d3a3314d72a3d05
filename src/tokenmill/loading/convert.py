"""Batches as numpy arrays, or as torch tensors, pinned or on a device."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from tokenmill.errors import UsageError
from tokenmill.packing.rows import Arrays

Converter = Callable[[Arrays], Any]


def converter_for(device: Any, *, pin_memory: bool | None) -> Converter:
    """A function from arrays to what the caller gets: tensors if torch is installed, else the arrays.

    Tensors for a GPU are pinned unless `pin_memory` is False. The function can be pickled, for a worker process.
    """
    if importlib.util.find_spec("torch") is None:
        if device is not None or pin_memory:
            raise UsageError("device and pin_memory need torch: pip install 'tokenmill[torch]'")
        return _unchanged
    if str(device) == "cuda":  # the current device is per thread: the loader's thread would use the first
        import torch

        if not torch.cuda.is_available():
            raise UsageError(f"device={device!r}: torch finds no CUDA device here; give device='cpu', or leave it out")
        device = f"cuda:{torch.cuda.current_device()}"
    if pin_memory is None:
        pin_memory = isinstance(device, int) or str(device).startswith("cuda")  # a number is that of a GPU
    return partial(_tensors, device=device, pin_memory=pin_memory)


def _unchanged(arrays: Arrays) -> Arrays:
    return arrays


def _tensors(arrays: Arrays, *, device: Any, pin_memory: bool) -> Arrays:
    return _tensor_maker()(arrays, device=device, pin_memory=pin_memory)


@cache
def _tensor_maker() -> Callable[..., Arrays]:
    from tokenmill.loading.torch import tensors  # imports torch, for the first batch

    return tensors
