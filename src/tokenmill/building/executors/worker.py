"""A worker process: takes tasks as JSON lines on standard input, answers on what was standard output.

It is a plain subprocess, so a build works from a script without a __main__ guard and from a notebook; and the messages
are JSON, so nothing is ever unpickled. It does as it is told and keeps no state: the supervisor decides.

    in   {"setup": {...}}   once     {"task": {...}, "care": {...}}   one at a time     {"stop": true}   after the last
    out  {"ready": pid}     {"at": [low, high] or null}     {"did": [source_bytes, text_bytes, documents, tokens]}
         {"sample": [task id, number, text, ids]}      a document for the reference
         {"free": id}       encoding is over, the next task may come while this one is made durable
         {"done": id, "shard": name, "contents": [...], "failed_files": [...]}          the receipt is on disk
         {"failed": id, "files": [...]}                no file of the task could be read
         {"fatal": {"type": ..., "message": ...}}      an error no retry will mend
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tokenmill import errors
from tokenmill.building.executors.base import prepare
from tokenmill.building.plan import CrashHistory, Task
from tokenmill.building.task_commit import Encoded, encode_task
from tokenmill.encoding import EngineFailure

REPORT_SECONDS = 0.1


class _Worker:
    def __init__(self, out: int) -> None:
        self.out = out
        self.lock = threading.Lock()
        self.inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.committer = ThreadPoolExecutor(1)
        self.commits: list[Future[None]] = []
        self.done = [0, 0, 0, 0]
        self.reported = 0.0

    def send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        with self.lock:
            while line:
                line = line[os.write(self.out, line) :]

    def listen(self) -> None:
        """Take messages in; when the supervisor is gone, so is the reason to live."""
        for line in sys.stdin.buffer:
            self.inbox.put(json.loads(line))
        os._exit(1)

    def run(self) -> None:
        threading.Thread(target=self.listen, daemon=True).start()
        self.prepare(self.inbox.get()["setup"])
        self.send({"ready": os.getpid()})
        while "stop" not in (message := self.inbox.get()):
            self.work(Task.from_json(message["task"]), CrashHistory(**message["care"]))
        self.committer.shutdown()
        os._exit(0)  # the listener is still waiting for a message; nothing else is left to do

    def prepare(self, setup: dict[str, Any]) -> None:
        self.shards, self.source, self.encoder, self.journal = prepare(setup)
        self.making = setup["making"]
        self.memory, self.sampling = setup["memory"], setup["sample"]
        self.refuse_specials = setup["refuse_specials"]

    def work(self, task: Task, care: CrashHistory) -> None:
        encoded = encode_task(
            task,
            self.source,
            self.encoder,
            self.shards,
            care=care,
            memory=self.memory,
            announce=lambda low, high: self.send({"at": [low, high] if high else None}),
            advance=self.advance,
            sample=(lambda *what: self.send({"sample": [task.id, *what]})) if self.sampling else None,
            refuse_specials=self.refuse_specials,
        )
        self.report(now=True)
        self.wait_for_commits(keep=1)
        if encoded.is_nothing:
            encoded.writer.discard()
            self.send({"free": task.id})
            self.send({"failed": task.id, "files": encoded.failed})
            return
        self.commits.append(self.committer.submit(self.commit, encoded))
        if care.alone:
            self.wait_for_commits(keep=0)
        self.send({"free": task.id})

    def commit(self, encoded: Encoded) -> None:
        try:
            shard = encoded.commit(self.making, self.journal)
            done = {"done": encoded.task.id, "shard": shard, "contents": encoded.contents}
            self.send({**done, "failed_files": encoded.failed})
        except BaseException as error:
            self.fatal(error)

    def wait_for_commits(self, keep: int) -> None:
        while len(self.commits) > keep:
            self.commits.pop(0).result()

    def advance(self, *done: int) -> None:
        self.done = [a + b for a, b in zip(self.done, done, strict=True)]
        self.report()

    def report(self, now: bool = False) -> None:
        if now or time.monotonic() - self.reported > REPORT_SECONDS:
            self.send({"did": self.done})
            self.done = [0, 0, 0, 0]
            self.reported = time.monotonic()

    def fatal(self, error: BaseException) -> None:
        known = isinstance(error, errors.TokenmillError)
        message = str(error) if known else "".join(traceback.format_exception(error))
        self.send({"fatal": {"type": type(error).__name__ if known else "BuildError", "message": message}})
        os._exit(1)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor hears it and decides
    out = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints is not a message
    worker = _Worker(out)
    try:
        worker.run()
    except EngineFailure:
        traceback.print_exc()
        os._exit(70)  # as if the engine had taken the process with it: the supervisor finds the document
    except BrokenPipeError:
        os._exit(1)
    except BaseException as error:
        worker.fatal(error)


if __name__ == "__main__":
    main()
