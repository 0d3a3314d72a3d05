"""A worker on a node of a Ray cluster: an actor that starts a worker process and passes its lines on. See `ray_pool`.

The actor decides nothing and encodes nothing: what may crash or grow happens in the worker process, whose end it reports. All
that goes in and out is JSON. Its methods run in threads of their own, so that one that waits holds up no other.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from typing import Any

from tokenmill import __version__
from tokenmill.building.executors.worker_process import STDERR_BYTES, WorkerProcess
from tokenmill.building.machine import resident_bytes
from tokenmill.io.object_store import is_url

LEASE_SECONDS = 30.0  # without a call of `receive`, the driver is gone or unreachable, and has given up this worker
GATHER_SECONDS = 0.5  # that lines nobody waits for are kept, so that there are few calls
URGENT = (b'{"ready"', b'{"free"', b'{"result"', b'{"fatal"')  # the supervisor does something at these
SEEN_SECONDS = 10.0  # for a file written elsewhere to show up: network file systems look at a folder now and then
KILL_SECONDS = 5.0


class RayWorker:
    """An actor. `setup` is JSON: the version of tokenmill and the working folder of the driver."""

    def __init__(self, setup: str) -> None:
        self._setup: dict[str, Any] = json.loads(setup)
        self._lines: list[bytes] = []
        self._stderr = b""
        self._code: int | None = None
        self._changed = threading.Condition()
        self._is_urgent = True  # the first answer says that there is room for this worker
        self._called = time.monotonic()
        self._process = WorkerProcess()
        self._stderr_reader = threading.Thread(target=self._read_stderr, daemon=True)
        self._stdout_reader = threading.Thread(target=self._read_stdout, daemon=True)
        if __version__ != self._setup["version"]:
            self._fail(
                f"node {platform.node()} has tokenmill {__version__}, and this process {self._setup['version']}: install"
                " the same version on all nodes"
            )
            return
        folder = self._setup["folder"]
        self._process.start_alone(folder if os.path.isdir(folder) else None)
        for thread in (self._stderr_reader, self._stdout_reader, threading.Thread(target=self._watch, daemon=True)):
            thread.start()

    def begin(self, message: str, mark: str) -> None:
        """Give the worker the context of the build, if this node sees the output folder: the driver wrote `mark` there.

        Empty for a store in a bucket.
        """
        until = time.monotonic() + SEEN_SECONDS
        while mark and not os.path.exists(mark):
            if time.monotonic() > until:
                self._fail(
                    f"node {platform.node()} does not see the output folder {os.path.dirname(mark)}, in which this process"
                    " has written a file: all nodes must write to the same folder. Choose one on a file system that all"
                    " nodes share (NFS, Lustre), or a bucket"
                )
                return
            time.sleep(0.2)
        self.send(message)

    def send(self, message: str) -> None:
        self._process.send_line(message.encode())

    def receive(self, seconds: float) -> str:
        """Wait for lines of the worker, or for its end, at most so long. Returns {"lines", "bytes", "code", "stderr"}."""
        self._called = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: self._is_urgent or self._code is not None, min(seconds, GATHER_SECONDS))
            if not self._lines:
                self._changed.wait_for(lambda: self._is_urgent or self._code is not None or self._lines, seconds)
            lines, self._lines, self._is_urgent = self._lines, [], False
            code, stderr = self._code, self._stderr
        self._called = time.monotonic()
        return json.dumps(
            {
                "lines": [line.decode() for line in lines],
                "bytes": 0 if code is not None else resident_bytes(self._process.pid or "self"),
                "code": code,
                "stderr": "" if code is None else stderr.decode(errors="replace"),
            }
        )

    def missing(self, paths: str) -> str:
        """The name of this node, and which of these files it does not see."""
        return json.dumps([platform.node(), [path for path in json.loads(paths) if not self._sees(path)]])

    def _sees(self, path: str) -> bool:
        return is_url(path) or os.path.exists(os.path.join(self._setup["folder"], path))

    def end(self) -> None:
        """Kill the worker. It writes nothing after this returns."""
        self._process.kill()
        self._process.wait(KILL_SECONDS)
        if self._stdout_reader.is_alive():
            self._stdout_reader.join(1.0)
        self._process.close()

    # Threads.

    def _read_stdout(self) -> None:
        rest = b""
        while chunk := self._process.stdout.read(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            if lines:
                self._add(lines)
        code = self._process.wait(KILL_SECONDS)
        self._stderr_reader.join(1.0)  # a process that the worker has started may hold it open
        with self._changed:
            self._code = code
            self._changed.notify_all()

    def _read_stderr(self) -> None:
        while chunk := self._process.stderr.read(1 << 16):
            self._stderr = (self._stderr + chunk)[-STDERR_BYTES:]

    def _watch(self) -> None:
        """End the worker if nobody asks for its lines any more. Ray ends actors too, when it finds that their driver is gone."""
        while self._code is None:
            time.sleep(1.0)
            if time.monotonic() - self._called > LEASE_SECONDS:
                self._process.kill()
                return

    def _add(self, lines: list[bytes]) -> None:
        with self._changed:
            self._lines += lines
            self._is_urgent = self._is_urgent or any(line.startswith(URGENT) for line in lines)
            self._changed.notify_all()

    def _fail(self, message: str) -> None:
        """An error that a retry cannot fix, as a worker reports it."""
        self._add([json.dumps({"fatal": {"type": "BuildError", "message": message}}).encode()])
