"""Columns: the arrays that make up a shard. Each is one plain .npy file with a value per token or per document.

    <id>.npy         `ids`: the token ids of all documents, end to end (uint16 or uint32)
    <id>.ends.npy    `ends`: where each document ends (int64)
    <id>.<name>.npy  any other column
    <id>.json        the receipt, which lists the columns and their checksums

This module is the only one that spells these names.
"""

from __future__ import annotations

import errno
import os
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tokenmill.errors import CorruptError, EncodingError, StoreError, UsageError
from tokenmill.io import disk
from tokenmill.io.atomic import TEMPORARY_SUFFIX, temporary_path
from tokenmill.store.checksums import BlockHasher, repair_hint

IDS, ENDS = "ids", "ends"  # the two columns every shard has
ID_DTYPES = ("uint16", "uint32")
DTYPES = frozenset(
    ("bool", "float16", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
)
HEADER_BYTES = 128
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
# Stricter than a shard id has to be: the sweep removes such files, and must not remove files of another program.
_SHARD_FILE = re.compile(rf"([0-9a-f]{{24}})(\.json|(\.{_NAME.pattern})?\.npy)({TEMPORARY_SUFFIX})?")


def is_count(value: object) -> bool:
    """Whether a value from a file is a number of documents, tokens, rows or bytes that fits into an int64."""
    return type(value) is int and 0 <= value < 1 << 62


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """The name of a column, whether it has a value per token or per document, and the name of its numpy dtype."""

    name: str
    per: Literal["token", "document"]
    dtype: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise UsageError(f"column name {self.name!r}: use lower-case letters, digits and _, a letter first")
        if self.per not in ("token", "document"):
            raise UsageError(f"column {self.name}: per={self.per!r} is not 'token' or 'document'")
        if self.dtype not in DTYPES or (self.name == IDS and self.dtype not in ID_DTYPES):
            raise UsageError(f"column {self.name}: dtype {self.dtype!r} is not supported")

    def length(self, *, documents: int, tokens: int) -> int:
        """The number of values in a shard with this number of documents and tokens."""
        return tokens if self.per == "token" else documents


def columns_with(dtype: np.dtype[Any] | str, extra: Iterable[ColumnSpec] = ()) -> tuple[ColumnSpec, ...]:
    """`ids` of this dtype, `ends`, and the extra columns."""
    columns = (ColumnSpec(IDS, "token", np.dtype(dtype).name), ColumnSpec(ENDS, "document", "int64"), *extra)
    if len({column.name for column in columns}) < len(columns):
        raise UsageError(f"two columns of the same name among {', '.join(column.name for column in columns)}")
    return columns


def column_path(folder: Path, shard_id: str, name: str) -> Path:
    """The file of a column."""
    return folder / (f"{shard_id}.npy" if name == IDS else f"{shard_id}.{name}.npy")


def receipt_path(folder: Path, shard_id: str) -> Path:
    return folder / f"{shard_id}.json"


def shard_paths(folder: Path, shard_id: str, columns: Iterable[ColumnSpec]) -> list[Path]:
    """All files of a shard. The receipt is last: a shard exists once its receipt does."""
    return [*(column_path(folder, shard_id, column.name) for column in columns), receipt_path(folder, shard_id)]


def shard_of_file(name: str) -> str | None:
    """The id of the shard that a file belongs to by its name, temporary files included; None for other files."""
    match = _SHARD_FILE.fullmatch(name)
    return match[1] if match else None


def npy_header(dtype: np.dtype[Any], count: int) -> bytes:
    """The header of a one-dimensional .npy file. Its size is fixed, so it can be written after the data."""
    text = f"{{'descr': '{dtype.newbyteorder('<').str}', 'fortran_order': False, 'shape': ({count},), }}"
    body = text.ljust(HEADER_BYTES - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", HEADER_BYTES - 10) + body.encode("ascii")


def file_bytes(dtype: np.dtype[Any] | str, count: int) -> int:
    """The size of the file of a column of `count` values."""
    return HEADER_BYTES + count * np.dtype(dtype).itemsize


ColumnMark = tuple[int, BlockHasher]  # a state of a `ColumnWriter` to roll back to


class ColumnWriter:
    """Writes one column to a temporary file: append, roll back, finish, publish. Memory is what one append brings."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self.path, self.dtype, self.count = path, dtype, 0
        self._hasher = BlockHasher()
        self._temporary = temporary_path(path)
        self._out = disk.open_file(self._temporary, "wb")
        try:
            self._out.write(bytes(HEADER_BYTES))
        except BaseException:
            self.discard()
            raise

    def append(self, values: npt.NDArray[Any]) -> None:
        """Add values. Raises EncodingError, and writes nothing, if one of them does not fit the dtype."""
        self._check_range(values)
        data = np.ascontiguousarray(values, self.dtype).view(np.uint8).data
        self._out.write(data)
        self._hasher.update(data)
        self.count += len(values)

    def _check_range(self, values: npt.NDArray[Any]) -> None:
        if not len(values) or np.can_cast(values.dtype, self.dtype, "safe"):
            return
        if values.dtype.kind not in "iu" or self.dtype.kind not in "iu":
            raise EncodingError(f"{self.path}: {values.dtype.name} values in a column of {self.dtype.name}")
        limits, low, high = np.iinfo(self.dtype), values.min(), values.max()
        if low < limits.min or high > limits.max:
            worst = low if low < limits.min else high
            raise EncodingError(f"{self.path}: {worst} does not fit {self.dtype.name}; nothing was stored")

    def mark(self) -> ColumnMark:
        return self.count, self._hasher.copy()

    def rollback(self, mark: ColumnMark) -> None:
        """Remove everything that was appended after `mark`."""
        self.count, self._hasher = mark[0], mark[1].copy()
        size = file_bytes(self.dtype, self.count)
        self._out.truncate(size)
        self._out.seek(size)

    def finish(self) -> list[str]:
        """Write the header and fsync. The file keeps its temporary name. Returns the checksums."""
        self._out.seek(0)
        self._out.write(npy_header(self.dtype, self.count))
        disk.sync(self._out)
        self._out.close()
        return self._hasher.checksums()

    def publish(self, path: Path | None = None) -> None:
        """Rename the finished file to its path, or to `path`."""
        disk.replace(self._temporary, path or self.path)

    def discard(self) -> None:
        """Remove the temporary file. Does nothing after `publish`."""
        self._out.close()
        disk.unlink(self._temporary)


def map_column(path: Path, dtype: np.dtype[Any], count: int) -> npt.NDArray[Any] | None:
    """A column as a read-only memory map. None if its size or header differs from what `dtype` and `count` imply."""
    with disk.open_to_read(path) as raw:
        size = os.fstat(raw.fileno()).st_size
        if size != file_bytes(dtype, count) or raw.read(HEADER_BYTES) != npy_header(dtype, count):
            return None
        if count:
            values = np.memmap(raw, dtype, "r", HEADER_BYTES, (count,))
            return np.asarray(values)  # still mapped, but slicing an np.memmap costs three times as much
    empty = np.empty(0, dtype)  # an empty file cannot be mapped
    empty.setflags(write=False)
    return empty


def open_column(path: Path, dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    """A column of a store as a read-only memory map. Raises CorruptError if the file is not the array it should be."""
    try:
        column = map_column(path, dtype, count)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES):
            raise StoreError(f"cannot open {path}: {error.strerror}") from error
        if isinstance(error, FileNotFoundError):
            raise CorruptError(
                f"{path} does not exist. If the store was rebuilt after it was opened, open it again; otherwise"
                f" {repair_hint(path.parent.parent)}"
            ) from error
        raise CorruptError(f"{path}: {error}; {repair_hint(path.parent.parent)}") from error
    if column is None:
        raise CorruptError(f"{path}: {_mismatch(path, dtype, count)}; {repair_hint(path.parent.parent)}")
    return column


def _mismatch(path: Path, dtype: np.dtype[Any], count: int) -> str:
    """Why a file is not the column it should be: numpy's own message where numpy cannot read it either."""
    try:
        actual = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # numpy raises many kinds for damaged headers
        return str(error)
    if actual.shape == (count,) and actual.dtype == dtype:
        return "the header or the size differs from what was written"
    return f"{actual.dtype.name}{actual.shape} where the manifest says {dtype.name}({count},)"
