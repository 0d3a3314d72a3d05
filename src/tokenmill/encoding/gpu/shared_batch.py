"""Memory that two processes share: one writes a batch of documents there, the one that owns the GPU writes their ids.

The process that owns the GPU pins this memory, so that text and ids are copied to and from the device without a stop in between.
"""

from __future__ import annotations

import mmap
import os

import numpy as np
import numpy.typing as npt

DOCUMENT_BYTES = 16  # there is room for a document for each of so many bytes
_LINE = 64  # bytes to which parts are aligned


class OutOfRoom(Exception):
    """A batch has more distinct words than the tables hold, or needs more memory than there is. A smaller one may fit."""


class SharedBatch:
    """A batch of at most `text_room` bytes in the memory behind a descriptor, which may be closed afterwards.

    `text` and `offsets` go to the device; `ids`, `places` and `refused` come back. There may be as many ids as bytes.
    """

    def __init__(self, descriptor: int, text_room: int, id_type: npt.DTypeLike) -> None:
        self.text_room, self.document_room = text_room, text_room // DOCUMENT_BYTES
        parts = _parts(text_room, id_type)
        sizes = _sizes(parts)
        self.nbytes = sum(sizes)
        if os.fstat(descriptor).st_size < self.nbytes:
            raise ValueError(f"a batch of {self.nbytes} bytes does not fit into {os.fstat(descriptor).st_size}")
        memory = mmap.mmap(descriptor, self.nbytes)
        places = [sum(sizes[:number]) for number in range(len(sizes))]
        arrays = [np.frombuffer(memory, *part, offset=place) for part, place in zip(parts, places, strict=True)]
        self.text, self.offsets, self.places, self.refused, self.ids = arrays

    @property
    def address(self) -> int:
        return int(self.text.ctypes.data)


def memory_for(text_room: int, id_type: npt.DTypeLike) -> int:
    """A descriptor of memory that has room for such a batch. It takes space only where something is written."""
    descriptor = os.memfd_create("tokenmill-batch")
    try:
        os.ftruncate(descriptor, sum(_sizes(_parts(text_room, id_type))))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _parts(text_room: int, id_type: npt.DTypeLike) -> list[tuple[npt.DTypeLike, int]]:
    """The types and lengths of the arrays: text, offsets, places, refused, ids."""
    many = text_room // DOCUMENT_BYTES + 1
    return [(np.uint8, text_room), (np.uint32, many), (np.uint64, many), (np.uint8, many), (id_type, text_room)]


def _sizes(parts: list[tuple[npt.DTypeLike, int]]) -> list[int]:
    """The bytes of each, aligned."""
    return [-(-count * np.dtype(dtype).itemsize // _LINE) * _LINE for dtype, count in parts]
