"""A build that is decided: which contents have no shard yet? Make those; then write the manifest."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from tokenmill.building.changes import note_speed
from tokenmill.building.destination import forget, keep, manifest_of
from tokenmill.building.executors.base import Executor, Failures
from tokenmill.building.plan import Limit, Task, build_key, groups, task_of
from tokenmill.building.publish import each_once, publish, sweep
from tokenmill.building.source_index import SourceIndex, heads, with_contents
from tokenmill.building.spot_check import Sample, SpotCheck
from tokenmill.building.task_context import TaskContext, TaskResult
from tokenmill.building.task_rows import corpus_key, corpus_sample, locate
from tokenmill.documents import BLANK
from tokenmill.encoding import Tokenizer, load_tokenizer, refuse
from tokenmill.errors import CorruptError, DifferenceError, MismatchError, TokenmillError
from tokenmill.events import Comparing, FileFailed, Finished, Listener, Planned, Started, UpToDate
from tokenmill.io.atomic import writing
from tokenmill.option_types import values_of
from tokenmill.options import ReadOptions
from tokenmill.reading import Piece, Source, text_weight
from tokenmill.store import Manifest, Store, columns_with, files_are_complete, is_done, link_shard, read_receipt
from tokenmill.store.manifest import TRIAL
from tokenmill.store.sources import SOURCES, Sources, read_sources

RACE_BYTES = 24 << 20  # less than this is done before a race of engines on a sample of it would have paid


class Build:
    """A build that is decided: which tasks make up the store, and which of them still have to be done.

    `published` is the manifest that is there already. `seen` is what is known of input files, the build's own list first;
    `donors` are folders of shards that were made in the same way, from which shards and pieces may be taken. Files in
    `leave_out` failed before and are not read again.
    """

    def __init__(
        self,
        folder: Path,
        source: Source,
        tokenizer: Tokenizer,
        options: dict[str, Any],
        published: Manifest | None,
        seen: list[SourceIndex],
        *,
        donors: list[Path] | None = None,
        leave_out: frozenset[str] = frozenset(),
    ) -> None:
        self.folder, self.shards = folder, folder / "shards"
        self.source, self.tokenizer, self.published = source, tokenizer, published
        self.kin = published  # or the store that most shards are taken from
        self.options, self.making = options, build_key(options)
        self.seen, self.donors, self.leave_out = seen, [self.shards, *(donors or ())], leave_out
        limits = [options[name] for name in TRIAL]
        self.limit = None if limits == [None] * len(limits) else Limit(*limits)
        self.tasks: list[Task] = []
        self.todo: list[Task] = []
        self.lent: dict[str, Path] = {}  # shards that are elsewhere, by name, and in which folder
        self.trial: Iterator[tuple[Piece, ...]] = iter(())
        whole = seen[0].files if seen[0].is_whole else {}
        self.before = {path: dict(entry.contents) for path, entry in whole.items()}  # as it was found
        self.shards_of: dict[str, str] = {}  # what tasks became whose shards have other names

    def plan(self, emit: Listener, *, rehash: bool = False) -> None:
        """Find out what the input holds, as far as that is worth it, and which shards are missing."""
        planned = (
            kept
            for group in groups(self.source, self.options["shard_bytes"], heads(self.seen, self.source, rehash))
            if (kept := tuple(piece for piece in group if piece.file.shown not in self.leave_out))
        )
        if self.limit is not None:
            self.trial = planned  # one after the other: it will not need them all
            return
        unknown = not any(one.paths for one in self.seen) and bool(self._receipts)

        def checking(files: int, nbytes: int) -> None:
            emit(Comparing(files=files, bytes=nbytes))

        known = with_contents(planned, self.source, self.seen, rehash=rehash, read_all=unknown, checking=checking)
        self.tasks = [task_of(pieces, self.making) for pieces in known]
        there = {task.id: self._shards_with(task) for task in self.tasks}
        self.lent = {name: shards for name, shards in there.items() if shards is not None and shards != self.shards}
        missing = {task.id: task for task in self.tasks if there[task.id] is None}
        held = self._held({piece.content for task in missing.values() for piece in task.pieces if piece.content})
        for task in missing.values():
            pieces = tuple(replace(piece, held=held.get(piece.content or "")) for piece in task.pieces)
            self.todo.append(replace(task, pieces=pieces))
        if self.published is None:
            for shards, _ in Counter(self.lent.values()).most_common(1):
                self.kin = manifest_of(shards.parent)

    @property
    def weight(self) -> int:
        """About how much text has to be read."""
        pieces = [piece for task in self.todo for piece in task.pieces if piece.held is None]
        return sum(piece.nbytes * text_weight(piece.file) // max(piece.file.size, 1) for piece in pieces)

    def _held(self, wanted: set[str]) -> dict[str, tuple[str, int]]:
        """Where the tokens of contents lie that have been encoded before."""
        found: dict[str, tuple[str, int]] = {}
        for shard, folders in self._receipts.items():
            if wanted <= found.keys():
                break
            for shards in folders:
                receipt = read_receipt(shards, shard)
                if receipt is not None and is_done(shards, receipt):
                    for number, piece in enumerate(receipt["pieces"]):
                        if piece["content"] is not None and not self._stops_at(piece):
                            found.setdefault(piece["content"], (str(shards / shard), number))
                    break
        return found

    def carry_out(self, crew: Executor, emit: Listener, redo: frozenset[str] | None = None) -> Store:
        """Do what has no receipt (and what is in `redo`), publish, and open the result."""
        began = time.monotonic()
        again = {task.id: task for task in self.tasks if task.id in (redo or ())}
        todo = list({**again, **{task.id: task for task in self.todo}}.values())
        if not todo and self.limit is None and redo is None and self._is_published():
            return self._up_to_date(emit)
        if todo or self.limit or self.kin is None:
            self._decide_engine(crew)
        self.manifest = self._blank_manifest()
        contents = self.tokenizer.definition.contents()
        for name, content in contents.items():
            self.manifest.files[f"tokenizer/{name}"] = keep(self.folder / "tokenizer" / name, content)
        forget(self.folder / "tokenizer", contents.keys())
        with writing(self.shards):
            self.shards.mkdir(exist_ok=True)
            self._take_shards()
        if self.published is None:
            self.manifest.write(self.folder)
        failures: Failures = {}
        sampling = None
        if todo or self.limit:
            emit(self._plan_event(crew, len(todo)))
            sampling = self._sampling(crew.processes)
            crew.begin(self._context(), None if sampling is None else sampling.offer)
            emit(Started(source_bytes=sum(task.new_bytes for task in todo)))
            try:
                if self.limit is None:
                    failures = crew.run(todo, self.has_receipt, self._note)
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
        self._share_failures(failures)
        for entry in each_once(failures):
            emit(FileFailed(**entry))
        manifest = publish(self.folder, self.manifest, self.tasks, self.shards_of, failures)
        seconds = time.monotonic() - began
        note_speed(self.tokenizer, sum(task.new_bytes for task in todo), seconds)
        emit(
            Finished(
                seconds=seconds,
                source_bytes=sum(task.new_bytes for task in todo),
                documents=manifest.documents,
                tokens=manifest.tokens,
                quarantined=manifest.quarantined,
                failed_files=len(manifest.failed),
                special_documents=manifest.special_documents,
                special_tokens=self.tokenizer.definition.special_tokens,
                spot_checked=sampling.checked if sampling else 0,
                spot_check_seconds=round(sampling.seconds, 4) if sampling else 0.0,
                fingerprint=manifest.fingerprint,
            )
        )
        return Store(self.folder, manifest)

    def _shards_with(self, task: Task) -> Path | None:
        """The folder that has the shard of a task, its own before others."""
        there = self._receipts.get(task.id, ()) if task.known else ()
        return next((shards for shards in there if self.has_receipt(task, shards)), None)

    @cached_property
    def _receipts(self) -> dict[str, list[Path]]:
        """The folders that have a receipt, by its shard's name, as they were when this was planned: one look into each."""
        found: dict[str, list[Path]] = {}
        for shards in self.donors:
            with suppress(OSError):
                for name in os.listdir(shards):
                    if name.endswith(".json"):
                        found.setdefault(name.removesuffix(".json"), []).append(shards)
        return found

    def _take_shards(self) -> None:
        """Shards that are elsewhere come here by a link, the receipt last; where there are no links, as a copy."""
        for name, shards in self.lent.items():
            link_shard(shards, self.shards, name, self.manifest.columns)

    def has_receipt(self, task: Task, shards: Path | None = None) -> bool:
        """Whether the shard of a task is there."""
        shards = shards or self.shards
        receipt = read_receipt(shards, task.id) if task.known else None
        if receipt is None or not is_done(shards, receipt):
            return False
        return not any(map(self._stops_at, receipt["pieces"]))  # done again, it stops there, as was asked

    def _stops_at(self, piece: dict[str, Any]) -> bool:
        """Whether a piece that was done holds what this build is to stop at."""
        if self.tokenizer.special_tokens == "error" and piece.get("special_documents"):
            return True
        return self.source.on_error == "raise" and any(skip[2] != BLANK for skip in piece.get("skips", ()))

    def _up_to_date(self, emit: Listener) -> Store:
        assert self.published is not None
        sweep(self.folder, set(self.published.shard_ids))
        return up_to_date(Store(self.folder, self.published), emit)

    def _is_published(self) -> bool:
        old = self.published
        shards = [self.shards_of.get(task.id, task.id) for task in self.tasks]
        if old is None or not old.complete or old.shard_ids != shards or not files_are_complete(self.folder, old):
            return False
        if self.limit is not None:
            return True
        try:
            return read_sources(self.folder / SOURCES).files == self.names().files
        except CorruptError:
            return False

    def names(self) -> Sources:
        """Which file each piece of the shards is, where all could be read."""
        runs = groupby(piece.file.shown for task in self.tasks for piece in task.pieces)
        files = [(name, sum(1 for _ in run)) for name, run in runs]
        pieces = [len(task.pieces) for task in self.tasks]
        return Sources([name for name, _ in files], [count for _, count in files], pieces)

    def _note(self, task: Task, done: TaskResult) -> None:
        assert done.shard is not None
        self.shards_of[task.id] = done.shard
        for piece, content in zip(task.pieces, done.contents, strict=True):
            if content is not None:
                self.seen[0].note(piece, self.source.looked_at, content)

    def _share_failures(self, failures: Failures) -> None:
        """What failed for a task failed for those of the same contents, which were not tried; and for what is left out."""
        done = {task.id: task for task in self.todo}
        for task in self.tasks:
            if task.id in failures and task.id in done:
                errors = {entry["file"]: entry["error"] for entry in failures[task.id]}
                for piece, tried in zip(task.pieces, done[task.id].pieces, strict=True):
                    error = errors.get(tried.file.shown)
                    if error is not None and piece.file.shown not in errors:
                        told = error.replace(tried.file.shown, piece.file.shown)
                        failures[task.id].append({"file": piece.file.shown, "error": told})
        if self.leave_out and self.published is not None:
            failures[""] = self.published.failed

    def _first_documents(self, crew: Executor) -> Failures:
        """Tasks one after the other until enough was read: how far each goes depends on those before it."""
        left = self.limit
        assert left is not None
        failures: Failures = {}
        for pieces in self.trial:
            task = task_of(pieces, self.making, left)
            self.tasks.append(task)
            failures |= crew.run([task], self.has_receipt, self._note)
            receipt = read_receipt(self.shards, self.shards_of.get(task.id, task.id))
            for piece in receipt["pieces"] if receipt else ():
                blank = sum(count for _, count, reason, _ in piece.get("skips", ()) if reason == BLANK)
                left = left.less(piece["rows"] - blank, piece["documents"], piece["tokens"])
            if left.reached or (receipt and receipt.get("stopped")):
                break
        return failures

    def _decide_engine(self, crew: Executor) -> None:
        """The engine: as it was, for a store that was begun; else, for a corpus worth it, the fastest on a sample of it."""
        tokenizer, old = self.tokenizer, self.kin
        if old is not None and old is not self.published and old.tokenizer["engine"] == tokenizer.definition.reference:
            old = None  # it may have been asked for there, and is slow
        if tokenizer.wanted != "auto" or tokenizer.reference_traits.is_slow:
            return
        self.tokenizer = tokenizer = replace(tokenizer)  # what it chose before may have been caught since
        if old is not None:
            with suppress(TokenmillError):  # no longer installed, or caught since
                same = load_tokenizer(tokenizer, engine=old.tokenizer["engine"])
                if same.engine_version == old.tokenizer["engine_version"]:
                    self.tokenizer = same
                    return
        if self.limit is None and sum(map(text_weight, self.source.files)) >= RACE_BYTES:
            self.tokenizer = tokenizer.for_corpus(corpus_key(self.tasks), lambda: self._sample(crew))

    def _sample(self, crew: Executor) -> list[str]:
        """Text for trials. They take the memory that is meant for workers: those start again afterwards."""
        crew.stop()
        return corpus_sample(self.tasks, self.source)

    def _sampling(self, processes: int) -> SpotCheck | None:
        """Documents are held to the reference, unless it is the reference that encodes them."""
        if self.tokenizer.runs_reference:
            return None

        def place(sample: Sample) -> str:
            task = next(task for task in (*self.todo, *self.tasks) if task.id == sample.task)
            return locate(task, self.source, sample.number)

        return SpotCheck(self.tokenizer, self.options["bos"], self.options["eos"], processes, place)

    def _throw_away(self, why: str, redo: frozenset[str]) -> None:
        """An engine was caught: nothing it made here is kept, but for what was published before, and it is not used again."""
        published = set(self.published.shard_ids) - redo if self.published is not None else set()
        for receipt in self.shards.glob("*.json"):
            if receipt.stem not in published:
                receipt.unlink()
        refuse(self.tokenizer.definition, self.tokenizer.engine, f"was caught: {why[:200]}")

    def _plan_event(self, crew: Executor, todo: int) -> Planned:
        return Planned(
            files=len(self.source.files),
            source_bytes=self.source.num_bytes,
            ignored_files=len(self.source.left_out),
            ignored_kinds=sorted({os.path.splitext(path)[1] or "no suffix" for path in self.source.left_out})[:8],
            shards=len(self.tasks),
            done=len(self.tasks) - todo,
            tokenizer=self.tokenizer.name,
            vocab_size=self.tokenizer.vocab_size,
            dtype=self.manifest.dtype,
            eos=self.tokenizer.describe(self.options["eos"]),
            engine=f"{self.tokenizer.engine} {self.tokenizer.engine_version}",
            proof=self.tokenizer.proof,
            workers=crew.describe(),
        )

    def _context(self) -> TaskContext:
        source, tokenizer = self.source, self.tokenizer
        return TaskContext(
            shards=str(self.shards),
            build_key=self.making,
            reading=values_of(ReadOptions, source),
            tokenizer=str(self.folder / "tokenizer"),
            python_class=tokenizer.definition.python_class,
            python_path=sys.path if tokenizer.definition.python_class else [],
            encoder=tokenizer.encoder_options(self.options["bos"], self.options["eos"]),
            refuse_special_tokens=tokenizer.special_tokens == "error",
            journals=str(self.seen[0].folder),
            reading_key=self.seen[0].way,
            listed_at=source.looked_at,
        )

    def _blank_manifest(self) -> Manifest:
        """What is known before any work: written at once, so that an interrupted build is known for what it is."""
        kin, options, tokenizer = self.kin, self.options, self.tokenizer
        facts: dict[str, Any] | None = kin.tokenizer if kin is not None else None
        same_engine = facts is not None and (
            not self.todo or (facts["engine"], facts["engine_version"]) == (tokenizer.engine, tokenizer.engine_version)
        )
        if facts is None or not same_engine:
            facts = {
                "name": facts["name"] if facts else tokenizer.name,  # the same by fingerprint; it keeps its first name
                "fingerprint": tokenizer.fingerprint,
                "vocab_size": tokenizer.vocab_size,
                "engine": tokenizer.engine,
                "engine_version": tokenizer.engine_version,
                "proof": tokenizer.proof,
                "eos_id": options["eos"],
                "bos_id": options["bos"],
                "eos_token": tokenizer.token_name(options["eos"]),
                "bos_token": tokenizer.token_name(options["bos"]),
            }
        source, columns = self.source, columns_with(tokenizer.dtype)
        if self.published is not None and self.published.columns != columns:
            there = ", ".join(column.name for column in self.published.columns)
            raise MismatchError(
                f"{self.folder} has the columns {there}; a build writes ids and ends. Nothing was changed; choose another"
                " folder, or rebuild this one without the others with --force"
            )
        return Manifest(
            options=options,
            source={"inputs": list(source.inputs), "files": len(source.files), "on_error": source.on_error},
            tokenizer=facts,
            columns=columns,
            source_bytes=source.num_bytes,
        )


def up_to_date(store: Store, emit: Listener) -> Store:
    emit(UpToDate(path=str(store.path), documents=len(store), tokens=store.num_tokens))
    return store
