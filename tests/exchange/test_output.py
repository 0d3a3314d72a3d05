"""The folder of an export: forged lists of files, failures while several files are written, two exports at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokenmill.errors import BuildError, LockedError
from tokenmill.exchange.output import JOURNAL, RECEIPT, IndexFile, Output, OutputFile, read_receipt
from tokenmill.io.checked_lines import CheckedLines
from tokenmill.store.shard import sealed

ENTRY = {"bytes": 1, "checksum": "", "key": "", "mtime_ns": 0}


def file(name: str, body: bytes) -> OutputFile:
    return OutputFile(name, body.decode(), lambda out: out.write(body))


@pytest.mark.parametrize("name", ["../mine.txt", "a/../../mine.txt", "{folder}/mine.txt"])
@pytest.mark.parametrize("where", [RECEIPT, JOURNAL])
def test_a_forged_list_removes_nothing_elsewhere(tmp_path, name, where):
    (tmp_path / "mine.txt").write_text("mine")
    out = tmp_path / "out"
    out.mkdir()
    name = name.format(folder=tmp_path)
    if where == RECEIPT:
        body = {"id": RECEIPT, "version": 1, "facts": {}, "files": {name: ENTRY}, "indexes": [name]}
        (out / RECEIPT).write_bytes(sealed(body))
        assert read_receipt(out) is not None
    else:
        journal = CheckedLines(out / JOURNAL)
        journal.append({"name": name, **ENTRY})
        journal.close()
    with Output(out) as output:
        output.write({}, [file("a", b"a")], [])
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert list(read_receipt(out)["files"]) == ["a"]


def test_a_failure_stops_the_other_files(tmp_path):
    """A file that fails ends the others soon, and what was finished is kept for the next run."""

    def fail(out) -> None:
        raise OSError(28, "No space left on device")

    def endless(out) -> None:
        while True:
            out.write(b"x")

    with pytest.raises(BuildError, match="No space left"), Output(tmp_path / "out") as output:
        output.write({}, [OutputFile("endless", 1, endless), OutputFile("fails", 2, fail)], [])
    assert [path.name for path in (tmp_path / "out").iterdir()] == [JOURNAL]
    with Output(tmp_path / "out") as output:
        assert output.write({}, [file("a", b"a")], []) == 1
    assert (tmp_path / "out" / "a").read_bytes() == b"a"


def test_an_index_is_gone_before_what_it_describes_changes(tmp_path):
    seen: list[bool] = []

    def data(body: bytes) -> OutputFile:
        def write(out) -> None:
            seen.append((tmp_path / "out" / "index").exists())
            out.write(body)

        return OutputFile("data", body.decode(), write)

    def index(body: bytes) -> IndexFile:
        return IndexFile(
            "index", body.decode(), lambda out, written: out.write(json.dumps(written["data"].bytes).encode())
        )

    for body in (b"one", b"three"):
        with Output(tmp_path / "out") as output:
            output.write({}, [data(body)], [index(body)])
        assert (tmp_path / "out" / "index").read_text() == str(len(body))
    assert seen == [False, False]


def test_two_at_once(tmp_path):
    with Output(tmp_path / "out"), pytest.raises(LockedError, match="another build"), Output(Path(tmp_path / "out")):
        pass


def test_a_forged_list_beside_a_file_removes_nothing_else(tmp_path):
    """Other files of the folder are not those of an export that is one file."""
    (tmp_path / "mine.txt").write_text("mine")
    body = {"id": RECEIPT, "version": 1, "facts": {}, "files": {"mine.txt": ENTRY}, "indexes": ["mine.txt"]}
    (tmp_path / f".a{RECEIPT}").write_bytes(sealed(body))
    with Output(tmp_path, file="a") as output:
        output.write({}, [file("a", b"a")], [])
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert list(read_receipt(tmp_path / "a")["files"]) == ["a"]
