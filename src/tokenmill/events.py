"""What happens during a build, as typed events: for the log in the store, the terminal and `progress=` callbacks.

Each line of events.jsonl is `Event.as_record` plus the version of this vocabulary (`v`), the id of the run (`run`) and the
time in seconds since 1970 (`time`), with a checksum per line. docs/events.md lists every event; scripts/event_pages.py writes
it from this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from tokenmill.display import fields_in_one_line

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The base of all events."""

    __repr__ = fields_in_one_line

    @property
    def name(self) -> str:
        """The event's name in the log: "shard_done" for a ShardDone."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    def as_record(self) -> dict[str, Any]:
        """The event as JSON values."""
        return {"event": self.name, **asdict(self)}


Listener = Callable[[Event], None]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Begun(Event):
    """A build begins. Always the first event of a build in the log."""

    folder: str  # of the log and the shards
    pid: int  # the process that builds
    host: str  # the name of its machine


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Waiting(Event):
    """Another process builds the same store; this one waits for it. Sent at first, after a minute, and then ever less often."""

    process: str  # its process id
    path: str  # folder of that build
    seconds: float  # how long this process has waited


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparing(Event):
    """Input files are read to find out whether their content changed."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Downloading(Event):
    """Files of datasets on the Hugging Face Hub are copied while others are encoded."""

    files: int
    bytes: int
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Explained(Event):
    """Why there is something to build, in words."""

    reasons: list[str]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LargeDocument(Event):
    """A large text file is read as one document, and may be several. Sent once, for the largest such file."""

    file: str
    source_bytes: int  # its size on disk
    separator: str | None  # seen in its first MB; null in a file of 64 MB or more without one
    count: int  # how often it was seen
    message: str  # the same in words, with the flags that split the file


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SavingStream(Event):
    """Standard input that cannot be cut into segments (a text that is one document, parquet, an Arrow file) is written to disk as
    a whole before it is encoded. Sent after the first MB, and then every 16 MB."""

    stream: str
    bytes: int  # written so far


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EngineProof(Event):
    """An engine is compared with the reference, because this tokenizer was never used for so much text. Done once."""

    tokenizer: str
    seconds: float  # that it takes, about


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Planned(Event):
    """What the build consists of."""

    files: int  # input files
    streams: int  # inputs that are not files, and are read as they come
    source_bytes: int  # size of the files on disk
    ignored: dict[str, int]  # files and folders in the input that are not read, by reason
    shards: int  # shards of the whole store, as far as they are known: none of streams and of a build that stops early
    done: int  # shards that exist already
    linked: int  # of these, shards that other stores in the cache have, taken from there
    tasks: int  # shards to encode in this run; 0 for a build that stops early
    tokenizer: str
    vocab_size: int
    dtype: str  # of the stored ids
    bos: str = "none"  # the id before each document
    eos: str  # the end-of-document token
    note: str = ""  # where the ids around a document are not what one may expect of the tokenizer
    engine: str  # name and version
    proof: str  # how the engine was checked against the reference
    workers: str  # the executor, in words


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Started(Event):
    """Encoding begins."""

    source_bytes: int  # bytes to read; 0 if not known


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Progress(Event):
    """How far the build is. Sent about once a second between `started` and the end, and once more at the end.

    All counts are of this run. Work of a worker that died is subtracted again. Rates are over the last ten seconds.
    """

    seconds: float  # since `started`
    source_bytes: int  # bytes of input read; estimated inside a file, exact at its end
    total_source_bytes: int  # bytes of input to read
    text_bytes: int  # bytes of text encoded
    documents: int  # documents written
    tokens: int  # tokens written
    source_bytes_per_second: float
    text_bytes_per_second: float
    tokens_per_second: float
    memory_bytes: int  # resident memory of all processes of the build
    memory_budget: int  # the memory they may use
    workers: int  # worker processes with a task
    shards_done: int  # finished shards, earlier runs included
    shards: int  # shards of the whole store; 0 if not known
    failed_files: int  # input files that could not be read
    quarantined: int  # documents left out of finished shards
    eta_seconds: float | None  # time left; null while the rate is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSeconds:
    """Seconds of wall-clock time by stage.

    `parse` is separated from `read` for text, lines and JSON lines. Parquet, Arrow and CSV libraries read and parse in one
    call: all of that is `read`. So are the checksum of the input and decompression.
    """

    read: float = 0.0
    parse: float = 0.0
    encode: float = 0.0
    write: float = 0.0
    sync: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ShardDone(Event):
    """A shard and its receipt are on disk."""

    id: str  # name of the shard
    documents: int
    tokens: int
    text_bytes: int  # bytes of text encoded; pieces copied from another shard do not count
    source_bytes: int  # bytes of input read, likewise
    quarantined: int  # documents left out
    by_reference: int = 0  # documents that the engine has left to the reference
    reasons: dict[str, int] = field(default_factory=dict)  # documents left out, by reason
    pid: int  # the process that made it
    seconds: StageSeconds  # by stage: read, parse, encode, write, sync


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ShardsDone(Event):
    """The sums of several `shard_done` events. Only in the log, and only of builds with more than a thousand shards."""

    shards: int  # how many
    documents: int
    tokens: int
    text_bytes: int
    source_bytes: int
    quarantined: int
    by_reference: int = 0
    reasons: dict[str, int] = field(default_factory=dict)  # documents left out, by reason
    seconds: StageSeconds
    workers: dict[str, float] = field(default_factory=dict)  # seconds of work, by process id


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WorkerRecycled(Event):
    """A worker has outgrown its share of memory and is replaced between two tasks."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WorkerStuck(Event):
    """A worker makes no progress: it is stopped, or reading, encoding or writing hangs."""

    pid: int
    seconds: float  # without progress, or without a sign of life
    is_silent: bool  # whether it gave no sign of life either
    file: str | None  # the first file of its last task
    is_replaced: bool  # whether it is killed now, and its tasks given to other workers; at first it is only named


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WorkerDied(Event):
    """A worker process ended unexpectedly. Its tasks are given to other workers."""

    pid: int
    code: int  # exit code; -9 for a process killed by signal 9
    at: tuple[int, int] | None  # documents (first, last + 1) of its task that it was encoding


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DeviceLost(Event):
    """The engine has lost the device that it computes on. The reference encodes the rest: the same ids, more slowly."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DocumentCrashed(Event):
    """A document crashes the engine and is quarantined."""

    task: str
    document: int  # number of the document in the task, from 0
    code: int  # exit code of the last worker it crashed


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FileFailed(Event):
    """An input file could not be read and is not in the store. Sent as it happens, once per file."""

    file: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UpToDate(Event):
    """There was nothing to build."""

    path: str  # folder of the store
    documents: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SliceDone(Event):
    """A slice of a build has made its shards. The store is finished by the last slice."""

    slice: str  # as it was given: K/N
    shards: int  # that this run has made
    missing: list[int]  # the slices that are not done yet
    differing: list[int]  # those of them that were done with other input or options


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Finished(Event):
    """The store is published. Documents, tokens and what follows are of the whole store, not of this run."""

    seconds: float  # in all
    setup_seconds: float  # of these, until the first text was read: planning, and the proof of an engine
    source_bytes: int  # bytes read in this run
    documents: int
    tokens: int
    quarantined: dict[str, int]  # documents left out, by reason
    failed_files: int
    doubts: list[str] = field(default_factory=list)  # what looks wrong about the input, with the likely cause
    special_documents: int  # documents whose text holds a special token
    special_tokens: str  # what special tokens in the text became: "parse", "text" or "error"
    by_reference: int  # documents that the engine has left to the reference tokenizer in this run
    spot_checked: int  # documents compared with the reference tokenizer
    spot_check_seconds: float  # CPU time of that
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Stopped(Event):
    """The build ended with an error. Finished shards are kept."""

    error: str
