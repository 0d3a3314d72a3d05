"""What happens during a build, as typed events: for the log in the store, the terminal and `progress=` callbacks.

Each line of events.jsonl is `Event.as_record` plus the version of this vocabulary (`v`), the id of the run (`run`) and
the time, with a checksum per line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The base of all events."""

    @property
    def name(self) -> str:
        """The event's name in the log: "shard_done" for a ShardDone."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    def as_record(self) -> dict[str, Any]:
        """The event as JSON values."""
        return {"event": self.name, **asdict(self)}


Listener = Callable[[Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(Event):
    """Another process builds the same store; this one waits for it."""

    process: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing(Event):
    """Input files are read to find out whether their content changed."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained(Event):
    """Why there is something to build, in words."""

    reasons: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(Event):
    """What the build consists of. `shards` is 0 for a build that stops early, whose shards are not known yet."""

    files: int
    source_bytes: int
    ignored_files: int
    ignored_kinds: list[str]
    shards: int
    done: int
    tokenizer: str
    vocab_size: int
    dtype: str
    eos: str
    engine: str
    proof: str
    workers: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Event):
    """Encoding begins; `source_bytes` have to be read."""

    source_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Advanced(Event):
    """Work done since the last such event. Comes many times a second and is not logged."""

    source_bytes: int
    text_bytes: int
    documents: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUsed(Event):
    """Memory of all processes of the build. Comes several times a second and is not logged."""

    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardDone(Event):
    """A shard and its receipt are on disk."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecycled(Event):
    """A worker has outgrown its share of memory and is replaced between two tasks."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDied(Event):
    """A worker process ended unexpectedly, while it encoded documents `at` (first, last + 1) of its task."""

    pid: int
    code: int
    at: tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentCrashed(Event):
    """A document crashes the engine and is quarantined."""

    task: str
    document: int
    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFailed(Event):
    """An input file could not be read and is not in the store."""

    file: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpToDate(Event):
    """There was nothing to build."""

    path: str
    documents: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(Event):
    """The store is published."""

    seconds: float
    source_bytes: int
    documents: int
    tokens: int
    quarantined: dict[str, int]
    failed_files: int
    special_documents: int
    special_tokens: str
    spot_checked: int
    spot_check_seconds: float
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(Event):
    """The build ended with an error; finished shards are kept."""

    error: str


UNLOGGED = (Advanced, MemoryUsed)
