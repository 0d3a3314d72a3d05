"""The simplest executor: tasks run in the calling process, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from tokenmill.building.executors.base import Failures, Note, Offer, Outcomes
from tokenmill.building.machine import PARENT_BYTES, reload_at, resident_bytes
from tokenmill.building.plan import Task
from tokenmill.building.progress import MemoryUsed, TaskAdvanced
from tokenmill.building.task import TaskOptions, TaskRunner
from tokenmill.building.task_context import TaskContext
from tokenmill.events import Listener


class InProcess:
    """For small inputs, debugging, and tokenizers that exist only in this process (`live`).

    `memory` is what the work may use, in bytes. A document that crashes the engine crashes this process.
    """

    processes = 1
    is_isolated = False

    def __init__(self, memory: int, emit: Listener, live: Any = None) -> None:
        self._memory, self._emit, self._live = memory, emit, live

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def describe(self) -> str:
        return "inside this process"

    def begin(self, context: TaskContext, offer: Offer | None) -> None:
        self._runner = TaskRunner(replace(context, memory=reload_at(self._memory)), self._live)
        self._offer = offer

    def run(self, tasks: Iterable[Task], is_done: Callable[[Task], bool], note: Note) -> Failures:
        outcomes = Outcomes(note, self._emit)
        options = TaskOptions(report=self._report, offer=self._offer)
        for task in tasks:
            outcomes.add(task, self._runner.commit(self._runner.encode(task, options)))
        return outcomes.failures

    def _report(self, advanced: TaskAdvanced) -> None:
        self._emit(MemoryUsed(bytes=resident_bytes(), budget=self._memory + PARENT_BYTES, workers=1))
        self._emit(advanced)
