"""Batches through a GPU, from host memory to host memory: while one is encoded, the next is copied in and the last one out.

Copies are quick only from and to pinned memory, which the operating system does not move. So text is written into pinned buffers
that are used again and again, and ids are handed out in such buffers, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.encoding.gpu.device import AROUND, Device


class Batch(NamedTuple):
    """Documents one after the other in pinned memory, with room for `AROUND` bytes more, and their offsets."""

    text: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.uint32]
    nbytes: int


class BatchIds(NamedTuple):
    """The ids of a batch, where those of each document begin, and which documents are left to the reference.

    The arrays are overwritten after the next but one batch.
    """

    ids: npt.NDArray[Any]
    places: npt.NDArray[np.int64]
    refused: npt.NDArray[np.bool_]


def pinned(count: int, dtype: npt.DTypeLike = np.uint8) -> npt.NDArray[Any]:
    """An array in pinned memory."""
    import cupy

    size = count * np.dtype(dtype).itemsize
    return np.frombuffer(cupy.cuda.alloc_pinned_memory(max(size, 1)), dtype, count)


class Pipeline:
    """Encodes batches in order. Two are under way at a time."""

    def __init__(self, device: Device, dtype: npt.DTypeLike) -> None:
        import cupy

        self._cupy, self._device = cupy, device
        room = device.batch_bytes + AROUND
        self._raw = [cupy.empty(room, cupy.uint8) for _ in range(2)]
        self._ids = [cupy.empty(room, dtype) for _ in range(2)]
        self._out = [pinned(device.batch_bytes, dtype) for _ in range(2)]
        self._copying_in, self._copying_out = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
        self._encoding = cupy.cuda.Stream(non_blocking=True)
        self._is_out = [cupy.cuda.Event() for _ in range(2)]

    def encode(self, batches: Iterable[Batch]) -> Iterator[BatchIds]:
        pending: tuple[int, int, Any, Any] | None = None
        waiting = iter(batches)
        ahead = self._copy_in(next(waiting, None), 0)
        slot = 0
        while ahead is not None:
            raw, offsets, nbytes, is_in = ahead
            ahead = self._copy_in(next(waiting, None), 1 - slot)
            self._encoding.wait_event(is_in)
            self._encoding.wait_event(self._is_out[slot])
            with self._encoding:
                found = self._device.encode(raw, offsets, nbytes, self._ids[slot])
                places, refused = found.places.get(), found.refused.get()
                is_encoded = self._encoding.record()
            count = len(found.ids)
            self._copying_out.wait_event(is_encoded)
            if count:
                target = self._out[slot].ctypes.data
                size = count * self._out[slot].itemsize
                self._cupy.cuda.runtime.memcpyAsync(target, found.ids.data.ptr, size, 2, self._copying_out.ptr)
            self._is_out[slot].record(self._copying_out)
            if pending is not None:
                yield self._finished(*pending)
            pending = slot, count, places, refused
            slot = 1 - slot
        if pending is not None:
            yield self._finished(*pending)

    def _copy_in(self, batch: Batch | None, slot: int) -> tuple[Any, Any, int, Any] | None:
        """Begin to copy a batch to the device."""
        if batch is None:
            return None
        stream = self._copying_in
        runtime = self._cupy.cuda.runtime
        runtime.memcpyAsync(self._raw[slot].data.ptr, batch.text.ctypes.data, batch.nbytes + 8, 1, stream.ptr)
        with stream:
            offsets = self._cupy.asarray(batch.offsets)
        return self._raw[slot], offsets, batch.nbytes, stream.record()

    def _finished(self, slot: int, count: int, places: Any, refused: Any) -> BatchIds:
        self._is_out[slot].synchronize()
        return BatchIds(self._out[slot][:count], places.astype(np.int64), refused.astype(bool))
