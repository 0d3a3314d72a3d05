"""Ids in files, read in slices. A map would fill the memory with pages, and faults for each page take longer than reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.errors import InputError

ZSTD = "zstd"  # the compression that is read
STEP_BYTES = 1 << 24  # unpacked together
LARGEST = 1 << 32  # bytes of a shard: its offsets have 32 bits
READ_TOKENS = 1 << 18  # read together; they and what is computed from them stay in the cache of a core


class FileIds:
    """The ids in a file, or in some bytes of it: slices are read when they are asked for.

    Raises InputError if the file is not a whole number of ids, or not `count` of them.
    """

    def __init__(
        self, path: Path, dtype: npt.DTypeLike, start: int = 0, count: int | None = None, stop: int | None = None
    ) -> None:
        self._path, self._start, self.dtype = path, start, np.dtype(dtype).newbyteorder("<")
        try:
            length = path.stat().st_size
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error
        size = (length if stop is None else min(length, stop)) - start
        if size < 0 or size % self.dtype.itemsize:
            raise InputError(
                f"{path}: {length} bytes are not a whole number of {self.dtype.name} ids; it is cut short, or of another dtype"
            )
        self._count = size // self.dtype.itemsize
        if count is not None and self._count != count:
            raise InputError(
                f"{path}: {self._count} ids where its header or index says {count}; it is cut short or damaged"
            )

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: slice) -> npt.NDArray[Any]:
        start, stop, _ = index.indices(self._count)
        at = self._start + start * self.dtype.itemsize
        values = np.fromfile(self._path, self.dtype, max(0, stop - start), offset=at)
        if len(values) != max(0, stop - start):
            raise InputError(f"{self._path} became shorter while it was read")
        return values


class UnpackedBytes:
    """The bytes of a compressed file, of which an index says how many there are. Slices must be asked for front to back.

    Raises InputError as soon as they are fewer, and with the last slice if they are more: no more than that is ever unpacked.
    """

    def __init__(self, path: Path, codec: str, size: int) -> None:
        self._path, self._size, self._at = path, size, 0
        if not 0 <= size < LARGEST:
            raise InputError(f"{path}: its index says that it has {size:,} bytes, an impossible size")
        try:
            self._stream = pa.CompressedInputStream(pa.OSFile(str(path)), codec)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from error

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: slice) -> npt.NDArray[Any]:
        start, stop, _ = index.indices(self._size)
        assert start >= self._at, "slices of a compressed file are read front to back"
        while self._at < start:
            self._read(min(STEP_BYTES, start - self._at))
        values = self._read(max(0, stop - start))
        if self._at == self._size and len(self._unpacked(1)):
            raise InputError(f"{self._path}: unpacked it has more than the {self._size:,} bytes that its index says")
        return values

    def _read(self, nbytes: int) -> npt.NDArray[Any]:
        parts, left = [], nbytes
        while left:
            # Memory is taken for what is there, not for what is said.
            parts.append(self._unpacked(min(STEP_BYTES, left)))
            self._at, left = self._at + len(parts[-1]), left - len(parts[-1])
            if not parts[-1]:
                raise InputError(
                    f"{self._path}: unpacked it has {self._at:,} bytes where its index says {self._size:,}; it is damaged"
                )
        return np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), np.uint8)

    def _unpacked(self, nbytes: int) -> bytes:
        try:
            return bytes(self._stream.read(nbytes))
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{self._path}: {str(error)[:200]}") from error


def offsets_in(path: Path, raw: FileIds | UnpackedBytes, said: Any) -> npt.NDArray[np.int64]:
    """Where the samples of a file begin, and the last one ends. At the front of the file are their number and these offsets.

    Raises InputError for a table that does not fit the file, or another number than the index has `said`.
    """
    size = len(raw)
    count = int(raw[:4].view("<u4")[0]) if size >= 4 else -1
    end = 4 + 4 * (count + 1)
    offsets = raw[4:end].view("<u4").astype(np.int64) if count >= 0 and end <= size else np.empty(0, np.int64)
    if not len(offsets) or int(offsets[0]) < end or int(offsets[-1]) != size or (np.diff(offsets) < 0).any():
        raise InputError(f"{path}: its table of offsets does not fit its {size} bytes; it is cut short or damaged")
    if said not in (None, count):
        raise InputError(f"{path}: {count} samples where the index says {said}; one of them is damaged")
    return offsets


class UnpackedIds:
    """The ids in a compressed file from some byte on, read front to back."""

    def __init__(self, raw: UnpackedBytes, dtype: npt.DTypeLike, start: int) -> None:
        self._raw, self._start, self.dtype = raw, start, np.dtype(dtype).newbyteorder("<")

    def __getitem__(self, index: slice) -> npt.NDArray[Any]:
        width = self.dtype.itemsize
        raw = self._raw[self._start + index.start * width : self._start + index.stop * width]
        return raw.view(self.dtype)
