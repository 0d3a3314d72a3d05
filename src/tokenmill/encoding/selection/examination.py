"""The process in which an engine is examined: `python -m tokenmill.encoding.selection.examination`.

Here it may crash, hang or exhaust memory without affecting another process. `Examined` is the other side.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np

from tokenmill.child_process import Child, Message, claim_process, serve
from tokenmill.documents import text_array, text_bytes, text_offsets, text_values
from tokenmill.encoding.definition import load_definition
from tokenmill.encoding.engines import check_shape, make_engine
from tokenmill.encoding.engines.base import Engine, Ids, Offsets, offsets_of
from tokenmill.encoding.engines.guarded import Ranges, guarded
from tokenmill.encoding.gpu.engine import batches

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

    def ask(self, folder: Path, texts: list[str], block_bytes: int = BLOCK_BYTES, guard: Ranges = ()) -> None:
        """Let it encode texts with the definition that was saved in a folder. `answer` waits for the result."""
        values = text_array(texts)
        loads = {"name": self.engine, "folder": str(folder), "guard": json.dumps(guard), "threads": self._threads}
        self._child.send({"loads": loads, "block": block_bytes}, values.buffers()[2] or b"", text_offsets(values))

    def answer(self) -> Encoded:
        """The ids. Raises ChildDied if the process crashed or hung, and RuntimeError for what the engine raised."""
        return self.timed()[0]

    def timed(self) -> tuple[Encoded, dict[str, float]]:
        """The ids; and the CPU time, wall time and bytes of text."""
        spent, (ids, offsets) = self._child.receive()
        return (np.frombuffer(ids, np.uint32), np.frombuffer(offsets, np.int64)), spent


def differing(expected: Encoded, actual: Encoded) -> list[int]:
    """The indices of the documents whose ids differ."""
    lengths, found = np.diff(expected[1]), np.diff(actual[1])
    same = lengths == found
    differs = expected[0][np.repeat(same, lengths)] != actual[0][np.repeat(same, found)]
    document_of_id = np.repeat(np.flatnonzero(same), lengths[same])
    return sorted({*np.flatnonzero(~same).tolist(), *document_of_id[differs].tolist()})


def _answer(request: Message) -> Message:
    offsets = np.frombuffer(request.data[1], np.int64)
    values = text_values(offsets, request.data[0])
    engine = _engine(**request.body["loads"])
    ids, lengths = [np.empty(0, np.uint32)], [np.empty(0, np.int64)]
    cpu, wall = time.process_time(), time.perf_counter()
    for low, high in batches(offsets, request.body["block"], len(values)):
        try:
            found, ends = engine.encode(values.slice(low, high - low))
        except MemoryError as error:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from error
        check_shape(engine.name, high - low, found, ends)
        ids.append(np.asarray(found, np.uint32))
        lengths.append(np.diff(ends))
    spent = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "bytes": text_bytes(values)}
    if engine.device_lost:  # what another engine has encoded proves nothing
        raise OSError(errno.EIO, f"its device was lost: {engine.device_lost}")
    return Message(spent, (np.concatenate(ids), offsets_of(np.concatenate(lengths))))


@cache
def _engine(*, name: str, folder: str, guard: str, threads: bool) -> Engine:
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    os.environ.setdefault("RAYON_NUM_THREADS", "" if threads else "1")
    definition = load_definition(Path(folder))
    assert definition is not None
    return guarded(make_engine(name, definition), definition, json.loads(guard))


if __name__ == "__main__":
    claim_process()
    serve(_answer)
