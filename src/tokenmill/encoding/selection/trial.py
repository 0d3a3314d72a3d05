"""An engine in a process of its own, where it may crash, hang or exhaust memory without affecting this process.

`Trial` is the parent's side, `trial_worker` the engine's side. They exchange JSON lines:

    {"folder", "engine"}                first; loads an engine for the definition in a folder
    {"guard": ranges}                   use the engine behind this guard from now on; no answer
    {"encode": texts.arrow, "out"}      encode; ids and lengths are written to files with this prefix
    {"time": texts.arrow, "documents", "out"}  encode, `documents` per call, and measure; write ids as above unless null

An answer is {"loaded": true}, {"encoded": true}, a measurement, or {"refused": reason, "temporary": bool}.
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

from tokenmill.child_process import WORKER_ENVIRONMENT
from tokenmill.documents import text_array
from tokenmill.encoding.engines.base import BATCH_BYTES, offsets_of
from tokenmill.encoding.selection.verdicts import Encoded

TIMEOUT = 120.0  # seconds for one request; after that the engine counts as hung


class Trial:
    """The parent's side of a trial. `temporary`: its failure may not happen again, such as a full disk."""

    def __init__(self, engine: str, folder: Path, **environment: str) -> None:
        self.engine = engine
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tokenmill.encoding.selection.trial_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**WORKER_ENVIRONMENT, **os.environ, **environment},
        )
        self._buffer = b""
        self._failure = ""
        self.temporary = False
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
        with suppress(OSError):  # the process died; reading its answer finds out
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def ask_encode(self, path: Path) -> None:
        """Start encoding the texts of a file. `encoded` waits for the result."""
        self.ask(encode=str(path), out=str(self._folder / self.engine))

    def encoded(self) -> Encoded | str:
        """The result of `ask_encode`, or the reason why there is none."""
        answer = self._answer("encoded")
        if "refused" in answer:
            return f"cannot run it: {answer['refused']}"
        return self._saved()

    def time(self, path: Path, documents: int | None = None) -> dict[str, float]:
        """Measure how fast the texts of a file are encoded, `documents` per call. {} if the engine failed."""
        self.ask(time=str(path), documents=documents, out=None)
        answer = self._answer("seconds")
        return {} if "refused" in answer else answer

    def time_and_encode(self, path: Path) -> tuple[dict[str, float], Encoded] | str:
        """Measure how fast the texts of a file are encoded, and return their ids too; or the reason why there are none."""
        self.ask(time=str(path), documents=None, out=str(self._folder / self.engine))
        answer = self._answer("seconds")
        return f"cannot run it: {answer['refused']}" if "refused" in answer else (answer, self._saved())

    def _saved(self) -> Encoded:
        lengths = np.load(self._folder / f"{self.engine}.lengths.npy")
        return np.load(self._folder / f"{self.engine}.ids.npy"), offsets_of(lengths)

    def _answer(self, key: str) -> dict[str, Any]:
        """Wait for the answer with this key, or for a failure."""
        until = time.monotonic() + TIMEOUT
        while not self._failure:
            for answer in self._read_answers(until):
                if "refused" in answer:
                    self._failure, self.temporary = answer["refused"], answer["temporary"]
                elif key in answer:
                    return answer
        return {"refused": self._failure}

    def _read_answers(self, until: float) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        ready = self._selector.select(max(0, until - time.monotonic()))
        chunk = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
        if not chunk and ready:
            code = self._process.wait()
            self._failure = f"it crashed ({f'signal {-code}' if code < 0 else f'exit {code}'})"
        elif not chunk:
            self._failure, self.temporary = f"no answer in {TIMEOUT:.0f} s", True
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in lines:
            try:
                answer = json.loads(line)
            except ValueError:  # printed by something else before the worker redirected standard output
                continue
            if isinstance(answer, dict):
                yield answer


def write_texts(path: Path, texts: list[str], block_bytes: int = BATCH_BYTES) -> None:
    """Write texts as an Arrow file, in record batches of about `block_bytes`."""
    import pyarrow as pa

    schema = pa.schema([("text", pa.large_string())])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        start = size = 0
        for i, text in enumerate(texts):
            size += len(text)
            if size >= block_bytes or i == len(texts) - 1:
                writer.write_batch(pa.record_batch([text_array(texts[start : i + 1])], schema=schema))
                start, size = i + 1, 0
