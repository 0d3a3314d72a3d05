"""A build on the terminal: a live view on a terminal or in a notebook, plain lines elsewhere. A listener like any other."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tokenmill import events
from tokenmill.events import Event
from tokenmill.formatting import fitted, human, human_time, in_short, in_words, printable, some
from tokenmill.option_types import option_name
from tokenmill.reading.files import STDIN

if TYPE_CHECKING:
    from tokenmill.building.live_panel import LivePanel
    from tokenmill.building.notebook_panel import NotebookPanel

MODES = ("auto", "bar", "plain", "quiet", "verbose")
PLAIN_SECONDS = 10.0  # between lines of progress where there is no bar
RATE_BYTES = 1 << 20  # of text
PROOF_SECONDS = 3.0  # a shorter proof is not announced: its result is shown at once
COMPARING_BYTES = 1 << 30  # reading less than this for comparison is not worth a line
VERBOSE_ONLY = (events.ShardDone, events.WorkerRecycled)
SILENT = (events.Begun, events.Started, events.Stopped)  # the command line and the exception say why a build stopped


class Terminal:
    """Shows events on standard error. `mode` is one of MODES."""

    def __init__(self, mode: str) -> None:
        in_notebook = "ipykernel" in sys.modules
        self.mode = ("bar" if sys.stderr.isatty() or in_notebook else "plain") if mode == "auto" else mode
        self._notebook: NotebookPanel | None = None
        if in_notebook and self.mode == "bar":
            from tokenmill.building.notebook_panel import NotebookPanel

            self._notebook = NotebookPanel()
        self._panel: LivePanel | None = None
        self._console: Any = None
        self._shown_at = time.monotonic()
        self._progress: events.Progress | None = None
        self._saving: str | None = None  # the stream whose saving was shown last

    def __call__(self, event: Event) -> None:
        if self.mode == "quiet":
            return
        if self._notebook is not None:
            self._notebook(event)
        if isinstance(event, events.Started):
            self._start(event)
        elif isinstance(event, events.Progress):
            self._show(event)
        elif isinstance(event, (events.Finished, events.UpToDate, events.SliceDone, events.Stopped)):
            self._close()
        elif self._panel is not None and isinstance(event, events.ShardDone):
            self._panel.add_shard(event)
        elif self._panel is not None and isinstance(event, (events.WorkerDied, events.WorkerRecycled)):
            self._panel.drop_worker(event.pid)
        if text := self._line(event):
            self._print(text)

    def _line(self, event: Event) -> str:
        """What is said about an event, with what is known from the last progress; nothing about most of them."""
        progress = self._progress
        if isinstance(event, events.Stopped) and progress is not None and progress.shards:
            return f"stopped with {progress.shards_done:,} of {some(progress.shards, 'shard')} finished"
        if not self._is_worth_a_line(event):
            return ""
        if isinstance(event, events.Finished) and progress is not None:
            return _finished(event, progress.text_bytes) + (_proofs(event) if self._is_verbose else "")
        return message(event, verbose=self._is_verbose)

    @property
    def _is_verbose(self) -> bool:
        return self.mode == "verbose"

    def _is_worth_a_line(self, event: Event) -> bool:
        if isinstance(event, VERBOSE_ONLY):
            return self._is_verbose
        if isinstance(event, events.Comparing):
            return self._is_verbose or event.bytes > COMPARING_BYTES
        if isinstance(event, events.EngineProof):
            return self._is_verbose or event.seconds >= PROOF_SECONDS
        if isinstance(event, events.SavingStream):
            return self._is_news(event)
        return not isinstance(event, (events.Progress, *SILENT))

    def _is_news(self, event: events.SavingStream) -> bool:
        """Whether the last line about the stream is some time ago, or there is none."""
        now = time.monotonic()
        if event.stream == self._saving and now - self._shown_at <= PLAIN_SECONDS:
            return False
        self._saving, self._shown_at = event.stream, now
        return True

    def _start(self, event: events.Started) -> None:
        self._shown_at = time.monotonic()
        if self.mode == "bar" and self._notebook is None:
            from rich.console import Console

            from tokenmill.building.live_panel import LivePanel

            self._console = Console(stderr=True, highlight=False)
            self._panel = LivePanel(self._console, event.source_bytes)

    def _show(self, event: events.Progress) -> None:
        self._progress = event
        if self._panel is not None:
            self._panel.show(event)
        elif self._notebook is None and time.monotonic() - self._shown_at > PLAIN_SECONDS:
            self._shown_at = time.monotonic()
            self._print(message(event))

    def _print(self, text: str) -> None:
        text = fitted(printable(text), sys.stderr)
        if self._panel is not None:
            self._console.print(text, markup=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def _close(self) -> None:
        if self._panel is not None:
            self._panel.close()
            self._panel = None


def message(event: Event, *, verbose: bool = False) -> str:
    """An event in words, for the terminal and for logging; `verbose` says more about some."""
    words = (_VERBOSE.get(type(event)) if verbose else None) or _MESSAGES.get(type(event))
    return words(event) if words else event.name.replace("_", " ")


def _planned(event: events.Planned) -> str:
    files = some(event.files, "file")
    if event.shards:
        then = f" -> {some(event.shards, 'shard')}"
    else:
        then = "" if event.streams else ", of which a trial reads the first"
    lines = [
        f"{_input(event, f'{human(event.source_bytes)} in {files}')}{then}",
        f"tokenizer {event.tokenizer} ({event.vocab_size:,} ids as {event.dtype}, bos {event.bos}, eos {event.eos})",
        *([f"note: {event.note}"] if event.note else []),
        f"engine {event.engine}: {in_short(event.proof)}; {event.workers}",
    ]
    if event.ignored:
        lines.append(_ignored(event))
    if event.done:
        lines.append(f"{event.done:,} of {some(event.shards, 'shard')} already done")
    return "\n".join(lines)


def _input(event: events.Planned, files: str) -> str:
    """The files, in these words, and the streams that are read."""
    parts = [files] if event.files else []
    if event.streams:
        parts.append("1 stream, encoded as it is read" if event.streams == 1 else "streams")
    return " and ".join(parts)


def _stream(name: str) -> str:
    return "standard input" if name == STDIN else name


def _ignored(event: events.Planned) -> str:
    return f"ignored: {in_words(event.ignored)}; use a glob or {option_name('format')} to read other files (tokenmill info)"


def _planned_in_full(event: events.Planned) -> str:
    """The plan, the tokenizer, the engine with its proof, and the workers, on a line each."""
    files = some(event.files, "file")
    shards = "as many shards as there are segments" if event.streams else "a trial, which reads the first of them"
    if event.shards:
        shards = (
            f"{some(event.shards, 'shard')}: {event.done:,} reused, {event.linked:,} of them from other stores,"
            f" and {some(event.tasks, 'task')} to do"
        )
    lines = [
        f"plan: {_input(event, f'{files} of {human(event.source_bytes)}')}; {shards}",
        *([_ignored(event)] if event.ignored else []),
        f"tokenizer: {event.tokenizer}, {event.vocab_size:,} ids as {event.dtype}, bos {event.bos}, eos {event.eos}",
        *([f"note: {event.note}"] if event.note else []),
        f"engine: {event.engine}: {event.proof}",
        f"workers: {event.workers}",
    ]
    return "\n".join(lines)


def _progress(event: events.Progress) -> str:
    share = f"{100 * event.source_bytes / event.total_source_bytes:.0f}% of " if event.total_source_bytes else ""
    left = f", {human_time(event.eta_seconds)} left" if event.eta_seconds is not None else ""
    return (
        f"{share}{human(event.total_source_bytes or event.source_bytes)}, {human(event.source_bytes_per_second)}/s,"
        f" {human(event.tokens_per_second, '')}tok/s{left}, {human(event.memory_bytes)} of memory"
    )


def _shard_done(event: events.ShardDone) -> str:
    left_out = f", {event.quarantined:,} quarantined" if event.quarantined else ""
    return f"shard {event.id} done: {some(event.documents, 'document')}, {some(event.tokens, 'token')}{left_out}"


def _shard_in_full(event: events.ShardDone) -> str:
    stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in asdict(event.seconds).items())
    return f"{_shard_done(event)}; seconds: {stages}; process {event.pid}"


def _worker_stuck(event: events.WorkerStuck) -> str:
    what = "has given no sign of life" if event.is_silent else "has made no progress"
    where = f" at {event.file}" if event.file else ""
    then = "it is replaced, and its tasks go elsewhere" if event.is_replaced else "it is replaced if this goes on"
    return (
        f"worker {event.pid} {what} for {event.seconds:.0f} s{where}: a stopped process, a hung disk or engine? {then}"
    )


def _finished(event: events.Finished, text_bytes: int = 0) -> str:
    """`text_bytes` were encoded in this run, for the rate."""
    rate = ""
    encoding = event.seconds - event.setup_seconds
    if text_bytes >= RATE_BYTES:  # in less, starting takes most of the time
        setup = f"{event.setup_seconds:.1f} s to start, then " if event.setup_seconds >= 0.5 else ""
        rate = f" ({setup}{human(text_bytes / max(encoding, 1e-9))} of text per second)"
    quarantined = sum(event.quarantined.values())
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in event.quarantined.items())
    lines = [
        f"done in {event.seconds:.1f} s{rate}:"
        f" {some(event.documents + quarantined, 'document')} in = {event.documents:,} out + {quarantined:,} quarantined"
        f"{f' ({reasons})' if reasons else ''}; {some(event.tokens, 'token')}"
    ]
    if not event.documents:
        lines.append("the store is empty: the limit is smaller than the first document")
    lines += [f"warning: {doubt}" for doubt in event.doubts]
    if event.special_documents:
        became = "their ids" if event.special_tokens == "parse" else "ordinary text"
        lines.append(
            f"{some(event.special_documents, 'document')} with special tokens in the text, encoded as {became}"
            f"; {option_name('special_tokens')}: parse, text or error"
        )
    return "\n".join(lines)


def _slice_done(event: events.SliceDone) -> str:
    made = f"slice {event.slice} done: {some(event.shards, 'shard')} made"
    if not event.missing:
        return f"{made}; all slices are done, finishing the store"
    count = event.slice.partition("/")[2]
    lines = [f"{made}; the store is finished when {_slices(event.missing, count)} done too"]
    if event.differing:
        lines.append(
            f"{_slices(event.differing, count)} done with other input or options: all slices need the same, run them again"
        )
    return "\n".join(lines)


def _slices(numbers: list[int], count: str) -> str:
    named = ", ".join(f"{number}/{count}" for number in numbers[:8]) + (", ..." if len(numbers) > 8 else "")
    return f"slice {named} is" if len(numbers) == 1 else f"slices {named} are"


def _proofs(event: events.Finished) -> str:
    checked = (
        f"\nspot check: {some(event.spot_checked, 'document')} equal to the reference" if event.spot_checked else ""
    )
    if event.by_reference:
        checked += f"\nleft to the reference: {some(event.by_reference, 'document')}"
    return f"{checked}\nfingerprint: {event.fingerprint}"


_MESSAGES: dict[type[Event], Callable[[Any], str]] = {
    events.Begun: lambda event: f"building in {event.folder}",
    events.Planned: _planned,
    events.Progress: _progress,
    events.ShardDone: _shard_done,
    events.Finished: _finished,
    events.Explained: lambda event: "; ".join(event.reasons),
    events.LargeDocument: lambda event: f"warning: {event.message}",
    events.SavingStream: lambda event: f"reading {_stream(event.stream)} to disk: {human(event.bytes)}",
    events.EngineProof: lambda event: (
        f"first use of {event.tokenizer}: comparing the fast engine with its reference, about {human_time(event.seconds)}, once"
    ),
    events.Comparing: lambda event: f"reading {some(event.files, 'file')}, {human(event.bytes)}, to find what changed",
    events.Downloading: lambda event: (
        f"copying {some(event.files, 'file')} of the Hub, {human(event.bytes)}, to {event.folder} while encoding"
    ),
    events.Waiting: lambda event: (
        f"waiting for process {event.process}, which is building this store in {event.path}"
        + (f", for {human_time(event.seconds)} so far; is it stopped?" if event.seconds >= 60 else "")
    ),
    events.WorkerRecycled: lambda event: f"worker {event.pid} has outgrown its share of memory and is replaced",
    events.WorkerStuck: _worker_stuck,
    events.WorkerDied: lambda event: f"worker {event.pid} died (exit {event.code}); its tasks go to other workers",
    events.DeviceLost: lambda event: (
        f"the engine has lost its device: {event.why}. The reference encodes the rest, which takes longer"
    ),
    events.DocumentCrashed: lambda event: (
        f"document {event.document} of task {event.task} crashes the engine and is quarantined"
    ),
    events.FileFailed: lambda event: f"failed: {event.error}",
    events.SliceDone: _slice_done,
    events.UpToDate: lambda event: (
        f"up to date: {some(event.documents, 'document')}, {some(event.tokens, 'token')} in {event.path}"
    ),
    events.Stopped: lambda event: f"stopped: {event.error}",
}
_VERBOSE: dict[type[Event], Callable[[Any], str]] = {
    events.Planned: _planned_in_full,
    events.ShardDone: _shard_in_full,
    events.Finished: lambda event: _finished(event) + _proofs(event),
}
