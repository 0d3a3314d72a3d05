"""A worker process, and the template process that workers are forked from, as the process that starts them knows them.

Imports little: a template can be started before anything else is loaded.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from contextlib import suppress
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any

from tokenmill.child_process import WORKER_ENVIRONMENT

if TYPE_CHECKING:
    from tokenmill.building.task_context import TaskContext

KILLED = -signal.SIGKILL
ANSWER_SECONDS = 10.0  # for a template to say how a worker ended
MESSAGE_BYTES = 1 << 12  # at most, between a template and the process that started it
SMALL_BYTES = 8 << 20  # less text than this is encoded before worker processes would have started
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

    def start_alone(self, folder: str | None = None) -> None:
        """Start it as a process of its own, in this folder if it is not that of the calling process."""
        command = [sys.executable, "-P", "-m", "tokenmill.building.executors.worker"]
        stdin, stdout, stderr = self.its_ends
        environment = {**WORKER_ENVIRONMENT, **os.environ}  # what the user has set takes precedence
        self._process = subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, env=environment, cwd=folder
        )
        self._close_its_ends()

    def was_forked(self, pid: int, template: Template) -> None:
        self._pid, self._template = pid, template
        with suppress(OSError):
            self._pidfd = os.pidfd_open(pid)
        self._close_its_ends()

    @property
    def is_started(self) -> bool:
        return not self.its_ends

    @property
    def pid(self) -> int:
        """0 if it is not started."""
        return self._pid if self._process is None else self._process.pid

    def send(self, message: dict[str, Any]) -> None:
        self.send_line(json.dumps(message).encode())

    def send_line(self, message: bytes) -> None:
        with suppress(OSError):  # it died, and the end of its output shows that
            line = memoryview(message + b"\n")
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


_prepared: list[Template] = []  # at most one


def prepare_template() -> None:
    """Start a template for the build that this process is about to plan. `take_template` gives it."""
    if not _prepared and can_fork():
        _prepared.append(Template())


def take_template() -> Template | None:
    """The template that was prepared, if there is one."""
    return _prepared.pop() if _prepared else None


def drop_template() -> None:
    """There are no workers to fork: end the template that was prepared."""
    if (template := take_template()) is not None:
        template.end()
