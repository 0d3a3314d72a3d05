"""The process in which an engine is on trial: `python -m tokenmill.encoding.selection.trial_worker`. See `trial`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.child_process import claim_process
from tokenmill.documents import text_bytes
from tokenmill.encoding.definition import load_definition
from tokenmill.encoding.engines import check_shape, make_engine
from tokenmill.encoding.engines.base import Engine
from tokenmill.encoding.engines.guarded import guarded


def main() -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not be mistaken for an answer

    def answer(**body: Any) -> None:
        out.write(json.dumps(body) + "\n")
        out.flush()

    request = json.loads(sys.stdin.readline())
    claim_process()
    try:
        definition = load_definition(Path(request["folder"]))
        assert definition is not None
        engine = make_engine(request["engine"], definition)
        answer(loaded=True)
        for line in sys.stdin:
            request = json.loads(line)
            if "guard" in request:
                engine = guarded(engine, definition, request["guard"])
            elif "encode" in request:
                _encode(engine, request["encode"], request["out"])
                answer(encoded=True)
            else:
                answer(**measure(engine, request["time"], request["documents"], request["out"]))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in a Rust engine is not an Exception
        message = str(error).strip().partition("\n")[0]  # the lines below show the library's own code
        temporary = isinstance(error, OSError | MemoryError)
        answer(refused=f"{type(error).__name__}: {message}"[:300], temporary=temporary)


def _blocks(path: str, documents: int | None = None) -> Iterator[Any]:
    """The texts of a file in its own record batches, or in slices of `documents`."""
    import pyarrow as pa

    with pa.memory_map(path) as source:
        reader = pa.ipc.open_file(source)
        for i in range(reader.num_record_batches):
            block = reader.get_batch(i).column(0)
            step = documents or max(1, len(block))
            for start in range(0, len(block), step):
                yield block.slice(start, step)


def _encode(engine: Engine, path: str, prefix: str) -> None:
    encoded = []
    for block in _blocks(path):
        ids, offsets = engine.encode(block)
        check_shape(engine.name, len(block), ids, offsets)
        encoded.append((np.array(ids, np.uint32), np.diff(offsets)))
    _check_device(engine)
    _save(encoded, prefix)


def _check_device(engine: Engine) -> None:
    """What another engine has encoded proves nothing."""
    if engine.device_lost:
        raise OSError(f"its device was lost: {engine.device_lost}")


def _save(encoded: list[Any], prefix: str) -> None:
    """Save the ids of all blocks, and the length of each document."""
    np.save(prefix + ".ids.npy", np.concatenate([*(ids for ids, _ in encoded), np.empty(0, np.uint32)]))
    lengths = np.concatenate([*(lengths for _, lengths in encoded), np.empty(0, np.int64)])
    np.save(prefix + ".lengths.npy", lengths.astype(np.int64))


def measure(engine: Engine, path: str, documents: int | None = None, prefix: str | None = None) -> dict[str, float]:
    """Encode a file. Return the amounts, the CPU and wall time, and `seconds`: the one that counts for this engine.

    With a `prefix`, the ids are kept and then saved; saving them is not measured.
    """
    done = {"tokens": 0, "documents": 0, "bytes": 0}
    encoded = []
    cpu_start, wall_start = time.process_time(), time.perf_counter()
    for block in _blocks(path, documents):
        ids, offsets = engine.encode(block)
        done["tokens"] += len(ids)
        done["documents"] += len(block)
        done["bytes"] += text_bytes(block)
        if prefix is not None:
            encoded.append((np.array(ids, np.uint32), np.diff(offsets)))
    cpu, wall = time.process_time() - cpu_start, time.perf_counter() - wall_start
    _check_device(engine)
    if prefix is not None:
        _save(encoded, prefix)
    return {**done, "cpu": cpu, "wall": wall, "seconds": engine.traits.seconds(cpu=cpu, wall=wall)}


if __name__ == "__main__":
    main()
