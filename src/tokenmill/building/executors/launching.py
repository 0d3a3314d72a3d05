"""How worker processes are started: forked from a template process, or each on its own.

A template (see `worker_template`) loads the engine once. Workers forked from it are ready in milliseconds, and share its memory.
Only a process with a single thread can be forked safely, so the template starts none, and says if a library did. Then, for
engines that must not be forked, and on systems other than Linux, every worker is a process of its own that loads everything.
"""

from __future__ import annotations

import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from contextlib import suppress
from dataclasses import asdict
from typing import IO, Any

from tokenmill.building.executors.supervisor import START_KILLS, START_STRIKES
from tokenmill.building.executors.worker_template import HAS_THREADS, MESSAGE_BYTES
from tokenmill.building.task_context import TaskContext
from tokenmill.encoding.engines import engine_traits
from tokenmill.encoding.engines.base import WORKER_ENVIRONMENT
from tokenmill.errors import BuildError

KILLED = -signal.SIGKILL
ANSWER_SECONDS = 10.0  # for a template to say how a worker ended
STDERR_BYTES = 4000  # of the standard error of a process that are kept for an error message
# One thread: Arrow's second allocator, which is not used, would start one.
TEMPLATE_ENVIRONMENT = {**WORKER_ENVIRONMENT, "JE_ARROW_MALLOC_CONF": "background_thread:false"}


def can_fork() -> bool:
    """Whether workers can be forked on this system: on Linux, where processes can be held by descriptors."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # some containers forbid it
        return False
    return sys.platform == "linux"


class WorkerProcess:
    """A worker process that was asked for. It exists when it is started, which may be later."""

    def __init__(self) -> None:
        its_input, stdin = os.pipe()
        stdout, its_output = os.pipe()
        stderr, its_error = os.pipe()
        self.stdin: IO[bytes] = open(stdin, "wb", buffering=0)
        self.stdout: IO[bytes] = open(stdout, "rb", buffering=0)
        self.stderr: IO[bytes] = open(stderr, "rb", buffering=0)
        self.its_ends = [its_input, its_output, its_error]  # until it is started
        self._process: subprocess.Popen[bytes] | None = None
        self._template: Template | None = None
        self._pid, self._pidfd = 0, -1

    def start_alone(self) -> None:
        """Start it as a process of its own."""
        command = [sys.executable, "-P", "-m", "tokenmill.building.executors.worker"]
        stdin, stdout, stderr = self.its_ends
        environment = {**WORKER_ENVIRONMENT, **os.environ}  # what the user has set takes precedence
        self._process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, env=environment)
        self._close_its_ends()

    def was_forked(self, pid: int, template: Template) -> None:
        self._pid, self._template = pid, template
        with suppress(OSError):
            self._pidfd = os.pidfd_open(pid)
        self._close_its_ends()

    @property
    def is_started(self) -> bool:
        return not self.its_ends

    def send(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # it died, and the end of its output shows that
            line = memoryview(json.dumps(message).encode() + b"\n")
            while line:
                line = line[self.stdin.write(line) :]

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
        elif self._pidfd >= 0:
            with suppress(OSError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def wait(self, seconds: float) -> int:
        """The exit code of a process that has ended or was killed. One that hangs in the kernel dies later."""
        if self._process is not None:
            try:
                return self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                return KILLED
        if self._pidfd < 0:
            return KILLED
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        if not ended.poll(seconds * 1000):
            return KILLED
        assert self._template is not None
        return self._template.reap(self._pid)

    def close(self) -> None:
        self._close_its_ends()
        for pipe in (self.stdin, self.stdout, self.stderr):
            with suppress(OSError):
                pipe.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def _close_its_ends(self) -> None:
        for end in self.its_ends:
            os.close(end)
        self.its_ends = []


class Template:
    """A template process, as the process that started it knows it."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(ANSWER_SECONDS)
        self._stderr = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tokenmill.building.executors.worker_template", str(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            pass_fds=[theirs.fileno()],
            env={**TEMPLATE_ENVIRONMENT, **os.environ},
        )
        theirs.close()
        self.pid = self._process.pid
        self._asked: deque[WorkerProcess | None] = deque()  # a worker to fork, or None for one to reap
        self.has_forked = False

    def load(self, context: TaskContext) -> None:
        assert self._process.stdin is not None
        with suppress(OSError), self._process.stdin as stdin:  # it died, and the end of its socket shows that
            stdin.write(json.dumps(asdict(context)).encode() + b"\n")

    def fork(self, worker: WorkerProcess) -> None:
        """Ask for a worker. `read_answer` starts it."""
        self._asked.append(worker)
        with suppress(OSError):
            socket.send_fds(self.socket, [b'{"fork": true}'], worker.its_ends)

    def reap(self, pid: int) -> int:
        """The exit code of a worker that has ended; that of a killed one if the template is gone."""
        self._asked.append(None)
        try:
            self.socket.send(json.dumps({"reap": pid}).encode())
            while (answer := self.read_answer()) is not None:
                if "code" in answer:
                    return int(answer["code"])
        except OSError:
            pass
        return KILLED

    def read_answer(self) -> dict[str, Any] | None:
        """Wait for the next answer. None if the process has ended."""
        try:
            message = self.socket.recv(MESSAGE_BYTES)
        except OSError:
            return None
        if not message:
            return None
        answer: dict[str, Any] = json.loads(message)
        worker = self._asked.popleft()
        if worker is not None:
            self.has_forked = True
            worker.was_forked(answer["pid"], self)
            worker.send({"begin": None})  # not before: a worker that this process does not know does no work
        return answer

    def end(self) -> tuple[int, str]:
        """Kill it. All workers that it forked are known afterwards. Returns its exit code and what it wrote to standard error."""
        self._process.kill()
        self._process.communicate()
        code = self._process.returncode
        while self.read_answer() is not None:
            pass
        self.socket.close()
        with self._stderr as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - STDERR_BYTES))
            return code, file.read().decode(errors="replace")


class Launcher:
    """Starts worker processes, and tells each the context of the build.

    `selector` is that of the caller: when it shows the launcher as its data, `read_answer` has something to read. `count` is how
    many workers there are at a time: a single one is not forked, because a template would only take memory beside it.
    """

    def __init__(self, selector: selectors.BaseSelector, count: int) -> None:
        self._selector = selector
        self._context: TaskContext | None = None
        self._template: Template | None = None
        self._forks = can_fork() and count > 1
        self._waiting: list[WorkerProcess] = []  # that are not started yet, or have no context yet
        self._deaths = 0  # of templates in a row before one forked a worker

    @property
    def is_starting(self) -> bool:
        """Whether workers were asked for that are not started yet."""
        return bool(self._waiting)

    @property
    def template_pid(self) -> int | None:
        return None if self._template is None else self._template.pid

    def start(self) -> WorkerProcess:
        worker = WorkerProcess()
        self._waiting.append(worker)
        self._start(worker)
        return worker

    def begin(self, context: TaskContext) -> None:
        """Set the context. Workers that were started before get it, too."""
        self._context = context
        if self._forks and engine_traits(context.encoder["engine_name"]).can_fork:
            if self._template is not None:
                self._template.load(context)
        else:
            self._stop_forking()

    def _start(self, worker: WorkerProcess) -> None:
        if self._forks:
            if self._template is None:
                self._start_template()
            assert self._template is not None
            self._template.fork(worker)
            return
        if not worker.is_started:
            worker.start_alone()
        if self._context is not None:
            worker.send({"begin": asdict(self._context)})
            self._waiting.remove(worker)

    def _start_template(self) -> None:
        self._template = Template()
        self._selector.register(self._template.socket, selectors.EVENT_READ, self)
        if self._context is not None:
            self._template.load(self._context)

    def read_answer(self) -> None:
        """Take an answer of the template. If it has ended, another one starts the workers that wait."""
        template = self._template
        if template is None:
            return
        if template.read_answer() is not None:
            self._drop_started()
            return
        code, stderr = self._end_template()
        if code == HAS_THREADS:
            self._stop_forking()
            return
        self._deaths = 1 if template.has_forked else self._deaths + 1
        if self._deaths >= (START_STRIKES if code >= 0 else START_KILLS):
            raise BuildError(
                f"the process that loads the tokenizer for the workers died {self._deaths} times (exit {code}):\n{stderr}"
            )
        for worker in self._waiting:
            self._start(worker)

    def _stop_forking(self) -> None:
        """Start all workers as processes of their own from now on."""
        self._forks = False
        self.stop()
        for worker in list(self._waiting):
            self._start(worker)

    def _end_template(self) -> tuple[int, str]:
        assert self._template is not None
        template, self._template = self._template, None
        self._selector.unregister(template.socket)
        ended = template.end()
        self._drop_started()
        return ended

    def _drop_started(self) -> None:
        self._waiting = [worker for worker in self._waiting if not worker.is_started]

    def stop(self) -> None:
        """End the template. All workers that it forked are known afterwards."""
        if self._template is not None:
            self._end_template()

    def forget(self, worker: WorkerProcess) -> None:
        """A worker is not wanted any more."""
        if worker in self._waiting:
            self._waiting.remove(worker)
