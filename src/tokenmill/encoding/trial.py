"""An engine on trial, in a process of its own: it may crash, hang or eat memory, and nobody else is hurt.

Speaks JSON lines. First {"folder", "engine", "path"}: which engine, for which definition; the answer is {"loaded": seconds}
or {"refused": why}. Then any number of {"encode": texts.arrow, "out": prefix}: ids and offsets go to files; or
{"time": texts.arrow, "seconds": limit, "documents": a call}: the answer says how fast it was.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.encoding.definition import load_definition
from tokenmill.encoding.engines import Engine, check_shape, make_engine


def main() -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is not an answer

    def answer(**body: Any) -> None:
        out.write(json.dumps(body) + "\n")
        out.flush()

    request = json.loads(sys.stdin.readline())
    sys.path += [entry for entry in request["path"] if entry not in sys.path]
    try:
        definition = load_definition(Path(request["folder"]))
        assert definition is not None
        began = time.process_time()
        engine = make_engine(request["engine"], definition)
        answer(loaded=time.process_time() - began)
        for line in sys.stdin:
            request = json.loads(line)
            if "encode" in request:
                _encode(engine, request["encode"], request["out"])
                answer(encoded=True)
            else:
                answer(**_time(engine, request["time"], request["seconds"], request["documents"]))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in a Rust engine is not an Exception
        says = str(error).strip().partition("\n")[0]  # below that, libraries say where in their own code
        answer(refused=f"{type(error).__name__}: {says}"[:300])


def _blocks(path: str, documents: int | None = None) -> Iterator[Any]:
    """The texts in the file's own blocks, or so many documents at a time."""
    import pyarrow as pa

    with pa.memory_map(path) as source:
        reader = pa.ipc.open_file(source)
        for i in range(reader.num_record_batches):
            block = reader.get_batch(i).column(0)
            step = documents or max(1, len(block))
            for start in range(0, len(block), step):
                yield block.slice(start, step)


def _encode(engine: Engine, path: str, prefix: str) -> None:
    ids, lengths = [], []
    for block in _blocks(path):
        found, offsets = engine.encode(block)
        check_shape(engine.name, len(block), found, offsets)
        ids.append(np.array(found, np.uint32))
        lengths.append(np.diff(offsets))
    np.save(prefix + ".ids.npy", np.concatenate([*ids, np.empty(0, np.uint32)]))
    np.save(prefix + ".lengths.npy", np.concatenate([*lengths, np.empty(0, np.int64)]).astype(np.int64))


def _time(engine: Engine, path: str, limit: float | None, documents: int | None) -> dict[str, float]:
    """How fast it is, until `limit` seconds are over.

    `rate` is bytes a second of CPU (threads an engine starts are not free) in the later half of what was done: the earlier
    half fills its caches.
    """
    from tokenmill.batch import text_bytes

    done: list[tuple[int, float]] = []
    total = {"tokens": 0, "documents": 0, "bytes": 0}
    began, wall = time.process_time(), time.perf_counter()
    for block in _blocks(path, documents):
        at = time.process_time()
        ids, _ = engine.encode(block)
        done.append((text_bytes(block), time.process_time() - at))
        total["tokens"] += len(ids)
        total["documents"] += len(block)
        total["bytes"] += done[-1][0]
        if limit is not None and time.process_time() - began > limit:
            break
    late = done[len(done) // 2 :]
    rate = sum(size for size, _ in late) / max(sum(seconds for _, seconds in late), 1e-9)
    seconds = {"cpu": time.process_time() - began, "wall": time.perf_counter() - wall}
    return {"rate": rate, **total, **seconds}


if __name__ == "__main__":
    main()
