"""The connection to a Ray cluster: made if there is none, and what the cluster has."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tokenmill.building.machine import PARENT_BYTES, WORKER_BYTES, worker_count
from tokenmill.errors import BuildError, UsageError
from tokenmill.formatting import parse_size
from tokenmill.option_types import option_name

CONNECT_SECONDS = 10.0
# A connection that was lost without a word, as when a machine loses its power, is noticed within 30 s. Ray reads these when it is
# imported. Those of health checks matter where this process starts Ray itself; a cluster has its own. What a user has set
# takes precedence.
NETWORK_SETTINGS = {
    "RAY_grpc_keepalive_time_ms": "10000",
    "RAY_grpc_keepalive_timeout_ms": "10000",
    "RAY_grpc_client_keepalive_time_ms": "10000",
    "RAY_grpc_client_keepalive_timeout_ms": "10000",
    "RAY_health_check_initial_delay_ms": "5000",
    "RAY_health_check_period_ms": "3000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
}


def import_ray() -> Any:
    """Ray. Raises UsageError if it is not installed."""
    for name, value in NETWORK_SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UsageError(f"{option_name('backend', 'ray')} needs Ray, {error}: pip install 'tokenmill[ray]'") from error


def _knock(address: str | None) -> None:
    """Raise BuildError if nobody answers at HOST:PORT: Ray would try for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise BuildError(
            f"cannot connect to the Ray cluster at {address}: {error.strerror or error}. Is it running (ray status), and is"
            " the address right?"
        ) from error


@contextmanager
def _same_sigterm() -> Iterator[None]:
    """Ray sets a handler of SIGTERM; the one of the caller, such as that of the command line, is put back."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if before is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)


class RayCluster:
    """A connection to a cluster: one that this process has already, or a new one that `close` ends.

    `address` is HOST:PORT, ray://HOST:PORT, "auto" for the cluster of this machine or of the job, or "local" for a new one on
    this machine alone. None is RAY_ADDRESS if that is set, else a cluster that runs on this machine, else a new one.
    """

    def __init__(self, address: str | None) -> None:
        self.ray = import_ray()
        self._is_own = not self.ray.is_initialized()
        if self._is_own:
            _knock(address)
            try:
                with _same_sigterm():
                    self.ray.init(address=address, log_to_driver=False, logging_level="WARNING")
            except (ImportError, OSError, RuntimeError, ValueError) as error:
                where = f"at {address}" if address else "that Ray has found"
                raise BuildError(f"cannot connect to the Ray cluster {where}: {error}") from error

    def close(self) -> None:
        if self._is_own:
            self.ray.shutdown()

    def cores(self) -> int:
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def nodes(self) -> int:
        """Nodes that can have workers."""
        return sum(bool(node["Alive"] and node["Resources"].get("CPU")) for node in self.ray.nodes())

    def share_out(self, workers: int | str | None, memory: str | int | None) -> tuple[int, int]:
        """The number of workers and the bytes each may use: by default one per CPU, and half of what Ray counts as memory."""
        cores = self.cores()
        count = worker_count(workers, cores)
        if memory is None:
            share = int(self.ray.cluster_resources().get("memory", 0)) // 2 // max(cores, count)
        else:
            budget = parse_size(memory, "memory") - PARENT_BYTES
            count = max(1, min(count, budget // WORKER_BYTES))
            share = budget // count
        return count, max(share, WORKER_BYTES)
