"""The process in which an engine is examined: `python -m tokenmill.encoding.selection.examination`.

Here it may crash, hang or exhaust memory without affecting another process. `Examined` is the other side.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.child_process import Child, Message, claim_process, serve
from tokenmill.documents import text_array, text_bytes, text_offsets
from tokenmill.encoding.engines.base import Engine, Ids, Offsets, offsets_of

Encoded = tuple[Ids, Offsets]
# Texts per call in an examination, about: a reference needs hundreds of times this memory for its results.
BLOCK_BYTES = 1 << 16


class Examined:
    """An engine in a process of its own."""

    def __init__(self, engine: str, *, threads: bool = False, python: str = sys.executable) -> None:
        """`threads`: it may use all cores. `python` runs it, such as that of an environment with other libraries."""
        self.engine, self._threads = engine, threads
        self._child = Child("tokenmill.encoding.selection.examination", python)

    def __enter__(self) -> Examined:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()

    def ask(self, folder: Path, texts: list[str], block_bytes: int = BLOCK_BYTES, **more: Any) -> None:
        """Let it encode texts with the definition that was saved in a folder. `answer` waits for the result."""
        values = text_array(texts)
        body = {"engine": self.engine, "folder": str(folder), "threads": self._threads, "block": block_bytes, **more}
        self._child.send(body, values.buffers()[2] or b"", text_offsets(values))

    def answer(self) -> Encoded:
        """The ids. Raises ChildDied if the process crashed or hung, and RuntimeError for what the engine raised."""
        return self.timed()[0]

    def timed(self) -> tuple[Encoded, dict[str, float]]:
        """The ids; and the CPU time, wall time and bytes of text."""
        reply = self._child.receive()
        ids, lengths = (
            np.frombuffer(part, dtype) for part, dtype in zip(reply.data, (np.uint32, np.int64), strict=True)
        )
        return (ids, offsets_of(lengths)), reply.body

    def encode(self, folder: Path, texts: list[str]) -> Encoded:
        self.ask(folder, texts)
        return self.answer()


def differing(expected: Encoded, actual: Encoded) -> list[int]:
    """The indices of the documents whose ids differ."""
    lengths, found = np.diff(expected[1]), np.diff(actual[1])
    differ = lengths != found
    comparable = np.flatnonzero(~differ & (lengths > 0))
    ids = [encoded[0][np.repeat(~differ, count)] for encoded, count in ((expected, lengths), (actual, found))]
    starts = np.cumsum(lengths[comparable]) - lengths[comparable]
    if len(starts):
        differ[comparable] = np.logical_or.reduceat(ids[0] != ids[1], starts)
    return np.flatnonzero(differ).tolist()


_loaded: dict[str, Engine] = {}


def _answer(request: Message) -> Message:
    import pyarrow as pa

    body, (text, offsets) = request.body, request.data
    offsets = np.frombuffer(offsets, np.int64)
    values = pa.Array.from_buffers(
        pa.large_string(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    )
    engine = _engine(body)
    ids, lengths = [np.empty(0, np.uint32)], [np.empty(0, np.int64)]
    cpu, wall = time.process_time(), time.perf_counter()
    for low, high in _blocks(offsets, body["block"]):
        try:
            found, ends = engine.encode(values.slice(low, high - low))
        except MemoryError as error:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from error
        _check(engine, high - low, found, ends)
        ids.append(np.asarray(found, np.uint32))
        lengths.append(np.diff(ends))
    spent = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "bytes": text_bytes(values)}
    if engine.device_lost:  # what another engine has encoded proves nothing
        raise OSError(errno.EIO, f"its device was lost: {engine.device_lost}")
    return Message(spent, (np.concatenate(ids), np.concatenate(lengths).astype(np.int64)))


def _engine(body: dict[str, Any]) -> Engine:
    from tokenmill.encoding.definition import load_definition
    from tokenmill.encoding.engines import make_engine
    from tokenmill.encoding.engines.guarded import guarded

    key = f"{body['folder']} {body.get('guard')}"
    if key not in _loaded:
        os.environ["TOKENIZERS_PARALLELISM"] = "true"
        os.environ.setdefault("RAYON_NUM_THREADS", "" if body["threads"] else "1")
        definition = load_definition(Path(body["folder"]))
        assert definition is not None
        _loaded[key] = guarded(make_engine(body["engine"], definition), definition, body.get("guard") or ())
    return _loaded[key]


def _check(engine: Engine, count: int, ids: Ids, offsets: Offsets) -> None:
    from tokenmill.encoding.engines import check_shape

    check_shape(engine.name, count, ids, offsets)


def _blocks(offsets: Offsets, size: int) -> list[tuple[int, int]]:
    """Ranges of documents of about this many bytes."""
    low, found = 0, []
    while low < len(offsets) - 1:
        high = max(low + 1, int(np.searchsorted(offsets, offsets[low] + size, "right")) - 1)
        found.append((low, high))
        low = high
    return found


if __name__ == "__main__":
    claim_process()
    serve(_answer)
