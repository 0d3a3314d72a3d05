"""source x tokenizer -> store. Which receipts are missing? Make those; then write the manifest."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenmill.batch import BLANK
from tokenmill.building.crew import Crew, Failures, Inside
from tokenmill.building.folder import agree, check_folder, forget, keep, leave_no_litter, without_folder
from tokenmill.building.local import Workers
from tokenmill.building.lock import build_lock
from tokenmill.building.machine import parse_size, share_out
from tokenmill.building.plan import Task, limited, plan
from tokenmill.building.progress import Progress
from tokenmill.building.publish import each_once, publish, sweep
from tokenmill.building.rows import corpus_key, corpus_sample, locate
from tokenmill.building.sampling import Sample, Sampling
from tokenmill.encoding import Tokenizer, load_tokenizer, refuse
from tokenmill.errors import DifferenceError, TokenmillError, UsageError
from tokenmill.events import Event
from tokenmill.reading import Source, check_fields, read, text_weight
from tokenmill.store import Manifest, Store, is_done, read_receipt
from tokenmill.store.files import writing

SMALL_BYTES = 8 << 20  # less text than this is done before a worker would have started
SHARD_BYTES, SLOW_SHARD_BYTES = "32MB", "1MB"  # where text takes a minute a shard, every core should have one
RACE_BYTES = 24 << 20  # less than this is done before a race of engines on a sample of it would have paid


def build(
    source: Any,
    tokenizer: Any,
    out: str | os.PathLike[str],
    *,
    eos: str | int | None = "auto",
    bos: str | int | None = None,
    shard_bytes: str | int | None = None,
    workers: int | None = None,
    memory: str | int | None = None,
    engine: str | None = None,
    specials: str | None = None,
    force: bool = False,
    progress: str | Callable[[Event], None] | None = None,
    **reading: Any,
) -> Store:
    """Tokenize a corpus into a store at `out`, or finish one that was begun, or say that it is up to date.

    `source` is what `tm.read` takes, or what it returns; its options (`text`, `format`, `template`, `separator`, `limit`,
    `on_error`) may be given here. Runs on one worker process per physical core (`workers=0`: inside this process) and
    within `memory` (half of what is free, unless said). `progress` is "auto", "bar", "plain", "quiet" or "verbose", or a
    function that gets each event.

    `engine` is "auto" (the fastest that proves itself on this tokenizer and a sample of this corpus), "reference" or an
    engine's name. `specials` says what the names of special tokens in the text become: "parse" (their ids), "text"
    (ordinary text: nobody forges a document's end) or "error" (the build stops there). A document that begins with `bos`
    does not get another.

    The store's bytes depend on the input, the tokenizer and `shard_bytes` (32MB; 1MB for slow Python tokenizers) alone.
    Input files that cannot be read are left out: the store then says `complete == False`, `failed` names them, and the
    next build tries just those again.
    """
    if workers is not None and workers < 0:
        raise UsageError(f"workers={workers} must be 0 (inside this process) or more")
    if shard_bytes is not None and parse_size(shard_bytes, "shard_bytes") < 1 << 10:
        raise UsageError(f"shard_bytes={shard_bytes!r} is less than 1KiB; a shard of some tens of MB is usual")
    if not isinstance(source, Source):
        source = read(*(source if isinstance(source, tuple) else (source,)), **reading)
    elif reading:
        raise UsageError(f"give {', '.join(reading)} to tm.read, where the source was made")
    folder = Path(out)
    source = without_folder(source, folder)
    check_folder(folder)
    with ExitStack() as stack:
        stack.enter_context(build_lock(folder))
        if all(entry.name == ".lock" for entry in folder.iterdir()):
            stack.callback(leave_no_litter, folder)
        watch = stack.enter_context(Progress(progress, folder))
        stack.callback(shutil.rmtree, folder / "spool", ignore_errors=True)
        crew = stack.enter_context(_crew(source, workers, memory, watch.emit))
        if not (folder / "manifest.json").exists():
            crew.start()  # they get ready while the work is planned
        loaded = load_tokenizer(tokenizer, engine, specials)
        is_slow = loaded.definition.reference == "python"
        if is_slow:
            crew.stop()
            crew = stack.enter_context(_slow_crew(source, loaded, workers, memory, watch.emit))
        shard_size = parse_size(shard_bytes or (SLOW_SHARD_BYTES if is_slow else SHARD_BYTES), "shard_bytes")
        if source.streams:
            from tokenmill.reading.spool import spool

            with writing(folder / "spool"):
                source = spool(source, folder / "spool", shard_size)
        check_fields(source)
        around = {"bos": loaded.resolve("bos", bos), "eos": loaded.resolve("eos", eos)}
        options = {
            **source.options(),
            "tokenizer": loaded.fingerprint,
            "specials": loaded.definition.specials,
            **around,
            "shard_bytes": shard_size,
        }
        previous = agree(folder, source, loaded, options, force)
        return Build(folder, source, loaded, options, previous).carry_out(crew, watch.emit)


class Build:
    """A build that is decided: which tasks make up the store, and which of them still have to be done."""

    def __init__(
        self, folder: Path, source: Source, tokenizer: Tokenizer, options: dict[str, Any], previous: Manifest | None
    ) -> None:
        self.folder, self.shards = folder, folder / "shards"
        self.source, self.tokenizer, self.previous = source, tokenizer, previous
        self.options = options
        self.tasks = plan(source, options, options["shard_bytes"])

    def carry_out(self, crew: Crew, emit: Callable[[Event], None], redo: frozenset[str] | None = None) -> Store:
        """Do what has no receipt (and what is in `redo`), publish, and open the result."""
        began = time.monotonic()
        todo = [task for task in self.tasks if task.id in (redo or ()) or not self.has_receipt(task)]
        if not todo and redo is None and self._is_published():
            return self._up_to_date(emit)
        self._decide_engine(crew)
        self.manifest = _blank_manifest(self.source, self.tokenizer, self.options)
        if self.previous is not None:  # the same by fingerprint; it keeps its first name
            self.manifest.tokenizer["name"] = self.previous.tokenizer["name"]
            if self._engine_of(self.previous.tokenizer) == self._engine_of(self.manifest.tokenizer):
                self.manifest.tokenizer = self.previous.tokenizer
        contents = self.tokenizer.definition.contents()
        for name, content in contents.items():
            self.manifest.files[f"tokenizer/{name}"] = keep(self.folder / "tokenizer" / name, content)
        forget(self.folder / "tokenizer", contents.keys())
        with writing(self.shards):
            self.shards.mkdir(exist_ok=True)
        if self.previous is None:
            self.manifest.write(self.folder)
        emit(self._plan_event(crew, len(todo)))
        sampling = self._sampling(crew.processes)
        crew.begin(self._setup(), None if sampling is None else sampling.offer)
        emit({"event": "start", "source_bytes": sum(task.nbytes for task in todo)})
        try:
            if self.source.limit is None:
                failures = crew.run(todo, self.has_receipt)
            else:
                failures = self._first_documents(crew)
                if not failures and redo is None and self._is_published():
                    return self._up_to_date(emit)
            if sampling is not None:
                sampling.finish()
        except DifferenceError as error:
            crew.stop()  # or it would write receipts after this
            self._throw_away(str(error), redo or frozenset())
            raise
        for entry in each_once(failures):
            emit({"event": "failed", **entry})
        manifest = publish(self.folder, self.manifest, self.tasks, failures)
        emit(
            {
                "event": "finished",
                "seconds": time.monotonic() - began,
                "done_bytes": sum(task.nbytes for task in todo),
                "documents": manifest.documents,
                "tokens": manifest.tokens,
                "quarantined": manifest.quarantined,
                "failed": len(manifest.failed),
                "special_documents": manifest.special_documents,
                "specials": self.tokenizer.definition.specials,
                "sampled": sampling.checked if sampling else 0,
                "sampling_seconds": round(sampling.seconds, 4) if sampling else 0.0,
                "fingerprint": manifest.fingerprint,
            }
        )
        return Store(self.folder, manifest)

    def has_receipt(self, task: Task) -> bool:
        """Whether a task is done, all its files included."""
        receipt = read_receipt(self.shards, task.id)
        if receipt is None or receipt["failed"] or not is_done(self.shards, receipt):
            return False
        bad = self.source.on_error == "raise" and any(
            reason != BLANK for piece in receipt["pieces"] for _, _, reason, _ in piece.get("skips", ())
        )
        bad = bad or (self.tokenizer.specials == "error" and receipt.get("special_documents", 0) > 0)
        return not bad  # done again, it stops at the bad document, as was asked

    def _is_published(self) -> bool:
        old = self.previous
        return old is not None and old.complete and old.shard_ids == [task.id for task in self.tasks]

    def _up_to_date(self, emit: Callable[[Event], None]) -> Store:
        assert self.previous is not None
        sweep(self.folder, set(self.previous.shard_ids))
        counts = {"documents": self.previous.documents, "tokens": self.previous.tokens}
        emit({"event": "up to date", "path": str(self.folder), **counts})
        return Store(self.folder, self.previous)

    def _first_documents(self, crew: Crew) -> Failures:
        """Tasks one after the other until enough documents were read: how far each goes depends on those before it."""
        left = self.source.limit or 0
        planned, self.tasks = self.tasks, []
        failures: Failures = {}
        for task in planned:
            if left <= 0:
                break
            task = limited(task, left)
            self.tasks.append(task)
            if not self.has_receipt(task):
                failures |= crew.run([task], self.has_receipt)
            receipt = read_receipt(self.shards, task.id)
            for piece in receipt["pieces"] if receipt else ():
                blank = sum(count for _, count, reason, _ in piece.get("skips", ()) if reason == BLANK)
                left -= piece["rows"] - blank
        return failures

    def _decide_engine(self, crew: Crew) -> None:
        """The engine: as it was, for a store that was begun; else, for a corpus worth it, the fastest on a sample of it."""
        tokenizer, old = self.tokenizer, self.previous
        if tokenizer.wanted != "auto" or tokenizer.definition.reference == "python":
            return
        self.tokenizer = tokenizer = replace(tokenizer)  # what it chose before may have been caught since
        if old is not None:
            with suppress(TokenmillError):  # no longer installed, or caught since
                same = load_tokenizer(tokenizer, engine=old.tokenizer["engine"])
                if same.engine_version == old.tokenizer["engine_version"]:
                    self.tokenizer = same
                    return
        if self.source.limit is None and sum(map(text_weight, self.source.files)) >= RACE_BYTES:
            self.tokenizer = tokenizer.for_corpus(corpus_key(self.tasks), lambda: self._sample(crew))

    def _sample(self, crew: Crew) -> list[str]:
        """Text for trials. They take the memory that is meant for workers: those start again afterwards."""
        crew.stop()
        return corpus_sample(self.tasks, self.source)

    def _sampling(self, processes: int) -> Sampling | None:
        """Documents are held to the reference, unless it is the reference that encodes them."""
        if self.tokenizer.engine in (self.tokenizer.definition.reference, "live"):
            return None

        def place(sample: Sample) -> str:
            task = next(task for task in self.tasks if task.id == sample.task)
            return locate(task, self.source, sample.number)

        return Sampling(self.tokenizer, self.options["bos"], self.options["eos"], processes, place)

    @staticmethod
    def _engine_of(tokenizer: dict[str, Any]) -> tuple[str, str]:
        return tokenizer["engine"], tokenizer["engine_version"]

    def _throw_away(self, why: str, redo: frozenset[str]) -> None:
        """An engine was caught: nothing it made here is kept, but for what was published before, and it is not used again."""
        published = set(self.previous.shard_ids) - redo if self.previous is not None else set()
        for receipt in self.shards.glob("*.json"):
            if receipt.stem not in published:
                receipt.unlink()
        refuse(self.tokenizer.definition, self.tokenizer.engine, f"was caught: {why[:200]}")

    def _plan_event(self, crew: Crew, todo: int) -> Event:
        return {
            "event": "plan",
            "files": len(self.source.files),
            "source_bytes": self.source.num_bytes,
            "left_out": len(self.source.left_out),
            "left_out_kinds": sorted({os.path.splitext(path)[1] or "no suffix" for path in self.source.left_out})[:8],
            "shards": len(self.tasks),
            "done": len(self.tasks) - todo,
            "tokenizer": self.tokenizer.name,
            "vocab_size": self.tokenizer.vocab_size,
            "dtype": self.manifest.dtype,
            "eos": self.tokenizer.describe(self.options["eos"]),
            "engine": f"{self.tokenizer.engine} {self.tokenizer.engine_version}",
            "proof": self.tokenizer.proof,
            "workers": crew.describe(),
        }

    def _setup(self) -> dict[str, Any]:
        names = ("format", "text", "template", "separator", "on_error")
        return {
            "shards": str(self.shards),
            "source": {name: getattr(self.source, name) for name in names},
            "tokenizer": str(self.folder / "tokenizer"),
            "python_class": self.tokenizer.definition.python_class,
            "path": sys.path if self.tokenizer.definition.python_class else [],
            "encoder": self.tokenizer.encoder_options(self.options["bos"], self.options["eos"]),
            "refuse_specials": self.tokenizer.specials == "error",
        }


def _blank_manifest(source: Source, tokenizer: Tokenizer, options: dict[str, Any]) -> Manifest:
    """What is known before any work: written at once, so that an interrupted build is known for what it is."""
    return Manifest(
        options=options,
        source={"inputs": list(source.inputs), "files": len(source.files), "on_error": source.on_error},
        tokenizer={
            "name": tokenizer.name,
            "fingerprint": tokenizer.fingerprint,
            "vocab_size": tokenizer.vocab_size,
            "engine": tokenizer.engine,
            "engine_version": tokenizer.engine_version,
            "proof": tokenizer.proof,
            "eos_id": options["eos"],
            "bos_id": options["bos"],
            "eos_token": tokenizer.token_name(options["eos"]),
            "bos_token": tokenizer.token_name(options["bos"]),
        },
        dtype=tokenizer.dtype.name,
        source_bytes=source.num_bytes,
    )


def _crew(source: Source, workers: int | None, memory: str | int | None, emit: Callable[[Event], None]) -> Crew:
    count, share = share_out(workers, memory)
    small = sum(map(text_weight, source.files)) < SMALL_BYTES and not source.streams
    if workers == 0 or source.limit is not None or (workers is None and small):
        return Inside(share, emit)
    return Workers(count, share, emit)


def _slow_crew(
    source: Source, tokenizer: Tokenizer, workers: int | None, memory: str | int | None, emit: Callable[[Event], None]
) -> Crew:
    """For a slow tokenizer every core helps, however small the input; unless it lives in this process alone."""
    count, share = share_out(workers, memory)
    if workers == 0 or source.limit is not None or tokenizer.engine == "live":
        return Inside(share, emit, tokenizer.live)
    return Workers(count, share, emit)
