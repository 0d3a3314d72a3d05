"""The process that workers are forked from: `python -m tokenmill.building.executors.worker_template`. See `launching`.

It loads the engine once and never starts a thread, so a fork of it is a worker that is ready at once and shares its memory. It
does nothing else: what may crash or grow happens in the workers.

    standard input   {...}                    the context, one line
    socket, in       {"fork": true}           with three descriptors: the worker's standard input, output and error
                     {"reap": pid}            for a worker that has ended: this process is its parent
    socket, out      {"pid": pid}             for each fork, in order
                     {"code": exit code}      for each reap
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress

from tokenmill.building.executors import worker
from tokenmill.building.executors.worker_process import MESSAGE_BYTES
from tokenmill.building.machine import thread_count
from tokenmill.building.task import TaskRunner
from tokenmill.building.task_context import TaskContext
from tokenmill.child_process import claim_process
from tokenmill.encoding.engines import import_fast_engine
from tokenmill.errors import TokenmillError

GO = b"go"
HAS_THREADS = 71  # exit code: this process has more than one thread, so that a fork of it may hang
ENDING_SECONDS = 1.0


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor gets it too, and decides
    claim_process()
    import_fast_engine()  # most builds use it, and the supervisor is still planning
    requests = socket.socket(fileno=int(sys.argv[1]))
    line = sys.stdin.buffer.readline()
    if not line:
        return
    loaded = _load(TaskContext(**json.loads(line)))
    if not _is_alone():
        os._exit(HAS_THREADS)
    gc.collect()
    gc.freeze()  # a collection in a worker does not touch these objects, so their memory stays shared
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, MESSAGE_BYTES, 3)
        if not message:  # the supervisor is gone, or needs no more workers
            os._exit(0)
        request = json.loads(message)
        if "reap" in request:
            _, status = os.waitpid(request["reap"], 0)
            requests.send(json.dumps({"code": os.waitstatus_to_exitcode(status)}).encode())
            continue
        pid, go = _fork(loaded, descriptors, requests)
        for descriptor in descriptors:
            os.close(descriptor)
        requests.send(json.dumps({"pid": pid}).encode())
        with suppress(BrokenPipeError):  # it was killed
            os.write(go, GO)
        os.close(go)


def _load(context: TaskContext) -> TaskRunner | TokenmillError:
    try:
        runner = TaskRunner(context)
        runner.warm_up()
        return runner
    except TokenmillError as error:  # the first worker reports it
        return error


def _is_alone() -> bool:
    """Whether this process has one thread. One that was joined may still be ending: the kernel counts it for a moment."""
    until = time.monotonic() + ENDING_SECONDS
    while thread_count() > 1:
        if time.monotonic() > until:
            return False
        time.sleep(0.001)
    return True


def _fork(loaded: TaskRunner | TokenmillError, descriptors: list[int], requests: socket.socket) -> tuple[int, int]:
    """Fork a worker. Returns its process id, and a pipe on which it waits for `GO`.

    If this process is killed before it has told the supervisor of the worker, the worker ends: another one will be forked with
    the same pipes, and two would take each other's messages.
    """
    waits, go = os.pipe()
    pid = os.fork()
    if pid:
        os.close(waits)
        return pid, go
    requests.close()
    os.close(go)
    if os.read(waits, len(GO)) != GO:
        os._exit(1)
    os.close(waits)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    worker.main(loaded)


if __name__ == "__main__":
    main()
