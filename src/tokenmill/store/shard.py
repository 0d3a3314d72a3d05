"""A shard at rest: token ids, document ends, and the receipt that makes them true.

    <id>.npy       ids end to end, little-endian uint16 or uint32
    <id>.ends.npy  int64, where each document ends
    <id>.json      the receipt, written last: without it the other two are litter

Both arrays are plain .npy files. Checksums cover each 4 MiB of data and the header is implied by the receipt, so a
flipped bit anywhere is found and named.
"""

from __future__ import annotations

import errno
import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.documents import Tokens
from tokenmill.errors import CorruptError, EncodingError, StoreError
from tokenmill.io.atomic import CHECK_BLOCK, beside_of, canonical, digest, sync_folder, write_atomically, writing

RECEIPT_VERSION = 2
HEADER_BYTES = 128


def npy_header(dtype: np.dtype[Any], count: int) -> bytes:
    """The header of a one-dimensional .npy file, padded to a fixed size so that it can be written last."""
    text = f"{{'descr': '{dtype.newbyteorder('<').str}', 'fortran_order': False, 'shape': ({count},), }}"
    body = text.ljust(HEADER_BYTES - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", HEADER_BYTES - 10) + body.encode("ascii")


class Column:
    """One .npy file being written: appended to, checksummed on the way, rolled back if need be."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self.path, self.dtype = path, dtype
        self.beside = beside_of(path)
        self.out: BinaryIO = open(self.beside, "wb", buffering=0)
        self.count = 0
        self.sums: list[str] = []
        self.hash = xxhash.xxh3_64()
        self.in_block = 0
        try:
            _write_all(self.out, bytes(HEADER_BYTES))
        except BaseException:
            self.discard()
            raise

    def append(self, values: npt.NDArray[Any]) -> None:
        if values.dtype != self.dtype and len(values):
            limits = np.iinfo(self.dtype)
            if values.min() < limits.min or values.max() > limits.max:
                worst = values.min() if values.min() < limits.min else values.max()
                raise EncodingError(f"{self.path}: {worst} does not fit {self.dtype.name}; nothing was stored")
        data = np.ascontiguousarray(values, self.dtype).view(np.uint8).data
        _write_all(self.out, data)
        self.count += len(values)
        while len(data):
            take = data[: CHECK_BLOCK - self.in_block]
            self.hash.update(take)
            self.in_block += len(take)
            data = data[len(take) :]
            if self.in_block == CHECK_BLOCK:
                self.sums.append(self.hash.hexdigest())
                self.hash, self.in_block = xxhash.xxh3_64(), 0

    def mark(self) -> tuple[Any, ...]:
        return self.count, len(self.sums), self.hash.copy(), self.in_block

    def rollback(self, mark: tuple[Any, ...]) -> None:
        self.count, blocks, self.hash, self.in_block = mark[0], mark[1], mark[2].copy(), mark[3]
        del self.sums[blocks:]
        size = HEADER_BYTES + self.count * self.dtype.itemsize
        self.out.truncate(size)
        self.out.seek(size)

    def finish(self) -> list[str]:
        """Make the file whole and durable, still under its temporary name."""
        if self.in_block:
            self.sums.append(self.hash.hexdigest())
            self.in_block = 0
        self.out.seek(0)
        _write_all(self.out, npy_header(self.dtype, self.count))
        os.fsync(self.out.fileno())
        self.out.close()
        return self.sums

    def discard(self) -> None:
        self.out.close()
        self.beside.unlink(missing_ok=True)


class ShardWriter:
    """Writes one shard. Nothing of it exists for others until `commit`; memory stays at what is appended at once."""

    def __init__(self, folder: Path, shard_id: str, dtype: np.dtype[Any]) -> None:
        self.folder, self.id, self.dtype = folder, shard_id, dtype
        self._checksums: dict[str, list[str]] | None = None
        with writing(folder / f"{shard_id}.npy"):
            folder.mkdir(parents=True, exist_ok=True)
            self._ids = Column(folder / f"{shard_id}.npy", dtype)
            try:
                self._ends = Column(folder / f"{shard_id}.ends.npy", np.dtype(np.int64))
            except BaseException:
                self._ids.discard()
                raise

    @property
    def documents(self) -> int:
        return self._ends.count

    @property
    def tokens(self) -> int:
        return self._ids.count

    def append(self, tokens: Tokens) -> None:
        """Add ids and the ends among them; ids after the last end start a document that goes on."""
        with writing(self._ids.path):
            base = self._ids.count
            self._ids.append(tokens.ids)
            self._ends.append(tokens.ends + base)

    def mark(self) -> tuple[Any, Any]:
        return self._ids.mark(), self._ends.mark()

    def rollback(self, mark: tuple[Any, Any]) -> None:
        """Forget everything since `mark`."""
        with writing(self._ids.path):
            self._ids.rollback(mark[0])
            self._ends.rollback(mark[1])

    def finish(self) -> dict[str, list[str]]:
        """Make the files whole and durable, still under their temporary names. Returns their checksums."""
        if self._checksums is None:
            with writing(self._ids.path):
                self._checksums = {"ids": self._ids.finish(), "ends": self._ends.finish()}
        return self._checksums

    def commit(self, shard_id: str | None = None, **facts: Any) -> dict[str, Any]:
        """Publish the shard: data, fsync, rename, and then the receipt. Returns the receipt.

        `shard_id` is a better name for it, where what it holds was not known when it was begun.
        """
        shard_id = shard_id or self.id
        receipt = {
            "version": RECEIPT_VERSION,
            "id": shard_id,
            "documents": self.documents,
            "tokens": self.tokens,
            "dtype": self.dtype.name,
            "check_block": CHECK_BLOCK,
            **facts,
        }
        try:
            receipt["checksums"] = self.finish()
            with writing(self._ids.path):
                for column, suffix in ((self._ids, ".npy"), (self._ends, ".ends.npy")):
                    os.replace(column.beside, self.folder / f"{shard_id}{suffix}")
                sync_folder(self.folder)
        except BaseException:
            self.discard()
            raise
        write_atomically(receipt_path(self.folder, shard_id), sealed(receipt))
        return receipt

    def discard(self) -> None:
        """Leave nothing behind."""
        self._ids.discard()
        self._ends.discard()


def receipt_path(folder: Path, shard_id: str) -> Path:
    return folder / f"{shard_id}.json"


def read_receipt(folder: Path, shard_id: str) -> dict[str, Any] | None:
    """The receipt of a shard that is done; None where there is none, or none that is whole and of this shard."""
    try:
        return unsealed(receipt_path(folder, shard_id).read_bytes(), shard_id)
    except OSError:
        return None


def sealed(receipt: dict[str, Any]) -> bytes:
    """A receipt as it is written: with a checksum over itself."""
    return canonical({**receipt, "checksum": digest(canonical(receipt))})


def unsealed(raw: bytes, shard_id: str, version: int = RECEIPT_VERSION) -> dict[str, Any] | None:
    """A receipt read back; None if a bit of it differs, or if it is another shard's or of another version."""
    try:
        receipt = json.loads(raw)
        checksum = receipt.pop("checksum")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None
    whole = checksum == digest(canonical(receipt)) and raw == canonical({**receipt, "checksum": checksum})
    return receipt if whole and receipt["id"] == shard_id and receipt["version"] == version else None


def is_done(folder: Path, receipt: dict[str, Any]) -> bool:
    """Whether a receipt's files are there in full; two stats, no reading."""
    try:
        return all((folder / name).stat().st_size == size for name, size in _expected_sizes(receipt).items())
    except (OSError, KeyError, TypeError):
        return False


def _expected_sizes(receipt: dict[str, Any]) -> dict[str, int]:
    shard_id = receipt["id"]
    return {
        f"{shard_id}.npy": HEADER_BYTES + receipt["tokens"] * np.dtype(receipt["dtype"]).itemsize,
        f"{shard_id}.ends.npy": HEADER_BYTES + receipt["documents"] * 8,
    }


@dataclass(frozen=True, slots=True)
class Damage:
    """Something wrong in a store: which file, which shard (if any), and what."""

    file: str
    what: str
    shard: str | None = None

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


def check_shard(folder: Path, receipt: dict[str, Any]) -> list[Damage]:
    """Read a shard through and compare every byte with its receipt. Runs at the speed of the disk."""
    found: list[Damage] = []
    sizes = _expected_sizes(receipt)
    for kind, dtype, count, name in (
        ("ids", np.dtype(receipt["dtype"]), receipt["tokens"], f"{receipt['id']}.npy"),
        ("ends", np.dtype(np.int64), receipt["documents"], f"{receipt['id']}.ends.npy"),
    ):
        path = folder / name
        try:
            with open(path, "rb", buffering=0) as raw:
                what = _differs(raw, npy_header(dtype, count), receipt["checksums"][kind], sizes[name])
        except OSError as error:
            what = error.strerror or str(error)
        if what:
            found.append(Damage(f"shards/{name}", what, receipt["id"]))
    return found


def _differs(raw: BinaryIO, header: bytes, sums: list[str], size: int) -> str | None:
    actual = os.fstat(raw.fileno()).st_size
    if actual != size:
        return f"{actual} bytes where the receipt says {size}"
    if raw.read(HEADER_BYTES) != header:
        return "the .npy header is damaged"
    for i, expected in enumerate(sums):
        block = raw.read(CHECK_BLOCK)
        if xxhash.xxh3_64_hexdigest(block) != expected:
            return (
                f"bytes {HEADER_BYTES + i * CHECK_BLOCK} to {HEADER_BYTES + i * CHECK_BLOCK + len(block)} are damaged"
            )
    return None


def mapped_column(path: Path, dtype: np.dtype[Any], count: int) -> npt.NDArray[Any] | None:
    """A column, mapped, never loaded; None where size or header are not what its dtype and count imply, byte for byte."""
    with open(path, "rb", buffering=0) as raw:
        size = os.fstat(raw.fileno()).st_size
        if size != HEADER_BYTES + count * dtype.itemsize or raw.read(HEADER_BYTES) != npy_header(dtype, count):
            return None
        if count:
            values = np.memmap(raw, dtype, "r", HEADER_BYTES, (count,))
            return np.asarray(values)  # still mapped; np.memmap itself makes every slice three times dearer
    nothing = np.empty(0, dtype)  # which cannot be mapped
    nothing.setflags(write=False)
    return nothing


def open_column(path: Path, dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    """A shard's array, mapped, never loaded; a file that is not the .npy it should be is a CorruptError."""
    try:
        column = mapped_column(path, dtype, count)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES):
            raise StoreError(f"cannot open {path}: {error.strerror}") from error
        if isinstance(error, FileNotFoundError):
            raise CorruptError(
                f"{path} is gone: if the store was built again since it was opened, open it again;"
                f" if not, run: tokenmill verify {path.parent.parent} --repair"
            ) from error
        raise CorruptError(f"{path}: {error}; run: tokenmill verify {path.parent.parent} --repair") from error
    if column is None:
        what = _unlike(path, dtype, count)
        raise CorruptError(f"{path}: {what}; run: tokenmill verify {path.parent.parent} --repair")
    return column


def _unlike(path: Path, dtype: np.dtype[Any], count: int) -> str:
    """What is wrong with a column that is not as it was written: numpy's own words where it cannot read it either."""
    try:
        found = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # of many kinds, for headers of noise
        return str(error)
    if found.shape == (count,) and found.dtype == dtype:
        return "its header or its size is not as it was written"
    return f"{found.dtype.name}{found.shape} where the manifest says {dtype.name}({count},)"


def content_digest(receipt: dict[str, Any]) -> str:
    """A digest of what a shard holds, whatever it is called and wherever it came from."""
    return digest(canonical([receipt["documents"], receipt["tokens"], receipt["dtype"], receipt["checksums"]]))


def _write_all(out: BinaryIO, data: Any) -> None:
    """Unbuffered writes may be short; a full disk raises here and nowhere else."""
    view = memoryview(data)
    while len(view):
        view = view[out.write(view) :]
