"""The folder a store goes to: is it ours to write in, and was what is there made in the same way?"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenmill.building.changes import options_told
from tokenmill.encoding import Tokenizer
from tokenmill.errors import CorruptError, MismatchError, MissingStoreError, StoreError, UsageError
from tokenmill.io.atomic import digest, write_atomically, writing
from tokenmill.reading import Source
from tokenmill.store import Manifest, read_manifest
from tokenmill.user_cache import cache_folder

FEW = 64  # inputs; a folder is one, and among more there are only files
CACHED = ("stores", "builds", "proofs", "tokenizers", "speeds", "plans")


def without_own_files(source: Source, *folders: Path, cache: Path | None = None) -> Source:
    """A store that lies among its source's files is not part of it; nor is what tokenmill keeps in its cache."""
    roots = {cache_folder().absolute(), *([cache] if cache is not None else ())}
    ours = [*folders, *(root / name for root in sorted(roots) for name in CACHED)]
    inside = tuple(os.path.join(spelling, "") for folder in ours for spelling in _spellings(folder, source))
    files = tuple(file for file in source.files if not file.path.startswith(inside))
    if len(files) == len(source.files):
        return source
    if not files and not source.streams:
        where = next(folder for folder in ours if source.files[0].path.startswith(tuple(_spellings(folder, source))))
        raise UsageError(f"every file to read lies in {where}, which is where stores are written")
    return replace(source, files=files)


def _spellings(folder: Path, source: Source) -> Iterator[str]:
    """A folder's path, and the ways to it through inputs that are links."""
    path, real = os.path.abspath(folder), os.path.realpath(folder)
    yield path
    for item in source.inputs if len(source.inputs) <= FEW else ():
        within = os.path.join(os.path.realpath(item), "")
        if within != os.path.join(item, "") and real.startswith(within):
            yield os.path.join(item, real.removeprefix(within))


def manifest_of(folder: Path) -> Manifest | None:
    """The manifest of a store, if there is a sound one."""
    try:
        return read_manifest(folder)
    except StoreError:
        return None


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds something else."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file; the store needs a folder of its own")
    if any((folder / ours).exists() for ours in ("manifest.json", "shards", "events.jsonl")):
        return
    others = sorted(entry.name for entry in folder.iterdir() if entry.name != ".lock")
    if others:
        raise UsageError(
            f"{folder} holds other things ({', '.join(others[:3])}{', ...' if len(others) > 3 else ''}) and is no token"
            " store; choose a new or empty folder"
        )


def leave_no_litter(folder: Path) -> None:
    """A build that began in an empty folder and never came to writing a manifest leaves none. The lock is still held."""
    if not (folder / "manifest.json").exists():
        shutil.rmtree(folder, ignore_errors=True)


def agree(folder: Path, source: Source, tokenizer: Tokenizer, options: dict[str, Any], force: bool) -> Manifest | None:
    """The store that is there, if it is of the same making; an error that says what differs, if not."""
    try:
        old = read_manifest(folder)
    except (MissingStoreError, CorruptError):
        return None  # receipts still tell what is done
    except StoreError:
        if not force:
            raise
        return None
    if not old.shard_ids and not any((folder / "shards").glob("*.json")):
        return None  # begun, and nothing done: nothing to lose
    differs = options_told(old.options, options)
    if old.tokenizer["fingerprint"] != tokenizer.fingerprint:
        differs.append(f"tokenizer name: {old.tokenizer['name']} there, {tokenizer.name} now")
    gone = [name for name in old.source["inputs"] if name not in source.inputs]
    if gone:
        differs.append(f"input: {', '.join(gone)} there, {', '.join(source.inputs)} now")
    if differs and not force:
        raise MismatchError(
            f"{folder} was built in another way ({'; '.join(differs)}). Build as before, choose another folder, or rebuild"
            " this one with --force (force=True)"
        )
    if force:
        start_anew(folder)
        return None
    return old


def start_anew(folder: Path) -> None:
    """Without receipts nothing is done, and without its list nothing is known."""
    for path in (*(folder / "shards").glob("*.json"), *folder.glob("seen.*"), folder / "listing.json"):
        path.unlink(missing_ok=True)


def keep(path: Path, content: bytes) -> str:
    """Write a file unless it is there already; returns its digest."""
    with suppress(OSError):
        if path.read_bytes() == content:
            return digest(content)
    with writing(path):
        path.parent.mkdir(exist_ok=True)
    write_atomically(path, content)
    return digest(content)


def forget(folder: Path, names: Collection[str]) -> None:
    """Remove files of another tokenizer, which lay there before; a store's tokenizer is what its manifest names."""
    for path in folder.iterdir():
        if path.is_file() and path.name not in names:
            path.unlink()
