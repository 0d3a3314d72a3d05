"""What is in the cache: list, remove, prune to a size, verify."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.building.source_index import read_listing
from tokenmill.errors import LockedError, MissingStoreError, StoreError, UsageError
from tokenmill.formatting import first_names
from tokenmill.io import disk, object_store
from tokenmill.io.atomic import naming_files, temporary_path
from tokenmill.io.checked_lines import checked_record
from tokenmill.io.lock import build_lock, lock_holder
from tokenmill.io.mirror import MIRRORS, mirrored_url
from tokenmill.io.object_store import is_bucket_url, join
from tokenmill.reading.hub_copies import DATASETS
from tokenmill.reading.hub_files import FOLDER as LISTINGS
from tokenmill.store.bucket import LOG, SEEN, read_manifest_at
from tokenmill.store.columns import shard_of_file
from tokenmill.store.integrity import verify_store
from tokenmill.store.lease import USED
from tokenmill.store.manifest import read_manifest, trial_of
from tokenmill.store.shard import Damage
from tokenmill.watching.history import History

ABANDONED_SECONDS = 24 * 3600.0  # after which files of a process that died are removed
UNUSED_SECONDS = 30 * 24 * 3600.0  # after which lists of files on the Hub are removed
KINDS = {"stores": "store", DATASETS: "dataset", MIRRORS: "mirror"}  # of what is kept, by its folder; others are builds


@dataclass(frozen=True, slots=True)
class CachedStore:
    """A store in the cache, the remains of an interrupted build, copies of a dataset on the Hub, or of a store in a bucket."""

    name: str
    path: Path
    used: float  # seconds since 1970
    nbytes: int
    own_bytes: int  # not shared with another store: what removing it frees
    facts: dict[str, Any]

    @property
    def kind(self) -> str:
        """Of "store", "build", "dataset" and "mirror"."""
        return KINDS.get(self.path.parent.name, "build")

    @property
    def is_dataset(self) -> bool:
        return self.kind == "dataset"

    def as_dict(self) -> dict[str, Any]:
        sizes = {"bytes": self.nbytes, "own_bytes": self.own_bytes}
        return {"name": self.name, "path": str(self.path), "used": self.used, **sizes, **self.facts}


@naming_files()
def list_stores(root: Path) -> list[CachedStore]:
    """All stores, interrupted builds and copies of datasets, most recently used first. Costs one stat per file."""
    stores = [_describe(path.name, path) for path in _folders(root / "stores")]
    stores += [_describe(entry.name, path) for entry in _entries_of(root) if (path := entry / "store").exists()]
    stores += [_describe(path.name.replace("--", "/"), path) for path in _folders(root / DATASETS)]
    return sorted(stores, key=lambda store: (-store.used, store.name))


@naming_files()
def total_bytes(root: Path) -> int:
    """The size of the cache. A file that several stores share counts once."""
    return sum({file: size for name in ("builds", *KINDS) for file, size in _file_sizes(root / name).items()}.values())


@dataclass(frozen=True, slots=True)
class Removal:
    """What was removed from the cache, or would be, and the bytes that this frees. Stores in use are kept."""

    removed: list[CachedStore]
    in_use: list[CachedStore]
    freed: int


@naming_files()
def remove(root: Path, names: list[str], *, dry_run: bool = False) -> Removal:
    """Remove stores from the cache; with `dry_run`, only find out what would be removed."""
    stores = list_stores(root)
    removal = _removal(stores, _choose(root, stores, names), math.inf, dry_run=dry_run)
    if not dry_run:
        _clean_up(root)
    return removal


@naming_files()
def prune(root: Path, max_bytes: int, *, dry_run: bool = False) -> Removal:
    """Remove the least recently used stores and mirrors until the rest fits; with `dry_run`, only find out which."""
    if not dry_run:
        _clean_up(root)
    mirrors = [_describe(mirrored_url(path) or path.name, path) for path in _folders(root / MIRRORS)]
    stores = sorted(list_stores(root) + mirrors, key=lambda store: -store.used)
    removal = _removal(stores, stores[::-1], total_bytes(root) - max_bytes, dry_run=dry_run)
    if not dry_run:
        _clean_up(root)
    return removal


def prune_bucket(url: str, *, dry_run: bool = False) -> tuple[list[str], int]:
    """Remove the shards from a bucket that the manifest of the store there does not list: of its earlier versions.

    Returns their ids and sizes. Raises LockedError if a build may be using them: one that left notes and has not published, or
    whose log has no end and is not a day old.
    """
    url = url.rstrip("/")
    if not is_bucket_url(url):
        raise UsageError(f"{url} is not in a bucket (s3://, gs://, az://)")
    manifest, body = read_manifest_at(url)
    found = {each.url[len(url) + 1 :]: each for each in object_store.listing(url)}
    history = History()
    for line in object_store.read(join(url, LOG)).splitlines(keepends=True) if LOG in found else ():
        history.add(checked_record(line))
    run = history.run
    is_running = run is not None and run.end is None and time.time() - run.last < ABANDONED_SECONDS
    if is_running or any(name.startswith((f"{SEEN}/", "slices/")) for name in found):
        raise LockedError(f"a build of {url} runs or was interrupted, and may use these shards: finish it first")
    keep = set(manifest.shard_ids)
    names = {name: shard_of_file(name[len("shards/") :]) for name in found if name.startswith("shards/")}
    shards = {name: shard for name, shard in names.items() if shard is not None and shard not in keep}
    if not dry_run:
        if read_manifest_at(url)[1] != body:
            raise LockedError(f"a build of {url} has finished in the meantime; run this again")
        receipts_first = sorted(shards, key=lambda name: not name.endswith(".json"))
        object_store.delete(found[name].url for name in receipts_first)
    return sorted(set(shards.values())), sum(found[name].size for name in shards)


def _removal(stores: list[CachedStore], chosen: list[CachedStore], wanted: float, *, dry_run: bool) -> Removal:
    """Remove the chosen ones of all stores, in order, until `wanted` bytes are free."""
    files = {store.path: _file_sizes(store.path) for store in stores}
    references = Counter(file for sizes in files.values() for file in sizes)
    removed: list[CachedStore] = []
    in_use: list[CachedStore] = []
    freed = 0
    for store in chosen:
        if freed >= wanted:
            break
        if _is_in_use(store) if dry_run else not _remove(store):
            in_use += [store] if store.path.exists() else []  # another process may have removed it
            continue
        removed.append(store)
        sizes = files[store.path]
        references.subtract(sizes.keys())
        freed += sum(size for file, size in sizes.items() if references[file] == 0)
    return Removal(removed, in_use, freed)


@naming_files()
def verify(root: Path, names: list[str]) -> dict[str, list[Damage]]:
    """Compare all stores, or those named, with their checksums. Returns the damage by name of the store."""
    stores = sorted((store for store in list_stores(root) if store.kind == "store"), key=lambda store: store.name)
    return {store.name: _find_damage(store.path) for store in _choose(root, stores, names) or stores}


def _choose(root: Path, stores: list[CachedStore], names: list[str]) -> list[CachedStore]:
    """The stores of these names. The beginning of a name is enough if no other store begins with it."""
    chosen: dict[str, CachedStore] = {}
    for name in names:
        same = [store for store in stores if store.name == name] or [
            store for store in stores if name and store.name.startswith(name)
        ]
        if not same:
            raise MissingStoreError(f"{name} is not in the cache {root}; see: tokenmill cache list")
        if len(same) > 1:
            raise UsageError(f"{name} is ambiguous: {first_names(store.name for store in same)}; type more of the name")
        chosen[same[0].name] = same[0]
    return list(chosen.values())


def _find_damage(path: Path) -> list[Damage]:
    try:
        return verify_store(path)
    except StoreError as error:
        return [Damage("manifest.json", str(error))]


def _describe(name: str, path: Path) -> CachedStore:
    """A store; a mirror; or the copies of the files of a dataset, where links to them do not count."""
    kind = KINDS.get(path.parent.name)
    is_copy = kind in ("dataset", "mirror")
    stats = _stats(path / f"datasets--{path.name}" / "blobs" if kind == "dataset" else path)
    try:
        used = (path / USED).stat().st_mtime
    except OSError:
        used = max((info.st_mtime for info in stats), default=0.0)
    nbytes = sum(info.st_size for info in stats)
    own_bytes = sum(info.st_size for info in stats if is_copy or info.st_nlink == 1)
    facts = {"complete": True, str(kind): True, "files": len(stats)} if is_copy else _manifest_facts(path)
    return CachedStore(name, path, used, nbytes, own_bytes, facts)


def _manifest_facts(path: Path) -> dict[str, Any]:
    try:
        manifest = read_manifest(path)
    except StoreError as error:
        return {"complete": False, "problem": str(error)}
    return {
        "complete": manifest.complete,
        "trial": bool(trial_of(manifest.options)),
        "documents": manifest.documents,
        "tokens": manifest.tokens,
        "tokenizer": manifest.tokenizer["name"],
        "inputs": manifest.source["inputs"],
        "fingerprint": manifest.fingerprint,
    }


def _file_sizes(folder: Path) -> dict[tuple[int, int], int]:
    """The size of every file below a folder, by device and inode."""
    return {(info.st_dev, info.st_ino): info.st_size for info in _stats(folder)}


def _stats(folder: Path) -> list[os.stat_result]:
    """The stat of every file below a folder. Files that disappear meanwhile are left out."""
    stats: list[os.stat_result] = []
    with suppress(FileNotFoundError):  # but not others: a folder that cannot be listed is not an empty one
        for entry in disk.entries(folder):
            if entry.is_dir(follow_symlinks=False):
                stats += _stats(folder / entry.name)
            else:
                with suppress(OSError):
                    stats.append(os.stat(entry.path))
    return stats


def _remove(store: CachedStore) -> bool:
    """Remove a store, in one rename for other processes. Returns False if a process uses or builds it, or it is gone."""
    try:
        with _exclusive(store):
            removed = temporary_path(store.path)
            disk.replace(store.path, removed)
            disk.sync_folder(removed.parent)  # or a power failure could bring the store back, without some of its files
    except (LockedError, FileNotFoundError):
        return False
    disk.remove_tree(removed)
    return True


def _is_in_use(store: CachedStore) -> bool:
    """Whether a process uses or builds a store. Writes nothing."""
    if store.kind == "build":
        return lock_holder(store.path.parent) is not None
    try:
        if (store.path / USED).exists():  # a mirror would fetch it
            with disk.open_file(store.path / USED, "rb") as handle:
                disk.lock(handle, exclusive=True, wait=False)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


@contextmanager
def _exclusive(store: CachedStore) -> Iterator[None]:
    """Hold a store that no other process uses or builds; raises LockedError if one does."""
    if store.kind == "build":
        with build_lock(store.path.parent):
            yield
        return
    with disk.open_file(store.path / USED, "ab") as handle:
        try:
            disk.lock(handle, exclusive=True, wait=False)
        except BlockingIOError:
            raise LockedError(f"{store.name} is in use") from None
        yield


def _clean_up(root: Path) -> None:
    """Remove the indexes of stores that are gone, and what processes that died left behind."""
    for entry in _entries_of(root):
        _clean_up_entry(root, entry)
    for folder in KINDS:
        for leftover in disk.matching(root / folder, "*.tmp"):
            disk.remove_tree(leftover)
    for dataset in _folders(root / DATASETS):
        for leftover in disk.matching(dataset / f"datasets--{dataset.name}" / "blobs", "*.incomplete"):
            if _age(leftover) > ABANDONED_SECONDS:
                disk.unlink(leftover)
    for dataset in disk.matching(root / LISTINGS):
        for commit in disk.matching(dataset):
            if commit.is_dir() and _age(commit) > UNUSED_SECONDS:
                disk.remove_tree(commit)


def _folders(parent: Path) -> list[Path]:
    """The folders of stores, of datasets or of mirrors."""
    return [path for path in disk.matching(parent) if path.is_dir() and path.suffix != ".tmp"]


def _entries_of(root: Path) -> list[Path]:
    """The folders of builds: one per set of inputs."""
    return [path for path in disk.matching(root / "builds") if path.is_dir()]


def _clean_up_entry(root: Path, entry: Path) -> None:
    """Remove old lists of names, and the whole entry if its store is gone."""
    listing = read_listing(entry) or {}
    for names in disk.matching(entry, "names-*.json"):  # a process may still use another list than the last
        if names.name != listing.get("names") and _age(names) > ABANDONED_SECONDS:
            disk.unlink(names)
    if (entry / "store").exists() or (root / "stores" / str(listing.get("store", "-"))).exists():
        return
    newest = min((_age(names) for names in disk.matching(entry, "names-*.json")), default=math.inf)
    if lock_holder(entry) is None and newest > ABANDONED_SECONDS:
        with suppress(LockedError), build_lock(entry):
            disk.remove_tree(entry)


def _age(path: Path) -> float:
    """Seconds since a file was written; 0 if another process has removed it."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
