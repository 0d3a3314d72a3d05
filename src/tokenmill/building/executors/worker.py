"""A worker process: takes tasks as JSON lines on standard input, answers on what was standard output.

It is a plain subprocess or forked from one (see `launching`), so a build works from a script without a __main__ guard and from a
notebook; and messages are JSON, so nothing is unpickled. It keeps no state between tasks: the supervisor decides.

    in   {"begin": {...}}                     once: the context; null if the worker was forked and has it
         {"task": {...}, "crashes": {...}, "reads_ahead": bool}    one at a time; may come before "begin", and waits for it
         {"stop": true}                       after the last
    out  {"ready": pid}
         {"alive": true}           every two seconds
         {"reading": piece}        about to read this piece of the task, by number; only after a crash of the task
         {"at": [first, last]}     about to encode these documents of the task; null afterwards
         {"advanced": {...}}       what the task has done so far
         {"sample": [task, number, text, ids]}        a document for the spot check
         {"free": task}            encoded: the next task may come while this one is made durable
         {"result": {"task": ..., ...}}               the shard is durable, or no file could be read
         {"fatal": {"type": ..., "message": ...}}     an error that a retry cannot fix
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
from dataclasses import asdict
from typing import Any, NoReturn

from tokenmill import errors
from tokenmill.building.plan import Task
from tokenmill.building.task import EncodedTask, TaskOptions, TaskRunner
from tokenmill.building.task_context import CrashHistory, TaskContext
from tokenmill.child_process import claim_process
from tokenmill.encoding.encoder import EngineFailure
from tokenmill.reading.formats import expect_crashes

ENGINE_FAILED = 70  # exit code
HEARTBEAT_SECONDS = 2.0


class _WorkerProcess:
    def __init__(self, out: int) -> None:
        self.out = out
        self.lock = threading.Lock()
        self.inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.committer = ThreadPoolExecutor(1)
        self.commits: list[Future[None]] = []

    def send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        with self.lock:
            while line:
                line = line[os.write(self.out, line) :]

    def listen(self) -> None:
        """Receive messages. Ends this process when the supervisor is gone."""
        for line in sys.stdin.buffer:
            self.inbox.put(json.loads(line))
        os._exit(1)

    def show_life(self) -> None:
        while True:
            time.sleep(HEARTBEAT_SECONDS)
            self.send({"alive": True})

    def run(self, loaded: TaskRunner | errors.TokenmillError | None) -> NoReturn:
        threading.Thread(target=self.listen, daemon=True).start()
        threading.Thread(target=self.show_life, daemon=True).start()
        early: list[dict[str, Any]] = []
        while "begin" not in (message := self.inbox.get()):
            early.append(message)
        if isinstance(loaded, errors.TokenmillError):
            raise loaded
        self.runner = loaded or TaskRunner(TaskContext(**message["begin"]))
        self.send({"ready": os.getpid()})
        while "stop" not in (message := early.pop(0) if early else self.inbox.get()):
            crashes = CrashHistory.from_json(message["crashes"])
            self.work(Task.from_json(message["task"]), crashes, reads_ahead=message["reads_ahead"])
        self.committer.shutdown()
        os._exit(0)  # without waiting for the listener, which blocks on standard input

    def work(self, task: Task, crashes: CrashHistory, *, reads_ahead: bool) -> None:
        options = TaskOptions(
            crashes=crashes,
            reads_ahead=reads_ahead,
            announce=lambda first, last: self.send({"at": [first, last] if last else None}),
            announce_piece=(lambda piece: self.send({"reading": piece})) if crashes.alone else None,
            report=lambda advanced: self.send({"advanced": asdict(advanced)}),
            offer=(lambda sample: self.send({"sample": list(sample)})) if self.runner.context.sample else None,
        )
        encoded = self.runner.encode(task, options)
        self.wait_for_commits(keep=1)
        self.commits.append(self.committer.submit(self.commit, encoded))
        if crashes.alone:
            self.wait_for_commits(keep=0)
        self.send({"free": task.id})

    def commit(self, encoded: EncodedTask) -> None:
        try:
            result = self.runner.commit(encoded)
            self.send({"result": {"task": encoded.task.id, **asdict(result)}})
        except BaseException as error:
            self.fatal(error)

    def wait_for_commits(self, *, keep: int) -> None:
        while len(self.commits) > keep:
            self.commits.pop(0).result()

    def fatal(self, error: BaseException) -> NoReturn:
        is_known = isinstance(error, errors.TokenmillError)
        message = str(error) if is_known else "".join(traceback.format_exception(error))
        self.send({"fatal": {"type": type(error).__name__ if is_known else "BuildError", "message": message}})
        os._exit(1)


def main(loaded: TaskRunner | errors.TokenmillError | None = None) -> NoReturn:
    """Work until the supervisor says stop, or is gone. A worker that was forked is given what was loaded before, or why not."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor gets it too, and decides
    expect_crashes()
    claim_process()
    out = os.dup(1)
    os.dup2(2, 1)  # what a library prints is not a message
    worker = _WorkerProcess(out)
    try:
        worker.run(loaded)
    except EngineFailure:
        traceback.print_exc()
        os._exit(ENGINE_FAILED)  # as if the engine had crashed the process: the supervisor finds the document
    except BrokenPipeError:
        os._exit(1)
    except BaseException as error:
        worker.fatal(error)


if __name__ == "__main__":
    main()
