"""What is in the cache: listed, removed, pruned to a size, verified."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.building.source_index import noted
from tokenmill.errors import LockedError, MissingStoreError, StoreError
from tokenmill.io.atomic import temporary_path
from tokenmill.io.lock import build_lock, lock_holder
from tokenmill.store import Damage, read_manifest, verify_store
from tokenmill.store.lease import USED
from tokenmill.store.manifest import trial_of

FORGOTTEN = 24 * 3600.0  # seconds after which text that a dead process wrote down is nobody's any more


@dataclass(frozen=True, slots=True)
class Kept:
    """A store of the cache, or what is there of one whose build was interrupted."""

    name: str
    path: Path
    used: float  # seconds since 1970
    nbytes: int
    own_bytes: int  # that no other store shares: what goes if it goes
    facts: dict[str, Any]

    @property
    def is_store(self) -> bool:
        return self.path.parent.name == "stores"

    def as_dict(self) -> dict[str, Any]:
        sizes = {"bytes": self.nbytes, "own_bytes": self.own_bytes}
        return {"name": self.name, "path": str(self.path), "used": self.used, **sizes, **self.facts}


def shelf(root: Path) -> list[Kept]:
    """Everything there is, the most lately used first. Costs a stat a file."""
    found = [_kept(path.name, path) for path in (root / "stores").glob("*") if path.is_dir() and path.suffix != ".tmp"]
    found += [_kept(path.parent.name, path) for path in (root / "builds").glob("*/store")]
    return sorted(found, key=lambda kept: (-kept.used, kept.name))


def total_bytes(root: Path) -> int:
    """Bytes of all that is there; what several stores share counts once."""
    return sum({**_files(root / "stores"), **_files(root / "builds")}.values())


def remove(root: Path, names: list[str]) -> int:
    """Take stores out of the cache; one that is in use is an error. Returns the bytes that became free."""
    chosen = _chosen(root, shelf(root), names)
    before = total_bytes(root)
    left = [kept.name for kept in chosen if not _removed(kept) and kept.path.exists()]
    _sweep(root)
    if left:
        raise LockedError(f"{', '.join(left)}: in use by another process; stays until that has ended")
    return before - total_bytes(root)


def prune(root: Path, max_bytes: int) -> list[Kept]:
    """Remove what was not used for longest until the rest fits; what is in use stays. Returns what was removed."""
    _sweep(root)
    total = total_bytes(root)
    oldest_first = [(kept, _files(kept.path)) for kept in reversed(shelf(root))]
    shared = Counter(file for _, files in oldest_first for file in files)
    gone: list[Kept] = []
    for kept, files in oldest_first:
        if total <= max_bytes:
            break
        if _removed(kept):
            gone.append(kept)
            shared.subtract(files.keys())
            total -= sum(size for file, size in files.items() if shared[file] == 0)
    _sweep(root)
    return gone


def verify(root: Path, names: list[str]) -> dict[str, list[Damage]]:
    """Every store, or those that are named, read through and compared with its checksums: what is wrong, by name."""
    there = sorted((kept for kept in shelf(root) if kept.is_store), key=lambda kept: kept.name)
    return {kept.name: _verified(kept.path) for kept in _chosen(root, there, names) or there}


def _chosen(root: Path, there: list[Kept], names: list[str]) -> list[Kept]:
    by_name = {kept.name: kept for kept in there}
    missing = [name for name in names if name not in by_name]
    if missing:
        raise MissingStoreError(f"no {missing[0]} in the cache {root}; see: tokenmill cache list")
    return [by_name[name] for name in names]


def _verified(path: Path) -> list[Damage]:
    try:
        return verify_store(path)
    except StoreError as error:
        return [Damage("manifest.json", str(error))]


def _kept(name: str, path: Path) -> Kept:
    stats = _stats(path)
    used = next((info.st_mtime for info in _stat(path / USED)), None)
    nbytes = sum(info.st_size for info in stats)
    own = sum(info.st_size for info in stats if info.st_nlink == 1)
    if used is None:
        used = max((info.st_mtime for info in stats), default=0.0)
    return Kept(name, path, used, nbytes, own, _facts(path))


def _facts(path: Path) -> dict[str, Any]:
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


def _stat(path: Path) -> Iterator[os.stat_result]:
    with suppress(OSError):
        yield path.stat()


def _files(folder: Path) -> dict[tuple[int, int], int]:
    """Every file below a folder, each inode once, and its size."""
    return {(info.st_dev, info.st_ino): info.st_size for info in _stats(folder)}


def _stats(folder: Path) -> list[os.stat_result]:
    paths = (Path(here) / name for here, _, names in os.walk(folder) for name in names)
    return [info for path in paths for info in _stat(path)]


def _removed(kept: Kept) -> bool:
    """Whether it is gone now: in one step for whoever looks. Not what another process holds or builds."""
    try:
        with _alone(kept):
            away = temporary_path(kept.path)
            os.rename(kept.path, away)
    except (LockedError, FileNotFoundError):
        return False
    shutil.rmtree(away, ignore_errors=True)
    return True


@contextmanager
def _alone(kept: Kept) -> Iterator[None]:
    if not kept.is_store:  # one that is being built, or was
        with build_lock(kept.path.parent):
            yield
        return
    import fcntl

    with open(kept.path / USED, "a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(f"{kept.name} is in use") from None
        yield


def _sweep(root: Path) -> None:
    """Lists of files whose store is gone, and what dead processes left."""
    for room in (path for path in (root / "builds").glob("*") if path.is_dir()):
        if room.name.startswith("spool-"):
            if time.time() - room.stat().st_mtime > FORGOTTEN:
                shutil.rmtree(room, ignore_errors=True)
            continue
        listed = noted(room) or {}
        for names in room.glob("names-*.json"):  # a process may still go by others than the last
            if names.name != listed.get("names") and time.time() - names.stat().st_mtime > FORGOTTEN:
                names.unlink(missing_ok=True)
        if (room / "store").exists() or (root / "stores" / str(listed.get("store", "-"))).exists():
            continue
        with suppress(LockedError, FileNotFoundError):
            written = [path.stat().st_mtime for path in room.glob("names-*.json")]
            if lock_holder(room) is None and time.time() - max(written, default=0.0) > FORGOTTEN:
                with build_lock(room):
                    shutil.rmtree(room, ignore_errors=True)
    for away in (root / "stores").glob("*.tmp"):
        shutil.rmtree(away, ignore_errors=True)
