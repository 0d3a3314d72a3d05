"""Stores that are found by what they hold: built once, whoever asks, from wherever, and never changed again.

    stores/<making>-<content>/    a store; `making` is the tokenizer and its options, `content` the text and its order
    builds/<making>-<inputs>/     for each set of inputs: the list of files as they were seen, their names, which store that
                                  is, the lock of whoever builds, and what is under way

A new store takes the shards of earlier ones by hard links: they are named by content, so what did not change is not made
again, nor written again, nor on the disk twice.
"""

from __future__ import annotations

import atexit
import errno
import os
import re
import shutil
import tempfile
import warnings
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenmill.building.api import build_in, executor_of
from tokenmill.building.changes import cost, looks_told, options_told, tokenizer_told, told
from tokenmill.building.destination import manifest_of, start_anew, without_own_files
from tokenmill.building.plan import build_key
from tokenmill.building.reporting import EventSink, listener_for
from tokenmill.building.request import BuildRequest
from tokenmill.building.sequence import Build, up_to_date
from tokenmill.building.source_index import SourceIndex, noted, unchanged
from tokenmill.encoding import Tokenizer, load_definition
from tokenmill.errors import BuildError, TokenmillError
from tokenmill.events import Explained, Listener, Waiting
from tokenmill.io.atomic import canonical, digest, temporary_path, write_atomically, writing
from tokenmill.io.lock import build_lock
from tokenmill.reading import check_fields
from tokenmill.store import Store, files_are_complete, read_manifest, verify_store
from tokenmill.store.lease import USED, Lease, hold
from tokenmill.store.manifest import trial_of
from tokenmill.store.sources import SOURCES
from tokenmill.user_cache import cache_folder

KEY = 16  # hex digits of a digest that names enough
NAME = re.compile(rf"[0-9a-f]{{{KEY}}}-[0-9a-f]{{{KEY}}}")
NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)


def build_cached(
    asked: BuildRequest,
    cache_dir: str | os.PathLike[str] | None,
    progress: str | Listener | None,
    *,
    for_this_run: bool = True,
) -> Store:
    """The store of what is asked for, from the cache; built there where it is missing.

    Where nothing can be kept it is built for this process alone, unless `for_this_run` says that nobody would have it then.
    """
    watch = listener_for(progress)
    with ExitStack() as stack:
        room = None
        try:
            room = enter(asked, cache_dir, stack)
            asked = room.asked  # streams are written down by now, and do not come twice
            found = room.kept()
            return up_to_date(found, watch) if found is not None else room.build(watch)
        except BuildError as error:
            if not isinstance(error.__cause__, OSError) or error.__cause__.errno not in NOT_WRITABLE:
                raise
            found = room.look()[0] if room is not None else None  # in a cache that can only be read
            if found is not None:
                return up_to_date(found, watch)
            if not for_this_run:
                raise BuildError(f"{error}; choose another cache with --cache-dir, or a folder with -o") from error
            return _for_this_run(asked, error, progress)


def why(asked: BuildRequest, cache_dir: str | os.PathLike[str] | None = None) -> tuple[Store | None, list[str]]:
    """The store there is of what is asked for; or why there is none, in words, and what it would cost. Builds nothing."""
    with ExitStack() as stack:
        return enter(asked, cache_dir, stack).why()


def root_of(cache_dir: str | os.PathLike[str] | None) -> Path:
    return (Path(cache_dir) if cache_dir is not None else cache_folder()).absolute()


def enter(asked: BuildRequest, cache_dir: str | os.PathLike[str] | None, stack: ExitStack) -> Room:
    """Where what is asked for is, or would be, built. Streams are written down first, for as long as `stack` lasts."""
    root, tokenizer = root_of(cache_dir), asked.loaded()
    asked = replace(asked, source=without_own_files(asked.source, cache=root))
    if asked.source.streams:
        with writing(root):
            (root / "builds").mkdir(parents=True, exist_ok=True)
            spool = Path(tempfile.mkdtemp(prefix="spool-", dir=root / "builds"))
        stack.callback(shutil.rmtree, spool, ignore_errors=True)
        asked = asked.spooled(spool, tokenizer)
    check_fields(asked.source)
    return Room(root, asked, tokenizer)


class Room:
    """What is known of one set of inputs, made in one way."""

    def __init__(self, root: Path, asked: BuildRequest, tokenizer: Tokenizer) -> None:
        self.root, self.asked, self.tokenizer, self.source = root, asked, tokenizer, asked.source
        self.options = asked.options(tokenizer)
        self.making = build_key(self.options)[:KEY]
        names = sorted(self.source.inputs)
        spooled = [file.tag for file in self.source.files if file.spooled]
        inputs = digest(canonical([names, spooled, self.source.options()]))[:KEY]
        self.folder = root / "builds" / f"{self.making}-{inputs}"

    def kept(self) -> Store | None:
        """The store that these inputs were found to be, if every file of them is as it was. Reads none of them."""
        if not self.asked.believes(self.tokenizer):
            return None
        kept = unchanged(self.folder, self.source)
        return None if kept is None else self._opened(kept["store"], kept["names"])

    def build(self, watch: Listener) -> Store:
        """Build, or wait for another process that does, or find that the same content is there under other names."""
        said = False

        def wait(process: str) -> None:
            nonlocal said
            if not said:
                watch(Waiting(process=process, path=str(self.folder)))
                said = True

        with build_lock(self.folder, wait):
            if (found := self.kept()) is not None:
                return up_to_date(found, watch)
            for half in self.folder.glob("*.tmp"):  # of a process that was killed; who writes here has the lock
                half.unlink(missing_ok=True)
            work = self.folder / "store"
            if self.asked.force:
                shutil.rmtree(work, ignore_errors=True)
                start_anew(self.folder)
            with writing(work):
                work.mkdir(exist_ok=True)
            with EventSink(watch, work) as log:
                build, donors = self._planned(work)
                build.plan(log.emit, rehash=self.asked.rehash)
                found = self._found(build)
                if found is None:
                    if reasons := self._reasons(build):
                        log.emit(Explained(reasons=reasons))
                    with executor_of(self.asked, log.emit, self.tokenizer, build.weight) as crew:
                        built = build.carry_out(crew, log.emit)
            if found is None:
                found = self._put_away(built)
            else:
                shutil.rmtree(work, ignore_errors=True)
                up_to_date(found, watch)
            del donors  # held until here
            facts = {"inputs": list(self.source.inputs), "options": self.options}
            build.seen[0].write(self.source, store=found.path.name, names=found.sources_path.name, **facts)
            return found

    def why(self) -> tuple[Store | None, list[str]]:
        """The store there is, or the reasons for there being none. Nothing is written."""
        if (found := self.kept()) is not None:
            return found, []
        found, build = self.look()
        return found, [] if found is not None else self._reasons(build) or [cost(build)]

    def look(self) -> tuple[Store | None, Build]:
        """The store of this content, under whatever names, if it is there; and what would have to be done, if not."""
        build, _ = self._planned(self.folder / "store")
        build.plan(lambda event: None, rehash=self.asked.rehash)
        return self._found(build, keep_names=False), build

    def _planned(self, work: Path) -> tuple[Build, list[Lease | None]]:
        """The build in `work`, with what earlier ones of the same making know and hold; and a hold on those."""
        seen = [SourceIndex(self.folder, self.source)]
        donors: list[Path] = []
        if not self.asked.force:
            rooms = sorted((self.root / "builds").glob(f"{self.making}-*"))
            seen += [SourceIndex(room, self.source) for room in rooms if room != self.folder]
            donors = [path for path in sorted((self.root / "stores").glob(f"{self.making}-*")) if _named(path.name)]
        held = [hold(store, used=False) for store in donors]
        build = Build(
            work,
            self.source,
            self.tokenizer,
            self.options,
            manifest_of(work),
            seen,
            donors=[store / "shards" for store in donors],
        )
        return build, held

    def _found(self, build: Build, keep_names: bool = True) -> Store | None:
        """The store of a build in which nothing is left to do, if it is there already."""
        if self.asked.force or build.todo or build.limit:
            return None
        found = self._opened(_store_name(self.making, [task.id for task in build.tasks]))
        return self._under_names(found, build.names().as_bytes()) if found is not None and keep_names else found

    def _under_names(self, store: Store, names: bytes) -> Store:
        """A store with the names that these inputs go by; it may have been built from others, and be built again from others."""
        path = self.folder / _name_of_names(names)
        write_atomically(path, names)
        return Store(store.path, store.manifest, sources=path, lease=store.lease)

    def _opened(self, name: str, names: str = "") -> Store | None:
        """A store of the cache that is whole. It is held before it is looked at: what was seen then stays."""
        if not _named(name):
            return None
        path = self.root / "stores" / name
        held, manifest = hold(path), manifest_of(path)
        if manifest is None or not manifest.complete or not files_are_complete(path, manifest):
            return None
        sources = self.folder / Path(names).name if names else None
        if sources is not None and not _is_named_well(sources):
            return None
        return Store(path, manifest, sources=sources, lease=held)

    def _put_away(self, built: Store) -> Store:
        """Move a store that was built to where it stays. If another process was first, theirs is it: the bytes are the same."""
        name = _store_name(self.making, built.manifest.shard_ids, [entry["file"] for entry in built.failed])
        place = self.root / "stores" / name
        names = (built.path / SOURCES).read_bytes()
        with writing(place), build_lock(self.root, lambda process: None):  # two rooms may hold the same content
            place.parent.mkdir(exist_ok=True)
            for away in place.parent.glob("*.tmp"):  # of a process that was killed; who moves stores has the lock
                shutil.rmtree(away, ignore_errors=True)
            if self._is_sound(place):
                shutil.rmtree(built.path, ignore_errors=True)
            else:
                away = temporary_path(place)
                with suppress(OSError):
                    os.link(place / USED, built.path / USED)  # who holds it holds what takes its place
                with suppress(FileNotFoundError):
                    os.rename(place, away)
                os.rename(built.path, place)
                shutil.rmtree(away, ignore_errors=True)
            held = hold(place)
        return self._under_names(Store(place, read_manifest(place), lease=held), names)

    def _is_sound(self, place: Path) -> bool:
        """Whether a store is there already, so that another of the same name need not take its place under those who use it."""
        there = manifest_of(place)
        if there is None or not files_are_complete(place, there):
            return False
        return not self.asked.force or not verify_store(place)  # who asks for it anew may well doubt its bits

    def _reasons(self, build: Build) -> list[str]:
        """Why there is something to do: files that changed; else in what the nearest earlier build of these inputs differed."""
        if self.asked.force:
            return ["everything anew, as was asked for", cost(build)]
        if said := told(build):
            return said
        differing = [(differs, room) for room, kept in self._earlier() if (differs := self._differs(kept))]
        if not differing:
            return []
        said, room = min(differing, key=lambda one: len(one[0]))
        return [*said, *looks_told(SourceIndex(room, self.source), self.source), cost(build)]

    def _differs(self, earlier: dict[str, Any]) -> list[str]:
        said = options_told(earlier["options"], self.options, but=("tokenizer",))
        if earlier["options"]["tokenizer"] == self.options["tokenizer"]:
            return said
        old = None
        with suppress(TokenmillError):
            old = load_definition(self.root / "stores" / earlier["store"] / "tokenizer", None)
        return [tokenizer_told(old, self.tokenizer.definition) if old else "another tokenizer", *said]

    def _earlier(self) -> list[tuple[Path, dict[str, Any]]]:
        """What was noted of builds from some of these inputs, and where, the latest first."""
        mine = set(self.source.inputs)
        ours = []
        for path in (self.root / "builds").glob("*/listing.json"):
            kept = noted(path.parent) if path.parent != self.folder else None
            if kept is None or trial_of(kept["options"]):
                continue  # a trial says nothing of the whole
            if _named(kept["store"]) and not mine.isdisjoint(kept["inputs"]):
                with suppress(FileNotFoundError):  # removed since
                    ours.append((path.stat().st_mtime_ns, path.parent, kept))
        return [(room, kept) for _, room, kept in sorted(ours, key=lambda one: -one[0])]


def _named(name: object) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def _name_of_names(names: bytes) -> str:
    return f"names-{digest(names)[:KEY]}.json"


def _is_named_well(path: Path) -> bool:
    """Whether a list of names is there, and as it was written."""
    try:
        return _name_of_names(path.read_bytes()) == path.name
    except OSError:
        return False


def _store_name(made: str, shards: list[str], failed: list[str] | None = None) -> str:
    """Named by all that is in it, in order; with files missing it is not the same store."""
    return f"{made}-{digest(canonical([shards, failed or []]))[:KEY]}"


def _for_this_run(asked: BuildRequest, error: Exception, progress: str | Listener | None) -> Store:
    """Where nothing can be kept: tokens for this process alone, gone when it ends."""
    folder, process = Path(tempfile.mkdtemp(prefix="tokenmill-")), os.getpid()

    def clean_up() -> None:
        if os.getpid() == process:  # not in a child that was forked
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(clean_up)
    warnings.warn(f"the tokens cannot be kept ({error}); tokenizing for this run alone", stacklevel=6)
    return build_in(folder / "store", asked, progress)
