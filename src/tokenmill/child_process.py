"""Calls of functions in a child process, for libraries that may crash at damaged input: the child dies, not this process.

A message is a JSON object and any number of byte strings. Nothing is unpickled. A child is started by the first call, is used
again by later ones, and ends after some seconds without a call or when this process ends.
"""

from __future__ import annotations

import atexit
import gc
import io
import json
import os
import selectors
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, NamedTuple, cast

from tokenmill import errors

IDLE_SECONDS = 10.0  # a child without a call for this long ends
LIMIT_SECONDS = 300.0  # without an answer for this long, a child counts as hung
_LENGTHS = struct.Struct("<II")  # bytes of JSON, number of byte strings
_PIPE_BYTES = 1 << 20
# One thread per process, because a build runs one worker process per core. Values set by the user take precedence.
# The C library keeps memory that was freed: a block needs as much as the one before, and fresh pages cost a tenth of the time.
WORKER_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
    "TOKENIZERS_PARALLELISM": "false",
    "RAYON_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
GC_THRESHOLD = 100_000  # new objects between two collections, in processes of tokenmill's own


_runs_only_tokenmill = False


def claim_process() -> None:
    """Say that this process runs nothing but tokenmill: the command line, or a process started by tokenmill.

    It makes no garbage worth collecting often: looking for some takes a tenth of the time to import and to read a tokenizer.
    """
    global _runs_only_tokenmill
    _runs_only_tokenmill = True
    gc.set_threshold(GC_THRESHOLD)


def runs_only_tokenmill() -> bool:
    return _runs_only_tokenmill


class Message(NamedTuple):
    body: dict[str, Any]
    data: tuple[Any, ...] = ()  # bytes, or whatever has a buffer


class ChildDied(Exception):
    """A child process crashed, or did not answer. The text says how."""


class _IdleEnd(ChildDied):
    """A child ended because it had nothing to do."""


_kinds: list[Children] = []  # all of them; each lives as long as this process


def end_idle_children() -> None:
    """End the children that have nothing to do, for their memory."""
    for kind in _kinds:
        kind.end_idle()


class Children:
    """The child processes of one kind. Each is used by one caller at a time; a caller that finds none idle starts one."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._idle: list[Child] = []
        self._owner = os.getpid()
        _kinds.append(self)

    def can_start(self) -> bool:
        """Whether this process may start others, which a container or a job may forbid."""
        try:
            self._idle.append(self._take())
        except OSError:
            return False
        return True

    def _take(self) -> Child:
        """An idle child, or a new one."""
        if self._owner != os.getpid():  # this process was forked; the children belong to the other one
            self._idle, self._owner = [], os.getpid()
        while self._idle and not self._idle[-1].is_alive():
            self._idle.pop().kill()
        return self._idle.pop() if self._idle else Child(self._module)

    @contextmanager
    def lend(self) -> Iterator[Child]:
        """A child for some calls. It is not used again if it died or was left with a call that it has not answered."""
        child = self._take()
        try:
            yield child
        finally:
            if child.is_busy:
                child.kill()
            else:
                self._idle.append(child)

    def end_idle(self) -> None:
        if self._owner == os.getpid():
            while self._idle:
                self._idle.pop().kill()


atexit.register(end_idle_children)


class Child:
    """A child process that answers one message after the other."""

    def __init__(self, module: str, python: str = sys.executable) -> None:
        self._command = [python, "-P", "-m", module]
        self.is_busy = False  # with a call that is not answered yet
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        self._in = cast(BinaryIO, self._process.stdin)
        self._out = cast(io.FileIO, self._process.stdout)
        _enlarge(self._out.fileno())
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)

    def call(self, body: dict[str, Any], *data: Any) -> Message:
        """Send a message and wait for its answer."""
        self.send(body, *data)
        return self.receive()

    def send(self, body: dict[str, Any], *data: Any) -> None:
        self._sent, self.is_busy = Message(body, data), True
        with suppress(OSError, ValueError):  # the child has ended; `receive` finds out how
            write_message(self._in, self._sent)

    def receive(self) -> Message:
        """Wait for the answer to what was sent. An exception in the child is raised here."""
        try:
            answer = read_message(self._read)
        except _IdleEnd:
            self._start()
            self.send(self._sent.body, *self._sent.data)
            answer = read_message(self._read)
        self.is_busy = False
        if "raised" in answer.body:
            raise _exception(answer.body["raised"])
        return answer

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._selector.close()
        self._process.kill()
        self._process.wait()
        self._in.close()
        self._out.close()

    def _read(self, into: memoryview) -> None:
        """Fill a buffer."""
        until = time.monotonic() + LIMIT_SECONDS
        while into.nbytes:
            if not self._selector.select(max(0.0, until - time.monotonic())):
                self.kill()
                raise ChildDied(f"gave no answer in {LIMIT_SECONDS:.0f} s")
            count = self._out.readinto(into)
            if not count:
                code = self._process.wait()
                self.kill()
                raise _IdleEnd("ended") if code == 0 else ChildDied(f"crashed ({_how(code)})")
            into = into[count:]


def serve(answer: Callable[[Message], Message]) -> None:
    """The main loop of a child process. An exception of `answer` is raised in the caller."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller gets it too, and decides
    gc.disable()  # what is parsed has no cycles, and is large
    out = open(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a library prints is not a message
    stdin: Any = open(0, "rb", buffering=0)
    waiting = selectors.DefaultSelector()
    waiting.register(stdin, selectors.EVENT_READ)

    def read(into: memoryview) -> None:
        while into.nbytes:
            count = stdin.readinto(into)
            if not count:
                os._exit(0)
            into = into[count:]

    while waiting.select(IDLE_SECONDS):
        request = read_message(read)
        try:
            reply = answer(request)
        except BaseException as error:  # a panic in Rust code is not an Exception
            reply = Message({"raised": _described(error)})
        try:
            write_message(out, reply)
        except BrokenPipeError:
            os._exit(0)
    os._exit(0)


def write_message(out: BinaryIO, message: Message) -> None:
    data = [memoryview(part).cast("B") for part in message.data]
    body = json.dumps([message.body, [part.nbytes for part in data]]).encode()
    for part in (memoryview(_LENGTHS.pack(len(body), len(data)) + body), *data):
        while part.nbytes:
            part = part[out.write(part) :]


def read_message(read: Callable[[memoryview], None]) -> Message:
    """Read a message with a function that fills a buffer."""

    def take(size: int) -> bytearray:
        buffer = bytearray(size)
        read(memoryview(buffer))
        return buffer

    size, _ = _LENGTHS.unpack(take(_LENGTHS.size))
    body, sizes = json.loads(take(size))
    return Message(body, tuple(take(size) for size in sizes))


def _described(error: BaseException) -> dict[str, Any]:
    is_os_error = isinstance(error, OSError) and not isinstance(error, errors.TokenmillError)
    return {
        "type": type(error).__name__,
        "message": str(error),
        "os": [error.errno, error.strerror, error.filename] if is_os_error else None,  # type: ignore[attr-defined]
    }


def _exception(raised: dict[str, Any]) -> Exception:
    """The exception that was raised in the child, if tokenmill or the operating system defines it. Else a RuntimeError."""
    if raised["os"]:
        return OSError(*raised["os"])
    known = getattr(errors, raised["type"], None)
    if known is not None:
        exception: Exception = known(raised["message"])
        return exception
    return RuntimeError(f"{raised['type']}: {raised['message']}".partition("\n")[0][:300])


def _how(code: int) -> str:
    if code >= 0:
        return f"exit {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _enlarge(pipe: int) -> None:
    """Give a pipe a buffer of 1 MB where the system allows it."""
    try:
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except (ImportError, AttributeError, OSError):
        pass
