"""A store in a bucket: which objects it consists of, and how they get there and back.

    shards/ID.npy, ...    the columns of a shard, and then its receipt shards/ID.json, which says that it is finished
    seen/ID.jsonl         the contents that the shard was made from, by file, so that the next build need not read them
    files/DIGEST          what the manifest lists: the tokenizer, sources.json, quarantine.jsonl
    manifest.json         written last, and only if it is still what it was when the build began: one of several builds succeeds

All but the manifest are named by what they hold, so it does not matter who writes them, or how often. After the manifest the
files that it lists are also written under their own names: a plain copy of all objects is a store in a folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from tokenmill.errors import (
    CorruptError,
    LockedError,
    MismatchError,
    MissingStoreError,
    StoreError,
    TokenmillError,
    UsageError,
)
from tokenmill.formatting import first_names, parse_size
from tokenmill.io import disk, mirror, object_store
from tokenmill.io.atomic import digest, write_atomically
from tokenmill.io.mirror import MIRRORS, make_mirror
from tokenmill.io.object_store import ConditionError, Object, join
from tokenmill.store.checksums import repair_hint
from tokenmill.store.columns import column_path, receipt_path, shard_of_file
from tokenmill.store.manifest import NAME, Manifest, parse_manifest, read_manifest
from tokenmill.store.shard import Receipt, compare_column, read_receipt, require_receipt, sealed, stored_columns
from tokenmill.user_cache import cache_folder

REQUESTS = 16  # at a time
SEEN = "seen"
FILES = "files"
LOG = "events.jsonl"
_RECEIPT = re.compile(r"shards/[0-9a-f]{24}\.json")
_JOURNAL = re.compile(r"seen/[0-9a-f]{24}\.jsonl")
LIMIT_VARIABLE = "TOKENMILL_SHARD_CACHE"


class StoreBucket:
    """The objects of a store in a bucket, as a build with the working folder `folder` sees them.

    In the working folder, columns of shards that are in the bucket are files of the right size without content: they take no
    space, and nothing reads them.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url.rstrip("/"), folder
        self.manifest_tag: str | None = None  # of the manifest when the build began; None if there was none
        self._pushed: set[str] = set()  # digests of files
        self._journals: set[str] = set()  # that are in the bucket, as far as this process knows

    def push_shard(self, receipt: Receipt, seen: bytes) -> None:
        """Write the columns of a shard, what it was made from, and then its receipt. Empties the columns here."""
        paths = self._columns(receipt)
        _at_once(lambda path: object_store.upload(join(self.url, "shards", path.name), path), paths)
        object_store.write(join(self.url, SEEN, f"{receipt['id']}.jsonl"), seen)
        object_store.write(join(self.url, "shards", f"{receipt['id']}.json"), sealed(receipt))
        for path in paths:
            disk.make_hollow(path, path.stat().st_size)

    def pull(self) -> None:
        """Bring the working folder to the state of the bucket: the manifest, its files, receipts and what they were made from."""
        found = {each.url[len(self.url) + 1 :]: each for each in object_store.listing(self.url)}
        self._check_place(found)
        disk.make_folder(self.folder)
        if NAME in found:
            self.manifest_tag = found[NAME].tag
            self._fetch(NAME, self.folder / NAME)
            manifest = read_manifest(self.folder)
            _check_names(self.url, manifest)
            self.pull_files(manifest.files)
        small = [name for name in ("seen.json", "listing.json", LOG) if name in found]
        _at_once(lambda name: self._fetch(name, self.folder / name), small)
        journals = [name for name in found if _JOURNAL.fullmatch(name)]
        self._journals = set(journals)
        _at_once(lambda name: self._fetch_if_there(name, self.folder / name.replace("/", ".")), journals)
        self._pull_receipts(found)

    def _check_place(self, found: dict[str, Object]) -> None:
        """Raise UsageError for a place that has other objects than a store."""
        own, folders = (NAME, LOG, "seen.json", "listing.json"), ("shards/", f"{SEEN}/", f"{FILES}/", "slices/")
        if found and not any(name in own or name.startswith(folders) for name in found):
            raise UsageError(
                f"{self.url} is not a token store and has other objects in it ({first_names(sorted(found))}); choose a"
                " place of its own for the store"
            )

    def _pull_receipts(self, found: dict[str, Object]) -> None:
        receipts = [name for name in found if _RECEIPT.fullmatch(name)]
        disk.make_folder(self.folder / "shards")
        _at_once(lambda name: self._fetch_if_there(name, self.folder / name), receipts)
        sizes = {name: each.size for name, each in found.items()}
        for name in receipts:
            shard = name.removeprefix("shards/").removesuffix(".json")
            self._empty_columns(shard, lambda path: sizes.get(f"shards/{path.name}"))

    def pull_shard(self, shard_id: str) -> None:
        """Fetch the receipt of a shard that a worker elsewhere has written, unless it is here."""
        self._journals.add(f"{SEEN}/{shard_id}.jsonl")
        shards = self.folder / "shards"
        if receipt_path(shards, shard_id).exists():
            return
        disk.make_folder(shards)
        self._fetch(f"shards/{shard_id}.json", receipt_path(shards, shard_id))
        self._empty_columns(shard_id, lambda path: object_store.stat(join(self.url, "shards", path.name)).size)

    def pull_columns(self, shard_ids: Iterable[str]) -> None:
        """Fetch the columns of shards, so that they can be copied from."""
        for shard in shard_ids:
            for path in self._columns(read_receipt(self.folder / "shards", shard)):
                object_store.download(join(self.url, "shards", path.name), path)

    def _columns(self, receipt: Receipt | None) -> list[Path]:
        """The files of the columns of a shard in the working folder; none without a receipt."""
        if receipt is None:
            return []
        shards, columns = self.folder / "shards", stored_columns(receipt)
        return [column_path(shards, receipt["id"], column.spec.name) for column in columns]

    def _empty_columns(self, shard: str, size_of: Callable[[Path], int | None]) -> None:
        for path in self._columns(read_receipt(self.folder / "shards", shard)):
            if not path.exists() and (size := size_of(path)) is not None:
                disk.make_hollow(path, size)

    def _fetch(self, name: str, path: Path) -> None:
        disk.make_folder(path.parent)
        write_atomically(path, object_store.read(join(self.url, name)))

    def _fetch_if_there(self, name: str, path: Path) -> None:
        """Another build may have removed it since it was listed."""
        with suppress(FileNotFoundError):
            self._fetch(name, path)

    def discard_receipts(self, shard_ids: Iterable[str]) -> None:
        object_store.delete(join(self.url, "shards", f"{shard}.json") for shard in shard_ids)

    def push_files(self, files: dict[str, str]) -> None:
        """Write files that a manifest lists (name: digest), by their digests, unless this process has written them before."""
        new = [(name, known) for name, known in files.items() if known not in self._pushed]
        _at_once(lambda item: self._push(item[0], f"{FILES}/{item[1]}"), new)
        self._pushed.update(files.values())

    def _push(self, file: str, name: str) -> None:
        """Write a file of the working folder as the object of this name."""
        object_store.write(join(self.url, name), disk.read_bytes(self.folder / file))

    def pull_files(self, files: dict[str, str]) -> None:
        """Fetch files (name: digest) that are not here: a worker on another machine has none of them."""
        missing = [(name, known) for name, known in files.items() if not (self.folder / name).exists()]
        _at_once(lambda item: self._fetch(f"{FILES}/{item[1]}", self.folder / item[0]), missing)

    def publish(self, manifest: Manifest) -> None:
        """Write the manifest, if it is still what it was when the build began. Raises LockedError if it is not."""
        self.push_files(manifest.files)
        body = disk.read_bytes(self.folder / NAME)
        try:
            self.manifest_tag = object_store.write_if(join(self.url, NAME), body, self.manifest_tag)
        except ConditionError:
            raise self._lost_race(manifest) from None
        _at_once(lambda name: self._push(name, name), manifest.files)

    def _lost_race(self, manifest: Manifest) -> LockedError | MismatchError:
        """What to say to a build that another one has overtaken."""
        what = f"another build finished {self.url} while this one was running, and its manifest was left as it is."
        try:
            theirs = read_manifest_at(self.url)[0].fingerprint
        except (OSError, StoreError):
            theirs = manifest.fingerprint
        if theirs == manifest.fingerprint:
            return LockedError(f"{what} It has the same tokens as this one: open it")
        return MismatchError(f"{what} It has other tokens than this one; run this build again, or choose another place")

    def push_log(self) -> None:
        """Copy the log of a build that is running. Losing it only costs a look at the build."""
        with suppress(OSError, TokenmillError):
            self._push(LOG, LOG)

    def push_index(self) -> None:
        """Write what is known of the input files, and the log. Losing these only costs time."""
        for name in ("seen.json", "listing.json", LOG):
            if (self.folder / name).exists():
                self._push(name, name)
        object_store.delete(join(self.url, name) for name in self._journals)


def read_manifest_at(url: str) -> tuple[Manifest, bytes]:
    """The manifest of a store in a bucket, and its bytes."""
    object_store.check_url(url)
    try:
        body = object_store.read(join(url, NAME))
    except FileNotFoundError:
        raise MissingStoreError(f"no token store at {url} (it has no {NAME})") from None
    except PermissionError as error:
        raise MissingStoreError(f"{url}: {error.strerror}") from None
    return parse_manifest(body, join(url, NAME)), body


def open_mirror(url: str, limit: str | int | None = None, root: Path | None = None) -> Path:
    """The mirror of a store in a bucket, with its manifest and everything but the shards."""
    url = url.rstrip("/")
    manifest, body = read_manifest_at(url)
    _check_names(url, manifest)
    folder = (root or cache_folder() / MIRRORS) / digest(f"{url}\n".encode() + body)
    asked = limit or os.environ.get(LIMIT_VARIABLE)
    _fill_mirror(folder, url, manifest, None if asked is None else parse_size(asked, LIMIT_VARIABLE))
    if not (folder / NAME).exists():
        write_atomically(folder / NAME, body)
    return folder


def remake_mirror(url: str, name: str, manifest: Manifest, limit: int) -> Path:
    """The mirror of a store that was opened on another machine, or whose mirror was removed."""
    folder = cache_folder() / MIRRORS / name
    _check_names(url, manifest)
    _fill_mirror(folder, url, manifest, limit)
    manifest.write(folder)
    return folder


def _fill_mirror(folder: Path, url: str, manifest: Manifest, limit: int | None) -> None:
    """Fetch everything but the shards."""
    disk.make_folder(folder / "shards")

    def fetch(item: tuple[str, str]) -> None:
        path = folder / item[0]
        if path.exists():
            return
        disk.make_folder(path.parent)
        content = object_store.read(join(url, FILES, item[1]))
        if digest(content) != item[1]:
            raise CorruptError(f"{join(url, FILES, item[1])}, which is {item[0]}, is damaged; run the build again")
        write_atomically(path, content)

    _at_once(fetch, manifest.files.items())
    make_mirror(folder, url, limit)


def _check_fetched(fetched: Path, path: Path, url: str) -> None:
    """Compare a column that was fetched into a mirror with its receipt: only what is whole gets there."""
    shard = shard_of_file(path.name)
    if shard is None or path.suffix != ".npy":
        return
    receipt = require_receipt(path.parent, shard)
    for column in stored_columns(receipt):
        if column_path(path.parent, shard, column.spec.name) == path:
            with disk.open_to_read(fetched) as raw:
                problem = compare_column(raw, column)
            if problem:
                raise CorruptError(f"{url} is damaged: {problem}; {repair_hint(path.parent.parent)}")


mirror.verify = _check_fetched


def _check_names(url: str, manifest: Manifest) -> None:
    """A manifest may be damaged or forged: the files it names must not lead out of the folder they are fetched into."""
    for name in manifest.files:
        if Path(name).is_absolute() or ".." in Path(name).parts or len(Path(name).parts) > 2:
            raise CorruptError(f"{join(url, NAME)} names a file outside the store: {name!r}")


def _at_once(call: Callable[[Any], None], items: Iterable[Any]) -> None:
    """Make calls that wait for a server at the same time. The first error is raised."""
    pool = ThreadPoolExecutor(REQUESTS)
    try:
        for future in [pool.submit(call, item) for item in items]:
            future.result()
    finally:
        pool.shutdown(cancel_futures=True)
