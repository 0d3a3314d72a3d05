"""Where the events of a build go: the log in its folder, Python's logging, and the terminal or a callback."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from tokenmill import events
from tokenmill.building.event_log import EVENTS, EventLog
from tokenmill.building.progress import Aggregator
from tokenmill.building.terminal import MODES, Terminal, message
from tokenmill.errors import BuildError, UsageError
from tokenmill.events import Event, Listener

logger = logging.getLogger("tokenmill")
logger.addHandler(logging.NullHandler())  # prints nothing unless the application configures logging

LEVELS: dict[type[Event], int] = {
    events.FileFailed: logging.WARNING,
    events.WorkerDied: logging.WARNING,
    events.DocumentCrashed: logging.WARNING,
    events.Comparing: logging.DEBUG,
    events.Started: logging.DEBUG,
    events.Progress: logging.DEBUG,
    events.ShardDone: logging.DEBUG,
    events.WorkerRecycled: logging.DEBUG,
}


def listener_for(progress: str | Listener | None) -> Listener:
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
        logger.log(level, "%s", message(event), extra={"event": event})


class EventSink:
    """Takes every event of a build in `folder`: `emit` sums up progress, writes the log and passes events to a listener.

    Used as a context manager. An error that ends the build is emitted as Stopped.
    """

    def __init__(self, listener: Listener, folder: Path) -> None:
        self._listener = listener
        self._log = EventLog(folder / EVENTS)
        self.emit: Listener = Aggregator(self._pass_on)

    def __enter__(self) -> EventSink:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            if error is not None:
                self.emit(events.Stopped(error=f"{type(error).__name__}: {error}"[:500]))
        finally:
            self._log.close()

    def _pass_on(self, event: Event) -> None:
        if isinstance(event, events.Stopped):
            with suppress(BuildError):  # the disk is full, which is why the build stopped
                self._log(event)
        else:
            self._log(event)
        self._listener(event)
