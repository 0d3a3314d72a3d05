"""A real S3 server: builds from it and into it, kills of the builder and of the server, races, slices."""

from __future__ import annotations

import glob
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import s3_server

import tokenmill as tm
from remote.conftest import build_command, put, run_build
from tokenmill.io import object_store

SHARD = ("--shard-bytes", "100KB", "-t", "demo")
pytestmark = pytest.mark.server
KILLS = int(os.environ.get("TEST_KILLS", "20"))
SERVER_KILLS = int(os.environ.get("TEST_SERVER_KILLS", "5"))  # each takes half a minute
RACES = int(os.environ.get("TEST_RACES", "100"))


@pytest.fixture(scope="module")
def local(corpus, tmp_path_factory):
    return run_build(corpus, *SHARD, "-o", tmp_path_factory.mktemp("local") / "store")


def test_from_a_bucket_and_into_one(s3, corpus, local, own_cache, alone):
    put(f"{s3}/corpus", corpus)
    facts = run_build(f"{s3}/corpus", *SHARD, "-o", f"{s3}/store", "--workers", "2")
    assert facts["fingerprint"] == local["fingerprint"]
    assert facts["path"] == f"{s3}/store"
    command = [sys.executable, "-m", "tokenmill", "verify", f"{s3}/store"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    folder = tm.open(local["path"])
    size = sum(map(os.path.getsize, glob.glob(f"{folder.path}/shards/*.npy")))
    store = tm.open(f"{s3}/store", shard_cache=size // 10)
    for one, other in zip(
        *(tm.load(each, seq_len=128, batch_size=8, epochs=1) for each in (store, folder)), strict=True
    ):
        assert np.array_equal(one["input_ids"], other["input_ids"])


FORKED = """
import multiprocessing, sys, warnings
import tokenmill as tm
warnings.simplefilter("ignore")
store = tm.open(sys.argv[1])
def read(queue):
    queue.put(store[0].tolist())
queue = multiprocessing.get_context("fork").Queue()
child = multiprocessing.get_context("fork").Process(target=read, args=(queue,))
child.start()
assert queue.get(timeout=60) == store[0].tolist()
child.join()
from torch.utils.data import DataLoader
loader = tm.load(store, seq_len=64, batch_size=4, epochs=1)
batches = list(DataLoader(loader.dataset(), batch_size=None, num_workers=2))
assert len(batches) == len(loader)
"""


def test_a_process_that_is_forked_reads_the_store(s3, corpus, local, own_cache):
    """Torch's loader workers are such processes. The shards are not on this machine yet."""
    put(f"{s3}/corpus", corpus)
    run_build(f"{s3}/corpus", *SHARD, "-o", f"{s3}/store")
    done = subprocess.run([sys.executable, "-c", FORKED, f"{s3}/store"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_no_secret_is_written_or_shown(s3, corpus, own_cache, server):
    put(f"{s3}/corpus", corpus)
    command = build_command(f"{s3}/corpus", *SHARD, "-o", f"{s3}/store", "-v")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wrong = {**os.environ, "AWS_SECRET_ACCESS_KEY": s3_server.SECRET + "x"}
    denied = subprocess.run(command, capture_output=True, text=True, env=wrong)
    assert denied.returncode == 2
    assert "access denied" in denied.stderr
    shown = done.stdout + done.stderr + denied.stdout + denied.stderr
    assert s3_server.SECRET not in shown
    assert "Signature" not in shown
    for each in object_store.listing(s3):
        assert s3_server.SECRET.encode() not in object_store.read(each.url)
    for path in Path(own_cache).rglob("*"):
        assert not path.is_file() or s3_server.SECRET.encode() not in path.read_bytes()


def test_a_server_that_is_away_is_waited_for_and_then_named(s3, corpus, tmp_path, own_cache, monkeypatch, server):
    put(f"{s3}/corpus", corpus)
    source = tm.read(f"{s3}/corpus/plain.jsonl")
    server.kill()
    object_store._store.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(object_store, "RETRY_SECONDS", 1)
        with pytest.raises(tm.errors.UnreachableError, match=r"connection was refused|did not answer"):
            tm.build(source, "demo", tmp_path / "store", workers=0, progress="quiet")
    object_store._store.cache_clear()
    server.start()  # it may take some seconds until it answers
    assert not tm.build(source, "demo", tmp_path / "store", workers=0, progress="quiet").failed


def test_a_builder_that_is_killed_at_any_moment_is_continued(s3, corpus, local, own_cache):
    put(f"{s3}/corpus", corpus)
    moments = random.Random(0)
    for number in range(KILLS):
        arguments = (f"{s3}/corpus", *SHARD, "-o", f"{s3}/store{number}", "--workers", str(number % 3))
        builder = subprocess.Popen(build_command(*arguments, "-q"), stdout=subprocess.DEVNULL, start_new_session=True)
        time.sleep(moments.uniform(0.1, 2.5))
        os.killpg(builder.pid, 9)
        builder.wait()
        facts = run_build(*arguments)
        assert facts["fingerprint"] == local["fingerprint"], number


def test_a_server_that_is_killed_at_any_moment_is_waited_for(s3, corpus, local, own_cache, server):
    put(f"{s3}/corpus", corpus)
    moments = random.Random(1)
    for number in range(SERVER_KILLS):
        arguments = (f"{s3}/corpus", *SHARD, "-o", f"{s3}/store{number}", "--workers", "2")
        builder = subprocess.Popen(build_command(*arguments, "-q"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(moments.uniform(0.1, 2.0))
        server.kill()
        time.sleep(moments.uniform(0, 1))
        server.start()
        _, errors = builder.communicate(timeout=150)
        assert builder.returncode in (0, 1, 2), errors  # it went on; or it said what is wrong
        facts = run_build(*arguments)
        assert facts["fingerprint"] == local["fingerprint"], number


def test_of_two_writers_exactly_one_wins(s3):
    for number in range(RACES):
        results: list[str] = []

        def write(name: bytes, url: str, tag: str | None, results: list[str]) -> None:
            try:
                object_store.write_if(url, name, tag)
                results.append(name.decode())
            except object_store.ConditionError:
                pass

        tag = None if number % 2 else object_store.write_if(f"{s3}/{number}", b"before", None)
        threads = [
            threading.Thread(target=write, args=(name, f"{s3}/{number}", tag, results)) for name in (b"one", b"two")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 1, number
        assert object_store.read(f"{s3}/{number}").decode() == results[0]


def test_of_two_builders_exactly_one_publishes(s3, corpus, local, own_cache):
    put(f"{s3}/corpus", corpus)
    for number in range(5):
        command = build_command(f"{s3}/corpus", *SHARD, "-o", f"{s3}/store{number}", "--workers", "0", "-q")
        builders = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(2)]
        outcomes = [(builder.communicate()[1].decode(), builder.returncode) for builder in builders]
        lost = [message for message, code in outcomes if code]
        assert len(lost) <= 1, outcomes  # none if the second began when the first was done
        assert all("another build finished" in message for message in lost)
        assert tm.open(f"{s3}/store{number}").fingerprint == local["fingerprint"]


@pytest.mark.parametrize("seed", range(3))
def test_slices_in_any_order_with_some_killed_make_one_store(s3, corpus, local, own_cache, seed):
    put(f"{s3}/corpus", corpus)
    draw = random.Random(seed)
    order = draw.sample(range(8), 8)

    def start(number: int) -> subprocess.Popen:
        command = build_command(f"{s3}/corpus", *SHARD, "-o", f"{s3}/store", "--slice", f"{number}/8", "--workers", "0")
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    running = {}
    for number in order:
        running[number] = start(number)
        time.sleep(draw.uniform(0, 0.3))
    killed = draw.sample(order, 3)
    for number in killed:
        running[number].kill()
    outputs = [process.communicate() for process in running.values()]
    for number in draw.sample(killed, 3):
        process = start(number)
        outputs.append(process.communicate())
        assert process.returncode == 0, outputs[-1][1]
    assert sum(b"fingerprint" in out for out, _ in outputs) >= 1
    assert tm.open(f"{s3}/store").fingerprint == local["fingerprint"]
    assert tm.open(f"{s3}/store").verify() == []
