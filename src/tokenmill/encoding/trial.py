"""An engine on trial, in a process of its own: it may crash, hang or eat memory, and nobody else is hurt.

`Trial` is the side of who holds it, `main` that of the engine. They speak JSON lines. First {"folder", "engine"}: which
engine, for which definition; the answer is {"loaded": true} or {"refused": why}. Then any number of {"encode":
texts.arrow, "out": prefix}, where ids and lengths go to files, or {"time": texts.arrow, "documents": a call}, where the
answer says what was done in how many seconds. After {"guard": ranges}, which has no answer, it works behind that guard.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.documents import text_array, text_bytes
from tokenmill.encoding.definition import load_definition
from tokenmill.encoding.engines import ONE_THREAD, Engine, Ids, Offsets, check_shape, make_engine
from tokenmill.encoding.guard import guarded

PATIENCE = 120.0  # seconds an engine may take over the suite before it counts as hung
BLOCK_BYTES = 2 << 20  # of a file of texts: about what engines like
Answer = tuple[Ids, Offsets]


class Trial:
    """An engine in a process of its own, from the parent's side."""

    def __init__(self, engine: str, folder: Path, **environment: str) -> None:
        self.engine = engine
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tokenmill.encoding.trial"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**ONE_THREAD, **os.environ, **environment},
        )
        self._buffer = b""
        self._ended = ""
        self.passing = False  # whether what went wrong may be gone next time
        self._selector = selectors.DefaultSelector()
        assert self._process.stdout is not None
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self.ask(folder=str(folder), engine=engine)

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        self._process.kill()
        self._process.communicate()

    def ask(self, **request: Any) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it died: the answer will say so
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def ids(self, folder: Path) -> Answer | str:
        """What it made of the suite; or, in words, why there is nothing."""
        answer = self._answer("encoded")
        if "refused" in answer:
            return f"cannot run it: {answer['refused']}"
        lengths = np.load(folder / f"{self.engine}.lengths.npy")
        return np.load(folder / f"{self.engine}.ids.npy"), np.concatenate(([0], np.cumsum(lengths)))

    def time(self, path: Path, documents: int | None = None) -> dict[str, float]:
        """How fast it encodes the texts of a file, so many documents a call; empty where it does not."""
        self.ask(time=str(path), documents=documents)
        answer = self._answer("cpu")
        return {} if "refused" in answer else answer

    def _answer(self, key: str) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while not self._ended:
            for answer in self._lines(until):
                if "refused" in answer:
                    self._ended, self.passing = answer["refused"], answer["passing"]
                elif key in answer:
                    return answer
        return {"refused": self._ended}

    def _lines(self, until: float) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        ready = self._selector.select(max(0, until - time.monotonic()))
        chunk = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
        if not chunk and ready:
            self._ended = f"it crashed ({_how(self._process.wait())})"
        elif not chunk:
            self._ended, self.passing = f"no answer in {PATIENCE:.0f} s", True
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in lines:
            try:
                answer = json.loads(line)
            except ValueError:  # something printed before the trial took over standard output
                continue
            if isinstance(answer, dict):
                yield answer


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit {code}"


def write_texts(path: Path, texts: list[str]) -> None:
    """Texts as an Arrow file, in blocks of a good size for engines."""
    import pyarrow as pa

    schema = pa.schema([("text", pa.large_string())])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        start = size = 0
        for i, text in enumerate(texts):
            size += len(text)
            if size >= BLOCK_BYTES or i == len(texts) - 1:
                writer.write_batch(pa.record_batch([text_array(texts[start : i + 1])], schema=schema))
                start, size = i + 1, 0


def main() -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is not an answer

    def answer(**body: Any) -> None:
        out.write(json.dumps(body) + "\n")
        out.flush()

    request = json.loads(sys.stdin.readline())
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
                answer(**_time(engine, request["time"], request["documents"]))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in a Rust engine is not an Exception
        says = str(error).strip().partition("\n")[0]  # below that, libraries say where in their own code
        passing = isinstance(error, OSError | MemoryError)
        answer(refused=f"{type(error).__name__}: {says}"[:300], passing=passing)


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


def _time(engine: Engine, path: str, documents: int | None) -> dict[str, float]:
    """What was done, and the seconds it took: of all its threads together (they are not free), and on the clock."""
    done = {"tokens": 0, "documents": 0, "bytes": 0}
    began, wall = time.process_time(), time.perf_counter()
    for block in _blocks(path, documents):
        ids, _ = engine.encode(block)
        done["tokens"] += len(ids)
        done["documents"] += len(block)
        done["bytes"] += text_bytes(block)
    return {**done, "cpu": time.process_time() - began, "wall": time.perf_counter() - wall}


if __name__ == "__main__":
    main()
