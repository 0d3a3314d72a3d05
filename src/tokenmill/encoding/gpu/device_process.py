"""The process that owns a GPU: `python -m tokenmill.encoding.gpu.device_process NAME DEVICE`, and a tokenizer.json as its input.

It listens at a local address that only processes of the same user can use. Each connection has a batch in shared memory
(`SharedBatch`); the messages only say what is in it. Requests that wait are encoded together, so that many small ones are as
quick as a large one. Two seconds after the last connection it ends.

    out  {"device": name, "pid": ..., "use": number, "batch_bytes": n, "id_type": name}      at first; `use`: the device to use
    in   {"text_room": bytes}, with a descriptor       the batch of this connection
    in   {"documents": n, "nbytes": bytes}             encode what is in the batch
    out  {"ids": n}, {"out_of_room": true}, {}         the ids are in the batch; a smaller batch is needed; the new batch is known
    out  {"problem": text}                             there is no device, or no longer one: this process ends
"""

from __future__ import annotations

import errno
import json
import os
import resource
import selectors
import socket
import sys
from contextlib import suppress
from itertools import count
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill.encoding.gpu.device_client import MEMORY_VARIABLE, MESSAGE_BYTES, peer_user
from tokenmill.encoding.gpu.shared_batch import OutOfRoom, SharedBatch

if TYPE_CHECKING:
    from tokenmill.encoding.gpu.device import Device

IDLE_SECONDS = 2.0
DEFAULT_MEMORY = "5GB"
LEAST_MEMORY = 256_000_000
TO_DEVICE, FROM_DEVICE = 1, 2  # directions of copies, as CUDA numbers them
BORDERS = 512  # bytes, at most, around the documents of a batch
SHARE_OF_FREE = 0.9  # of the device's memory


class Client:
    """A connection, and its batch."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.batch: SharedBatch | None = None
        self.documents = self.nbytes = 0  # of its request
        self.offsets = np.zeros(1, np.uint32)

    def send(self, answer: dict[str, Any]) -> None:
        with suppress(OSError):  # it is gone, and the next look at its socket shows that; or it never reads
            self.socket.send(json.dumps(answer).encode(), socket.MSG_DONTWAIT)


class DeviceServer:
    """Takes requests from all connections, and encodes those that wait together."""

    def __init__(self, listener: socket.socket, number: int, tokenizer_json: str) -> None:
        import cupy

        self._cupy, self._listener, self._number = cupy, listener, number
        self._devices = _count_devices(cupy)
        self._accepted = count()
        self._device = open_device(number, tokenizer_json)
        self._raw = self._device.make_raw()
        self._errors = _device_errors(cupy)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)

    @property
    def most_bytes(self) -> int:
        """Of the documents of a request, with a byte for each: around them are borders."""
        return self._device.batch_bytes - BORDERS

    def clients(self) -> list[Client]:
        return [key.data for key in self._selector.get_map().values() if key.data is not None]

    def serve(self) -> None:
        while True:
            events = self._selector.select(IDLE_SECONDS)
            if not events and len(self._selector.get_map()) == 1:
                return
            ready: list[Client] = []
            for key, _ in events:
                if key.data is None:
                    self._accept()
                elif self._receive(key.data):
                    ready.append(key.data)
            self._answer(ready)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it is gone already; or there are no descriptors left, and it waits
            return
        if peer_user(connection) != os.getuid():
            connection.close()
            return
        client = Client(connection)
        use = next(self._accepted) % self._devices if self._number == 0 else self._number
        hello = {"device": self._device.name, "pid": os.getpid(), "use": use, "batch_bytes": self.most_bytes}
        client.send({**hello, "id_type": self._device.id_type.name})
        self._selector.register(connection, selectors.EVENT_READ, client)

    def _receive(self, client: Client) -> bool:
        """Take a message. True if it is a request to encode."""
        try:
            message, descriptors, _, _ = socket.recv_fds(client.socket, MESSAGE_BYTES, 1)
        except OSError:
            message, descriptors = b"", []
        if not message:
            self._forget(client)
            return False
        try:
            return self._take(client, json.loads(message), descriptors)
        except Exception as error:
            client.send({"problem": f"a request that cannot be right: {error}"})
            self._forget(client)
            return False
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _take(self, client: Client, request: dict[str, int], descriptors: list[int]) -> bool:
        if "text_room" not in request:
            client.documents, client.nbytes = index(request["documents"]), index(request["nbytes"])
            self._check(client)
            return True
        self._unpin(client)
        client.batch = SharedBatch(descriptors[0], request["text_room"], self._device.id_type)
        self._pin(client.batch)
        client.send({})
        return False

    def _check(self, client: Client) -> None:
        """Raise ValueError unless the offsets of a request lie in its text. On the device nothing is checked."""
        batch, count, nbytes = client.batch, client.documents, client.nbytes
        if batch is None or not 0 <= nbytes <= batch.text_room or not 0 < count <= batch.document_room:
            raise ValueError("it does not fit into its batch")
        if nbytes + count > self.most_bytes:
            raise ValueError("it does not fit on the device")
        client.offsets = offsets = batch.offsets[: count + 1].copy()  # what is checked is what is used
        if offsets[0] != 0 or offsets[-1] != nbytes or (offsets[1:] < offsets[:-1]).any():
            raise ValueError("its offsets are not those of its text")

    def _forget(self, client: Client) -> None:
        self._unpin(client)
        self._selector.unregister(client.socket)
        client.socket.close()

    def _pin(self, batch: SharedBatch) -> None:
        with suppress(*self._errors):  # copies are slower then
            self._cupy.cuda.runtime.hostRegister(batch.address, batch.nbytes, 0)

    def _unpin(self, client: Client) -> None:
        if client.batch is not None:
            with suppress(*self._errors):
                self._cupy.cuda.runtime.hostUnregister(client.batch.address)
            client.batch = None

    def _answer(self, clients: list[Client]) -> None:
        """Encode the requests of these clients, as many at a time as fit."""
        group: list[Client] = []
        for client in clients:
            if sum(each.nbytes + each.documents for each in (*group, client)) > self.most_bytes:
                self._encode(group)
                group = []
            group.append(client)
        self._encode(group)

    def _encode(self, group: list[Client]) -> None:
        """Encode requests together; where there is no room for that, each alone; where there is none for one, say so."""
        if not group or self._fits(group):
            return
        for client in group:
            self._cupy.get_default_memory_pool().free_all_blocks()
            if not self._fits([client]):
                client.send({"out_of_room": True})

    def _fits(self, group: list[Client]) -> bool:
        """Encode requests, if there is room. If not, what was allocated is free again."""
        try:
            self._encode_together(group)
            return True
        except (OutOfRoom, self._cupy.cuda.memory.OutOfMemoryError):
            return False

    def _encode_together(self, group: list[Client]) -> None:
        cupy, id_bytes = self._cupy, self._device.id_type.itemsize
        batches = [client.batch for client in group if client.batch is not None]
        bounds, size = [np.zeros(1, np.uint32)], 0
        for client, batch in zip(group, batches, strict=True):
            self._copy(self._raw.data.ptr + size, batch.address, client.nbytes, TO_DEVICE)
            bounds.append(client.offsets[1:] + np.uint32(size))
            size += client.nbytes
        found = self._device.encode(self._raw, cupy.asarray(np.concatenate(bounds)), size)
        places, refused = found.places.get(), found.refused.get()
        first, counts = 0, []
        for client, batch in zip(group, batches, strict=True):
            own = places[first : first + client.documents + 1]
            begin, counted = int(own[0]), int(own[-1] - own[0])
            self._copy(batch.ids.ctypes.data, found.ids.data.ptr + begin * id_bytes, counted * id_bytes, FROM_DEVICE)
            batch.places[: client.documents + 1] = own - own[0]
            batch.refused[: client.documents] = refused[first : first + client.documents]
            first += client.documents
            counts.append(counted)
        cupy.cuda.Device().synchronize()
        for client, counted in zip(group, counts, strict=True):
            client.send({"ids": counted})

    def _copy(self, target: int, source: int, nbytes: int, direction: int) -> None:
        """Begin to copy, after what was begun before."""
        if nbytes:
            self._cupy.cuda.runtime.memcpyAsync(target, source, nbytes, direction, 0)


def open_device(number: int, tokenizer_json: str) -> Device:
    """Tables and buffers on a device, within the memory that may be used. If there is less, they are smaller."""
    import cupy

    from tokenmill.encoding.gpu.device import MOST_IDS, Device, Room
    from tokenmill.encoding.gpu.hash_tables import tables_of
    from tokenmill.encoding.gpu.patterns import recognise
    from tokenmill.formatting import human, parse_size

    body = json.loads(tokenizer_json)
    pattern, why = recognise(body)
    assert pattern is not None, why
    tables = tables_of(tokenizer_json)
    names = [token["content"].encode() for token in body.get("added_tokens") or ()]
    largest = max([*body["model"]["vocab"].values(), 0])
    if largest >= MOST_IDS:
        raise ValueError(f"its largest id is {largest}, and only ids below {MOST_IDS} are handled")
    id_type = np.uint16 if largest < 1 << 16 else np.uint32
    cupy.cuda.Device(number).use()
    memory = parse_size(os.environ.get(MEMORY_VARIABLE) or DEFAULT_MEMORY, MEMORY_VARIABLE)
    memory = min(memory, int(cupy.cuda.Device().mem_info[0] * SHARE_OF_FREE))
    pool = cupy.get_default_memory_pool()
    while memory >= LEAST_MEMORY:
        pool.set_limit(size=memory)
        with suppress(cupy.cuda.memory.OutOfMemoryError):
            return Device(pattern, tables, [*names, *tables.beyond], id_type, *Room.within(memory, tables.nbytes))
        pool.free_all_blocks()
        memory //= 2
    raise ValueError(f"it needs {human(LEAST_MEMORY)} of free memory, and {MEMORY_VARIABLE} must allow that")


def _count_devices(cupy: Any) -> int:
    try:
        count: int = cupy.cuda.runtime.getDeviceCount()
    except _device_errors(cupy) as error:
        raise ValueError(f"there is no CUDA device that CuPy can use: {error}") from error
    if not count:
        raise ValueError("there is no CUDA device")
    return count


def _device_errors(cupy: Any) -> tuple[type[Exception], ...]:
    return cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError


def _refuse(listener: socket.socket, error: BaseException) -> None:
    """Tell everybody who connects why there is no device, for some seconds."""
    listener.settimeout(IDLE_SECONDS)
    with suppress(OSError):
        while True:
            Client(listener.accept()[0]).send({"problem": _in_words(error)})


def _in_words(error: BaseException) -> str:
    """An error in one line: the first that says something, or what CuPy, which says a lot, names as the original one."""
    lines = [line.strip() for line in str(error).splitlines() if any(map(str.isalnum, line))]
    if isinstance(error, ImportError):
        marks = [number for number, line in enumerate(lines[:-1]) if line.startswith("Original error")]
        return f"CuPy cannot be imported: {lines[marks[0] + 1 if marks else 0][:300]}" if lines else "no CuPy"
    return lines[0][:300] if lines else type(error).__name__


def _allow_many_descriptors() -> None:
    """Each connection takes two."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> None:
    name, number = sys.argv[1], int(sys.argv[2])
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(f"\0{name}")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return  # another process was quicker
        raise
    listener.listen(1024)
    _allow_many_descriptors()
    if os.fork():
        os._exit(0)  # whoever started this process can connect now
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        server = DeviceServer(listener, number, sys.stdin.buffer.read().decode())
    except BaseException as error:
        _refuse(listener, error)
        os._exit(1)
    try:
        server.serve()
    except BaseException as error:  # the device is lost: another process may find it again
        for client in server.clients():
            client.send({"problem": _in_words(error)})
    os._exit(0)  # without the clean-up of a device that may be lost


if __name__ == "__main__":
    main()
