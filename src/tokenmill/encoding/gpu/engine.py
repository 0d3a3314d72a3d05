"""Byte-level BPE on CUDA devices: see `encoding.gpu`. Documents that it cannot encode exactly are left to the reference."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from tokenmill.documents import text_offsets
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines.base import Engine, EngineTraits, Ids, Offsets, interleaved, offsets_of
from tokenmill.encoding.gpu.device_client import USUAL_ROOM, DeviceConnection, DeviceProblem
from tokenmill.encoding.gpu.shared_batch import OutOfRoom
from tokenmill.encoding.hf_tokenizers import has_parts
from tokenmill.encoding.libraries import installed_version
from tokenmill.user_cache import cache_folder, read_cached, write_cached

if TYPE_CHECKING:
    import pyarrow as pa

CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")  # the distributions that have it
MOST_LOSSES = 2  # of the device in a row, before the reference does the rest
RETRY_SECONDS = 3.0  # after which a process that could not start has ended, and another one can be tried
SMALL_BYTES = 1 << 20  # a device that has no room for a document of this size is of no use
_engines: WeakSet[GpuEngine] = WeakSet()


class GpuEngine(Engine):
    """GPUs, each with one process that owns it, which all workers share (`gpu.device_process`).

    A process that uses it loads nothing of CUDA, and takes some 40 MB for a batch in shared memory. If the device is lost,
    another process is tried, and then the reference goes on.
    """

    name = "gpu"
    library = "cupy"
    START_SECONDS = 3.0  # of the process that owns the device
    # What characters are is asked from `tokenizers` when the tables are made.
    traits = EngineTraits(device="cuda", best_batch_bytes=USUAL_ROOM, knows_unicode=False)

    def __init__(self, definition: Definition) -> None:
        from tokenmill.encoding.engines.cpu import TokenizersEngine

        self._tokenizer_json = definition.engine_json
        self._make_reference: Callable[[], Engine] = lambda: TokenizersEngine(definition)
        self._reference: Engine | None = None
        self._losses = 0  # since the device was last of use
        self._begin()
        _engines.add(self)

    def _begin(self) -> None:
        self._connection: DeviceConnection | None = None
        self._lock = threading.Lock()  # a connection takes one request at a time

    @classmethod
    def can_run(cls, definition: Definition) -> bool:
        return not cls.refusal(definition)

    @staticmethod
    def is_installed() -> bool:
        return any(map(installed_version, CUPY))

    @classmethod
    def refusal(cls, definition: Definition) -> str:
        """Why a tokenizer cannot be run on a GPU here; empty if it can. Starts the process that owns the GPU."""
        from tokenmill.encoding.gpu.bpe_tables import model_refusal
        from tokenmill.encoding.gpu.patterns import recognise

        if sys.platform != "linux":
            return "it runs on Linux only"
        if not cls.is_installed():
            return "CuPy is not installed: pip install 'tokenmill[gpu]'"
        if not has_parts():
            return "it needs tokenizers below 1.0 for now: pip install 'tokenizers<1'"
        if definition.json is None:
            return "only tokenizers with a tokenizer.json run on a GPU"
        body = json.loads(definition.json)
        why = recognise(body)[1] or model_refusal(body["model"])
        if why:
            return why
        try:
            DeviceConnection(definition.engine_json).close()
        except DeviceProblem as problem:
            return str(problem)
        return ""

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        bounds = text_offsets(values)
        ids: list[Ids] = []
        lengths = np.zeros(len(values), np.int64)
        with self._lock:
            for low, high in self._batches(bounds):
                found, offsets = self._encode(values, bounds, low, high)
                ids.append(found)
                lengths[low:high] = np.diff(offsets)
        return np.concatenate(ids) if ids else np.empty(0, np.uint32), offsets_of(lengths)

    def _batches(self, bounds: Offsets) -> list[tuple[int, int]]:
        connection = self._connected()
        if connection is None:
            return [(0, len(bounds) - 1)]
        return batches(bounds, connection.usual_bytes, connection.document_room)

    def _encode(self, values: pa.LargeStringArray, bounds: Offsets, low: int, high: int) -> tuple[Ids, Offsets]:
        """The ids of documents `low` to `high`. A batch that the device has no room for is encoded in halves."""
        size = int(bounds[high] - bounds[low])
        while (connection := self._connected()) is not None and size + high - low <= connection.most_bytes:
            try:
                if high - low > connection.document_room:  # as after a loss
                    raise OutOfRoom
                data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[int(bounds[low]) : int(bounds[high])]
                ids, offsets, refused = connection.encode(data, bounds[low : high + 1] - bounds[low])
            except OutOfRoom:
                if high - low > 1:
                    return self._in_halves(values, bounds, low, high)
                if size > SMALL_BYTES:
                    break
                self._lose("it has no memory left")
            except DeviceProblem as problem:
                self._lose(str(problem))
            except BaseException:
                self._connection = None  # the answer to this request would be taken for that to the next
                raise
            else:
                self._losses = 0
                if not refused.any():
                    return ids, offsets
                return self._with_reference(values.slice(low, high - low), ids, offsets, refused)
        return self._by_reference(values.slice(low, high - low))

    def _in_halves(self, values: pa.LargeStringArray, bounds: Offsets, low: int, high: int) -> tuple[Ids, Offsets]:
        middle = (low + high) // 2
        first, second = self._encode(values, bounds, low, middle), self._encode(values, bounds, middle, high)
        return np.concatenate((first[0], second[0])), np.concatenate((first[1], first[1][-1] + second[1][1:]))

    def _connected(self) -> DeviceConnection | None:
        """The connection of this process; None if the device was lost too often."""
        while self._connection is None and self._losses < MOST_LOSSES:
            try:
                self._connection = DeviceConnection(self._tokenizer_json)
            except DeviceProblem as problem:
                self._lose(str(problem))
                if self._losses < MOST_LOSSES:
                    time.sleep(RETRY_SECONDS)
        return self._connection

    def _lose(self, why: str) -> None:
        self._connection = None
        self._losses += 1
        if self._losses == MOST_LOSSES:
            self.device_lost = why

    def _with_reference(
        self, values: pa.LargeStringArray, ids: Ids, offsets: Offsets, refused: Any
    ) -> tuple[Ids, Offsets]:
        """The result with the refused documents replaced by what the reference makes of them."""
        import pyarrow as pa

        lengths = np.diff(offsets)
        kept = ids[np.repeat(~refused, lengths)], offsets_of(lengths[~refused])
        return interleaved(refused, kept, self._by_reference(values.take(pa.array(np.flatnonzero(refused)))))

    def _by_reference(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        if self._reference is None:
            self._reference = self._make_reference()
        self.left_to_reference += len(values)
        return self._reference.encode(values)


def batches(bounds: Offsets, most_bytes: int, most_documents: int) -> list[tuple[int, int]]:
    """Ranges of documents of at most so many bytes and documents together; longer documents are alone."""
    sizes = bounds + np.arange(len(bounds))
    ranges, low, count = [], 0, len(bounds) - 1
    while low < count:
        high = int(np.searchsorted(sizes, sizes[low] + most_bytes, "right")) - 1
        high = min(max(high, low + 1), low + most_documents, count)
        ranges.append((low, high))
        low = high
    return ranges


def remember_rates(definition: Definition, rates: dict[str, float]) -> None:
    """Keep what was measured on this machine: bytes per second of a GPU with all processes, and of an engine per process."""
    write_cached(_rates_path(definition), {"rates": rates})


def gpu_wins(definition: Definition, other: str, text_bytes: int, processes: int) -> bool:
    """Whether a GPU encodes this much text sooner than another engine on all cores, by what was measured on this machine."""
    measured = (read_cached(_rates_path(definition)) or {"rates": {}})["rates"]
    if GpuEngine.name not in measured or other not in measured or not GpuEngine.is_installed():
        return False
    start = GpuEngine.START_SECONDS
    return start + text_bytes / float(measured[GpuEngine.name]) < text_bytes / (float(measured[other]) * processes)


def _rates_path(definition: Definition) -> Path:
    return cache_folder() / "rates" / f"{definition.fingerprint}.json"


def _begin_in_child() -> None:
    """In a process that was forked: connections and locks are those of its parent."""
    for engine in list(_engines):
        engine._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)
