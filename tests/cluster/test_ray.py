"""Builds on a Ray cluster: three nodes on this machine, of which some are lost, hang or are killed."""

from __future__ import annotations

import importlib.util
import os

import pytest

from tokenmill.testing.executors import CRASHING, ExecutorTests

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed: the tests of builds on a cluster were not run", allow_module_level=True)

from tokenmill.building.executors.ray_cluster import import_ray
from tokenmill.building.executors.ray_pool import RayPool

ray = import_ray()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    from ray.cluster_utils import Cluster

    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(
        "import sys\nif 'tokenmill.building.executors.worker' in sys.orig_argv:\n"
        + "".join(f"    {line}\n" for line in CRASHING.splitlines())
    )
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    patch.setenv("TOKENMILL_SURVIVOR", "1")
    started = Cluster()
    for number in range(3):
        started.add_node(
            wait=False, num_cpus=1, memory=4 << 30, object_store_memory=80 << 20, include_dashboard=False
        ) if not number else started.add_node(wait=False, num_cpus=1, memory=4 << 30, object_store_memory=80 << 20)
    started.wait_for_nodes()
    yield started
    started.shutdown()
    patch.undo()


class TestRayPool(ExecutorTests):
    @pytest.fixture(autouse=True)
    def _connected(self, cluster):
        self.address = cluster.address

    def executor(self, emit):
        return RayPool(emit, address=self.address, workers=2, memory="2GB")
