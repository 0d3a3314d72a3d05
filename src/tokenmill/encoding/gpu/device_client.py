"""A connection to the process that owns a GPU, which is started by the first that needs it. See `device_process`.

All processes that use the same tokenizer share it, so a GPU has one set of tables and buffers however many workers there are, and
workers load nothing of CUDA. It ends soon after the last connection.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill import __version__
from tokenmill.encoding.gpu.shared_batch import OutOfRoom, SharedBatch, memory_for
from tokenmill.encoding.libraries import installed_version
from tokenmill.user_cache import cache_folder

MEMORY_VARIABLE = "TOKENMILL_GPU_MEMORY"
MESSAGE_BYTES = 1 << 12
USUAL_ROOM = 8 << 20  # bytes of text in a request, unless a document is longer
START_SECONDS = 180.0  # for the process to load its tables and to compile kernels
ANSWER_SECONDS = 120.0
PAUSE_SECONDS = 0.05  # between two tries to connect, where more than the usual number wait
MOST_TRIES = 3  # for a process that ends before it has said anything
_PROTOCOL = 1
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class DeviceProblem(Exception):
    """There is no device, or no longer one. The text says why."""


class _Ended(DeviceProblem):
    """The process at the other end is gone."""


class DeviceConnection:
    """Encodes batches on a GPU, one at a time. With several GPUs, connections are spread over them evenly.

    After an exception other than OutOfRoom it is of no use: an answer may still be on its way.
    """

    def __init__(self, tokenizer_json: str) -> None:
        with _system_errors_are_problems():
            self._socket, hello = _connect(tokenizer_json, 0)
            if hello["use"] != 0:
                self._socket.close()
                self._socket, hello = _connect(tokenizer_json, hello["use"])
        self.device: str = hello["device"]
        self.pid: int = hello["pid"]
        self.most_bytes: int = hello["batch_bytes"]  # of documents, with a byte for each
        self.usual_bytes = min(USUAL_ROOM, self.most_bytes)
        self._id_type = np.dtype(hello["id_type"])
        self._make_batch(self.usual_bytes)

    def close(self) -> None:
        self._socket.close()

    def __del__(self) -> None:
        if hasattr(self, "_socket"):  # not if there was no connection
            self.close()

    @property
    def document_room(self) -> int:
        return self._batch.document_room

    def encode(
        self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The ids of documents, their offsets, and which documents are left to the reference.

        Raises OutOfRoom, and DeviceProblem if the process or its device is lost.
        """
        count, size = len(offsets) - 1, len(data)
        if size > self._batch.text_room:
            self._make_batch(size)
        batch = self._batch
        batch.text[:size] = data
        batch.offsets[: count + 1] = offsets
        answer = self._ask({"documents": count, "nbytes": size})
        if answer.get("out_of_room"):
            raise OutOfRoom
        ids = batch.ids[: answer["ids"]].astype(np.uint32)
        return ids, batch.places[: count + 1].astype(np.int64), batch.refused[:count].astype(bool)

    def _make_batch(self, text_room: int) -> None:
        with _system_errors_are_problems():
            descriptor = memory_for(text_room, self._id_type)
            try:
                self._batch = SharedBatch(descriptor, text_room, self._id_type)
                self._ask({"text_room": text_room}, [descriptor])
            finally:
                os.close(descriptor)

    def _ask(self, request: Any, descriptors: list[int] | None = None) -> dict[str, Any]:
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors or [])
        except OSError as error:
            raise _Ended(f"the process that owns the GPU is gone: {error}") from error
        return _answer(self._socket)


@contextmanager
def _system_errors_are_problems() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DeviceProblem(f"no connection to the process that owns the GPU: {error}") from error


def _connect(tokenizer_json: str, device: int) -> tuple[socket.socket, dict[str, Any]]:
    """A connection, and what the process said at its beginning. One that ended just then is started again."""
    name, until, tries = _name(tokenizer_json, device), time.monotonic() + START_SECONDS, 0
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(START_SECONDS)
        try:
            connection.connect(f"\0{name}")
            if peer_user(connection) != os.getuid():  # names can be taken by others
                raise DeviceProblem(f"another user of this machine answers to {name}")
            hello = _answer(connection)
            connection.settimeout(ANSWER_SECONDS)
            return connection, hello
        except ConnectionRefusedError:  # there is none yet
            connection.close()
            _start(name, device, tokenizer_json)
        except BlockingIOError:  # very many connect at the same moment
            connection.close()
            time.sleep(PAUSE_SECONDS)
        except _Ended:
            connection.close()
            tries += 1
            if tries == MOST_TRIES:
                raise
        except BaseException:
            connection.close()
            raise
        if time.monotonic() > until:
            raise DeviceProblem("the process that owns the GPU does not start")


def _start(name: str, device: int, tokenizer_json: str) -> None:
    """Start the process; if another one has the name already, nothing happens. Returns when one of them can be connected to."""
    descriptor = os.memfd_create("tokenmill-tokenizer")
    with open(descriptor, "wb+") as file:
        file.write(tokenizer_json.encode())
        file.seek(0)
        command = [sys.executable, "-P", "-m", "tokenmill.encoding.gpu.device_process", name, str(device)]
        started = subprocess.run(
            command, stdin=file, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True, text=True
        )
    if started.returncode:
        said = started.stderr.strip()[-500:] or f"exit code {started.returncode}"
        raise DeviceProblem(f"the process that owns the GPU cannot be started: {said}")


def _answer(connection: socket.socket) -> dict[str, Any]:
    try:
        message = connection.recv(MESSAGE_BYTES)
    except TimeoutError:
        raise DeviceProblem("the process that owns the GPU does not answer") from None
    except OSError as error:
        raise _Ended(f"the process that owns the GPU is gone: {error}") from error
    if not message:
        raise _Ended("the process that owns the GPU has ended")
    answer: dict[str, Any] = json.loads(message)
    if "problem" in answer:
        raise DeviceProblem(answer["problem"])
    return answer


def _name(tokenizer_json: str, device: int) -> str:
    """The address of the process: that of one with the same tables, libraries, limits and devices.

    Jobs of a cluster may have the same `CUDA_VISIBLE_DEVICES` for different devices, but not the same control group.
    """
    settings = [os.environ.get(name, "") for name in (MEMORY_VARIABLE, "CUDA_VISIBLE_DEVICES")]
    libraries = [__version__, _PROTOCOL, sys.executable, installed_version("tokenizers"), str(cache_folder())]
    facts = json.dumps([*libraries, *settings, *_confinement(), tokenizer_json])
    return f"tokenmill-gpu-{os.getuid()}-{hashlib.sha256(facts.encode()).hexdigest()[:32]}-{device}"


def _confinement() -> list[str]:
    """The control group and the file systems that this process sees."""
    found = []
    with suppress(OSError):
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            found.append(file.read())
        found.append(os.readlink("/proc/self/ns/mnt"))
    return found


def peer_user(connection: socket.socket) -> int:
    """The user id of the process at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])
