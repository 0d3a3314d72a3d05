"""Ids in files, read in slices. A map would fill the memory with pages, and faults for each page take longer than reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.errors import InputError

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
