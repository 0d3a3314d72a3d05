"""Inputs are found, sorted and taken once: paths, globs, folders, lists and links."""

from __future__ import annotations

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


def test_what_was_left_out_is_told(tree):
    left = [path.removeprefix(f"{tree}/") for path in tm.read(tree).left_out]
    assert sorted(left) == ["README.md", "data.unknown", "notes.md.gz", "sub/script.py"]


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
    assert found(tree, *inputs) == found(tree, tree)
    assert found(tree, [tree / "b.jsonl", tree / "a.txt"]) == ["a.txt", "b.jsonl"]


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
