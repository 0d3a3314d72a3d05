"""The file format of row plans, which are stored beside the store they are for.

    plans/<key>.<column>.npy   plain arrays, with a checksum for each 4 MiB
    plans/<key>.json           the receipt, written last: without it the columns are ignored

The key is a digest of the store's fingerprint and of everything the plan depends on, so a plan that exists is the right one.
Plans only save time: a damaged plan is made again. Small plans are checked as a whole when they are opened; large ones are
mapped, and each block is checked when it is first used.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tokenmill.callers import warn
from tokenmill.errors import BuildError, CorruptError
from tokenmill.io import disk
from tokenmill.io.atomic import canonical, write_atomically, writing
from tokenmill.store.checksums import CHECK_BLOCK, block_matches
from tokenmill.store.columns import ColumnWriter, map_column
from tokenmill.store.shard import sealed, unsealed
from tokenmill.user_cache import cache_folder

VERSION = 1
FOLDER = "plans"
SMALL = 64 << 20  # bytes of a plan that is checked as a whole when it is opened: about 10 ms
Parts: TypeAlias = Iterator[dict[str, npt.NDArray[Any]]]
Facts: TypeAlias = Callable[[], dict[str, Any]]
Making: TypeAlias = tuple[dict[str, str], Parts, Facts]  # the columns of a plan, and what makes it
ABANDONED = 3600.0  # seconds without a write after which an unfinished plan is removed


class CheckedColumn:
    """A memory-mapped column of a plan. Each block is compared with its checksum before it is first used."""

    def __init__(self, path: Path, receipt: Path, values: npt.NDArray[Any], sums: list[str]) -> None:
        self.path, self.receipt, self.values, self.sums = path, receipt, values, sums
        self.unchecked = np.ones(len(sums), np.bool_)
        self.all_checked = not sums

    def __len__(self) -> int:
        return len(self.values)

    def take(self, index: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """The values at these indices."""
        if not self.all_checked:
            blocks = index * self.values.itemsize // CHECK_BLOCK
            blocks = blocks[self.unchecked[blocks]]
            if len(blocks):
                self.check(np.unique(blocks).tolist())
        return self.values[index]

    def first_above(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """For an ascending column: the index of the first value above each of `values`, which must exist."""
        index = self.values.searchsorted(values, "right")
        if len(values) and (int(index.max()) >= len(self) or not self.all_checked):
            self._check_order(values, index)
        return index

    def _check_order(self, values: npt.NDArray[np.int64], index: npt.NDArray[np.int64]) -> None:
        """Confirm the result of a binary search, which reads unchecked blocks, by the two values next to each result."""
        if int(index.max()) < len(self):
            below = np.where(index > 0, self.take(np.maximum(index - 1, 0)), np.iinfo(np.int64).min)
            if bool((self.take(index) > values).all() and (below <= values).all()):
                return
        raise self._damaged()

    def check(self, blocks: Iterable[int]) -> None:
        """Compare these blocks with their checksums; CorruptError if one is damaged."""
        for block in blocks:
            if not block_matches(self.values, block, self.sums):
                raise self._damaged()
            self.unchecked[block] = False
        self.all_checked = not self.unchecked.any()

    def _damaged(self) -> CorruptError:
        with contextlib.suppress(OSError):
            disk.unlink(self.receipt)  # a plan without a receipt is made again
        return CorruptError(f"{self.path} is damaged; pack again to rebuild the plan")


@dataclass(frozen=True, slots=True)
class RowPlan:
    """The columns of a plan by name, and what was counted when it was made."""

    columns: dict[str, CheckedColumn]
    facts: dict[str, Any]


def open_plan(folder: Path, key: str) -> RowPlan | None:
    """The plan of this key; None if it is missing or damaged. Costs milliseconds, whatever its size."""
    try:
        receipt = unsealed(disk.read_bytes(folder / f"{key}.json"), key, VERSION)
        if receipt is None:
            return None
        columns = {name: _open_column(folder, key, name, facts) for name, facts in receipt["columns"].items()}
        if sum(column.values.nbytes for column in columns.values()) <= SMALL:
            for column in columns.values():
                column.check(range(len(column.sums)))
    except (OSError, CorruptError):
        return None
    return RowPlan(columns, receipt["facts"])


def _open_column(folder: Path, key: str, name: str, facts: dict[str, Any]) -> CheckedColumn:
    path = folder / f"{key}.{name}.npy"
    values = map_column(path, np.dtype(facts["dtype"]), facts["count"])
    if values is None:
        raise CorruptError(f"{path} is damaged")
    return CheckedColumn(path, folder / f"{key}.json", values, facts["checksums"])


def write_plan(folder: Path, key: str, dtypes: dict[str, str], parts: Parts, facts: Facts) -> dict[str, Any]:
    """Write a plan part by part, the receipt last. Returns `facts()`, which is called when all parts are written."""
    with writing(folder):
        disk.make_folder(folder)
    columns: dict[str, ColumnWriter] = {}
    try:
        for name, dtype in dtypes.items():
            with writing(folder):
                columns[name] = ColumnWriter(folder / f"{key}.{name}.npy", np.dtype(dtype))
        for part in parts:
            for name, values in part.items():
                with writing(columns[name].path):
                    columns[name].append(values)
        column_facts = {}
        for name, column in columns.items():
            with writing(column.path):
                column_facts[name] = {"dtype": column.dtype.name, "count": column.count, "checksums": column.finish()}
                column.publish()
        with writing(folder):
            disk.sync_folder(folder)
    except BaseException:
        for column in columns.values():
            column.discard()
        raise
    receipt: dict[str, Any] = {"version": VERSION, "id": key, "columns": column_facts, "facts": facts()}
    write_atomically(folder / f"{key}.json", sealed(receipt))
    return dict(receipt["facts"])


def sweep(folder: Path, store: str) -> None:
    """Remove the plans of earlier versions of the store, and files that crashed writers left. Open plans stay usable."""
    with contextlib.suppress(OSError):
        for path in (*disk.matching(folder, "*.tmp"), *disk.matching(folder, "*.npy")):
            has_receipt = path.suffix == ".npy" and (folder / f"{path.name.partition('.')[0]}.json").exists()
            if not has_receipt and time.time() - path.stat().st_mtime > ABANDONED:
                disk.unlink(path)
        for path in disk.matching(folder, "*.json"):
            try:
                stale = json.loads(disk.read_bytes(path))["facts"]["store"] != store
            except (ValueError, KeyError, TypeError):
                stale = True
            if stale:
                disk.unlink(path)
                for column in disk.matching(folder, f"{path.stem}.*.npy"):
                    disk.unlink(column)


def plan_in_memory(dtypes: dict[str, str], parts: Parts, facts: Facts) -> RowPlan:
    """The plan that `write_plan` would write."""
    made = {name: [np.empty(0, dtype)] for name, dtype in dtypes.items()}
    for part in parts:
        for name, values in part.items():
            made[name].append(values.astype(dtypes[name]))
    columns = {name: CheckedColumn(Path(name), Path(name), np.concatenate(each), []) for name, each in made.items()}
    return RowPlan(columns, json.loads(canonical(facts())))


def load_or_write_plan(store: Path, key: str, make: Callable[[], Making]) -> RowPlan:
    """Open the plan of this key, or make it: beside the store, in the user's cache if the store is read-only, or in memory."""
    beside = store / FOLDER
    for folder in (beside, cache_folder() / FOLDER):
        plan = open_plan(folder, key)
        if plan is not None:
            return plan
        try:
            facts = write_plan(folder, key, *make())
        except BuildError as error:
            if not error.is_unwritable:
                raise
            continue
        if folder == beside:
            sweep(folder, facts["store"])
        else:
            warn(f"{beside} cannot be written; the plan is stored in {folder}")
        plan = open_plan(folder, key)
        if plan is None:
            raise CorruptError(f"the plan {key} of {store} was damaged while it was written; check the disk")
        return plan
    warn(f"neither {beside} nor {folder} can be written; the plan is made in memory, again in each process")
    return plan_in_memory(*make())
