"""Stories about stores, each told undisturbed once, then with faults: the end must be the same, and no reader see less.

A story happens in its folder `work`, which has a store, a cache, or both. Its input lies elsewhere and does not change.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path

from handmade_stores import flip
from io_faults import DEATH, HALF_THEN_DEATH, Faults, hooked
from unsynced import Recorder, Tree, scan

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.demo_data import demo_tokenizer
from tokenmill.errors import MissingStoreError, StoreError, TokenmillError
from tokenmill.store.integrity import verify_store
from tokenmill.store.manifest import read_manifest

OPTIONS = {"shard_bytes": "2KB", "workers": 0, "engine": "reference", "progress": "quiet"}
NOT_COMPARED = re.compile(r".*\.tmp|\.lock|\.used|events\.jsonl|seen\..*|listing\.json")


class Story:
    """A folder before, something that happens in it, and the store that must be there at the end."""

    def __init__(self, root: Path) -> None:
        self.data, self.work = root / "data", root / "work"
        self.out, self.cache = self.work / "store", self.work / "cache"

    def prepare(self) -> None:
        self.data.mkdir(parents=True)
        self.work.mkdir()
        for number in range(3):
            self.write(number)

    def write(self, number: int, word: str = "words") -> None:
        rows = [json.dumps({"text": f"row {i} of {number} {f'{word} ' * 6}"}) for i in range(25)]
        rows[3] = "{broken"
        (self.data / f"{number}.jsonl").write_text("\n".join(rows) + "\n")

    def happen(self) -> None:
        raise NotImplementedError

    def store(self) -> Path:
        return self.out

    def build(self) -> None:
        tm.build(self.data, demo_tokenizer(), self.out, **OPTIONS)

    def command(self, *words: str) -> None:
        code = main([*words])
        if code:
            raise TokenmillError(f"exit {code}")


class FirstBuild(Story):
    def happen(self) -> None:
        self.build()


class Rebuild(Story):
    """A file changed, one is new, one is gone."""

    def prepare(self) -> None:
        super().prepare()
        self.build()
        self.write(1, "other")
        self.write(7)
        (self.data / "0.jsonl").unlink()

    def happen(self) -> None:
        self.build()


class Repair(Story):
    def prepare(self) -> None:
        super().prepare()
        self.build()
        flip(sorted((self.out / "shards").glob("*.npy"))[0])

    def happen(self) -> None:
        self.command("verify", str(self.out), "--repair")


class CachedBuild(Story):
    """Shards of an earlier store are linked, others are encoded, and the store is moved to its place."""

    def prepare(self) -> None:
        super().prepare()
        self.build_cached()
        self.write(1, "other")

    def build_cached(self) -> Path:
        return tm.build(self.data, demo_tokenizer(), cache_dir=self.cache, **OPTIONS).path

    def happen(self) -> None:
        built = self.build_cached()
        if not built.is_relative_to(self.cache):
            raise TokenmillError("the cache could not be written: the store was built in a temporary folder")
        self.built = built

    def store(self) -> Path:
        return self.built


class Prune(CachedBuild):
    """Nothing is left of the older of two stores, and all of the newer."""

    def prepare(self) -> None:
        super().prepare()
        for path in self.cache.rglob(".used"):
            os.utime(path, (1, 1))
        self.built = self.build_cached()
        self.room = sum(path.stat().st_size for path in self.built.rglob("*") if path.is_file()) * 5 // 4

    def happen(self) -> None:
        self.command("cache", "prune", "--max-size", f"{self.room}B", "--cache-dir", str(self.cache))


class Pack(Story):
    """A plan of rows is written beside the store."""

    def prepare(self) -> None:
        super().prepare()
        self.build()

    def happen(self) -> None:
        tm.pack(self.out, 64, strategy="best_fit")
        if not list(self.out.glob("plans/*.json")):
            raise TokenmillError("the store could not be written: the plan was stored in the user's cache")


STORIES: dict[str, type[Story]] = {
    "build": FirstBuild,
    "rebuild": Rebuild,
    "repair": Repair,
    "cached build": CachedBuild,
    "prune": Prune,
    "pack": Pack,
}


class Told:
    """A story that was told undisturbed: what was there before, which calls were made, what they changed, and how it ended."""

    def __init__(self, name: str, root: Path) -> None:
        self.story = STORIES[name](root)
        self.story.prepare()
        self.before = scan(self.story.work)
        before = {store: read_manifest(store).fingerprint for store in self._stores()}
        self.damaged = {damage.shard for store in before for damage in verify_store(store)}
        faults = Faults(self.story.work)
        with hooked(faults):
            self.story.happen()
        self.calls = faults.calls
        self.before.write(self.story.work)
        self.recorder = Recorder(self.story.work)
        with hooked(self.recorder):
            self.story.happen()
        assert self.recorder.now.contents() == scan(self.story.work).contents(), "files were changed without io/disk.py"
        after = {store: read_manifest(store).fingerprint for store in self._stores()}
        self.fingerprints = {*before.values(), *after.values()}
        self.lasting = before.keys() & after.keys()  # stores that are there at any moment, old or new
        self.end = self._contents()

    def with_fault(self, number: int, error: str) -> tuple[str, str]:
        """Tell it with a fault, and once more without. Returns how the first ended, and what is wrong: "" if nothing is."""
        self.before.write(self.story.work)
        outcome, wrong = self._disturbed(number, error)
        if outcome == "done":
            wrong = self._wrong_at_the_end()
        return outcome, wrong or self.wrong_for_readers(ended=outcome == "done") or self.wrong_next_time()

    def after_power_failure(self, tree: Tree, *, ended: bool) -> str:
        """Tell it once more after a power failure, before or after it had `ended`. What is wrong: "" if nothing is."""
        tree.write(self.story.work)
        return self.wrong_for_readers(ended=ended) or self.wrong_next_time(power_failed=True)

    def wrong_for_readers(self, *, ended: bool) -> str:
        """A reader may see no store, an unfinished one, or a whole one, old or new. What is there at any moment is never missing.

        When the story has ended, its store is there, and a repaired one is whole.
        """
        lasting = self.lasting | ({self.story.store()} if ended else set())
        damaged = set() if ended else self.damaged
        for store in {*self._stores(), *lasting}:
            try:
                manifest = read_manifest(store)  # and not tm.open, which would note that the store was used
                damages = verify_store(store) if manifest.complete else []
            except MissingStoreError:
                manifest, damages = None, []
            except StoreError as error:
                return f"readers saw: {error}"
            damages = [each for each in damages if each.shard not in damaged and each.file != "events.jsonl"]
            if damages:
                return f"readers saw damage: {damages[0]}"
            if manifest is not None and manifest.complete and manifest.fingerprint not in self.fingerprints:
                return "readers saw another store"
            if store in lasting and (manifest is None or not manifest.complete):
                return "readers saw no store"
        return ""

    def wrong_next_time(self, *, power_failed: bool = False) -> str:
        """The story told again ends as it should. The log is not synced: after a power failure, it may have damaged lines."""
        try:
            self.story.happen()
        except Exception as raised:
            return f"the next run fails: {type(raised).__name__}: {raised}"
        damages = [
            each for each in verify_store(self.story.store()) if not (power_failed and each.file == "events.jsonl")
        ]
        return f"the next run leaves damage: {damages[0]}" if damages else self._wrong_at_the_end()

    def _wrong_at_the_end(self) -> str:
        contents = self._contents()
        names = sorted(name for name in {*contents, *self.end} if contents.get(name) != self.end.get(name))
        return f"it ended with other files: {', '.join(names[:5])}" if names else ""

    def _stores(self) -> list[Path]:
        """The stores that a reader could open."""
        places = [self.story.out, *sorted(self.story.cache.glob("stores/*"))]
        return [place for place in places if place.is_dir() and place.suffix != ".tmp"]

    def _contents(self) -> dict[str, bytes]:
        """The stores' files, except for the log, the index of the input, and what a killed process was writing.

        A file that waits as NAME.next counts as NAME: readers use it, and a build gives it its name (see store/side_files.py).
        """
        return {
            path.relative_to(self.story.work).as_posix().removesuffix(".next"): path.read_bytes()
            for store in self._stores()
            for path in sorted(store.rglob("*"))
            if path.is_file() and not NOT_COMPARED.fullmatch(path.name)
        }

    def _disturbed(self, number: int, error: str) -> tuple[str, str]:
        """Tell the story with a fault: how it ended, and what is wrong with that. "done": the call did not matter."""
        faults = Faults(self.story.work, number, error)
        if error in (DEATH, HALF_THEN_DEATH):
            child = os.fork()
            if not child:
                with hooked(faults), suppress(BaseException):
                    self.story.happen()
                os._exit(1)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            return "died", "" if code == 9 else f"exit {code}"
        try:
            with hooked(faults):
                self.story.happen()
        except TokenmillError:
            return "error", ""
        except Exception as raised:
            return "error", f"{type(raised).__name__}: {raised}"
        return "done", ""
