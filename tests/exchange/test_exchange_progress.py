"""How much of an export or an import is done: percent, rate and time left, on a terminal."""

from __future__ import annotations

import sys

import pytest

import tokenmill as tm
from tokenmill.cli import main, progress_line
from tokenmill.exchange.api import export_files
from tokenmill.exchange.importing import import_files
from tokenmill.exchange.registry import FORMATS
from tokenmill.options import ExportArguments, ImportArguments
from tokenmill.testing.exchange import EOS, contents, make_store, some_documents


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("progress") / "made", some_documents(250), "uint16")


@pytest.mark.parametrize("format", FORMATS)
def test_from_nothing_to_all(store, tmp_path, format):
    seen: list[tuple[int, int]] = []
    rows = {} if "documents" in FORMATS[format].takes else {"seq_len": 64}
    arguments = ExportArguments(tmp_path / "out", format=format, **rows)
    done = export_files(store, arguments, lambda *each: seen.append(each))
    totals = {total for _, total in seen}
    assert totals == {seen[-1][0]}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[0][0] > 0
    assert 0.5 < totals.pop() / done.bytes < 2
    seen.clear()
    assert export_files(store, arguments, lambda *each: seen.append(each)).written == 0
    assert seen == []

    if rows:
        return
    import_files(tmp_path / "out", ImportArguments(tmp_path / "again"), lambda *each: seen.append(each))
    size = sum(map(len, contents(tmp_path / "out").values()))  # read once for the checksums, and the ids again
    assert size < seen[-1][0] == seen[-1][1] <= 2 * size
    assert 0 < seen[0][0] <= seen[-1][0]


def test_what_is_left_of_an_export(store, tmp_path):
    """Files that are there already are no part of the total."""
    arguments = ExportArguments(tmp_path / "out", format="datatrove", tokens_per_file=5000)
    export_files(store, arguments)
    (tmp_path / "out" / "00001.ds").unlink()
    seen: list[tuple[int, int]] = []
    export_files(store, arguments, lambda *each: seen.append(each))
    size = (tmp_path / "out" / "00001.ds").stat().st_size
    assert seen[-1] == (size, size)


@pytest.mark.parametrize(
    ("done", "total", "seconds", "said"),
    [
        (370, 1000, 1.0, "37% of 1.0 kB, 370 B/s, 2 s left"),
        (0, 1000, 1.0, "0 B, 0 B/s"),
        (10**9, 4 * 10**9, 100.0, "25% of 4.0 GB, 10.0 MB/s, 5 min left"),
        (10, 10, 0.0, "100% of 10 B, 10.0 GB/s, 1 s left"),
    ],
)
def test_in_words(done, total, seconds, said):
    assert progress_line.progress_text(done, total, seconds) == said


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_on_a_terminal(store, tmp_path, monkeypatch, capsys, is_terminal, quiet):
    monkeypatch.setattr(progress_line, "SECONDS", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    out, again = str(tmp_path / "out"), str(tmp_path / "again")
    for command in (["export", str(store.path), out, "--format", "megatron"], ["import", out, again]):
        assert main([*command, *quiet]) == 0
        said = capsys.readouterr().err
        assert ("100% of" in said and "left" in said) is (is_terminal and not quiet)
        assert said == "" or said.endswith("\r\x1b[K")
    assert tm.open(again).tokenizer.eos_id == EOS
