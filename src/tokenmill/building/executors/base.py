"""Who does the tasks: the contract, and what every process that does tasks has to prepare."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from tokenmill.building.plan import Task
from tokenmill.building.spot_check import Sample

if TYPE_CHECKING:
    from tokenmill.building.source_index import Journal
    from tokenmill.encoding import Encoder
    from tokenmill.reading import Source

Failures = dict[str, list[dict[str, str]]]


class Done(NamedTuple):
    """A task that was done: the shard it became, and what each of its pieces held."""

    shard: str
    contents: list[str | None]


Note = Callable[[Task, Done], None]


class Executor(Protocol):
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


def prepare(setup: dict[str, Any], live: Any = None) -> tuple[Path, Source, Encoder, Journal]:
    """What a process needs to do tasks, from the build's setup: where shards go, how to read and encode, where to note it."""
    from tokenmill.building.source_index import Journal
    from tokenmill.encoding import Encoder, load_definition
    from tokenmill.reading import Source

    source = Source(files=(), inputs=(), **setup["source"])
    sys.path += [entry for entry in setup["path"] if entry not in sys.path]
    definition = load_definition(Path(setup["tokenizer"]), setup["python_class"])
    assert definition is not None
    encoder = Encoder(definition, **setup["encoder"], live=live)
    journal = Journal(Path(setup["journals"]), setup["way"], setup["looked_at"])
    return Path(setup["shards"]), source, encoder, journal
