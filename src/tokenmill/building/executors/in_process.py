"""The simplest executor: the calling process itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tokenmill.building.executors.base import Done, Failures, Note, prepare
from tokenmill.building.machine import BLOCK_ROOM
from tokenmill.building.plan import Task
from tokenmill.building.spot_check import Sample
from tokenmill.events import Advanced, Listener, ShardDone


class InProcess:
    """A crew of one: the calling process. For small inputs and for debugging."""

    processes = 1

    def __init__(self, memory: int, emit: Listener, live: Any = None) -> None:
        self.memory, self.emit, self.live = memory, emit, live

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

    def begin(self, setup: dict[str, Any], offer: Callable[[Sample], None] | None) -> None:
        self.shards, self.source, self.encoder, self.journal = prepare(setup, self.live)
        self.offer, self.refuse_specials, self.making = offer, setup["refuse_specials"], setup["making"]

    def run(self, tasks: Iterable[Task], is_done: Callable[[Task], bool], note: Note) -> Failures:
        from tokenmill.building.task_commit import encode_task

        failures: Failures = {}
        for task in tasks:
            encoded = encode_task(
                task,
                self.source,
                self.encoder,
                self.shards,
                memory=self.memory - BLOCK_ROOM,
                advance=self._advance,
                sample=self._sampler(task),
                refuse_specials=self.refuse_specials,
            )
            if encoded.failed:
                failures[task.id] = encoded.failed
            if encoded.is_nothing:
                encoded.writer.discard()
                continue
            shard = encoded.commit(self.making, self.journal)
            note(task, Done(shard, encoded.contents))
            self.emit(ShardDone(id=shard))
        return failures

    def _sampler(self, task: Task) -> Callable[[int, str, list[int]], None] | None:
        offer = self.offer
        return None if offer is None else lambda number, text, ids: offer(Sample(task.id, number, text, ids))

    def _advance(self, source: int, text: int, documents: int, tokens: int) -> None:
        self.emit(Advanced(source_bytes=source, text_bytes=text, documents=documents, tokens=tokens))
