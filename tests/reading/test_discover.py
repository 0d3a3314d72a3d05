"""Inputs are found, sorted and taken once: paths, globs, folders, lists and links."""

from __future__ import annotations

import os
import random
from contextlib import contextmanager

import pytest

import tokenmill as tm


@pytest.fixture
def tree(tmp_path):
    for name in (
        "b.jsonl",
        "a.txt",
        "sub/c.jsonl.gz",
        "sub/deep/d.parquet",
        "sub/e.TXT",
        "README.md",
        "sub/script.py",
        "notes.md.gz",
        "data.unknown",
        ".hidden.jsonl",
        ".git/x.jsonl",
        "sub/.cache/y.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return tmp_path


def found(root, *inputs, **options):
    """The files of some inputs, below `root`, in their order."""
    return [file.path.removeprefix(f"{root}/") for file in tm.read(*inputs, **options).files]


def test_folders_are_taken_recursively(tree):
    """Data in a folder is found at any depth, in sorted order; notes, code, hidden and unknown files are left alone."""
    assert found(tree, tree) == ["a.txt", "b.jsonl", "sub/c.jsonl.gz", "sub/deep/d.parquet", "sub/e.TXT"]


def ignored(root, *inputs, **options):
    """What is not read, below `root`, with the reason."""
    return {each.path.removeprefix(f"{root}/"): each.reason for each in tm.read(*inputs, **options).ignored}


def test_everything_that_is_not_read_is_named_with_the_reason(tree):
    os.mkfifo(tree / "sub/pipe.jsonl")
    (tree / "again").symlink_to("sub")
    assert ignored(tree, tree) == {
        ".git": "hidden",
        ".hidden.jsonl": "hidden",
        "README.md": "not a data file (.md)",
        "again": "a link to a folder that is read by another name",
        "data.unknown": "not a data file (.unknown)",
        "notes.md.gz": "not a data file (.gz)",
        "sub/.cache": "hidden",
        "sub/pipe.jsonl": "a pipe, socket or device",
        "sub/script.py": "not a data file (.py)",
    }
    assert tm.read(tree).ignored_by_reason["hidden"] == 3
    everything = {entry for folder, _, names in os.walk(tree) for entry in (f"{folder}/{name}" for name in names)}
    source = tm.read(tree)
    accounted = {file.path for file in source.files} | {each.path for each in source.ignored}
    missing = {path for path in everything if not any(path == one or path.startswith(f"{one}/") for one in accounted)}
    assert not missing


def test_folders_that_a_glob_matches_are_named_unless_their_files_are_read(tree):
    assert ignored(tree, f"{tree}/[as]*") == {"sub": "a folder that a glob matched"}
    assert ignored(tree, f"{tree}/**/*.[jp]*", f"{tree}/sub/**", format="text") == {}


@pytest.mark.parametrize("names", [("shards", "manifest.json"), ("builds", "listing.json", "seen.json")])
def test_a_folder_that_only_looks_like_a_store_is_data(tmp_path, names):
    """A store is recognised by what its manifest says, not by the names of its files."""
    folder, *files = names
    (tmp_path / "dclm" / folder).mkdir(parents=True)
    for name in (f"{folder}/0.jsonl", *files):
        (tmp_path / "dclm" / name).write_text('{"text": "x"}\n')
    assert found(tmp_path, tmp_path) == sorted(f"dclm/{name}" for name in (f"{folder}/0.jsonl", *files))
    assert ignored(tmp_path, tmp_path) == {}


@pytest.mark.parametrize("place", ["out", "cache"])
def test_a_store_among_the_files_is_named(tmp_path, place, jsonl):
    where = {"out": tmp_path / "data/old"} if place == "out" else {"cache_dir": tmp_path / "data/cache"}
    store = tm.build(jsonl(["a", "b"]), "bytes", **where, workers=0, progress="quiet")
    (tmp_path / "data/new.jsonl").write_text('{"text": "x"}\n')
    assert found(tmp_path, tmp_path / "data") == ["data/new.jsonl"]
    stores = [path for path, reason in ignored(tmp_path, tmp_path / "data").items() if reason == "a token store"]
    assert any(f"{store.path}/".startswith(f"{tmp_path / path}/") for path in stores)
    made = tm.build(tmp_path / "data", "bytes", tmp_path / "next", workers=0, progress="quiet")
    assert len(made) == 1
    assert made._manifest.source["ignored_by_reason"]["a token store"] >= 1
    assert [path for path, reason in made._manifest.source["ignored"] if reason == "a token store"]


def test_the_order_in_which_a_folder_is_listed_does_not_matter(tmp_path, monkeypatch):
    """Of two names of a folder its own one is kept, not that of a link, and of two links the first by name."""
    for name in ("m", "real"):
        (tmp_path / "tree" / name).mkdir(parents=True)
        (tmp_path / "tree" / name / "a.txt").write_bytes(b"")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/b.txt").write_bytes(b"")
    for link, target in (("a", "real"), ("z", "m"), ("y", "../elsewhere"), ("x", "../elsewhere")):
        (tmp_path / "tree" / link).symlink_to(target)
    listings = []
    for turn in range(8):
        with monkeypatch.context() as patch:
            patch.setattr("tokenmill.reading.discover.os.scandir", shuffled_scandir(turn))
            listings.append(found(tmp_path, tmp_path / "tree"))
    assert listings == [["tree/m/a.txt", "tree/real/a.txt", "tree/x/b.txt"]] * 8


def shuffled_scandir(seed):
    """os.scandir with its entries in another order."""

    @contextmanager
    def scandir(path):
        with scan(path) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        random.Random(seed).shuffle(listed)
        yield iter(listed)

    scan = os.scandir
    return scandir


def test_a_format_takes_every_visible_file(tree):
    """With a format said aloud nothing is guessed from names."""
    names = found(tree, tree, format="text")
    assert {"README.md", "data.unknown", "sub/script.py", "notes.md.gz"} <= set(names)
    assert not any(part.startswith(".") for name in names for part in name.split("/"))


def test_globs(tree):
    """Globs match files, not folders or hidden files; `**` goes deep; prose that is asked for is taken."""
    assert found(tree, str(tree / "*.jsonl")) == ["b.jsonl"]
    assert found(tree, str(tree / "**" / "*.jsonl*")) == ["b.jsonl", "sub/c.jsonl.gz"]
    assert found(tree, str(tree / "*.md")) == ["README.md"]
    assert found(tree, str(tree / "[ab].*")) == ["a.txt", "b.jsonl"]


def test_a_name_with_magic_in_it_is_a_name_first(tree):
    (tree / "c[1].txt").write_bytes(b"")
    assert found(tree, str(tree / "c[1].txt")) == ["c[1].txt"]


def test_a_hidden_file_that_is_named_is_taken(tree):
    assert found(tree, tree / ".hidden.jsonl") == [".hidden.jsonl"]


def test_files_are_taken_once_in_sorted_order(tree):
    """However often and in whatever order inputs name a file."""
    inputs = [tree / "sub", tree / "b.jsonl", str(tree / "*.jsonl"), tree / "a.txt", f"{tree}/sub/../b.jsonl", tree]
    with pytest.warns(UserWarning, match=rf"given more than once, and read once: {tree}/b\.jsonl$"):
        assert found(tree, *inputs) == found(tree, tree)
    assert found(tree, [tree / "b.jsonl", tree / "a.txt"]) == ["a.txt", "b.jsonl"]


@pytest.mark.parametrize("name", ["empty", "code", "nothing.list"])
def test_an_input_without_files_is_named(tree, name):
    """Also beside others that have some."""
    (tree / "empty").mkdir()
    (tree / "code").mkdir()
    (tree / "code/a.py").write_text("1\n")
    (tree / "nothing.list").write_text("\n")
    item = f"@{tree}/{name}" if "." in name else tree / name
    why = r" \(ignored: not a data file \(\.py\): 1\)" if name == "code" else ""
    with pytest.raises(tm.errors.UsageError, match=f"no file to read in .*{tree}/{name}{why}; "):
        tm.read(tree / "b.jsonl", item)


def test_lists_of_inputs(tree):
    """@list names one input a line: files, globs, folders, other lists; blank lines are nothing."""
    (tree / "inner.list").write_text(f"{tree}/sub/deep\n")
    (tree / "outer.list").write_text(f"{tree}/b.jsonl\n\n  {tree}/*.txt  \n@{tree}/inner.list\n")
    assert found(tree, f"@{tree}/outer.list") == ["a.txt", "b.jsonl", "sub/deep/d.parquet"]


def test_links_that_go_in_circles(tree):
    """A link back up is followed once and no further."""
    (tree / "sub" / "deep" / "up").symlink_to(tree, target_is_directory=True)
    (tree / "again").symlink_to(tree / "again", target_is_directory=True)
    assert found(tree, tree / "b.jsonl", tree / "sub" / "deep" / "d.parquet") == ["b.jsonl", "sub/deep/d.parquet"]
    names = found(tree, tree / "sub")
    assert names == sorted(set(names))
    assert sum(name.endswith("d.parquet") for name in names) == 1
    assert sum(name.endswith("b.jsonl") for name in names) == 1


def test_a_linked_folder_is_read(tree, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "z.jsonl").write_bytes(b"")
    (tree / "link").symlink_to(elsewhere, target_is_directory=True)
    assert "link/z.jsonl" in found(tree, tree)
