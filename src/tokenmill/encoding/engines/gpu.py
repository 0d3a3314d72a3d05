"""Byte-level BPE on a CUDA device: see `encoding.gpu`. Documents that it cannot encode exactly are left to the reference."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill.documents import text_offsets
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines.base import Engine, EngineTraits, Ids, Offsets, offsets_of
from tokenmill.encoding.libraries import installed_version

if TYPE_CHECKING:
    import pyarrow as pa

MIB = 1 << 20
BATCH_BYTES = 64 * MIB
SLOTS = 1 << 21
CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")  # the distributions that have it


class GpuEngine(Engine):
    """A GPU, through CuPy. Its tables and buffers take about 1.5 GB of device memory in each process."""

    name = "gpu"
    library = "cupy"
    traits = EngineTraits(device="cuda", best_batch_bytes=BATCH_BYTES, can_fork=False)

    def __init__(self, definition: Definition) -> None:
        from tokenmill.encoding.engines.references import TokenizersEngine
        from tokenmill.encoding.gpu.device import Device
        from tokenmill.encoding.gpu.hash_tables import tables_of
        from tokenmill.encoding.gpu.patterns import recognise

        body = json.loads(definition.engine_json)
        pattern, why = recognise(body)
        assert pattern is not None, why
        tables = tables_of(definition.engine_json)
        names = [token["content"].encode() for token in body.get("added_tokens") or ()]
        self._device: Device | None = Device(
            pattern, tables, [*names, *tables.beyond], batch_bytes=BATCH_BYTES, slots=SLOTS
        )
        self._make_reference: Callable[[], Engine] = lambda: TokenizersEngine(definition)
        self._reference: Engine | None = None
        self._staging = self._device.staging()

    @classmethod
    def can_run(cls, definition: Definition) -> bool:
        return not cls.refusal(definition)

    @classmethod
    def refusal(cls, definition: Definition) -> str:
        """Why a tokenizer cannot be run on a GPU here; empty if it can."""
        from tokenmill.encoding.gpu.bpe_tables import model_refusal
        from tokenmill.encoding.gpu.patterns import recognise

        if not any(map(installed_version, CUPY)):
            return "CuPy is not installed: pip install 'tokenmill[gpu]'"
        if definition.json is None:
            return "only tokenizers with a tokenizer.json run on a GPU"
        body = json.loads(definition.json)
        pattern, why = recognise(body)
        why = why or model_refusal(body["model"])
        return why or device_problem() if pattern is not None else why

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        bounds = text_offsets(values)
        ids: list[Ids] = []
        lengths = np.zeros(len(values), np.int64)
        for low, high in _batches(bounds, BATCH_BYTES):
            found, offsets = self._encode(values, bounds, low, high)
            ids.append(found)
            lengths[low:high] = np.diff(offsets)
        return np.concatenate(ids) if ids else np.empty(0, np.uint32), offsets_of(lengths)

    def _encode(self, values: pa.LargeStringArray, bounds: Offsets, low: int, high: int) -> tuple[Ids, Offsets]:
        """The ids of documents `low` to `high`. A batch that the device has no room for is encoded in halves."""
        from tokenmill.encoding.gpu.device import OutOfRoom, device_errors

        size = int(bounds[high] - bounds[low])
        if self._device is None or size > BATCH_BYTES - (high - low) - MIB:
            return self._by_reference(values.slice(low, high - low))
        data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[int(bounds[low]) : int(bounds[high])]
        try:
            found = self._staging.encode(data, bounds[low : high + 1] - bounds[low])
        except OutOfRoom:
            if high - low == 1:
                return self._by_reference(values.slice(low, 1))
            middle = (low + high) // 2
            first, second = self._encode(values, bounds, low, middle), self._encode(values, bounds, middle, high)
            return np.concatenate((first[0], second[0])), np.concatenate((first[1], first[1][-1] + second[1][1:]))
        except device_errors():  # out of memory, or lost: the rest is encoded here
            self._device = None
            return self._by_reference(values.slice(low, high - low))
        ids, offsets, refused = found
        return (ids, offsets) if not refused.any() else self._with_reference(values.slice(low, high - low), *found)

    def _with_reference(
        self, values: pa.LargeStringArray, ids: Ids, offsets: Offsets, refused: Any
    ) -> tuple[Ids, Offsets]:
        """The result with the refused documents replaced by what the reference makes of them."""
        import pyarrow as pa

        numbers = np.flatnonzero(refused)
        exact, exact_offsets = self._by_reference(values.take(pa.array(numbers)))
        lengths = np.diff(offsets)
        kept = ids[np.repeat(~refused, lengths)]
        lengths[numbers] = np.diff(exact_offsets)
        result = np.empty(int(lengths.sum()), np.uint32)
        from_reference = np.repeat(refused, lengths)
        result[~from_reference], result[from_reference] = kept, exact
        return result, offsets_of(lengths)

    def _by_reference(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        if self._reference is None:
            self._reference = self._make_reference()
        return self._reference.encode(values)


def _batches(bounds: Offsets, most: int) -> list[tuple[int, int]]:
    """Ranges of documents of at most `most` bytes and documents together; longer documents are alone."""
    sizes = bounds + np.arange(len(bounds))
    ranges, low, count = [], 0, len(bounds) - 1
    while low < count:
        high = int(np.searchsorted(sizes, sizes[low] + most - MIB, "right")) - 1
        high = min(max(high, low + 1), count)
        ranges.append((low, high))
        low = high
    return ranges


def device_problem() -> str:
    """Why there is no CUDA device; empty if there is one."""
    try:
        import cupy

        return "" if cupy.cuda.runtime.getDeviceCount() else "there is no CUDA device"
    except Exception as error:
        return (
            f"there is no CUDA device that CuPy can use: {str(error).splitlines()[0][:200] if str(error) else error!r}"
        )
