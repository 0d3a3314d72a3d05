"""Devices, streams and memory, simulated: everything is done when the call returns."""

from __future__ import annotations

import ctypes
import os
from types import SimpleNamespace
from typing import Any, Self

import numpy as np


class CUDARuntimeError(RuntimeError):
    pass


class CUDADriverError(RuntimeError):
    pass


class OutOfMemoryError(MemoryError):
    pass


class _Memory:
    """The memory of the device, and the pool that it is taken from."""

    OutOfMemoryError = OutOfMemoryError

    def __init__(self) -> None:
        self.used = self.peak = 0
        self.limit = 1 << 40

    def set_limit(self, size: int) -> None:
        self.limit = size

    def free_all_blocks(self) -> None:
        pass

    def take(self, nbytes: int) -> None:
        _check_device()
        if self.used + nbytes > min(self.limit, int(os.environ.get("SIMULATED_MEMORY", 1 << 40))):
            raise OutOfMemoryError(f"{nbytes} bytes beside {self.used}")
        self.used += nbytes
        self.peak = max(self.peak, self.used)

    def give_back(self, nbytes: int) -> None:
        self.used -= nbytes


memory = _Memory()
driver = SimpleNamespace(CUDADriverError=CUDADriverError)
_launches = 0


def count_launch() -> None:
    global _launches
    _launches += 1
    _check_device()


def _check_device() -> None:
    if _launches > int(os.environ.get("SIMULATED_LAUNCHES", 1 << 62)):
        raise CUDARuntimeError("cudaErrorIllegalAddress: the device is lost")


class Event:
    def record(self, stream: Any = None) -> None:
        pass

    def synchronize(self) -> None:
        _check_device()


class Stream:
    ptr = 0

    def __init__(self, non_blocking: bool = False) -> None:
        del non_blocking

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait_event(self, event: Event) -> None:
        pass

    def record(self) -> Event:
        return Event()

    def synchronize(self) -> None:
        _check_device()


class Device:
    def __init__(self, number: int = 0) -> None:
        if not 0 <= number < runtime.getDeviceCount():
            raise CUDARuntimeError(f"cudaErrorInvalidDevice: {number}")
        self.id = number
        self.mem_info = int(os.environ.get("SIMULATED_MEMORY", 1 << 40)) - memory.used, 1 << 40

    def use(self) -> None:
        pass

    def synchronize(self) -> None:
        _check_device()


def alloc_pinned_memory(nbytes: int) -> Any:
    return np.full(nbytes, 0xA5, np.uint8)


def get_elapsed_time(before: Event, after: Event) -> float:
    return 0.0


class _Runtime:
    CUDARuntimeError = CUDARuntimeError

    def __init__(self) -> None:
        self.registered: dict[int, int] = {}

    def getDeviceCount(self) -> int:
        return int(os.environ.get("SIMULATED_DEVICES", 1))

    def getDeviceProperties(self, number: int) -> dict[str, bytes]:
        return {"name": b"simulated"}

    def memcpyAsync(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        _check_device()
        ctypes.memmove(target, source, nbytes)

    def hostRegister(self, place: int, nbytes: int, flags: int) -> None:
        self.registered[place] = nbytes

    def hostUnregister(self, place: int) -> None:
        del self.registered[place]


runtime = _Runtime()
