"""Faults at every step: whichever call on the file system fails, the next run gives the same store, and readers see a whole one.

Each story below is told once undisturbed, and then again with its Nth call on the file system failing or ending the process, for
a sample of N, and in `make stress` for every N.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from handmade_stores import flip
from io_faults import DEATH, Faults

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.errors import CorruptError, StoreError, TokenmillError
from tokenmill.store.integrity import verify_store
from tokenmill.store.manifest import read_manifest

OPTIONS = {"shard_bytes": "2KB", "workers": 0, "engine": "reference", "progress": "quiet"}
ERRORS = [errno.EIO, errno.ENOSPC, errno.EACCES, errno.EINTR, DEATH]
SAMPLE = 12  # calls of each story that fail in the default run
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def faults() -> Faults:
    return Faults()


class Story:
    """A folder before, something that happens in it, and the store that must be there at the end."""

    def __init__(self, root: Path, tokenizer: Path) -> None:
        self.root, self.tokenizer = root, tokenizer
        self.data, self.out, self.cache = root / "data", root / "store", root / "cache"

    def prepare(self) -> None:
        self.data.mkdir(parents=True)
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
        tm.build(self.data, self.tokenizer, self.out, **OPTIONS)


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
        code = main(["verify", str(self.out), "--repair"])
        if code:
            raise TokenmillError(f"exit {code}")


class CachedBuild(Story):
    def happen(self) -> None:
        tm.build(self.data, self.tokenizer, cache_dir=self.cache, **OPTIONS)

    def store(self) -> Path:
        [path] = (path for path in self.cache.glob("stores/*") if read_manifest(path).complete)
        return path


class Prune(CachedBuild):
    """Nothing is left of the older of two stores, and all of the newer."""

    def prepare(self) -> None:
        super().prepare()
        super().happen()
        older = set(self.cache.glob("stores/*"))
        for path in self.cache.rglob(".used"):
            os.utime(path, (1, 1))
        self.write(1, "other")
        super().happen()

        [newest] = (path for path in self.cache.glob("stores/*") if path not in older)
        self.room = sum(path.stat().st_size for path in newest.rglob("*") if path.is_file()) * 5 // 4

    def happen(self) -> None:
        code = main(["cache", "prune", "--max-size", f"{self.room}", "--cache-dir", str(self.cache)])
        if code:
            raise TokenmillError(f"exit {code}")


STORIES: dict[str, Callable[[Path, Path], Story]] = {
    "build": FirstBuild,
    "rebuild": Rebuild,
    "repair": Repair,
    "cached build": CachedBuild,
    "prune": Prune,
}


def shards_of(store: Path) -> dict[str, bytes]:
    """The shards. What a killed process leaves of a file it was writing is removed by the next build, not by a repair."""
    paths = sorted(path for path in (store / "shards").iterdir() if path.suffix != ".tmp")
    return {path.name: path.read_bytes() for path in paths}


def whole_or_unfinished(store: Path) -> bool:
    """What a reader may see: no store, one that says it is not complete, or one in which everything is right."""
    try:
        manifest = read_manifest(store)  # and not tm.open, which would note that the store was used
    except CorruptError:
        return False
    except StoreError:
        return True
    return not manifest.complete or [each for each in verify_store(store) if each.file != "events.jsonl"] == []


@pytest.mark.parametrize("thorough", [False, pytest.param(True, marks=pytest.mark.stress)], ids=["some", "all"])
@pytest.mark.parametrize("name", STORIES)
def test_any_call_may_fail(faults, tokenizer_path, tmp_path, name, thorough, capsys):
    before, work = tmp_path / "before", tmp_path / "work"
    told = STORIES[name](work, tokenizer_path)
    told.prepare()
    shutil.copytree(work, before, symlinks=True)
    faults.arm(work)
    told.happen()
    faults.disarm()
    count, expected = faults.count, shards_of(told.store())
    assert count > 20
    wrong, outcomes = [], {}
    step = 1 if thorough else max(1, count // SAMPLE)
    for fails_at in range(1, count + 1, step):
        error = ERRORS[fails_at // step % len(ERRORS)]
        shutil.rmtree(work)
        shutil.copytree(before, work, symlinks=True)
        outcome = disturbed(faults, told, fails_at, error)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if outcome not in ("error", "done", "died"):
            wrong.append((fails_at, error, outcome))
        if name != "repair" and not all(map(whole_or_unfinished, [told.out, *told.cache.glob("stores/*")])):
            wrong.append((fails_at, error, "a reader saw something broken"))
        told.happen()
        if shards_of(told.store()) != expected or verify_store(told.store()):
            wrong.append((fails_at, error, "the next run gives something else"))
    assert not wrong, f"{len(wrong)} of {count} calls: {wrong[:8]}"
    assert outcomes["error"]
    assert outcomes["died"]


def disturbed(faults: Faults, story: Story, fails_at: int, error: int) -> str:
    """Tell a story with a fault. "done": the call did not matter. Anything but "error", "done" or "died" is wrong."""
    if error == DEATH:
        child = os.fork()
        if not child:
            faults.arm(story.root, fails_at, error)
            story.happen()
            os._exit(0)
        return "died" if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in (0, 9) else "crashed"
    faults.arm(story.root, fails_at, error)
    try:
        story.happen()
    except TokenmillError:
        return "error"
    except Exception as raised:
        return f"{type(raised).__name__} at {faults.failed}: {raised}"
    finally:
        faults.disarm()
    return "done"
