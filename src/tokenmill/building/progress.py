"""What people see while a build runs: a bar on a terminal or in a notebook, plain lines elsewhere, and the log."""

from __future__ import annotations

import secrets
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tokenmill import events
from tokenmill.errors import BuildError, UsageError
from tokenmill.events import Event, Listener
from tokenmill.formatting import human, printable, some
from tokenmill.io.atomic import writing
from tokenmill.io.checked_lines import CheckedLines

MODES = ("auto", "bar", "plain", "quiet", "verbose")
PLAIN_SECONDS = 10.0
WORTH_SAYING = 1 << 30  # bytes to be compared; less takes no time worth a line


def watching(mode: str | Listener | None) -> Listener:
    """Whoever is to be told: a function, or the terminal."""
    if isinstance(mode, str) and mode not in MODES:
        raise UsageError(f"progress={mode!r} is not one of {', '.join(MODES)}, or a function")
    return mode if callable(mode) else Terminal(mode or "auto")


class Progress:
    """Takes every event of a build and passes it on to the log and to whoever watches."""

    def __init__(self, mode: str | Listener | None, folder: Path) -> None:
        self._watch = watching(mode)
        self._path = folder / "events.jsonl"
        self.run = secrets.token_hex(6)
        with writing(self._path):
            self._log = CheckedLines(self._path)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is not None:
            with suppress(BuildError):  # a full disk has been told of already
                self.emit(events.Stopped(error=f"{type(error).__name__}: {error}"[:500]))
        if isinstance(self._watch, Terminal):
            self._watch.close()
        with suppress(OSError):
            self._log.close()

    def emit(self, event: Event) -> None:
        if not isinstance(event, events.UNLOGGED):
            header = {"v": events.VERSION, "run": self.run, "time": round(time.time(), 3)}
            with writing(self._path):
                self._log.append({**header, **event.as_record()})
        self._watch(event)


class Terminal:
    """Events as something to look at, on standard error."""

    def __init__(self, mode: str) -> None:
        shown = sys.stderr.isatty() or "ipykernel" in sys.modules
        self.mode = ("bar" if shown else "plain") if mode == "auto" else mode
        self.bar: Any = None
        self.began = self.spoke = time.monotonic()
        self.tokens = self.source = self.text = self.total = self.memory = 0

    def __call__(self, event: Event) -> None:
        handler = getattr(self, "on_" + event.name, None)
        if handler is not None and self.mode != "quiet":
            handler(event)

    def say(self, text: str) -> None:
        text = printable(text)
        if self.bar is not None:
            self.bar.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)

    def on_planned(self, event: events.Planned) -> None:
        self.say(
            f"{human(event.source_bytes)} in {some(event.files, 'file')}"
            f"{' -> ' + some(event.shards, 'shard') if event.shards else ', of which a trial takes the first'};"
            f" tokenizer {event.tokenizer} ({event.vocab_size:,} ids as {event.dtype}, eos {event.eos});"
            f" engine {event.engine}: {event.proof}; {event.workers}"
        )
        if event.ignored_files:
            self.say(
                f"left out {some(event.ignored_files, 'file')} ({', '.join(event.ignored_kinds)}): from a folder only data"
                " files are taken; name them by a glob, or say --format text"
            )
        if event.done:
            self.say(f"{event.done:,} of {some(event.shards, 'shard')} there already")

    def on_explained(self, event: events.Explained) -> None:
        self.say("; ".join(event.reasons))

    def on_comparing(self, event: events.Comparing) -> None:
        if event.bytes > WORTH_SAYING:
            self.say(f"comparing {some(event.files, 'file')}, {human(event.bytes)}, with what is known of them")

    def on_waiting(self, event: events.Waiting) -> None:
        self.say(f"waiting for process {event.process}, which is building this store")

    def on_started(self, event: events.Started) -> None:
        self.began, self.total = time.monotonic(), event.source_bytes
        if self.mode == "bar":
            from tqdm.auto import tqdm

            self.bar = tqdm(
                total=self.total, unit="B", unit_scale=True, file=sys.stderr, dynamic_ncols=True, leave=False
            )

    def on_advanced(self, event: events.Advanced) -> None:
        self.source += event.source_bytes
        self.text += event.text_bytes
        self.tokens += event.tokens
        seconds = max(time.monotonic() - self.began, 1e-9)
        if self.bar is not None:
            self.bar.set_postfix_str(f"{human(self.tokens / seconds, '')}tok/s, {human(self.memory)}", refresh=False)
            self.bar.update(event.source_bytes)
        elif time.monotonic() - self.spoke > PLAIN_SECONDS:
            self.spoke = time.monotonic()
            left = (self.total - self.source) * seconds / max(self.source, 1)
            self.say(
                f"{100 * self.source / max(self.total, 1):.0f}% of {human(self.total)}, {human(self.source / seconds)}/s,"
                f" {human(self.tokens / seconds, '')}tok/s, {left:,.0f} s left, {human(self.memory)} of memory"
            )

    def on_memory_used(self, event: events.MemoryUsed) -> None:
        self.memory = event.bytes

    def on_shard_done(self, event: events.ShardDone) -> None:
        if self.mode == "verbose":
            self.say(f"shard {event.id} done")

    def on_worker_died(self, event: events.WorkerDied) -> None:
        self.say(f"a worker died (exit {event.code}); its task is given to another")

    def on_document_crashed(self, event: events.DocumentCrashed) -> None:
        self.say(f"document {event.document} of task {event.task} kills the engine and is quarantined")

    def on_file_failed(self, event: events.FileFailed) -> None:
        self.say(f"failed: {event.error}")

    def on_up_to_date(self, event: events.UpToDate) -> None:
        self.say(f"up to date: {event.documents:,} documents, {event.tokens:,} tokens in {event.path}")

    def on_finished(self, event: events.Finished) -> None:
        self.close()
        seconds = max(event.seconds, 1e-9)
        quarantined = sum(event.quarantined.values())
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in event.quarantined.items())
        rate = f" ({human(self.text / seconds)} of text a second)" if self.text else ""
        self.say(
            f"done in {seconds:.1f} s{rate}:"
            f" {event.documents + quarantined:,} documents in = {event.documents:,} out + {quarantined:,} quarantined"
            f"{f' ({reasons})' if reasons else ''}; {event.tokens:,} tokens"
        )
        if not event.documents:
            self.say("the store is empty: no document was taken (is a limit smaller than the first document?)")
        if event.special_documents:
            became = "their ids" if event.special_tokens == "parse" else "ordinary text"
            self.say(
                f"{some(event.special_documents, 'document')} with special tokens in the text, which became {became}"
                " (--special-tokens parse, text or error)"
            )

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None
