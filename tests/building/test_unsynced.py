"""The model of power failures: what is synced lasts, and anything else may be lost in any combination."""

from __future__ import annotations

import os

import pytest
from io_faults import hooked
from unsynced import Recorder, scan, states_after

from tokenmill.io import disk
from tokenmill.io.atomic import write_atomically


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_bytes(b"old")
    return folder


def states(recorder: Recorder, draws: int = 40) -> set[tuple[tuple[str, bytes | None], ...]]:
    """What may be in the folder after all steps."""
    trees = states_after(recorder, len(recorder.steps), draws)
    return {tuple(sorted(tree.contents().items())) for tree in trees}


def replace_file(folder, *, sync):
    with disk.open_to_write(folder / "new") as out:
        out.write(b"1234")
        if sync:
            disk.sync(out)
    disk.replace(folder / "new", folder / "file")


def test_a_rename_without_a_sync_may_lose_the_data(folder):
    with hooked(recorder := Recorder(folder)):
        replace_file(folder, sync=False)
    found = states(recorder)
    assert {dict(state).get("file") for state in found} == {b"old", b"", b"12", b"\0\0\0\0", b"1234"}


def test_a_synced_file_is_the_old_one_or_the_new_one(folder):
    with hooked(recorder := Recorder(folder)):
        replace_file(folder, sync=True)
    assert states(recorder) == {
        (("file", b"old"),),
        (("file", b"old"), ("new", b"1234")),
        (("file", b"1234"),),
    }


def test_what_was_written_atomically_lasts(folder):
    with hooked(recorder := Recorder(folder)):
        write_atomically(folder / "file", b"1234")
        write_atomically(folder / "other", b"5678")
    assert states(recorder) == {(("file", b"1234"), ("other", b"5678"))}


def test_a_removed_file_may_come_back(folder):
    with hooked(recorder := Recorder(folder)):
        disk.unlink(folder / "file")
        assert states(recorder) == {(), (("file", b"old"),)}
        disk.sync_folder(folder)
    assert states(recorder) == {()}


def test_a_file_in_a_folder_that_was_lost_is_lost(folder):
    with hooked(recorder := Recorder(folder)):
        recorder("mkdir", os.mkdir, folder / "inner")  # disk.make_folder would sync
        write_atomically(folder / "inner" / "file", b"1234")
    assert states(recorder) == {
        (("file", b"old"),),
        (("file", b"old"), ("inner", None), ("inner/file", b"1234")),
    }


def test_a_moved_folder_is_in_one_of_two_places(folder):
    disk.make_folder(folder / "here" / "inner")
    disk.make_folder(folder / "there")
    with hooked(recorder := Recorder(folder)):
        disk.replace(folder / "here" / "inner", folder / "there" / "inner")
    places = [{name for name, _ in state if name.endswith("inner")} for state in states(recorder)]
    assert sorted(map(sorted, places)) == [["here/inner"], ["there/inner"]]


def test_links_share_their_data_and_appended_lines_may_be_cut(folder):
    with hooked(recorder := Recorder(folder)):
        disk.link(folder / "file", folder / "link")
        disk.sync_folder(folder)
        with disk.open_file(folder / "file", "ab") as out:
            out.write(b"1234")
    found = states(recorder)
    assert {dict(state)["link"] for state in found} == {b"old", b"old12", b"old\0\0\0\0", b"old1234"}
    assert all(dict(state)["link"] == dict(state)["file"] for state in found)


def test_a_tree_is_written_as_it_was(folder, tmp_path):
    disk.make_folder(folder / "inner")
    disk.link(folder / "file", folder / "inner" / "link")
    tree = scan(folder)
    tree.write(tmp_path / "copy")
    assert (
        scan(tmp_path / "copy").contents() == tree.contents() == {"file": b"old", "inner": None, "inner/link": b"old"}
    )
    assert (tmp_path / "copy" / "file").stat().st_nlink == 2
    assert (tmp_path / "copy" / "file").stat().st_mtime_ns == (folder / "file").stat().st_mtime_ns
