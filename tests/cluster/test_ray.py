"""Builds on a Ray cluster of three nodes on this machine, of which some are lost, hang or are killed."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from build_helpers import temporary_files, wait_until, write_random_words

import tokenmill as tm
from tokenmill.building.executors import ray_pool, stragglers
from tokenmill.building.executors.ray_cluster import RayCluster, import_ray
from tokenmill.building.executors.ray_pool import RayPool
from tokenmill.errors import BuildError
from tokenmill.events import Planned, ShardDone, WorkerDied
from tokenmill.io.atomic import temporary_path
from tokenmill.store.manifest import read_manifest
from tokenmill.testing.executors import CRASHING, ExecutorTests

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed: the tests of builds on a cluster were not run", allow_module_level=True)

pytestmark = pytest.mark.cluster
NODE = {"num_cpus": 1, "memory": 4 << 30, "object_store_memory": 80 << 20}
OPTIONS = {"shard_bytes": "16KB", "engine": "gigatoken"}
WORKER = "tokenmill.building.executors.worker"
HARD_LIMIT = 120.0  # seconds after which anything still running is a hang

DRIVER = """
import signal, sys
import tokenmill as tm
signal.signal(signal.SIGINT, signal.default_int_handler)
source, tokenizer, out, address = sys.argv[1:]
options = {"shard_bytes": "16KB", "engine": "gigatoken", "progress": "quiet"}
store = tm.build(source, tokenizer, out, backend="ray", address=address, workers=2, **options)
print(store.fingerprint)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Its workers have an engine that crashes at the text of the conformance suite."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # other clusters of this machine may have left a token
    import_ray()  # with the settings of tokenmill
    from ray.cluster_utils import Cluster

    site = tmp_path_factory.mktemp("site")
    lines = [f"if {WORKER!r} in sys.orig_argv:", *(f"    {line}" for line in CRASHING.splitlines())]
    (site / "sitecustomize.py").write_text("\n".join(["import sys", *lines]))
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    patch.setenv("TEST_SURVIVOR", "1")
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(wait=False, **NODE)
    cluster.wait_for_nodes()
    patch.undo()
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """Some 240 tasks."""
    folder = tmp_path_factory.mktemp("corpus")
    write_random_words(folder, 1500)
    return folder


@pytest.fixture(scope="module")
def fingerprint(corpus, tokenizer_path, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("local") / "store"
    return tm.build(corpus, tokenizer_path, folder, workers=0, progress="quiet", **OPTIONS).fingerprint


@pytest.fixture
def build(cluster, corpus, tokenizer_path, tmp_path):
    def build(listen=lambda event: None, **options) -> tm.Store:
        options = {"backend": "ray", "address": cluster.address, "workers": 3, **OPTIONS, **options}
        return tm.build(corpus, tokenizer_path, tmp_path / "store", progress=listen, **options)

    return build


def worker_processes() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if WORKER in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def receipts(store: Path) -> dict[str, tuple[int, int]]:
    """Every receipt and column there is: which file it is, and when it was written."""
    names = [path.stem for path in (store / "shards").glob("*.json")]
    files = [path for name in names for path in (store / "shards").glob(f"{name}*")]
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


class TestRayPool(ExecutorTests):
    @pytest.fixture(autouse=True)
    def _connected(self, cluster):
        self.address = cluster.address
        connection = RayCluster(cluster.address)
        yield
        connection.close()

    def executor(self, emit):
        return RayPool(emit, address=self.address, workers=2, memory="2GB")


def test_a_build_is_that_of_this_machine(build, fingerprint, tmp_path):
    """Done by workers on all nodes, and nothing is left behind."""
    events = []
    store = build(events.append)
    [planned] = [event for event in events if isinstance(event, Planned)]
    assert store.fingerprint == fingerprint
    assert store.verify() == []
    assert planned.workers == "3 Ray workers on 3 nodes, of at most 2.1 GB"
    assert len({event.pid for event in events if isinstance(event, ShardDone)}) > 1
    assert temporary_files(tmp_path / "store") == []
    assert wait_until(lambda: not worker_processes(), 10)


def test_a_node_is_lost(build, cluster, fingerprint):
    """Its tasks are done by others, and no document is blamed."""
    events = []
    node = cluster.add_node(**{**NODE, "num_cpus": 2})

    def listen(event):
        events.append(event)
        if isinstance(event, ShardDone) and node in cluster.worker_nodes:
            cluster.remove_node(node, allow_graceful=False)

    store = build(listen, workers=5)
    assert store.fingerprint == fingerprint
    assert [event for event in events if isinstance(event, WorkerDied)]
    assert read_manifest(store.path).quarantined == {}


def test_the_driver_is_killed(cluster, corpus, tokenizer_path, tmp_path, fingerprint):
    """Its workers end by themselves. The next build encodes only what has no receipt."""
    store = tmp_path / "store"
    command = [sys.executable, "-c", DRIVER, str(corpus), str(tokenizer_path), str(store), cluster.address]
    driver = subprocess.Popen(command)
    assert wait_until(lambda: len(receipts(store)) > 30, HARD_LIMIT)
    driver.kill()
    assert driver.wait() == -signal.SIGKILL
    assert wait_until(lambda: not worker_processes(), 30)
    before = receipts(store)
    done = subprocess.run(command, capture_output=True, text=True, timeout=HARD_LIMIT)
    assert done.stdout.splitlines()[-1] == fingerprint, done.stderr  # Ray may print messages before it
    after = receipts(store)
    assert len(after) > len(before) > 30
    assert {name: after[name] for name in before} == before
    assert temporary_files(store) == []


def test_ctrl_c(cluster, corpus, tokenizer_path, tmp_path):
    """When the driver has ended there is no worker, and no receipt appears."""
    store = tmp_path / "store"
    command = [sys.executable, "-c", DRIVER, str(corpus), str(tokenizer_path), str(store), cluster.address]
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert wait_until(lambda: len(receipts(store)) > 30, HARD_LIMIT)
    driver.send_signal(signal.SIGINT)
    _, errors = driver.communicate(timeout=HARD_LIMIT)
    assert worker_processes() == []
    before = receipts(store)
    assert driver.returncode
    assert "KeyboardInterrupt" in errors
    assert not (store / "sources.json").exists()
    assert receipts(store) == before


@pytest.mark.parametrize("who", ["actor", "worker"])
def test_who_hangs_is_replaced(build, fingerprint, monkeypatch, who):
    """An actor that does not answer is lost; the task of a worker that makes no progress runs elsewhere, too."""
    monkeypatch.setattr(ray_pool, "POLL_SECONDS", 1.0)
    monkeypatch.setattr(ray_pool, "LOST_SECONDS", 4.0)
    monkeypatch.setattr(stragglers, "LEAST_SECONDS", 3.0)
    stopped: list[psutil.Process] = []
    events = []

    def listen(event):
        events.append(event)
        if isinstance(event, ShardDone) and not stopped:
            process = psutil.Process(event.pid)
            stopped.append(process.parent() if who == "actor" else process)
            stopped[0].suspend()

    began = time.monotonic()
    store = build(listen)
    assert time.monotonic() - began < 30
    assert store.fingerprint == fingerprint
    assert wait_until(lambda: not stopped[0].is_running(), 15)
    assert wait_until(lambda: not worker_processes(), 15)


def test_a_folder_that_the_nodes_do_not_see(build, monkeypatch, tmp_path):
    """The error names the node and the folder, before any task runs."""
    unseen = tmp_path / "elsewhere"
    monkeypatch.setattr(RayPool, "_write_mark", lambda pool, folder: temporary_path(unseen / "seen"))
    with pytest.raises(BuildError, match=f"node .* does not see the output folder {unseen}"):
        build()
    assert receipts(tmp_path / "store") == {}


def test_input_that_the_nodes_do_not_see(cluster, corpus, tokenizer_path, tmp_path, monkeypatch):
    """A file that the driver sees and a node does not is not a failure of the file."""
    path, exists = tmp_path / "unseen.jsonl", os.path.exists
    path.write_bytes((corpus / "0.jsonl").read_bytes())

    def listen(event):
        if isinstance(event, Planned):
            path.unlink()

    monkeypatch.setattr(os.path, "exists", lambda other: other == str(path) or exists(other))  # in this process only
    options = {"backend": "ray", "address": cluster.address, "workers": 1, "progress": listen}
    with pytest.raises(BuildError, match=f"node .* does not see {path}, which this process sees"):
        tm.build(path, tokenizer_path, tmp_path / "store", **options, **OPTIONS)


def test_as_many_workers_as_the_cluster_has_cpus(cluster):
    """Unless the text is too little for them, or the user says how many. SIGTERM stays what it was."""
    before = signal.getsignal(signal.SIGTERM)
    for options, count in (({}, 3), ({"most": 2}, 2), ({"workers": 5, "most": 2}, 5), ({"memory": "600MB"}, 1)):
        with RayPool(lambda event: None, address=cluster.address, **options) as pool:
            assert pool.processes == count
            assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_an_address_where_nobody_is(address):
    with pytest.raises(BuildError, match=f"cannot connect to the Ray cluster at {address}: Connection refused"):
        RayPool(lambda event: None, address=address, workers=1)
