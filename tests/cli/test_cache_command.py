"""tokenmill cache remove and prune: what they remove, what they would remove, and what they say about the rest."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.errors import UsageError


@pytest.fixture(scope="module")
def two_stores(tmp_path_factory):
    """A cache with an old and a new store."""
    folder = tmp_path_factory.mktemp("two")
    for age, text in enumerate(("old " * 3000, "new " * 3000)):
        (folder / f"{age}.txt").write_text(text)
        store = tm.build(
            folder / f"{age}.txt", "bytes", cache_dir=folder / "cache", workers=0, eos="none", engine="reference"
        )
        os.utime(store.path / ".used", (age + 1, age + 1))
    return folder / "cache"


class Cache:
    """A copy of that cache, with the names of its stores."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.old, self.new = sorted(
            self.stores(), key=lambda name: (folder / "stores" / name / ".used").stat().st_mtime
        )

    def stores(self) -> list[str]:
        return [path.name for path in (self.folder / "stores").iterdir()]

    def files(self) -> dict[str, int]:
        return {str(path): path.stat().st_size for path in self.folder.rglob("*") if path.is_file()}


@pytest.fixture
def cache(two_stores, tmp_path, monkeypatch) -> Cache:
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    return Cache(Path(shutil.copytree(two_stores, tmp_path / "cache")))


def run(capsys, *arguments: str) -> tuple[dict, str]:
    assert main(["cache", *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    return json.loads(out), err


@pytest.mark.parametrize("size", ["100", "1", "999999", " 500 "])
def test_a_small_number_without_a_unit_is_refused(size, cache, capsys):
    """Nobody means 100 bytes: nothing is removed."""
    assert main(["cache", "prune", "--max-size", size]) == 2
    number = size.strip()
    assert f"{number} means {number} bytes; write {number}MB or {number}GB, or {number}B" in capsys.readouterr().err
    assert len(cache.stores()) == 2


def test_the_sizes_of_options_need_a_unit_too():
    with pytest.raises(UsageError, match="shard_bytes='4096' has no unit: 4096 means 4096 bytes"):
        tm.build("x", "bytes", "y", shard_bytes="4096")


def test_prune_in_a_dry_run_lists_what_would_go(cache, capsys):
    before = cache.files()
    most = f"{run(capsys, 'list')[0]['bytes'] - 1}B"
    planned, _ = run(capsys, "prune", "--max-size", most, "--dry-run")
    assert (planned["dry_run"], planned["removed"], planned["in_use"]) == (True, [cache.old], [])
    assert planned["freed"] > 12_000
    assert main(["cache", "prune", "--max-size", most, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert f"{cache.old}   " in out
    assert "would remove 1 store, " in out
    assert cache.files() == before
    done, _ = run(capsys, "prune", "--max-size", most)
    assert done == planned | {"dry_run": False}
    assert cache.stores() == [cache.new]


def test_the_beginning_of_a_name_is_enough(cache, capsys):
    shared = cache.old.partition("-")[0]  # of the tokenizer and the options
    assert main(["cache", "remove", shared]) == 2
    assert f"{shared} is ambiguous: {cache.new}, {cache.old}; type more of the name" in capsys.readouterr().err
    for name in ("gone", ""):
        assert main(["cache", "remove", name]) == 3
    assert run(capsys, "verify", cache.new[:-1])[0]["stores"] == {cache.new: []}
    assert run(capsys, "remove", cache.new[:-1], cache.new)[0]["removed"] == [cache.new]
    assert cache.stores() == [cache.old]


def test_remove_in_a_dry_run_lists_what_would_go(cache, capsys):
    before = cache.files()
    planned, _ = run(capsys, "remove", cache.new, "--dry-run")
    assert (planned["dry_run"], planned["removed"]) == (True, [cache.new])
    assert planned["bytes"] > 12_000
    assert cache.files() == before
    assert run(capsys, "remove", cache.new)[0] == planned | {"dry_run": False}
    assert cache.stores() == [cache.old]
    assert main(["cache", "remove", "--all", "--dry-run"]) == 0
    assert cache.old in capsys.readouterr().out
    assert cache.stores() == [cache.old]


@pytest.mark.parametrize("below", ["file", "file/below", "long" * 100])
@pytest.mark.parametrize("verb", ["build", "why", "list", "remove", "prune", "verify"])
def test_a_cache_that_cannot_be_made(verb, below, tmp_path, monkeypatch, capsys):
    """One line that names the folder and the remedy."""
    (tmp_path / "file").write_text("text")
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / below))
    more = {"remove": ["--all"], "prune": ["--max-size", "1GB"]}.get(verb, [])
    if verb in ("build", "why"):
        more = [str(tmp_path / "file"), "-t", "bytes", "--engine", "reference", "--format", "text"]
    assert main(["build", *more] if verb == "build" else ["cache", verb, *more]) == 1
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert err.startswith(f"tokenmill: the cache cannot be in {tmp_path / below}: ")
    assert "; choose another folder with --cache-dir (cache_dir=...) or TOKENMILL_CACHE" in err


def test_only_stores_that_are_in_use_are_said_to_be(cache, capsys):
    """What is left when nothing is in use is not blamed on running processes."""
    used = tm.open(cache.folder / "stores" / cache.old)
    for more in (["--dry-run"], []):
        facts, err = run(capsys, "prune", "--max-size", "100B", *more)
        assert (facts["removed"], facts["in_use"]) == ([cache.new], [cache.old])
        assert err == f"{cache.old} is in use by another process and is kept\n"
    assert main(["cache", "remove", "--all"]) == 1
    assert f"{cache.old} is in use" in capsys.readouterr().err
    del used
    facts, err = run(capsys, "prune", "--max-size", "100B")
    assert (facts["removed"], facts["in_use"], cache.stores()) == ([cache.old], [], [])
    assert "in use" not in err
    assert "no store is left" in err
