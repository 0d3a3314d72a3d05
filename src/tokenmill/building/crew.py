"""Who does the tasks. One contract; here the simplest of it: this very process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from tokenmill.building.machine import BLOCK_ROOM
from tokenmill.building.plan import Task
from tokenmill.building.sampling import Sample
from tokenmill.events import Event

if TYPE_CHECKING:
    from tokenmill.building.seen import Journal
    from tokenmill.encoding import Encoder
    from tokenmill.reading import Source

Failures = dict[str, list[dict[str, str]]]


class Done(NamedTuple):
    """A task that was done: the shard it became, and what each of its pieces held."""

    shard: str
    contents: list[str | None]


Note = Callable[[Task, Done], None]


class Crew(Protocol):
    """Does tasks, each into a shard with a receipt. Where and how many at a time is its own affair."""

    processes: int

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def start(self) -> None:
        """Get ready, if that takes time; work follows or not."""

    def stop(self) -> None:
        """Give up what is under way; no receipt is written after this."""

    def describe(self) -> str:
        """What it is, in a few words for the user."""
        ...

    def begin(self, setup: dict[str, Any], offer: Callable[[Sample], None] | None) -> None:
        """What every task of this build needs: JSON values only. `offer` gets documents for the reference."""

    def run(self, tasks: Iterable[Task], is_done: Callable[[Task], bool], note: Note) -> Failures:
        """Do tasks, and note each. Returns the files that failed, by task; raises what no retry can mend."""
        ...


class Inside:
    """A crew of one: the calling process. For small inputs and for debugging."""

    processes = 1

    def __init__(self, memory: int, emit: Callable[[Event], None], live: Any = None) -> None:
        self.memory, self.emit, self.live = memory, emit, live

    def __enter__(self) -> Inside:
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
        from tokenmill.building.encoded import encode_task

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
            self.emit({"event": "shard", "id": shard})
        return failures

    def _sampler(self, task: Task) -> Callable[[int, str, list[int]], None] | None:
        offer = self.offer
        return None if offer is None else lambda number, text, ids: offer(Sample(task.id, number, text, ids))

    def _advance(self, source: int, text: int, documents: int, tokens: int) -> None:
        self.emit({"event": "did", "source": source, "text": text, "documents": documents, "tokens": tokens})


def prepare(setup: dict[str, Any], live: Any = None) -> tuple[Path, Source, Encoder, Journal]:
    """What a process needs to do tasks, from the build's setup: where shards go, how to read and encode, where to note it."""
    from tokenmill.building.seen import Journal
    from tokenmill.encoding import Encoder, load_definition
    from tokenmill.reading import Source

    source = Source(files=(), inputs=(), **setup["source"])
    sys.path += [entry for entry in setup["path"] if entry not in sys.path]
    definition = load_definition(Path(setup["tokenizer"]), setup["python_class"])
    assert definition is not None
    encoder = Encoder(definition, **setup["encoder"], live=live)
    journal = Journal(Path(setup["journals"]), setup["way"], setup["looked_at"])
    return Path(setup["shards"]), source, encoder, journal
