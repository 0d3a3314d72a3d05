"""A store that is built into a bucket: the folder of the build is a temporary one here, and what lasts is in the bucket."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from tokenmill.building.build_plan import BuildPlan, PriorWork
from tokenmill.building.destination import FolderDestination
from tokenmill.building.request import ResolvedRequest
from tokenmill.errors import LockedError, UnreachableError, UsageError
from tokenmill.events import Listener
from tokenmill.io import disk
from tokenmill.io.lock import build_lock, lock_holder
from tokenmill.io.object_store import check_url, is_bucket_url
from tokenmill.store.bucket import StoreBucket
from tokenmill.store.manifest import NAME
from tokenmill.store.store import Store, open_store
from tokenmill.user_cache import cache_folder

SETTLING_SECONDS = 60
LOG_SECONDS = 30.0
WORK = "uploads"  # in the cache folder: the working folders of builds into buckets


class BucketDestination(FolderDestination):
    """A place in a bucket. Builds at the same time share finished shards; one of them publishes, the others raise.

    With `keeps_log`, the log is copied to the bucket from time to time, so that the build can be watched from elsewhere.
    """

    def __init__(self, url: str, *, keeps_log: bool = True) -> None:
        check_url(url)
        if not is_bucket_url(url):
            raise UsageError(f"{url}: a store is built in a folder or in a bucket (s3://, gs://, az://)")
        self.url = url.rstrip("/")
        super().__init__(cache_folder() / WORK / secrets.token_hex(8))
        self.bucket = StoreBucket(self.url, self.folder)
        self._keeps_log = keeps_log
        self._published = b""  # the manifest in the bucket when the build began

    @property
    def name(self) -> str:
        return self.url

    def open(self, stack: ExitStack, emit: Listener) -> Store | None:
        _remove_abandoned(self.folder.parent)
        stack.callback(disk.remove_tree, self.folder)
        stack.enter_context(build_lock(self.folder))
        self.bucket.pull()
        if self._keeps_log:
            stack.enter_context(_log_in_bucket(self.bucket))
        if (self.folder / NAME).exists():
            self._published = disk.read_bytes(self.folder / NAME)
        return None

    def prior_work(self, resolved: ResolvedRequest) -> PriorWork | Store:
        prior = super().prior_work(resolved)
        if isinstance(prior, Store):
            return open_store(self.url)
        self.bucket.push_log()  # that it has begun: nobody removes shards that it may use
        return replace(prior, bucket=self.bucket)

    def existing_store(self, plan: BuildPlan) -> Store | None:
        store = super().existing_store(plan)
        if store is None:
            held = {Path(piece.held[0]).name for task in plan.todo for piece in task.pieces if piece.held is not None}
            self.bucket.pull_columns(held)
        else:
            store.url = self.url
        return store

    def finish(self, store: Store, plan: BuildPlan) -> Store:
        if disk.read_bytes(self.folder / NAME) != self._published:
            self.bucket.publish(store._manifest)
        super().finish(store, plan)
        self.bucket.push_index()
        return open_store(self.url)


@contextmanager
def _log_in_bucket(bucket: StoreBucket) -> Iterator[None]:
    """Copy the log of a build to its bucket every half a minute, and when the build fails."""
    is_over = threading.Event()

    def copy() -> None:
        while not is_over.wait(LOG_SECONDS):
            bucket.push_log()

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    has_failed = False
    try:
        yield
    except BaseException as error:
        has_failed = not isinstance(error, UnreachableError)
        raise
    finally:
        is_over.set()
        thread.join()  # so that it does not copy an older state after this one
        if has_failed:
            bucket.push_log()


def _remove_abandoned(folder: Path) -> None:
    """Remove the working folders of builds that were killed."""
    for work in disk.matching(folder):
        with suppress(OSError):
            if time.time() - work.stat().st_mtime < SETTLING_SECONDS:  # a build may have made it, and lock it next
                continue
        if work.is_dir() and lock_holder(work) is None:
            try:
                with build_lock(work):
                    disk.remove_tree(work)
            except LockedError:
                continue
