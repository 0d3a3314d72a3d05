"""A plan at rest, beside the store it is for: columns and a receipt, as shards are.

    plans/<key>.<column>.npy   plain arrays, under a checksum for each 4 MiB
    plans/<key>.json           the receipt, written last: without it the columns are litter

The key is a digest of the store's fingerprint and of everything the plan depends on, so a plan is right or not there. It is
only a saving of time: one that is damaged is made again. Small plans are read through when they are opened; large ones are
mapped, and each block is checked when it is first used.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.errors import BuildError, CorruptError
from tokenmill.io.atomic import CHECK_BLOCK, sync_folder, write_atomically, writing
from tokenmill.store.checksums import as_written
from tokenmill.store.shard import Column, mapped_column, sealed, unsealed
from tokenmill.user_cache import cache_folder

VERSION = 1
FOLDER = "plans"
SMALL = 64 << 20  # bytes of a plan that is checked as a whole when it is opened: some 10 ms
UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)
ABANDONED = 3600.0  # seconds without a write after which a half-written plan is litter


class Checked:
    """A column of a plan: mapped, and no block of it used before its checksum was compared."""

    def __init__(self, path: Path, receipt: Path, values: npt.NDArray[Any], sums: list[str], at_once: bool) -> None:
        self.path, self.receipt, self.values, self.sums = path, receipt, values, sums
        self.unchecked = np.ones(len(sums), np.bool_)
        self.all_checked = False
        if at_once:
            self._check(range(len(sums)))

    def __len__(self) -> int:
        return len(self.values)

    def take(self, index: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Some values by index."""
        if not self.all_checked:
            blocks = index * self.values.itemsize // CHECK_BLOCK
            blocks = blocks[self.unchecked[blocks]]
            if len(blocks):
                self._check(np.unique(blocks).tolist())
        return self.values[index]

    def first_above(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """For an ascending column: the index of the first value above each, which must exist."""
        index = self.values.searchsorted(values, "right")
        if len(values) and (int(index.max()) >= len(self) or not self.all_checked):
            self._check_order(values, index)
        return index

    def _check_order(self, values: npt.NDArray[np.int64], index: npt.NDArray[np.int64]) -> None:
        """The way to a value leads through blocks that were never checked; that it is the right one needs but two values."""
        if int(index.max()) < len(self):
            below = np.where(index > 0, self.take(np.maximum(index - 1, 0)), np.iinfo(np.int64).min)
            if bool((self.take(index) > values).all() and (below <= values).all()):
                return
        raise self._damaged()

    def _check(self, blocks: Any) -> None:
        for block in blocks:
            if not as_written(self.values, block, self.sums):
                raise self._damaged()
            self.unchecked[block] = False
        self.all_checked = not self.unchecked.any()

    def _damaged(self) -> CorruptError:
        with contextlib.suppress(OSError):
            self.receipt.unlink(missing_ok=True)  # a plan without it is made anew
        return CorruptError(f"{self.path} is damaged; pack again: the plan is made anew")


class Plan:
    """Columns by name, and what was counted when they were made."""

    def __init__(self, columns: dict[str, Checked], facts: dict[str, Any]) -> None:
        self.columns, self.facts = columns, facts


def open_plan(folder: Path, key: str) -> Plan | None:
    """A plan that is there and whole; None otherwise. Costs milliseconds, whatever its size."""
    try:
        receipt = unsealed((folder / f"{key}.json").read_bytes(), key, VERSION)
        if receipt is None:
            return None
        small = sum(column["count"] * np.dtype(column["dtype"]).itemsize for column in receipt["columns"].values())
        columns = {
            name: _open_column(folder, key, name, column, small <= SMALL) for name, column in receipt["columns"].items()
        }
    except (OSError, CorruptError):
        return None
    return Plan(columns, receipt["facts"])


def _open_column(folder: Path, key: str, name: str, column: dict[str, Any], at_once: bool) -> Checked:
    path = folder / f"{key}.{name}.npy"
    dtype, count = np.dtype(column["dtype"]), column["count"]
    values = mapped_column(path, dtype, count)
    if values is None:
        raise CorruptError(f"{path} is damaged")
    return Checked(path, folder / f"{key}.json", values, column["checksums"], at_once)


def write_plan(
    folder: Path,
    key: str,
    dtypes: dict[str, str],
    parts: Iterator[dict[str, npt.NDArray[Any]]],
    facts: Any,
) -> None:
    """Write a plan part by part, the receipt last. `facts()` is asked for when all parts are there."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    columns: dict[str, Column] = {}
    try:
        for name, dtype in dtypes.items():
            with writing(folder):
                columns[name] = Column(folder / f"{key}.{name}.npy", np.dtype(dtype))
        for part in parts:
            for name, values in part.items():
                with writing(columns[name].path):
                    columns[name].append(values)
        told = {}
        for name, column in columns.items():
            with writing(column.path):
                told[name] = {"dtype": column.dtype.name, "count": column.count, "checksums": column.finish()}
                os.replace(column.beside, column.path)
        with writing(folder):
            sync_folder(folder)
    except BaseException:
        for column in columns.values():
            column.discard()
        raise
    receipt = {"version": VERSION, "id": key, "columns": told, "facts": facts()}
    write_atomically(folder / f"{key}.json", sealed(receipt))


def sweep(folder: Path, store: str) -> None:
    """Remove plans of what the store was before, and what crashed writers left. Readers that hold them keep them."""
    with contextlib.suppress(OSError):
        for path in (*folder.glob("*.tmp"), *folder.glob("*.npy")):
            whole = path.suffix == ".npy" and (folder / f"{path.name.partition('.')[0]}.json").exists()
            if not whole and time.time() - path.stat().st_mtime > ABANDONED:
                path.unlink(missing_ok=True)
        for path in folder.glob("*.json"):
            try:
                stale = json.loads(path.read_bytes())["facts"]["store"] != store
            except (ValueError, KeyError, TypeError):
                stale = True
            if stale:
                path.unlink(missing_ok=True)
                for column in folder.glob(f"{path.stem}.*.npy"):
                    column.unlink(missing_ok=True)


def kept_plan(store: Path, key: str, write: Callable[[Path], None]) -> Plan:
    """The plan that is kept, or the one `write` makes: beside the store, or in the user's cache where that is read-only."""
    folder = store / FOLDER
    plan = open_plan(folder, key)
    if plan is not None:
        return plan
    try:
        write(folder)
    except BuildError as error:
        if not isinstance(error.__cause__, OSError) or error.__cause__.errno not in UNWRITABLE:
            raise
        folder = _elsewhere(folder)
        plan = open_plan(folder, key)
        if plan is None:
            warnings.warn(f"{store / FOLDER} cannot be written; the plan is kept in {folder}", stacklevel=5)
            write(folder)
    plan = plan or open_plan(folder, key)
    if plan is None:
        raise CorruptError(f"the plan {key} of {store} was damaged as it was written; is the disk sound?")
    return plan


def _elsewhere(folder: Path) -> Path:
    try:
        return cache_folder() / FOLDER
    except RuntimeError:  # no home
        raise BuildError(
            f"{folder} cannot be written, and there is no home folder to keep the plan in; name one in TOKENMILL_CACHE"
        ) from None
