"""Some of the documents: by a share of all, or by the folder their file is in.

Which side a document falls on depends on the file it is in, known by its first document, and on its number in that file; not
on names, dates, or other files. So it stays there when documents are appended, and when files are added, moved or renamed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from numbers import Real
from pathlib import PurePosixPath
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.errors import CorruptError, UsageError
from tokenmill.formatting import whole_number
from tokenmill.io.atomic import canonical, digest
from tokenmill.packing.hashing import mixed
from tokenmill.store import Store
from tokenmill.store.stream import Documents

WHOLE = 1 << 53  # shares are cut out of so many parts
FIRST_IDS = 4096  # of a file's first document: enough to know it by
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
Chooser = Callable[[Documents], Mask]  # which of some documents


@dataclass(frozen=True, slots=True)
class ByShare:
    """Documents whose number, the `draw`-th of this seed, lies from `low` to below `high` out of 2**53."""

    seed: int
    draw: int  # a split of a split draws anew
    low: int
    high: int

    def told(self, store: Store) -> list[Any]:
        files = _files(store)
        return ["share", self.seed, self.draw, self.low, self.high, digest(canonical([files.keys, files.documents]))]

    def chooser(self, store: Store) -> Chooser:
        files = _files(store)

        def chosen(some: Documents) -> Mask:
            lines, numbers = files.of(some)
            drawn = files.line_keys[lines]
            for number in (self.seed, self.draw):
                drawn = mixed(drawn ^ np.uint64(number & (1 << 64) - 1))
            drawn = mixed(mixed(drawn ^ numbers.astype(np.uint64)) ^ some.lengths.astype(np.uint64)) >> np.uint64(11)
            return (drawn >= self.low) & (drawn < self.high)

        return chosen


@dataclass(frozen=True, slots=True)
class ByFolder:
    """Documents of files that lie below one of these folders."""

    files: tuple[str, ...]

    def told(self, store: Store) -> list[Any]:
        files, mine = _files(store), set(self.files)
        return [
            "files",
            [count if name in mine else -count for name, count in zip(files.names, files.documents, strict=True)],
        ]

    def chooser(self, store: Store) -> Chooser:
        files, mine = _files(store), set(self.files)
        line_chosen = np.array([name in mine for name in files.names], np.bool_)[files.numbers]
        return lambda some: line_chosen[files.of(some)[0]]


Split = ByShare | ByFolder


def chosen_by(store: Store, splits: tuple[Split, ...]) -> Chooser | None:
    """Which documents belong to all of these."""
    if not splits:
        return None
    choosers = [split.chooser(store) for split in splits]
    return lambda some: np.logical_and.reduce([chooser(some) for chooser in choosers])


def shares(named: Mapping[str, Any], seed: Any, splits: tuple[Split, ...]) -> dict[str, Split]:
    """Named shares of what is left by `splits`, end to end, as parts of the whole."""
    seed = whole_number("seed", seed, -(2**63), 2**64 - 1)
    if not named:
        raise UsageError("split needs named shares, such as train=0.99, eval=0.01")
    for name, share in named.items():
        if isinstance(share, bool) or not isinstance(share, Real) or not 0 < float(share) <= 1:
            raise UsageError(f"{name}={share!r} is not a share: a number above 0 and up to 1")
    total = sum(map(float, named.values()))
    if total > 1 + 1e-9:
        raise UsageError(
            f"{', '.join(f'{name}={share}' for name, share in named.items())}: the shares sum to {total:g}, above 1"
        )
    found: dict[str, Split] = {}
    draw = sum(isinstance(split, ByShare) for split in splits)
    low, upto = 0, 0.0
    for name, share in named.items():
        upto += share
        high = WHOLE if upto > 1 - 1e-9 else round(upto * WHOLE)
        found[name] = ByShare(seed, draw, low, high)
        low = high
    return found


def folders(store: Store, named: Mapping[str, Any]) -> dict[str, Split]:
    """Named folders; without names, one for each folder below the root that all files share."""
    ways = {name: name.split("/")[:-1] for name in _files(store).names}
    root = sum(1 for _ in takewhile(lambda parts: len(set(parts)) == 1, zip(*ways.values(), strict=False)))
    if not named:
        below = {name: way[root] for name, way in ways.items() if len(way) > root}
        if len(set(below.values())) < 2 or len(below) < len(ways):
            raise UsageError(
                "by='folder' without names needs every file in one of two or more folders below a common one;"
                " name them: train='data/train', eval='data/eval'"
            )
        named = {folder: folder for folder in sorted(set(below.values()))}
    found: dict[str, Split] = {}
    taken: dict[str, str] = {}
    for split, folder in named.items():
        part = PurePosixPath(folder).parts if isinstance(folder, str | os.PathLike) else ()
        if not part or ".." in part:
            raise UsageError(f"{split}={folder!r} is not the name of a folder")
        wanted = [name for name in part if name != "/"]
        # What lies below the common root is what tells files apart; a name above it would take them all.
        mine = tuple(name for name, way in ways.items() if _passes(way[root:], wanted))
        mine = mine or tuple(name for name, way in ways.items() if _passes(way, wanted))
        if not mine:
            some = ", ".join(sorted({"/".join(way[-2:]) for way in ways.values()})[:8])
            raise UsageError(f"{split}={folder!r}: no file of the store lies below such a folder; its folders: {some}")
        for name in mine:
            if taken.setdefault(name, split) != split:
                other = f"{taken[name]}={named[taken[name]]!r}"
                raise UsageError(f"{split}={folder!r} and {other} both hold {name}; splits are disjoint")
        found[split] = ByFolder(mine)
    return found


def _passes(way: list[str], part: list[str]) -> bool:
    return any(way[at : at + len(part)] == part for at in range(len(way) - len(part) + 1))


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of a store, and which documents of each shard are theirs: a line for each stretch of a file in a shard."""

    names: list[str]
    documents: list[int]
    keys: list[int]
    shards: Numbers
    numbers: Numbers  # of the file
    counts: Numbers
    before: Numbers  # documents of the file before this stretch
    line_keys: npt.NDArray[np.uint64]

    def of(self, some: Documents) -> tuple[Numbers, Numbers]:
        """The line of each document, and its number in its file."""
        low, high = np.searchsorted(self.shards, (some.shard, some.shard + 1)).tolist()
        ends = np.cumsum(self.counts[low:high])
        document = np.arange(some.first, some.first + len(some.starts))
        line = low + ends.searchsorted(document, "right")
        begin = (ends - self.counts[low:high])[line - low]
        return line, self.before[line] + document - begin


def _files(store: Store) -> _Files:
    """Read from every receipt once: about 0.1 ms a shard, and a page of each file's first document."""
    known = _FILES.get(store)
    if known is None:
        known = _FILES[store] = _read_files(store)
    return known


_FILES: WeakKeyDictionary[Store, _Files] = WeakKeyDictionary()  # kept as long as somebody holds the store


def _read_files(store: Store) -> _Files:
    names: list[str] = []
    documents: list[int] = []
    keys: list[int] = []
    lines: list[tuple[int, int, int, int, int]] = []
    first = 0
    for shard, expected in enumerate(store.manifest.shard_documents):
        pieces = store.pieces(shard)
        if [type(piece["documents"]) for piece in pieces] != [int] * len(pieces) or expected != sum(
            max(0, piece["documents"]) for piece in pieces
        ):
            name = f"shards/{store.manifest.shard_ids[shard]}.json"
            raise CorruptError(
                f"{store.path}: {name} does not agree with the manifest; run: tokenmill verify {store.path}"
            )
        for piece in pieces:
            if not names or piece["file"] != names[-1]:
                names.append(str(piece["file"]))
                documents.append(0)
                keys.append(0)
            count = piece["documents"]
            if count and not documents[-1]:
                ids = store[first][:FIRST_IDS].astype("<u4")
                keys[-1] = xxhash.xxh3_64_intdigest(ids.tobytes())
            lines.append((shard, len(names) - 1, count, documents[-1], keys[-1]))
            documents[-1] += count
            first += count
    shards, numbers, counts, before = np.array([line[:4] for line in lines], np.int64).reshape(-1, 4).T
    line_keys = np.array([line[4] for line in lines], np.uint64)
    return _Files(names, documents, keys, shards, numbers, counts, before, line_keys)
