"""What the dashboard shows: one store, or the stores and builds of a cache, each by its name."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock, RLock
from typing import TYPE_CHECKING

from tokenmill.dashboard.followed_log import LOG, FollowedLog, is_alive
from tokenmill.errors import StoreError, TokenmillError, UsageError
from tokenmill.io import disk, object_store
from tokenmill.io.atomic import digest, write_atomically
from tokenmill.io.mirror import MIRRORS
from tokenmill.io.object_store import check_url, is_url, join
from tokenmill.user_cache import cache_folder
from tokenmill.watching.history import History, Run
from tokenmill.watching.panel import sections

if TYPE_CHECKING:  # what reads stores is loaded when it is asked for: not while a build runs
    from tokenmill.building.cache.maintenance import CachedStore
    from tokenmill.dashboard.inspection import Inspection
    from tokenmill.store.store import Store

MANIFEST = "manifest.json"
CLOCK_SECONDS = 5.0  # after which the panel is drawn again without news: lanes end now, and a silent build is noticed
GONE = "The log of the build is gone: the store was removed, or moved to another folder."
BUCKET_SECONDS = 5.0  # between two looks at a bucket


class Watched:
    """A store that is there, or that a build is making. `place` says where it is at the moment."""

    def __init__(self, name: str, place: Callable[[], Path]) -> None:
        self.name, self._place = name.encode("utf-8", "replace").decode(), place  # goes into links
        self.title = self.name  # at the top of the page
        self.nothing = "No build has begun yet."  # said when there is no log
        self._log, self._lock = FollowedLog(), RLock()
        self._manifest: tuple[str, int, int] | None = None
        self._inspection: Inspection | None = None
        self._drawing, self._drawn = RLock(), dict[str, str]()
        self._drawn_alive: bool | None = None
        self._drawn_at = -CLOCK_SECONDS

    @property
    def folder(self) -> Path:
        return self._place()

    def update(self) -> bool:
        """Whether the log has something new."""
        return self._log.update(self.folder)

    def panel(self) -> dict[str, str]:
        """The parts of the panel, drawn anew if there is news, or for the clock."""
        with self._drawing:
            has_news, is_alive, now = self.update(), self.is_alive, time.monotonic()
            if has_news or is_alive != self._drawn_alive or now - self._drawn_at > CLOCK_SECONDS:
                nothing = GONE if self._log.is_gone else self.nothing
                self._drawn = dict(sections(self.history, is_alive=is_alive, nothing=nothing))
                self._drawn_alive, self._drawn_at = is_alive, now
            return self._drawn

    @property
    def history(self) -> History:
        return self._log.history

    def last_run(self) -> Run | None:
        """The last build as it is now: what another thread reads next does not change it."""
        with self._drawing:
            self.update()
            run = self.history.run
            return None if run is None else replace(run, seconds=dict(run.seconds), reasons=dict(run.reasons))

    @property
    def is_alive(self) -> bool | None:
        return is_alive(self.history.run)

    def version(self) -> str:
        """Changes when the store is published anew; empty while there is none."""
        version = self._version()
        return "" if version is None else f"{version[1]}-{version[2]}"

    def _version(self) -> tuple[str, int, int] | None:
        folder = self.folder
        try:
            info = (folder / MANIFEST).stat()
        except OSError:
            return None
        return str(folder), info.st_ino, info.st_mtime_ns

    def inspection(self) -> Inspection:
        """What is in the store. Raises StoreError while there is none."""
        from tokenmill.dashboard.inspection import Inspection

        with self._lock:
            version = self._version()
            if self._inspection is None or version != self._manifest:
                try:
                    opened = _opened(self.folder)
                except StoreError:
                    self._explain_if_running()
                    raise
                self._inspection, self._manifest = Inspection(opened), version
            return self._inspection

    def _explain_if_running(self) -> None:
        """Raise StoreError if there is no store yet because it is being built."""
        self.update()
        run = self.history.run
        if run is None or (not run.is_over and self.is_alive is not False):
            raise StoreError("The store is being built. This is shown when it is finished.")


def _opened(folder: Path) -> Store:
    from tokenmill.store.store import open_store

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of files that failed: the page lists them
        return open_store(folder)


class OneStore:
    """A store in a folder or a bucket, or the folder of a build."""

    def __init__(self, name: str, place: Callable[[], Path]) -> None:
        self._watched = Watched(name, place)

    def get(self, name: str) -> Watched:
        """Raises StoreError for a name that is not there."""
        if name not in ("", self._watched.name):
            raise StoreError(f"there is no store {name!r} here")
        return self._watched


class Cache:
    """The stores of a cache, and the builds that are running or were interrupted."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._watched: dict[str, Watched] = {}

    def list(self) -> list[CachedStore]:
        from tokenmill.building.cache.maintenance import list_stores

        return list_stores(self.root)

    def get(self, name: str) -> Watched:
        watched = self._watched.get(name)
        if watched is None or not any((self.root / kind / name).exists() for kind in ("stores", "builds")):
            self._watched.pop(name, None)
            if name not in {path.name for kind in ("stores", "builds") for path in (self.root / kind).glob("*")}:
                raise StoreError(f"there is no store {name!r} in the cache: it may have been removed")
            watched = self._watched.setdefault(name, Watched(name, lambda: _place_in(self.root, name)))
        return watched


Library = OneStore | Cache


def _place_in(root: Path, name: str) -> Path:
    """Where a store of the cache is: a build moves it when it is finished."""
    from tokenmill.building.source_index import read_listing

    entry = root / "builds" / name
    if (entry / "store").exists() or not entry.exists():
        return entry / "store" if entry.exists() else root / "stores" / name
    listing = read_listing(entry)
    return root / "stores" / (Path(str(listing["store"])).name if listing is not None else name)


def library_at(path: str) -> Library:
    """What is at a path: a store, a build, or a cache. Raises UsageError if it is none of these."""
    if is_url(path):
        from tokenmill.store.bucket import read_manifest_at

        check_url(path)
        place = BucketPlace(path)
        if not (place() / MANIFEST).exists() and not (place() / LOG).exists():
            read_manifest_at(path)  # raises, and says what is wrong
        return OneStore(path, place)
    folder = Path(path)
    if (folder / MANIFEST).exists() or (folder / LOG).exists():
        return OneStore(folder.resolve().name, lambda: folder)
    if (folder / "stores").is_dir() or (folder / "builds").is_dir():
        return Cache(folder)
    why = "no such folder" if not folder.is_dir() else f"it has no {MANIFEST}, no {LOG}, and is not a cache"
    raise UsageError(f"{path} is not a store or a cache: {why}; tokenmill build makes a store")


def place_of(path: str) -> Callable[[], Path]:
    """Where a store is, from a path or a URL."""
    if is_url(path):
        return BucketPlace(path)
    return lambda: Path(path)


class BucketPlace:
    """A store in a bucket: its mirror, once there is a store, or else a folder with the log of the build that makes it.

    Looks every few seconds whether there is something new.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._folder, self._log = Path(os.devnull) / "no-build-yet", b""
        self._tags: dict[str, str] = {}
        self._looked_at: float | None = None
        self._lock = Lock()
        self._waiting = cache_folder() / MIRRORS / f"log-{digest(self.url.encode())}"

    def __call__(self) -> Path:
        with self._lock:
            if self._looked_at is None or time.monotonic() - self._looked_at > BUCKET_SECONDS:
                self._look()
                self._looked_at = time.monotonic()
            return self._folder

    def _look(self) -> None:
        from tokenmill.store.bucket import open_mirror

        with suppress(OSError, TokenmillError):  # nothing there yet, or the network is gone
            if (tag := self._new_tag(LOG)) is not None:
                self._log = object_store.read(join(self.url, LOG))
                self._folder = self._folder if self._folder.exists() else self._waiting
                self._write_log()
                self._tags[LOG] = tag
        with suppress(OSError, TokenmillError):
            if (tag := self._new_tag(MANIFEST)) is not None:
                self._folder = open_mirror(self.url)
                self._write_log()
                self._tags[MANIFEST] = tag

    def _new_tag(self, name: str) -> str | None:
        """The tag of an object, if it is not the one that was read last. Noted after reading, which may fail."""
        tag = object_store.stat(join(self.url, name)).tag
        return tag if tag != self._tags.get(name) else None

    def _write_log(self) -> None:
        if self._log:
            disk.make_folder(self._folder)
            write_atomically(self._folder / LOG, self._log)
