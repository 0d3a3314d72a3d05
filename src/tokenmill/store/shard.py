"""A shard: a set of columns and the receipt that lists them.

The receipt is written last, with a checksum over itself. A shard with a receipt is finished; files without one are ignored.
The receipt has the checksums of every column and implies the .npy headers, so a flipped bit anywhere is found and named.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.display import fields_in_one_line
from tokenmill.documents import Tokens
from tokenmill.errors import CorruptError, EncodingError, UsageError
from tokenmill.io import disk
from tokenmill.io.atomic import canonical, digest, write_atomically, writing
from tokenmill.store.checksums import CHECK_BLOCK, block_count, repair_hint
from tokenmill.store.columns import (
    ENDS,
    HEADER_BYTES,
    IDS,
    ColumnMark,
    ColumnSpec,
    ColumnWriter,
    column_path,
    columns_with,
    file_bytes,
    is_count,
    npy_header,
    receipt_path,
)

RECEIPT_VERSION = 3
Receipt = dict[str, Any]


class ShardWriter:
    """Writes one shard. Other processes see nothing of it before `commit`. Memory is what one append brings."""

    def __init__(
        self, folder: Path, shard_id: str, dtype: np.dtype[Any] | str, extra_columns: Sequence[ColumnSpec] = ()
    ) -> None:
        self.folder, self.id = folder, shard_id
        self.columns = columns_with(dtype, extra_columns)
        self._path = column_path(folder, shard_id, IDS)  # named by errors
        self._finished: dict[str, Any] | None = None
        self._writers: dict[str, ColumnWriter] = {}
        with writing(self._path):
            disk.make_folder(folder)
            try:
                for column in self.columns:
                    path = column_path(folder, shard_id, column.name)
                    self._writers[column.name] = ColumnWriter(path, np.dtype(column.dtype))
            except BaseException:
                self.discard()
                raise

    @property
    def documents(self) -> int:
        return self._writers[ENDS].count

    @property
    def tokens(self) -> int:
        return self._writers[IDS].count

    def append(self, tokens: Tokens) -> None:
        """Add documents. Ids after the last end begin a document that the next append continues."""
        arrays = {IDS: tokens.ids, ENDS: tokens.ends + self.tokens, **tokens.columns}
        self._check_lengths(arrays)
        with writing(self._path):
            for name, values in arrays.items():
                self._writers[name].append(values)

    def _check_lengths(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        if arrays.keys() != self._writers.keys():
            raise EncodingError(
                f"{self._path}: columns {', '.join(arrays)} where {', '.join(self._writers)} are written"
            )
        for column in self.columns:
            length = column.length(documents=len(arrays[ENDS]), tokens=len(arrays[IDS]))
            if len(arrays[column.name]) != length:
                raise EncodingError(
                    f"{self._path}: {len(arrays[column.name])} values of {column.name}, which needs one per {column.per}:"
                    f" {length}"
                )

    def mark(self) -> list[ColumnMark]:
        return [writer.mark() for writer in self._writers.values()]

    def rollback(self, marks: list[ColumnMark]) -> None:
        """Remove everything that was appended after `mark`."""
        with writing(self._path):
            for writer, mark in zip(self._writers.values(), marks, strict=True):
                writer.rollback(mark)

    def finish(self) -> dict[str, Any]:
        """Complete and fsync the files under their temporary names. Returns the columns as the receipt lists them."""
        if self._finished is None:
            with writing(self._path):
                checksums = {name: writer.finish() for name, writer in self._writers.items()}
            self._finished = {
                column.name: {
                    "per": column.per,
                    "dtype": column.dtype,
                    "length": self._writers[column.name].count,
                    "checksums": checksums[column.name],
                }
                for column in self.columns
            }
        return self._finished

    def commit(
        self, shard_id: str | None = None, before_receipt: Callable[[Receipt], None] | None = None, **facts: Any
    ) -> Receipt:
        """Publish the shard: fsync and rename the columns, then write the receipt, which also gets `facts`.

        `shard_id` replaces the id given at the start, for a shard whose name depends on what was read. `before_receipt` is
        called with the receipt when the columns are in place. Returns the receipt.
        """
        shard_id = shard_id or self.id
        try:
            receipt = {
                "version": RECEIPT_VERSION,
                "id": shard_id,
                "documents": self.documents,
                "tokens": self.tokens,
                "check_block": CHECK_BLOCK,
                "columns": self.finish(),
                **facts,
            }
            with writing(self._path):
                for name, writer in self._writers.items():
                    writer.publish(column_path(self.folder, shard_id, name))
                disk.sync_folder(self.folder)
        except BaseException:
            self.discard()
            raise
        if before_receipt is not None:
            before_receipt(receipt)
        write_atomically(receipt_path(self.folder, shard_id), sealed(receipt))
        return receipt

    def discard(self) -> None:
        """Remove the temporary files."""
        for writer in self._writers.values():
            writer.discard()


def sealed(body: dict[str, Any]) -> bytes:
    """A receipt as it is written: canonical JSON with a checksum over itself."""
    return canonical({**body, "checksum": digest(canonical(body))})


def unsealed(raw: bytes, shard_id: str, version: int = RECEIPT_VERSION) -> Receipt | None:
    """Parse a receipt. None if it is damaged, or belongs to another shard or version."""
    try:
        receipt = json.loads(raw)
        checksum = receipt.pop("checksum")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None
    intact = checksum == digest(canonical(receipt)) and raw == canonical({**receipt, "checksum": checksum})
    return receipt if intact and receipt.get("id") == shard_id and receipt.get("version") == version else None


def read_receipt(folder: Path, shard_id: str) -> Receipt | None:
    """The receipt of a finished shard. None if there is none, or if it is damaged."""
    try:
        return unsealed(disk.read_bytes(receipt_path(folder, shard_id)), shard_id)
    except OSError:
        return None


def require_receipt(folder: Path, shard_id: str) -> Receipt:
    """The receipt of a shard of a finished store. Raises CorruptError if it is missing or damaged."""
    receipt, store = read_receipt(folder, shard_id), folder.parent
    if receipt is None:
        raise CorruptError(f"{store}: the receipt of shard {shard_id} is missing or damaged; {repair_hint(store)}")
    if problem := receipt_problem(receipt):
        raise CorruptError(f"{store}: the receipt of shard {shard_id} is wrong: {problem}; {repair_hint(store)}")
    return receipt


def receipt_problem(receipt: Receipt) -> str | None:
    """What is wrong with the counts of a receipt: each piece has its rows, and together they are the shard."""
    try:
        pieces = receipt["pieces"]
        for piece in pieces:
            skipped = sum(count for _, count, _, _ in piece.get("skips", ()))
            if not all(is_count(piece[name]) for name in ("rows", "documents")):
                return "the counts of a piece are not counts"
            if piece["rows"] != piece["documents"] + skipped:
                return f"a piece of {piece['rows']} rows has {piece['documents']} documents and {skipped} left-out rows"
        for name in ("documents", "tokens", "text_bytes"):
            if not is_count(receipt[name]):
                return f"{name} is not a count"
            parts = [piece[name] for piece in pieces if name in piece]
            if len(parts) == len(pieces) and sum(parts) != receipt[name]:
                return f"its pieces have {sum(parts)} {name}, it has {receipt[name]}"
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"it is not a receipt ({type(error).__name__}: {error})"
    return None


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column as a receipt describes it."""

    spec: ColumnSpec
    length: int
    checksums: list[str]

    @property
    def file_bytes(self) -> int:
        return file_bytes(self.spec.dtype, self.length)


def stored_columns(receipt: Receipt) -> list[StoredColumn]:
    """The columns of a shard. Raises CorruptError for a receipt that no build writes."""
    try:
        columns = [
            StoredColumn(ColumnSpec(name, entry["per"], entry["dtype"]), entry["length"], entry["checksums"])
            for name, entry in receipt["columns"].items()
        ]
        for column in columns:
            spec, length = column.spec, column.length
            if length != spec.length(documents=receipt["documents"], tokens=receipt["tokens"]):
                raise ValueError(f"the length of {spec.name} is {length}")
            if len(column.checksums) != block_count(column.file_bytes - HEADER_BYTES):
                raise ValueError(f"{len(column.checksums)} checksums of {spec.name}")
        if not {IDS, ENDS} <= receipt["columns"].keys():
            raise ValueError("ids or ends are missing")
    except (UsageError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError(f"the receipt of shard {receipt.get('id')} is damaged: {error}") from None
    return columns


def has_columns(receipt: Receipt, columns: Sequence[ColumnSpec]) -> bool:
    """Whether a shard has exactly these columns."""
    try:
        return {column.spec for column in stored_columns(receipt)} == set(columns)
    except CorruptError:
        return False


def content_digest(receipt: Receipt) -> str:
    """A digest of the data of a shard, independent of its name and its sources.

    The digest of a shard with `ids` and `ends` alone must never change: store fingerprints are made of it.
    """
    columns: dict[str, Any] = receipt["columns"]
    content = [
        receipt["documents"],
        receipt["tokens"],
        columns[IDS]["dtype"],
        {name: columns[name]["checksums"] for name in (IDS, ENDS)},
    ]
    extra = {name: entry for name, entry in columns.items() if name not in (IDS, ENDS)}
    return digest(canonical([*content, extra] if extra else content))


def is_done(folder: Path, receipt: Receipt) -> bool:
    """Whether all files of a shard exist in their full size. Costs one stat per column and reads nothing."""
    try:
        return all(
            column_path(folder, receipt["id"], column.spec.name).stat().st_size == column.file_bytes
            for column in stored_columns(receipt)
        )
    except (OSError, CorruptError):
        return False


@dataclass(frozen=True, slots=True)
class Damage:
    """Something wrong in a store: the file, what is wrong with it, and the shard, if it belongs to one."""

    file: str
    what: str
    shard: str | None = None

    __repr__ = fields_in_one_line

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


def check_shard(folder: Path, receipt: Receipt) -> list[Damage]:
    """Read all columns of a shard and compare every byte with the receipt. Runs at the speed of the disk."""
    shard_id = receipt["id"]
    try:
        columns = stored_columns(receipt)
    except CorruptError as error:
        return [Damage(f"shards/{receipt_path(folder, shard_id).name}", str(error), shard_id)]
    damages: list[Damage] = []
    for column in columns:
        path = column_path(folder, shard_id, column.spec.name)
        try:
            with disk.open_to_read(path) as raw:
                problem = compare_column(raw, column)
        except OSError as error:
            problem = error.strerror or str(error)
        except CorruptError as error:  # found when it was fetched from a bucket
            problem = str(error)
        if problem:
            damages.append(Damage(f"shards/{path.name}", problem, shard_id))
    return damages


def compare_column(raw: BinaryIO, column: StoredColumn) -> str | None:
    """The first difference between a file and its receipt."""
    size = os.fstat(raw.fileno()).st_size
    if size != column.file_bytes:
        return f"{size} bytes where the receipt says {column.file_bytes}"
    if raw.read(HEADER_BYTES) != npy_header(np.dtype(column.spec.dtype), column.length):
        return "the .npy header is damaged"
    start = HEADER_BYTES
    for expected in column.checksums:
        block = raw.read(CHECK_BLOCK)
        if xxhash.xxh3_64_hexdigest(block) != expected:
            return f"bytes {start} to {start + len(block)} are damaged"
        start += len(block)
    return None
