"""Files and tokenizers that crash the library that reads them: the process survives, and the file is named.

A sitecustomize.py makes the libraries crash in the child processes at files whose name or content says so.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading_files import write_arrow

import tokenmill as tm
from tokenmill import child_process
from tokenmill.child_process import ChildDied, Children
from tokenmill.cli import main
from tokenmill.encoding import parsing
from tokenmill.errors import InputError, TokenizerError
from tokenmill.reading import Piece, isolation, read_piece, rows_before, split
from tokenmill.reading.raw_rows import raw_row

CRASHING = """
import os, sys
if "tokenmill.reading.reading_process" in sys.orig_argv:
    import pyarrow as pa, pyarrow.parquet as pq
    def crashing(function):
        def call(file, *args, **kwargs):
            if "deadly" in str(getattr(file, "name", file)):
                os.abort()
            return function(file, *args, **kwargs)
        return call
    pq.read_schema, pq.read_metadata = crashing(pq.read_schema), crashing(pq.read_metadata)
    pq.ParquetFile, pa.memory_map = crashing(pq.ParquetFile), crashing(pa.memory_map)
if "tokenmill.encoding.parsing" in sys.orig_argv:
    import tokenizers
    class Tokenizer:
        def from_str(body):
            if "deadly" in body:
                os.abort()
            if "panics" in body:
                raise BaseException("called `Option::unwrap()` on a `None` value")
            return loaded(body)
    loaded = tokenizers.Tokenizer.from_str
    tokenizers.Tokenizer = Tokenizer
"""


@pytest.fixture
def crashes(tmp_path, monkeypatch):
    """Libraries crash at deadly files, in child processes that are started from now on."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(CRASHING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=os.pathsep)
    monkeypatch.setattr(isolation, "_children", Children("tokenmill.reading.reading_process"))
    monkeypatch.setattr(parsing, "_children", Children("tokenmill.encoding.parsing"))


@pytest.fixture
def folder(tmp_path):
    """Two good files, and between them one of each format that is deadly."""
    data = tmp_path / "data"
    data.mkdir()
    for name in ("a", "deadly", "z"):
        table = pa.table({"text": [f"{name} {i}" for i in range(100)]})
        pq.write_table(table, data / f"{name}.parquet", row_group_size=10)
        write_arrow(data / f"{name}.arrow", table)
    return data


def documents(path, **options) -> list[str]:
    source = tm.read(path, **options)
    pieces = [piece for file in source.files for piece in split(file, source, 300)]
    return [text for piece in pieces for texts in read_piece(piece, source, 64) for text in texts.values.to_pylist()]


@pytest.mark.usefixtures("crashes")
@pytest.mark.parametrize("workers", [0, None])
def test_a_build_without_workers_survives(folder, tmp_path, workers):
    store = tm.build(folder, "bytes", tmp_path / "store", workers=workers, progress="quiet")
    failed = {os.path.basename(entry["file"]): entry["error"] for entry in store._manifest.failed}
    assert failed.keys() == {"deadly.arrow", "deadly.parquet"}
    assert "the library that reads parquet files crashed (SIGABRT) at this file" in failed["deadly.parquet"]
    assert len(store) == 400


@pytest.mark.usefixtures("crashes")
def test_a_plan_survives(folder, tmp_path):
    """Large enough to be split, it stays whole, and fails when it is read; the first of the files decides nothing."""
    (folder / "a.parquet").rename(folder / "y.parquet")
    (folder / "deadly.parquet").rename(folder / "a-deadly.parquet")
    store = tm.build(folder, "bytes", tmp_path / "store", workers=0, shard_bytes=1024, progress="quiet")
    assert len(store) == 400
    assert len(store._manifest.failed) == 2


@pytest.mark.usefixtures("crashes")
def test_an_estimate_survives(folder):
    estimate = tm.estimate(folder, "bytes")
    said = " ".join(finding.what for finding in estimate.warnings)
    assert "deadly.arrow" in said
    assert "deadly.parquet" in said
    assert estimate.documents == 400


@pytest.mark.usefixtures("crashes")
@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
def test_showing_a_row_survives(folder, suffix):
    source = tm.read(folder / f"a{suffix}", folder / f"deadly{suffix}")
    good, deadly = source.files
    with pytest.raises(InputError, match=rf"deadly\{suffix}: the library that reads {suffix[1:]} files crashed"):
        raw_row(deadly, source, 0)
    assert raw_row(good, source, 57).text == "a 57"


@pytest.mark.usefixtures("crashes")
def test_a_single_deadly_file_is_an_error_that_names_it(folder, tmp_path, capsys):
    command = ["build", str(folder / "deadly.parquet"), "-t", "bytes", "-o", str(tmp_path / "store"), "--workers", "0"]
    assert main(command) == 1
    assert "deadly.parquet" in capsys.readouterr().err


def test_blocks_and_digests_are_those_of_this_process(folder, tmp_path, monkeypatch):
    """Also of a caller that stops in the middle, and asks other things meanwhile."""
    names = [folder / "a.parquet", folder / "z.arrow"]
    source = tm.read(names)
    pieces = [piece for file in source.files for piece in split(file, source, 300)]
    assert len(pieces) > 5
    stopped = [next(iter(read_piece(piece, source, 64))).values.to_pylist() for piece in pieces]
    before = [rows_before(piece, source) for piece in pieces]
    isolated = documents(names), stopped, before, tm.build(names, "bytes", tmp_path / "1", workers=0).fingerprint
    monkeypatch.setattr("tokenmill.reading.formats._this_process_may_crash", True)
    stopped = [next(iter(read_piece(piece, source, 64))).values.to_pylist() for piece in pieces]
    before = [rows_before(piece, source) for piece in pieces]
    here = documents(names), stopped, before, tm.build(names, "bytes", tmp_path / "2", workers=0).fingerprint
    assert isolated == here
    assert len(here[0]) == 200
    shards = [sorted(path.name for path in (tmp_path / name / "shards").iterdir()) for name in "12"]
    assert shards[0] == shards[1]  # named by the digests of what was read


def test_a_child_that_stops_answering(folder, monkeypatch):
    """Stopped, as by a hung disk: it is given up after a while, and the next file is read by another."""
    children = Children("tokenmill.reading.reading_process")
    monkeypatch.setattr(isolation, "_children", children)
    assert len(documents(folder / "a.parquet")) == 100
    [idle] = children._idle
    os.kill(idle._process.pid, signal.SIGSTOP)
    monkeypatch.setattr(child_process, "LIMIT_SECONDS", 0.1)
    source = tm.read(folder / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet: the library that reads parquet files gave no answer in 0 s"):
        list(read_piece(Piece(source.files[0]), source))
    monkeypatch.setattr(child_process, "LIMIT_SECONDS", 60)
    assert len(documents(folder / "a.parquet")) == 100


@pytest.mark.parametrize("is_noticed", [True, False], ids=["before", "at the same time"])
def test_a_child_that_ended_is_replaced(folder, monkeypatch, is_noticed):
    """It ends when it has had nothing to do for a while, which may be just when a file is to be read."""
    children = Children("tokenmill.reading.reading_process")
    monkeypatch.setattr(isolation, "_children", children)
    assert len(documents(folder / "a.parquet")) == 100
    [idle] = children._idle
    idle._in.close()
    assert idle._process.wait(10) == 0
    if not is_noticed:
        monkeypatch.setattr(idle, "is_alive", lambda: True)
    assert len(documents(folder / "a.parquet")) == 100
    assert children._idle[0]._process.poll() is None


def test_no_child_outlives_its_process(folder):
    code = f"""
import os, tokenmill as tm
from tokenmill.reading import isolation, read_piece, Piece
source = tm.read({str(folder / "a.parquet")!r})
blocks = read_piece(Piece(source.files[0]), source, 64)
next(blocks)
list(read_piece(Piece(source.files[0]), source))
print(isolation._children._idle[0]._process.pid)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    with pytest.raises(ProcessLookupError):
        os.kill(int(ran.stdout), 0)


@pytest.mark.usefixtures("crashes")
@pytest.mark.parametrize("mark", ["deadly", "panics"])
def test_a_tokenizer_that_crashes_its_library(tokenizer_path, tmp_path, monkeypatch, mark):
    """Whichever engine is asked for."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    body = json.loads((tokenizer_path / "tokenizer.json").read_text("utf-8"))
    body["model"]["vocab"][mark] = len(body["model"]["vocab"]) + 10
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(body))
    said = "crashed (SIGABRT)" if mark == "deadly" else "Option::unwrap"
    for engine in ("auto", "reference"):
        with pytest.raises(TokenizerError) as raised:
            tm.load_tokenizer(path, engine=engine)
        assert str(path) in str(raised.value)
        assert said in str(raised.value)


def test_a_crash_is_not_blamed_on_a_child_that_cannot_start(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ChildDied, match="exit 1"), Children("json").lend() as child:
        child.call({})


def test_where_no_process_can_be_started(folder, monkeypatch, tokenizer_path, tmp_path):
    """Files and tokenizers are read in this process."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(isolation, "_children", Children("tokenmill.reading.reading_process"))
    monkeypatch.setattr(parsing, "_children", Children("tokenmill.encoding.parsing"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "forbidden"))
    source = tm.read(folder / "a.parquet")
    assert len(documents(folder / "a.parquet")) == 100
    assert [rows_before(piece, source) for piece in split(source.files[0], source, 300)][-1] > 0
    assert tm.load_tokenizer(tokenizer_path, engine="reference").vocab_size
