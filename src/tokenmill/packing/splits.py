"""Splits: subsets of the documents, by share, by folder or by the names of files.

The side of a document depends on its file, identified by the file's first document, and on its number in that file; not on
names, dates, or other files. So a document keeps its side when documents are appended, and when files are added, moved or
renamed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from numbers import Real
from pathlib import PurePosixPath
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.callers import warn
from tokenmill.errors import CorruptError, UsageError
from tokenmill.formatting import first_names
from tokenmill.io.atomic import canonical, digest
from tokenmill.option_types import declared, option_name, whole_number
from tokenmill.options import LoadArguments
from tokenmill.packing.best_fit import Numbers
from tokenmill.packing.hashing import splitmix64
from tokenmill.split_names import ALL, held_out, matching_splits
from tokenmill.store.store import Store
from tokenmill.store.stream import Documents

WHOLE = 1 << 53  # the parts that shares are counted in
_OF_OTHERS = ("shuffle", "random_state", "stratify", "stratify_by_column", "generator")
FIRST_IDS = 4096  # ids of a file's first document that identify the file
Mask = npt.NDArray[np.bool_]
Chooser = Callable[[Documents], Mask]  # which of these documents belong to a split


@dataclass(frozen=True, slots=True)
class ByShare:
    """Documents whose hash for this seed and draw is at least `low` and below `high`, of 2**53."""

    seed: int
    draw: int  # 0, or 1 for a split of a split, and so on: each draws other hashes
    low: int
    high: int
    name: str = field(default="", compare=False)

    def key(self, store: Store) -> list[Any]:
        """What the split depends on, as JSON values."""
        files = _files(store)
        return ["share", self.seed, self.draw, self.low, self.high, digest(canonical([files.keys, files.documents]))]

    def chooser(self, store: Store) -> Chooser:
        files = _files(store)

        def choose(documents: Documents) -> Mask:
            stretches, numbers = files.of(documents)
            hashed = files.stretch_keys[stretches]
            for number in (self.seed, self.draw):
                hashed = splitmix64(hashed ^ np.uint64(number & (1 << 64) - 1))
            hashed = splitmix64(hashed ^ numbers.astype(np.uint64))
            hashed = splitmix64(hashed ^ documents.lengths.astype(np.uint64)) >> np.uint64(11)
            return (hashed >= self.low) & (hashed < self.high)

        return choose


@dataclass(frozen=True, slots=True)
class ByFiles:
    """The documents of these files. Without a name nobody asked for them: they are those for training."""

    files: tuple[str, ...]
    name: str = field(default="", compare=False)

    def key(self, store: Store) -> list[Any]:
        """What the split depends on, as JSON values."""
        files, mine = _files(store), set(self.files)
        return [
            "files",
            [count if name in mine else -count for name, count in zip(files.names, files.documents, strict=True)],
        ]

    def chooser(self, store: Store) -> Chooser:
        files, mine = _files(store), set(self.files)
        chosen = np.array([name in mine for name in files.names], np.bool_)[files.numbers]
        return lambda documents: chosen[files.of(documents)[0]]


Split = ByShare | ByFiles


def chosen_by(store: Store, splits: tuple[Split, ...]) -> Chooser | None:
    """A function that selects the documents in all of these splits; None if there are no splits."""
    if not splits:
        return None
    choosers = [split.chooser(store) for split in splits]
    return lambda documents: np.logical_and.reduce([chooser(documents) for chooser in choosers])


def shares(named: Mapping[str, Any], seed: Any, splits: tuple[Split, ...]) -> dict[str, Split]:
    """Splits for named shares of the documents in `splits`: ranges of the hash, one after the other."""
    seed = whole_number("seed", seed, -(2**63), 2**64 - 1)
    for name in named:
        if name.endswith("_size") or name in _OF_OTHERS or name in declared(LoadArguments):
            size = named.get("test_size")
            share = size if isinstance(size, float) and 0 < size < 1 else 0.1
            call = f"split(train={1 - share:g}, test={share:g}, seed={named.get('random_state', seed)})"
            raise UsageError(f"{name} cannot be the name of a split: give each its share, as in view.{call}")
    if not named:
        raise UsageError("split needs named shares, such as train=0.99, eval=0.01")
    for name, share in named.items():
        if isinstance(share, bool) or not isinstance(share, Real) or not 0 < float(share) <= 1:
            raise UsageError(f"{name}={share!r} is not a share: give a number above 0 and up to 1")
    total = sum(map(float, named.values()))
    if total > 1 + 1e-9:
        raise UsageError(
            f"{', '.join(f'{name}={share}' for name, share in named.items())}: the shares sum to {total:g}, above 1"
        )
    parts: dict[str, Split] = {}
    draw = sum(isinstance(split, ByShare) for split in splits)
    low, upper = 0, 0.0
    for name, share in named.items():
        upper += share
        high = WHOLE if upper > 1 - 1e-9 else round(upper * WHOLE)
        parts[name] = ByShare(seed, draw, low, high, name)
        low = high
    return parts


def folders(files: Iterable[str], named: Mapping[str, Any]) -> dict[str, Split]:
    """Splits for named folders; without names, one for each folder below the root that all files share."""
    parents = {name: name.split("/")[:-1] for name in files}
    root = sum(1 for _ in takewhile(lambda parts: len(set(parts)) == 1, zip(*parents.values(), strict=False)))
    named = named or _folders_below(parents, root)
    return _disjoint(named, {split: _files_below(split, folder, parents, root) for split, folder in named.items()})


def names(splits: Mapping[str, Sequence[str]], named: Mapping[str, Any], where: str) -> dict[str, Split]:
    """Splits by the names of files, from the files of each split; without names, all of them. `where` is for messages."""
    if not named and not splits:
        raise UsageError(f"by='name': no input file or folder of {where} has a name such as train or validation")
    named = named or {split: split for split in splits}
    return _disjoint(named, {split: _files_of(splits, name, where) for split, name in named.items()})


def chosen_splits(store: Store, split: Any) -> tuple[Split, ...]:
    """What the option `split` stands for. Without it, documents for evaluation are left out, with a warning."""
    if split == ALL:
        return ()
    if split is not None:
        return (ByFiles(_files_of(store.splits, split, store_name(store)), split),)
    if not (left_out := held_out(store.splits)):
        return ()
    files = tuple(file for name, files in store.splits.items() if name not in left_out for file in files)
    names = f"split{'s' * (len(left_out) > 1)} {' and '.join(left_out)}; {option_name('split', ALL)} takes everything"
    if not files:
        raise UsageError(f"{store_name(store)}: no rows for training, only the {names}")
    warn(f"{store_name(store)}: rows for training leave out the {names}")
    return (ByFiles(files),)


def _files_of(splits: Mapping[str, Sequence[str]], split: Any, where: str) -> tuple[str, ...]:
    return tuple(file for name in matching_splits(split, splits, where) for file in splits[name])


def store_name(store: Store) -> str:
    """A store by what it was built from: the path of one in the cache says nothing to people."""
    return f"the store of {first_names(store._manifest.source['inputs'], 2)}"


def file_names(store: Store) -> list[str]:
    """The input files of a store that gave documents."""
    return _files(store).names


def _disjoint(named: Mapping[str, Any], files: Mapping[str, tuple[str, ...]]) -> dict[str, Split]:
    owners: dict[str, str] = {}
    for split in named:
        for name in files[split]:
            if owners.setdefault(name, split) != split:
                other = f"{owners[name]}={named[owners[name]]!r}"
                raise UsageError(f"{split}={named[split]!r} and {other} both contain {name}; splits must be disjoint")
    return {split: ByFiles(files[split], split) for split in named}


def _folders_below(parents: dict[str, list[str]], root: int) -> dict[str, str]:
    """The folders directly below the common root."""
    below = {parts[root] for parts in parents.values() if len(parts) > root}
    if len(below) < 2 or any(len(parts) <= root for parts in parents.values()):
        raise UsageError(
            "by='folder' without names needs every file in one of two or more folders below a common one;"
            " name them: train='data/train', eval='data/eval'"
        )
    return {folder: folder for folder in sorted(below)}


def _files_below(split: str, folder: Any, parents: dict[str, list[str]], root: int) -> tuple[str, ...]:
    """The files below a folder, which is given by one or more consecutive parts of its path."""
    parts = PurePosixPath(folder).parts if isinstance(folder, str | os.PathLike) else ()
    if not parts or ".." in parts:
        raise UsageError(f"{split}={folder!r} is not the name of a folder")
    wanted = [part for part in parts if part != "/"]
    # First below the common root, where files differ: a name above it would match them all.
    files = tuple(name for name, path in parents.items() if _contains(path[root:], wanted))
    files = files or tuple(name for name, path in parents.items() if _contains(path, wanted))
    if not files:
        examples = ", ".join(sorted({"/".join(path[-2:]) for path in parents.values()})[:8])
        raise UsageError(f"{split}={folder!r}: no file of the store is below such a folder; its folders: {examples}")
    return files


def _contains(path: list[str], parts: list[str]) -> bool:
    return any(path[at : at + len(parts)] == parts for at in range(len(path) - len(parts) + 1))


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of a store, and their stretches: runs of documents of one file in one shard."""

    names: list[str]
    documents: list[int]
    keys: list[int]
    shards: Numbers  # of each stretch
    numbers: Numbers  # the file of each stretch
    counts: Numbers  # documents of each stretch
    before: Numbers  # documents of the file before each stretch
    stretch_keys: npt.NDArray[np.uint64]

    def of(self, documents: Documents) -> tuple[Numbers, Numbers]:
        """The stretch of each document, and its number in its file."""
        low, high = np.searchsorted(self.shards, (documents.shard, documents.shard + 1)).tolist()
        ends = np.cumsum(self.counts[low:high])
        number = np.arange(documents.first, documents.first + len(documents.starts))
        stretch = low + ends.searchsorted(number, "right")
        begin = (ends - self.counts[low:high])[stretch - low]
        return stretch, self.before[stretch] + number - begin


def _files(store: Store) -> _Files:
    """The files of a store, read once from every receipt: about 0.1 ms per shard, and a page of each file's first document."""
    known = _FILES.get(store)
    if known is None:
        known = _FILES[store] = _read_files(store)
    return known


_FILES: WeakKeyDictionary[Store, _Files] = WeakKeyDictionary()  # kept as long as the store is in use


def _read_files(store: Store) -> _Files:
    names: list[str] = []
    documents: list[int] = []
    keys: list[int] = []
    stretches: list[tuple[int, int, int, int, int]] = []
    first = 0
    for shard in range(store.num_shards):
        for piece in _checked_pieces(store, shard):
            if not names or piece["file"] != names[-1]:
                names.append(str(piece["file"]))
                documents.append(0)
                keys.append(0)
            count = piece["documents"]
            if count and not documents[-1]:
                ids = store[first][:FIRST_IDS].astype("<u4")
                keys[-1] = xxhash.xxh3_64_intdigest(ids.tobytes())
            stretches.append((shard, len(names) - 1, count, documents[-1], keys[-1]))
            documents[-1] += count
            first += count
    shards, numbers, counts, before = np.array([each[:4] for each in stretches], np.int64).reshape(-1, 4).T
    stretch_keys = np.array([each[4] for each in stretches], np.uint64)
    return _Files(names, documents, keys, shards, numbers, counts, before, stretch_keys)


def _checked_pieces(store: Store, shard: int) -> list[dict[str, Any]]:
    """The pieces of files that a shard was made from; a CorruptError if their documents do not add up."""
    pieces: list[dict[str, Any]] = store._pieces(shard)
    counts = [piece["documents"] for piece in pieces]
    if not all(type(count) is int for count in counts) or store._manifest.shard_documents[shard] != sum(
        max(0, count) for count in counts
    ):
        name = f"shards/{store._manifest.shard_ids[shard]}.json"
        raise CorruptError(f"{store.path}: {name} does not agree with the manifest; run: tokenmill verify {store.path}")
    return pieces
