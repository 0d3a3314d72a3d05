"""Where the events of a build go: events.jsonl in its folder, Python's logging, and the terminal or a callback.

events.jsonl has the events of every build in its folder, one checksummed JSON line each. The log of one build grows with the
logarithm of its length. The first thousand events of a kind get a line each, then every second one, every fourth, and so on:
a build of ten days has some 10,000 progress lines, about 5 MB. Nothing is lost of shards: a line of several (`shards_done`) has
their sums, and the last progress before the end always has a line. A process that is killed loses the shards of the line it
had not written yet; receipts, not the log, say what is done.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

from tokenmill import events
from tokenmill.building.progress import FINAL, Aggregator
from tokenmill.building.terminal import MODES, Terminal, message
from tokenmill.encoding.selection.choosing import proof_seconds
from tokenmill.encoding.tokenizer import Tokenizer
from tokenmill.errors import BuildError, UsageError
from tokenmill.events import Event, Listener
from tokenmill.io import disk
from tokenmill.io.atomic import writing
from tokenmill.io.checked_lines import CheckedLines
from tokenmill.reading import Source
from tokenmill.reading.separators import large_document

WAITING_SECONDS = 60.0  # to the second report that another process builds the same store
LINES = 1000  # of one kind of event, before every second one is left out; and so on

logger = logging.getLogger("tokenmill")
logger.addHandler(logging.NullHandler())  # prints nothing unless the application configures logging

LEVELS: dict[type[Event], int] = {
    events.FileFailed: logging.WARNING,
    events.WorkerDied: logging.WARNING,
    events.DocumentCrashed: logging.WARNING,
    events.DeviceLost: logging.WARNING,
    events.Begun: logging.DEBUG,
    events.Comparing: logging.DEBUG,
    events.LargeDocument: logging.WARNING,
    events.Started: logging.DEBUG,
    events.Progress: logging.DEBUG,
    events.ShardDone: logging.DEBUG,
    events.WorkerRecycled: logging.DEBUG,
}


def listener_for(progress: Any) -> Listener:
    """What `progress=` asks for: a callback, or the terminal in one of its modes; and the logger `tokenmill` in any case."""
    if isinstance(progress, str) and progress not in MODES:
        raise UsageError(f"progress={progress!r} is not one of {', '.join(MODES)}, or a function")
    listener = progress if callable(progress) else Terminal(progress or "auto")

    def log_and_show(event: Event) -> None:
        log_event(event)
        listener(event)

    return log_and_show


def log_event(event: Event) -> None:
    """Pass an event to the logger `tokenmill`, with the event itself as the attribute `event` of the log record.

    WARNING for failed files, dead workers and shards with quarantined documents, DEBUG for other shards and progress, INFO
    for the rest.
    """
    level = LEVELS.get(type(event), logging.INFO)
    if isinstance(event, events.ShardDone) and event.quarantined:
        level = logging.WARNING
    if logger.isEnabledFor(level):
        logger.log(level, "%s", message(event, verbose=True).replace("\n", "; "), extra={"event": event})


@contextmanager
def event_sink(listener: Listener, folder: Path) -> Iterator[Listener]:
    """The listener for all events of a build in `folder`: sums up progress, writes the log, and passes events to `listener`.

    An error that ends the build is emitted as Stopped.
    """
    log = EventLog(folder / "events.jsonl")
    is_stopping = False

    def log_and_pass_on(event: Event) -> None:
        with suppress(BuildError) if is_stopping else nullcontext():  # a full disk may be why the build stopped
            log(event)
        listener(event)

    emit = Aggregator(log_and_pass_on)
    try:
        emit(events.Begun(folder=str(folder.absolute()), pid=os.getpid(), host=socket.gethostname()))
        yield emit
    except BaseException as error:
        is_stopping = True
        emit(events.Stopped(error=f"{type(error).__name__}: {error}"[:500]))
        if isinstance(error, KeyboardInterrupt):  # for scripts: Python shows it below the traceback
            error.add_note("The build was interrupted. Finished shards are kept: run it again to resume")
        raise
    finally:
        log.close()


class EventLog:
    """A listener that appends events to a file. `run` is the id of this build on each of its lines."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self.run = secrets.token_hex(6)
        self._strides: defaultdict[type[Event], _Stride] = defaultdict(_Stride)
        self._progress: events.Progress | None = None  # the last one, if it has no line
        self._shards: list[events.ShardDone] = []  # without a line yet
        with writing(path):
            is_new = not path.exists()
            self._lines = CheckedLines(path)
            if is_new:  # by this file, the folder of a build is recognised: it must last before others are written
                disk.sync_folder(path.parent)

    def __call__(self, event: Event) -> None:
        if isinstance(event, FINAL):
            self._flush()
        is_due = self._strides[type(event)].is_due()
        if isinstance(event, events.ShardDone):
            self._shards.append(event)
            if is_due:
                self._write_shards()
            return
        if isinstance(event, events.Progress):
            self._progress = None if is_due else event
        if is_due:
            self._write(event)

    def close(self) -> None:
        with suppress(OSError):
            self._lines.close()

    def _flush(self) -> None:
        if self._shards:
            self._write_shards()
        if self._progress is not None:
            self._write(self._progress)
            self._progress = None

    def _write_shards(self) -> None:
        shards, self._shards = self._shards, []
        self._write(shards[0] if len(shards) == 1 else _summed(shards))

    def _write(self, event: Event) -> None:
        header = {"v": events.VERSION, "run": self.run, "time": round(self._clock(), 3)}
        with writing(self._path):
            self._lines.append({**header, **event.as_record()})


class _Stride:
    """Which events of one kind get a line: each of the first LINES, then every second, every fourth, ..."""

    def __init__(self) -> None:
        self.step, self.skipped, self.lines = 1, 0, 0

    def is_due(self) -> bool:
        self.skipped += 1
        if self.skipped < self.step:
            return False
        self.skipped = 0
        self.lines += 1
        if self.lines % LINES == 0:
            self.step *= 2
        return True


def _summed(shards: list[events.ShardDone]) -> events.ShardsDone:
    counts = ("documents", "tokens", "text_bytes", "source_bytes", "quarantined", "by_reference")
    stages = [stage.name for stage in fields(events.StageSeconds)]
    reasons: Counter[str] = Counter()
    workers: defaultdict[str, float] = defaultdict(float)
    for shard in shards:
        reasons.update(shard.reasons)
        workers[str(shard.pid)] += sum(astuple(shard.seconds))
    return events.ShardsDone(
        shards=len(shards),
        seconds=events.StageSeconds(
            **{stage: round(sum(getattr(shard.seconds, stage) for shard in shards), 4) for stage in stages}
        ),
        reasons=dict(reasons),
        workers={pid: round(seconds, 4) for pid, seconds in workers.items()},
        **{name: sum(getattr(shard, name) for shard in shards) for name in counts},
    )


def warn_of_large_document(source: Source, emit: Listener) -> None:
    """Emit a warning if a large text file is read as one document and may be several. Reads the start of a few files."""
    if found := large_document(source):
        emit(
            events.LargeDocument(
                file=found.file.shown,
                source_bytes=found.file.size,
                separator=found.separator,
                count=found.count,
                message=f"{found.what}. {found.remedy}",
            )
        )


def waiting_reporter(folder: Path, emit: Listener) -> Callable[[str], None]:
    """What to call again and again, with its id, while another process builds in a folder: it is reported ever less often."""
    began, due = time.monotonic(), 0.0

    def report(process: str) -> None:
        nonlocal due
        seconds = time.monotonic() - began
        if seconds >= due:
            emit(events.Waiting(process=process, path=str(folder), seconds=seconds))
            due = max(WAITING_SECONDS, 2 * seconds)

    return report


def announce_proof(tokenizer: Tokenizer, text_bytes: int, emit: Listener) -> bool:
    """Emit that an engine is proved before this much text is encoded, if one is: it takes a second or more."""
    is_needed = tokenizer._needs_proof(text_bytes)
    if is_needed:
        emit(events.EngineProof(tokenizer=tokenizer.name, seconds=proof_seconds(tokenizer._definition)))
    return is_needed
