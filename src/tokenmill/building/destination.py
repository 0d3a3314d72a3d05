"""Where a store is built: the contract that `run_build` relies on, and a folder chosen by the user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from tokenmill.building.build_plan import BuildPlan, PriorWork, make_plan
from tokenmill.building.changes import describe_changes, describe_options
from tokenmill.building.publish import sweep
from tokenmill.building.request import ResolvedRequest
from tokenmill.building.source_index import SourceIndex, current_listing
from tokenmill.errors import CorruptError, MismatchError, MissingStoreError, UsageError
from tokenmill.events import Listener
from tokenmill.formatting import first_names
from tokenmill.io import disk
from tokenmill.io.lock import build_lock
from tokenmill.io.object_store import join
from tokenmill.option_types import option_name
from tokenmill.reading import Source
from tokenmill.reading.files import Ignored, SourceFile
from tokenmill.store.integrity import files_are_complete
from tokenmill.store.manifest import Manifest, read_manifest
from tokenmill.store.shard import require_receipt
from tokenmill.store.side_files import side_file
from tokenmill.store.sources import SOURCES, read_sources
from tokenmill.store.store import Store
from tokenmill.user_cache import cache_folder

MAX_LINKED_INPUTS = 64  # with more inputs than this, all of them are files, not folders that may be links
CACHE_FOLDERS = ("stores", "builds", "proofs", "tokenizers", "speeds", "plans", "uploads", "mirrors", "hub-listings")


class Destination(Protocol):
    """Where a store is built. `run_build` calls the methods in this order."""

    @property
    def folder(self) -> Path:
        """Where shards and the manifest are written."""
        ...

    @property
    def is_new(self) -> bool:
        """Whether nothing was built here before, so that workers are needed for sure. Asked after `open`."""
        ...

    def open(self, stack: ExitStack, emit: Listener) -> Store | None:
        """Lock the folder for as long as `stack` lasts, and prepare it.

        Returns the finished store if another process built it while this one waited for the lock.
        """
        ...

    def prior_work(self, resolved: ResolvedRequest) -> PriorWork | Store:
        """What earlier builds left here; or the store, if a look at the list of input files shows that it is up to date."""
        ...

    def existing_store(self, plan: BuildPlan) -> Store | None:
        """The store that the plan describes, if it exists. Raises if the plan does not fit the destination."""
        ...

    def reasons(self, plan: BuildPlan) -> list[str]:
        """Why there is something to build, for the user."""
        ...

    def finish(self, store: Store, plan: BuildPlan) -> Store:
        """Put a finished store where it belongs, and save the index. `store` is a new one, or `existing_store`."""
        ...


class FolderDestination:
    """A folder chosen by the user. A second build there at the same time is a LockedError."""

    def __init__(self, folder: Path, *, shared: bool = False) -> None:
        """`shared`: other slices of the same build write here at the same time."""
        self.folder, self.shared = folder, shared

    @property
    def name(self) -> str:
        """For messages."""
        return str(self.folder)

    @property
    def is_new(self) -> bool:
        return not (self.folder / "manifest.json").exists()

    def open(self, stack: ExitStack, emit: Listener) -> Store | None:
        check_folder(self.folder)
        new_parents = [parent for parent in self.folder.absolute().parents if not parent.exists()]
        stack.enter_context(build_lock(self.folder, shared=self.shared))
        if self.shared:
            return None
        if all(entry.name == ".lock" for entry in disk.entries(self.folder)):
            stack.callback(_remove_unless_begun, self.folder, new_parents)
        stack.callback(disk.remove_tree, self.folder / "spool")
        return None

    def prior_work(self, resolved: ResolvedRequest) -> PriorWork | Store:
        manifest = self._matching_manifest(resolved)
        if manifest is not None and manifest.complete and resolved.trusts_listing:
            listing = current_listing(self.folder, resolved.source)
            is_current = listing is not None and listing.get("store") == _published_facts(manifest)
            if is_current and files_are_complete(self.folder, manifest):
                sweep(self.folder, set(manifest.shard_ids))
                return Store(self.folder, manifest)
        return PriorWork(published=manifest, indexes=[SourceIndex(self.folder, resolved.source)])

    def current_store(self, resolved: ResolvedRequest) -> Store | None:
        """The store in the folder, if it is up to date. Needs no lock and writes nothing. None with `force`."""
        manifest = None if resolved.force else self._matching_manifest(resolved)
        if manifest is None:
            return None
        prior = PriorWork(published=manifest, indexes=[SourceIndex(self.folder, resolved.source)])
        plan = make_plan(resolved, self.folder, prior, lambda event: None)
        is_current = not plan.has_work and plan.is_published([task.id for task in plan.tasks])
        return Store(self.folder, manifest) if is_current else None

    def _matching_manifest(self, resolved: ResolvedRequest) -> Manifest | None:
        """The manifest of the store in the folder; raises MismatchError if other options were used. None with `force`."""
        if resolved.force:
            discard_receipts(self.folder)
            return None
        manifest = self._readable_manifest()
        if manifest is None:
            return None
        differences = describe_options(manifest.options, resolved.options)
        if manifest.tokenizer["fingerprint"] != resolved.tokenizer.fingerprint:
            differences.append(f"tokenizer name: was {manifest.tokenizer['name']}, now {resolved.tokenizer.name}")
        for name, value in resolved.source._selection().items():
            if value != manifest.source.get(name):
                default = "all" if name == "split" else "not given"
                differences.append(f"{name}: was {manifest.source.get(name) or default}, now {value}")
        if differences:
            raise MismatchError(
                f"{self.name} was built with other options ({'; '.join(differences)}). Use the same options, choose"
                f" another folder, or rebuild this one with {option_name('force', True)}"
            )
        return manifest

    def _readable_manifest(self) -> Manifest | None:
        """None if there is no manifest, or it is damaged (receipts still say what is done), or no shard was finished."""
        try:
            manifest = read_manifest(self.folder)
        except (MissingStoreError, CorruptError):
            return None
        is_empty = not manifest.shard_ids and not disk.matching(self.folder / "shards", "*.json")
        return None if is_empty else manifest

    def existing_store(self, plan: BuildPlan) -> Store | None:
        was, now = plan.prior.published.source["inputs"] if plan.prior.published else [], plan.source.inputs
        gone = [name for name in was if name not in now]
        only_fewer = set(now) < set(was)  # of streams, another name may be the same text
        if gone and (only_fewer or not plan.source._streams) and (lost := _left_out(plan, gone)):
            raise MismatchError(
                f"{self.name} has documents that are not in the input now: those of {first_names(lost)} (the input was"
                f" {first_names(was)}, now {first_names(now)}). Give that too, choose another folder, or rebuild this one"
                f" without it with {option_name('force', True)}"
            )
        return None if plan.has_work else plan.published_store([task.id for task in plan.tasks])

    def reasons(self, plan: BuildPlan) -> list[str]:
        return describe_changes(plan)

    def finish(self, store: Store, plan: BuildPlan) -> Store:
        plan.index.write(plan.source, store=_published_facts(store._manifest))
        return store


def _left_out(plan: BuildPlan, gone: list[str]) -> list[str]:
    """The files whose documents the store in the folder has, and which a plan has under no name.

    `gone` are the inputs that are not given now: all that is known for a trial or streams, or of an unfinished store.
    """
    manifest = plan.prior.published
    if manifest is None or not manifest.shard_ids or plan.limit is not None or plan.source._streams:
        return gone
    kept, pieces = {task.id for task in plan.tasks}, [piece for task in plan.tasks for piece in task.pieces]
    names, contents = {piece.file.shown for piece in pieces}, {piece.content for piece in pieces}
    lost: dict[str, None] = {}
    try:
        sources = read_sources(side_file(plan.folder, manifest, SOURCES))
        for number, shard in enumerate(manifest.shard_ids):
            had = require_receipt(plan.shards, shard)["pieces"] if shard not in kept else ()
            gone_here = zip(sources.names(number), had, strict=False)
            lost |= {name: None for name, piece in gone_here if piece["content"] not in contents and name not in names}
    except CorruptError:
        return gone
    return list(lost)


def _published_facts(manifest: Manifest) -> list[str | None]:
    """Which store a listing belongs to. A build that is interrupted before it saves its listing leaves that of the last one."""
    return [manifest.fingerprint, manifest.files.get(SOURCES)]


def check_folder(folder: Path) -> None:
    """Raise UsageError for a folder that has other files than a store."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file; a store needs a folder of its own")
    if any((folder / name).exists() for name in ("manifest.json", "shards", "events.jsonl")):
        return
    others = sorted(entry.name for entry in disk.entries(folder) if entry.name != ".lock")
    if others:
        raise UsageError(
            f"{folder} is not a token store and has other files in it ({first_names(others)}); choose a new or empty folder"
        )


def discard_receipts(folder: Path) -> None:
    """Remove the receipts and the index, so that everything is built again."""
    receipts, index = disk.matching(folder / "shards", "*.json"), disk.matching(folder, "seen.*")
    for path in (*receipts, *index, folder / "listing.json"):
        disk.unlink(path)


def _remove_unless_begun(folder: Path, new_parents: list[Path]) -> None:
    """Remove the folder of a build that failed before it wrote a manifest, and the parents made for it.

    The lock is still held.
    """
    if not (folder / "manifest.json").exists():
        disk.remove_tree(folder)
        for parent in new_parents:
            disk.remove_empty(parent)


def without_own_files(source: Source, *folders: Path, cache: Path | None = None) -> Source:
    """The source without files in `folders` (stores that are among the input) and in tokenmill's cache."""
    roots = {cache_folder().absolute(), *([cache] if cache is not None else ())}
    own = [*folders, *(root / name for root in sorted(roots) for name in CACHE_FOLDERS)]
    prefixes = tuple(os.path.join(spelling, "") for folder in own for spelling in _spellings(folder, source))
    copies = tuple(os.path.join(root, "datasets", "") for root in sorted(roots))
    mine = {file for file in source.files if f"{file.path}{os.sep}".startswith(prefixes) or _is_copy(file.path, copies)}
    if not mine:
        return source
    inside = (folder for folder in own if source.files[0].path.startswith(tuple(_spellings(folder, source))))
    return _without(source, mine, f"{next(inside, 'the cache')}, where stores are written")


def without_store_at(source: Source, url: str) -> Source:
    """The source without what is below the URL of the store."""
    prefix = join(url, "")
    mine = {file for file in source.files if file.path.startswith(prefix)}
    return _without(source, mine, f"{url}, where the store is written") if mine else source


def _without(source: Source, mine: set[SourceFile], where: str) -> Source:
    """The source without files that are not input. Raises UsageError, which says where they are, if nothing is left."""
    files = tuple(file for file in source.files if file not in mine)
    if not files and not source._streams:
        raise UsageError(f"all input files are in {where}; give other files, or another folder for the store")
    ignored = (*source.ignored, *(Ignored(file.path, "where stores are written") for file in mine))
    return replace(source, files=files, ignored=tuple(sorted(ignored)))


def _is_copy(path: str, folders: tuple[str, ...]) -> bool:
    """Whether a path is that of a copy of a dataset on the Hub, in one of these folders: ORG--NAME/datasets--ORG--NAME/..."""
    if not path.startswith(folders):
        return False
    folder = next(folder for folder in folders if path.startswith(folder))
    parts = path[len(folder) :].split("/")
    return len(parts) > 2 and parts[1] == f"datasets--{parts[0]}"


def _spellings(folder: Path, source: Source) -> Iterator[str]:
    """The path of a folder, and its paths through inputs that are links."""
    path, real = os.path.abspath(folder), os.path.realpath(folder)
    yield path
    for item in source.inputs if len(source.inputs) <= MAX_LINKED_INPUTS else ():
        target = os.path.join(os.path.realpath(item), "")
        if target != os.path.join(item, "") and real.startswith(target):
            yield os.path.join(item, real.removeprefix(target))
