"""Batches as numpy arrays, or as torch tensors, pinned or on a device."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

from tokenmill.errors import UsageError
from tokenmill.loading.samples import Batch
from tokenmill.packing.rows import Arrays

Converter = Callable[[Arrays], Batch]


def converter_for(device: Any, *, pin_memory: bool | None) -> Converter:
    """A function from arrays to what the caller gets: tensors if torch is installed, else the arrays.

    Tensors for a GPU are pinned unless `pin_memory` is False. The function can be pickled, for a worker process.
    """
    if importlib.util.find_spec("torch") is None:
        if device is not None or pin_memory:
            raise UsageError("device and pin_memory need torch: pip install 'tokenmill[torch]'")
        return _unchanged
    if device is not None and str(device) != "cpu":
        device = _found(device)
    if pin_memory is None:
        pin_memory = isinstance(device, int) or str(device).startswith("cuda")  # a number is that of a GPU
    return partial(_tensors, device=device, pin_memory=pin_memory)


def _found(device: Any) -> Any:
    """The device, of GPUs with its number: the current one is per thread. UsageError if it is not there."""
    import torch

    cuda = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    try:
        found = torch.device(f"cuda:{device}" if cuda and isinstance(device, int) else device)
        if cuda and str(found) == "cuda":
            return f"cuda:{torch.cuda.current_device()}"
        if str(found) not in cuda:
            torch.empty(0, device=found)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError):  # of kinds that torch or the machine lacks
        there = " or ".join(repr(each) for each in ["cpu", *cuda])
        raise UsageError(f"device={device!r} is not here; give device={there}, or leave it out") from None
    return device


def _unchanged(arrays: Arrays) -> Arrays:
    return arrays


def _tensors(arrays: Arrays, *, device: Any, pin_memory: bool) -> Arrays:
    from tokenmill.loading.torch import tensors  # imports torch, for the first batch

    return tensors(arrays, device=device, pin_memory=pin_memory)
