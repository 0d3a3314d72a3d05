"""How worker processes are started: forked from a template process, or each on its own.

A template (see `worker_template`) loads the engine once. Workers forked from it are ready in milliseconds, and share its memory.
Only a process with a single thread can be forked safely, so the template starts none, and says if a library did. Then, for
engines that must not be forked, and on systems other than Linux, every worker is a process of its own that loads everything.
"""

from __future__ import annotations

import selectors
from contextlib import suppress
from dataclasses import asdict

from tokenmill.building.executors.supervisor import START_KILLS, START_STRIKES
from tokenmill.building.executors.worker_process import Template, WorkerProcess, can_fork, drop_template, take_template
from tokenmill.building.executors.worker_template import HAS_THREADS
from tokenmill.building.task_context import TaskContext
from tokenmill.encoding.engines import engine_traits
from tokenmill.errors import BuildError


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
        if not self._forks:
            drop_template()
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
        self._template = take_template() or Template()
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
        with suppress(KeyError):  # Ctrl-C may come before it is registered
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
