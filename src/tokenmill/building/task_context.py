"""The values that travel between an executor and the processes that run its tasks, as JSON (`dataclasses.asdict`).

TaskContext    once per build, to every process
Task           (plan.py) one at a time, with its CrashHistory
TaskResult     back, when the task is done
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tokenmill.events import ShardDone, StageSeconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """What a process needs to run the tasks of one build."""

    shards: str  # folder the shards are written to
    build_key: str  # what shard names depend on beside the content of the input
    reading: dict[str, Any]  # values of ReadOptions
    # Tokenizing.
    tokenizer: str  # folder with the tokenizer's files
    python_class: str | None  # of a tokenizer written in Python
    python_path: list[str]  # where that class is imported from
    encoder: dict[str, Any]  # keyword arguments of Encoder, beside the definition
    refuse_special_tokens: bool  # a document that holds a special token stops the build
    # Notes on what was read.
    journals: str  # folder of the journals
    reading_key: str  # how the text was read, as the source index spells it
    listed_at: int  # when the input files were listed, in nanoseconds
    # For a store in a bucket: its URL, and the digests of the tokenizer's files there, for machines that do not have them.
    bucket: str | None = None
    tokenizer_files: dict[str, str] = field(default_factory=dict)
    # Set by the executor.
    memory: int | None = None  # bytes a process may use before it reloads its engine
    preload: bool = False  # whether to load what only some documents need before workers are forked
    sample: bool = False  # whether documents are sampled for the spot check


@dataclass(slots=True)
class CrashHistory:
    """What is known from earlier crashes of a task. Documents are numbered within the task, in the order they are read."""

    poison: list[int] = field(default_factory=list)  # documents that crash the engine: they are left out
    suspects: tuple[int, int] = (0, 0)  # one of documents [first, last) crashes the engine: encode them in small parts
    deadly_pieces: list[tuple[int, str]] = field(default_factory=list)  # pieces that are not read, with the reason
    alone: bool = False  # make the shard durable before taking another task, so that a crash has one cause

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> CrashHistory:
        deadly = [(piece, error) for piece, error in body["deadly_pieces"]]
        return cls(body["poison"], tuple(body["suspects"]), deadly, body["alone"])


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What became of a task."""

    shard: ShardDone | None  # None if no file of the task could be read
    contents: list[str | None]  # digest of each piece; None for one that was not read to its end
    failed_files: list[dict[str, str]]  # {"file": ..., "error": ...}
    device_lost: str = ""  # why the engine has lost its device, if it has

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> TaskResult:
        shard = body["shard"]
        if shard is not None:
            shard = ShardDone(**{**shard, "seconds": StageSeconds(**shard["seconds"])})
        return cls(
            shard=shard, contents=body["contents"], failed_files=body["failed_files"], device_lost=body["device_lost"]
        )
