"""The cache: stores that are found by content. Each is built once and never changed.

    stores/<build key>-<content>/   a store; the build key covers the tokenizer and options, the content text and order
    builds/<build key>-<inputs>/    one entry per set of inputs: the index of its files, their names, the name of its store,
                                    the lock of a running build, and the store in progress

Shards are named by content. A new store takes those that earlier stores have by hard links, so what did not change is
neither encoded nor written nor stored twice.
"""

from __future__ import annotations

import atexit
import errno
import os
import re
import stat
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenmill.building.build_plan import BuildPlan, PriorWork, make_plan
from tokenmill.building.changes import (
    describe_changes,
    describe_cost,
    describe_file_stats,
    describe_options,
    describe_tokenizer,
)
from tokenmill.building.destination import FolderDestination, discard_receipts, without_own_files
from tokenmill.building.plan import build_key
from tokenmill.building.publish import published_manifest
from tokenmill.building.reporting import waiting_reporter
from tokenmill.building.request import BuildRequest, ResolvedRequest, resolve
from tokenmill.building.sequence import report_up_to_date, run_build
from tokenmill.building.source_index import SourceIndex, current_listing, read_listing
from tokenmill.callers import warn
from tokenmill.encoding.definition import load_definition
from tokenmill.errors import BuildError, TokenmillError
from tokenmill.events import Listener
from tokenmill.io import disk
from tokenmill.io.atomic import canonical, digest, naming_files, temporary_path, write_atomically, writing
from tokenmill.io.lock import build_lock
from tokenmill.option_types import option_name
from tokenmill.store.integrity import files_are_complete, verify_store
from tokenmill.store.lease import USED, hold
from tokenmill.store.manifest import read_manifest, trial_of
from tokenmill.store.sources import SOURCES
from tokenmill.store.store import Store
from tokenmill.user_cache import cache_folder

KEY_DIGITS = 16  # hex digits of each digest in a name
STORE_NAME = re.compile(rf"[0-9a-f]{{{KEY_DIGITS}}}-[0-9a-f]{{{KEY_DIGITS}}}")


def cache_root(cache_dir: str | os.PathLike[str] | None) -> Path:
    return (Path(cache_dir) if cache_dir is not None else cache_folder()).absolute()


def check_cache_folder(root: Path, *, or_else: str = "") -> None:
    """Raise BuildError if there can be no cache at `root`, because a file is in its place, say."""
    try:
        if stat.S_ISDIR(os.stat(root).st_mode):
            return
        reason = "it is a file"
    except FileNotFoundError:  # it is made when it is needed
        return
    except OSError as error:
        reason = error.strerror or str(error)
    remedy = f"choose another folder with {option_name('cache_dir')} or TOKENMILL_CACHE{or_else}"
    raise BuildError(f"the cache cannot be in {root}: {reason}; {remedy}")


def build_cached(request: BuildRequest, root: Path, listener: Listener, *, allow_temporary: bool) -> Store:
    """The store of a request from the cache at `root`; built there if it is missing.

    If the cache cannot be written, the store is built in a temporary folder for this process, or with
    `allow_temporary=False` the error is raised.
    """
    if not allow_temporary:
        check_cache_folder(root, or_else=", or a folder of its own for the store with -o")
    request = replace(request, source=without_own_files(request.source, cache=root))
    destination = None
    try:
        destination = CacheDestination(root, resolve(request))
        store = destination.unchanged_store()
        if store is not None:
            return report_up_to_date(store, listener)
        return run_build(destination.resolved, destination, listener)
    except BuildError as error:
        if not error.is_unwritable:
            raise
        store = None if destination is None else destination.store_of(destination.plan())
        if store is not None:
            return report_up_to_date(store, listener)
        if not allow_temporary:
            raise BuildError(f"{error}; give another {option_name('cache_dir')}, or a folder with -o") from error
        return _build_temporary(request, error, listener)


@naming_files()
def explain(request: BuildRequest, root: Path) -> tuple[Store | None, list[str]]:
    """The store of a request, if the cache has it; else why not, and what building it would cost. Builds nothing."""
    request = replace(request, source=without_own_files(request.source, cache=root))
    destination = CacheDestination(root, resolve(request))
    store = destination.unchanged_store()
    if store is not None:
        return store, []
    plan = destination.plan()
    store = destination.store_of(plan)
    return store, [] if store is not None else destination.reasons(plan) or [describe_cost(plan)]


class CacheDestination:
    """The entry of the cache for one set of inputs, tokenizer and options. A second build waits for the first."""

    is_new = False

    def __init__(self, root: Path, resolved: ResolvedRequest) -> None:
        self.root, self.resolved, self.source = root, resolved, resolved.source
        self.build_key = build_key(resolved.options)[:KEY_DIGITS]
        inputs = [sorted(self.source.inputs), self.source._options()]
        if selection := self.source._selection():
            inputs.append(selection)
        self.entry = root / "builds" / f"{self.build_key}-{digest(canonical(inputs))[:KEY_DIGITS]}"
        self.folder = self.entry / "store"

    def unchanged_store(self) -> Store | None:
        """The store of these inputs, if none of their files changed since it was built. Opens no input file."""
        listing = current_listing(self.entry, self.source) if self.resolved.trusts_listing else None
        return None if listing is None else self._open_store(listing["store"], listing["names"])

    def open(self, stack: ExitStack, emit: Listener) -> Store | None:
        stack.enter_context(build_lock(self.entry, waiting_reporter(self.entry, emit)))
        store = self.unchanged_store()
        if store is not None:
            return store
        for leftover in disk.matching(self.entry, "*.tmp"):  # of a process that was killed: writing here needs the lock
            disk.unlink(leftover)
        if self.resolved.force:
            disk.remove_tree(self.folder)
            discard_receipts(self.entry)
        with writing(self.folder):
            disk.make_folder(self.folder)
        stores = self.root / "stores"
        with writing(stores):  # report it now, and not when a stream has been read that cannot be read again
            if stores.exists() and not stores.is_dir():
                raise FileExistsError(errno.EEXIST, "it is not a folder", str(stores))
        return None

    def prior_work(self, resolved: ResolvedRequest) -> PriorWork:
        """The indexes and stores of all builds with the same tokenizer and options; nothing with `force`."""
        indexes = [SourceIndex(self.entry, self.source)]
        donors: list[Path] = []
        if not resolved.force:
            entries = sorted(disk.matching(self.root / "builds", f"{self.build_key}-*"))
            indexes += [SourceIndex(entry, self.source) for entry in entries if entry != self.entry]
            stores = sorted(disk.matching(self.root / "stores", f"{self.build_key}-*"))
            donors = [store for store in stores if _is_store_name(store.name)]
        leases = [hold(store, used=False) for store in donors]  # before anything in them is looked at
        return PriorWork(
            published=published_manifest(self.folder),
            indexes=indexes,
            donors=[store / "shards" for store in donors],
            leases=leases,
        )

    def plan(self) -> BuildPlan:
        """What a build would do. Writes nothing."""
        return make_plan(self.resolved, self.folder, self.prior_work(self.resolved), lambda event: None)

    def existing_store(self, plan: BuildPlan) -> Store | None:
        if plan.has_work:
            return None
        return self.store_of(plan) or plan.published_store([task.id for task in plan.tasks])

    def store_of(self, plan: BuildPlan) -> Store | None:
        """The store with the content of a plan in which nothing is left to do, if the cache has it."""
        if self.resolved.force or plan.has_work:
            return None
        return self._open_store(_store_name(self.build_key, [task.id for task in plan.tasks]))

    def finish(self, store: Store, plan: BuildPlan) -> Store:
        if store.path == self.folder:
            names = disk.read_bytes(store.path / SOURCES)
            store = self._move_to_stores(store)
        else:
            names = plan.sources().as_bytes()
            disk.remove_tree(self.folder)
        path = self.entry / _names_file(names)
        write_atomically(path, names)
        facts = {"inputs": list(self.source.inputs), "options": self.resolved.options}
        plan.index.write(self.source, store=store.path.name, names=path.name, **facts)
        return Store(store.path, store._manifest, sources=path, lease=store._lease)

    def _open_store(self, name: str, names_file: str = "") -> Store | None:
        """A complete store of the cache. The lease is taken before the store is looked at, so that what was found stays."""
        if not _is_store_name(name):
            return None
        path = self.root / "stores" / name
        lease, manifest = hold(path), published_manifest(path)
        if manifest is None or not manifest.complete or not files_are_complete(path, manifest):
            return None
        sources = self.entry / Path(names_file).name if names_file else None
        if sources is not None and not _is_intact(sources):
            return None
        return Store(path, manifest, sources=sources, lease=lease)

    def _move_to_stores(self, built: Store) -> Store:
        """Move a finished store to its place. If another process was first, its store is used: the bytes are the same."""
        failed = [entry["file"] for entry in built.failed]
        place = self.root / "stores" / _store_name(self.build_key, built._manifest.shard_ids, failed)
        with writing(place), build_lock(self.root, lambda process: None):  # two entries may have the same content
            disk.make_folder(place.parent)
            for leftover in disk.matching(place.parent, "*.tmp"):  # of a process that was killed: moving needs the lock
                disk.remove_tree(leftover)
            if self._is_usable(place):
                disk.remove_tree(built.path)
            else:
                replaced = temporary_path(place)
                with suppress(OSError):
                    # Keep the same lease file, so existing readers also protect the replacement
                    disk.link(place / USED, built.path / USED)
                with suppress(FileNotFoundError):
                    disk.replace(place, replaced)
                disk.replace(built.path, place)
                disk.sync_folder(place.parent)
                disk.remove_tree(replaced)
            lease = hold(place)
        return Store(place, read_manifest(place), lease=lease)

    def _is_usable(self, place: Path) -> bool:
        """Whether a store of the same name exists and need not be replaced while others use it."""
        manifest = published_manifest(place)
        if manifest is None or not files_are_complete(place, manifest):
            return False
        return not self.resolved.force or not verify_store(place)  # --force may be a reaction to damage

    def reasons(self, plan: BuildPlan) -> list[str]:
        """Files that changed; else how the most similar earlier build of these inputs differs."""
        if self.resolved.force:
            return [f"{option_name('force', True)}: rebuilding everything", describe_cost(plan)]
        changes = describe_changes(plan)
        if changes:
            return changes
        earlier = [(self._differences(listing), entry) for entry, listing in self._earlier_listings()]
        candidates = [(differences, entry) for differences, entry in earlier if differences]
        if not candidates:
            return []
        differences, entry = min(candidates, key=lambda candidate: len(candidate[0]))
        files = describe_file_stats(SourceIndex(entry, self.source), self.source)
        return [*differences, *files, describe_cost(plan)]

    def _differences(self, listing: dict[str, Any]) -> list[str]:
        """How the options of an earlier build differ."""
        options = self.resolved.options
        differences = describe_options(listing["options"], options, ignore=("tokenizer",))
        if listing["options"]["tokenizer"] == options["tokenizer"]:
            return differences
        earlier = None
        with suppress(TokenmillError):
            earlier = load_definition(self.root / "stores" / listing["store"] / "tokenizer", None)
        if earlier is None:
            return ["tokenizer: it changed", *differences]
        return [describe_tokenizer(earlier, self.resolved.tokenizer._definition), *differences]

    def _earlier_listings(self) -> list[tuple[Path, dict[str, Any]]]:
        """The entries of finished builds that share inputs with this one, and their listings; the latest first."""
        inputs = set(self.source.inputs)
        found = []
        for entry in disk.matching(self.root / "builds"):
            listing = read_listing(entry) if entry != self.entry else None
            if listing is None or trial_of(listing["options"]):
                continue  # a trial says nothing about the whole
            if _is_store_name(listing["store"]) and not inputs.isdisjoint(listing["inputs"]):
                with suppress(FileNotFoundError):  # removed in the meantime
                    found.append(((entry / "listing.json").stat().st_mtime_ns, entry, listing))
        return [(entry, listing) for _, entry, listing in sorted(found, key=lambda one: -one[0])]


def _is_store_name(name: object) -> bool:
    return isinstance(name, str) and STORE_NAME.fullmatch(name) is not None


def _store_name(key: str, shards: list[str], failed: list[str] | None = None) -> str:
    """A digest of the shards in order. A store from which files are missing has another name."""
    return f"{key}-{digest(canonical([shards, failed or []]))[:KEY_DIGITS]}"


def _names_file(names: bytes) -> str:
    """The name of a file with the names of input files. Two sets of inputs may have the same content."""
    return f"names-{digest(names)[:KEY_DIGITS]}.json"


def _is_intact(names_file: Path) -> bool:
    try:
        return _names_file(disk.read_bytes(names_file)) == names_file.name
    except OSError:
        return False


def _build_temporary(request: BuildRequest, error: Exception, listener: Listener) -> Store:
    """Build in a temporary folder that is removed when this process ends."""
    folder, process = Path(tempfile.mkdtemp(prefix="tokenmill-")), os.getpid()

    def remove_folder() -> None:
        if os.getpid() == process:  # not in a forked child
            disk.remove_tree(folder)

    atexit.register(remove_folder)
    warn(f"the tokens cannot be kept in the cache ({error}); they are built for this process only")
    return run_build(request, FolderDestination(folder / "store"), listener)
