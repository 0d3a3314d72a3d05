"""Byte-level BPE on CUDA devices: see `encoding.gpu`. Documents that it cannot encode exactly are left to the reference."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill.documents import text_offsets
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines.base import Engine, EngineTraits, Ids, Offsets, interleaved, offsets_of
from tokenmill.encoding.gpu.device_client import USUAL_ROOM, DeviceConnection, DeviceProblem
from tokenmill.encoding.gpu.shared_batch import OutOfRoom
from tokenmill.encoding.libraries import installed_version

if TYPE_CHECKING:
    import pyarrow as pa

CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")  # the distributions that have it
MOST_LOSSES = 2  # of the device, before the reference does the rest


class GpuEngine(Engine):
    """GPUs, each with one process that owns it, which all workers share (`gpu.device_process`).

    A process that uses it loads nothing of CUDA, and takes some 40 MB for a batch in shared memory. If the device is lost,
    another process is tried, and then the reference goes on.
    """

    name = "gpu"
    library = "cupy"
    traits = EngineTraits(device="cuda", best_batch_bytes=USUAL_ROOM)

    def __init__(self, definition: Definition) -> None:
        from tokenmill.encoding.engines.references import TokenizersEngine

        self._tokenizer_json = definition.engine_json
        self._make_reference: Callable[[], Engine] = lambda: TokenizersEngine(definition)
        self._reference: Engine | None = None
        self._connection: DeviceConnection | None = None
        self._owner = 0  # the process that has the connection: not those that are forked from it
        self._losses = 0

    @classmethod
    def can_run(cls, definition: Definition) -> bool:
        return not cls.refusal(definition)

    @classmethod
    def refusal(cls, definition: Definition) -> str:
        """Why a tokenizer cannot be run on a GPU here; empty if it can. Starts the process that owns the GPU."""
        from tokenmill.encoding.gpu.bpe_tables import model_refusal
        from tokenmill.encoding.gpu.patterns import recognise

        if sys.platform != "linux":
            return "it runs on Linux only"
        if not any(map(installed_version, CUPY)):
            return "CuPy is not installed: pip install 'tokenmill[gpu]'"
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
        while (connection := self._connected()) is not None:
            if int(bounds[high] - bounds[low]) + high - low > connection.most_bytes:
                break
            data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[int(bounds[low]) : int(bounds[high])]
            try:
                found = connection.encode(data, bounds[low : high + 1] - bounds[low])
            except OutOfRoom:
                if high - low == 1:
                    break
                middle = (low + high) // 2
                first, second = self._encode(values, bounds, low, middle), self._encode(values, bounds, middle, high)
                return np.concatenate((first[0], second[0])), np.concatenate((first[1], first[1][-1] + second[1][1:]))
            except DeviceProblem as problem:
                self._connection = None
                self._count_loss(problem)
                continue
            ids, offsets, refused = found
            return (ids, offsets) if not refused.any() else self._with_reference(values.slice(low, high - low), *found)
        return self._by_reference(values.slice(low, high - low))

    def _connected(self) -> DeviceConnection | None:
        """The connection of this process; None if the device was lost too often."""
        if self._owner != os.getpid():
            self._owner, self._connection = os.getpid(), None
        while self._connection is None and self._losses < MOST_LOSSES:
            try:
                self._connection = DeviceConnection(self._tokenizer_json)
            except DeviceProblem as problem:
                self._count_loss(problem)
        return self._connection

    def _count_loss(self, problem: DeviceProblem) -> None:
        self._losses += 1
        if self._losses == MOST_LOSSES:
            self.loss = str(problem)

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
