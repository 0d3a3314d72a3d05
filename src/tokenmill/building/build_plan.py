"""Which shards a store consists of, and which of them do not exist yet."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tokenmill.building.plan import Limit, Task, build_key, groups, task_of
from tokenmill.building.publish import published_manifest, sources_of, sweep
from tokenmill.building.request import ResolvedRequest
from tokenmill.building.source_index import SourceIndex, file_heads, find_contents
from tokenmill.documents import BLANK
from tokenmill.encoding.tokenizer import Tokenizer
from tokenmill.errors import CorruptError
from tokenmill.events import Listener
from tokenmill.io import disk
from tokenmill.reading import Piece, Source, text_weight
from tokenmill.store.bucket import StoreBucket
from tokenmill.store.integrity import files_are_complete
from tokenmill.store.lease import Lease
from tokenmill.store.manifest import TRIAL, Manifest
from tokenmill.store.shard import is_done, read_receipt
from tokenmill.store.side_files import settle, side_file
from tokenmill.store.sources import SOURCES, Sources, read_sources
from tokenmill.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorWork:
    """What earlier builds left that a build can use."""

    published: Manifest | None  # of the store in the folder of the build
    indexes: list[SourceIndex]  # what is known about input files; the index of this build comes first
    donors: list[Path] = field(default_factory=list)  # `shards` folders of stores that were built with the same options
    leases: list[Lease | None] = field(default_factory=list)  # keep the donors from being removed
    damaged: frozenset[str] = frozenset()  # shards in the folder that must be built again
    unreadable: list[dict[str, str]] = field(default_factory=list)  # input files that failed, and are not tried again
    is_repair: bool = False  # the store must have the same documents as before, or stay as it is
    bucket: StoreBucket | None = None  # where the store is, if the folder is only a working folder


@dataclass(slots=True, kw_only=True)
class BuildPlan:
    """The tasks of a store, and which of them have to be done.

    A trial takes tasks from `trial` one after the other until it has enough; `tasks` and `todo` are empty then.
    """

    resolved: ResolvedRequest
    folder: Path
    prior: PriorWork
    build_key: str
    limit: Limit | None
    earlier_contents: dict[str, dict[Any, str]]  # by file, as the last finished build of these inputs found them
    tasks: list[Task] = field(default_factory=list)
    todo: list[Task] = field(default_factory=list)
    left_to_others: int = 0  # tasks that other slices do
    borrowed: dict[str, Path] = field(default_factory=dict)  # shards that donors have: name -> `shards` folder
    trial: Iterable[tuple[Piece, ...]] = ()
    origin: Manifest | None = None  # the published manifest, or that of the donor of most shards

    @property
    def shards(self) -> Path:
        return self.folder / "shards"

    @property
    def source(self) -> Source:
        return self.resolved.source

    @property
    def tokenizer(self) -> Tokenizer:
        return self.resolved.tokenizer

    @property
    def options(self) -> dict[str, Any]:
        return self.resolved.options

    @property
    def index(self) -> SourceIndex:
        """The index that this build writes."""
        return self.prior.indexes[0]

    @property
    def has_work(self) -> bool:
        return bool(self.todo or self.source._streams) or self.limit is not None

    @property
    def new_pieces(self) -> list[Piece]:
        """The pieces that have to be read and encoded."""
        return [piece for task in self.todo for piece in task.pieces if piece.held is None]

    @property
    def weight(self) -> int:
        """An estimate of the bytes of text to encode."""
        return sum(piece.nbytes * text_weight(piece.file) // max(piece.file.size, 1) for piece in self.new_pieces)

    def has_shard(self, task: Task, shards: Path) -> bool:
        """Whether a folder has the shard of a task, and the build need not stop at one of its documents."""
        receipt = read_receipt(shards, task.id) if task.known else None
        if receipt is None or not is_done(shards, receipt):
            return False
        return not any(map(self.stops_at, receipt["pieces"]))

    def fetch_receipt(self, shard: str) -> None:
        """Have the receipt of a finished shard here: the worker of a store in a bucket may run on another machine."""
        if self.prior.bucket is not None:
            self.prior.bucket.pull_shard(shard)

    def stops_at(self, piece: dict[str, Any]) -> bool:
        """Whether a piece of a receipt has documents at which this build must stop. It does when it encodes them again."""
        if self.tokenizer.special_tokens == "error" and piece.get("special_documents"):
            return True
        return self.source.on_error == "raise" and any(skip[2] != BLANK for skip in piece.get("skips", ()))

    def sources(self) -> Sources:
        """The file of each piece of the shards, if all files can be read."""
        return sources_of([[piece.file.shown for piece in task.pieces] for task in self.tasks])

    def published_store(self, shards: list[str]) -> Store | None:
        """The store in the folder, tidied, if it consists of these shards: see `is_published`."""
        manifest = self.prior.published
        if manifest is None or not self.is_published(shards):
            return None
        settle(self.folder, manifest)
        sweep(self.folder, set(shards))
        return Store(self.folder, manifest)

    def is_published(self, shards: list[str]) -> bool:
        """Whether the store in the folder is complete and consists of these shards, and its files have the same names."""
        manifest = self.prior.published
        if manifest is None or not manifest.complete or manifest.shard_ids != shards:
            return False
        return files_are_complete(self.folder, manifest) and (self.limit is not None or self._has_same_names(manifest))

    def _has_same_names(self, manifest: Manifest) -> bool:
        try:
            return read_sources(side_file(self.folder, manifest, SOURCES)).files == self.sources().files
        except CorruptError:
            return False


def make_plan(resolved: ResolvedRequest, folder: Path, prior: PriorWork, emit: Listener) -> BuildPlan:
    """Compare the input with what exists. Reads only the files whose size, times or inode changed. Writes nothing."""
    limits = [resolved.options[name] for name in TRIAL]
    index = prior.indexes[0]
    earlier = {path: dict(entry.contents) for path, entry in index.files.items()} if index.is_finished else {}
    plan = BuildPlan(
        resolved=resolved,
        folder=folder,
        prior=prior,
        build_key=build_key(resolved.options),
        limit=Limit(*limits) if resolved.is_trial else None,
        earlier_contents=earlier,
        origin=prior.published,
    )
    pieces = _readable_pieces(plan)
    if plan.limit is not None:
        plan.trial = pieces
        return plan
    receipts = _receipts(plan)
    known = find_contents(
        pieces,
        plan.source,
        prior.indexes,
        rehash=resolved.rehash,
        read_all=bool(receipts or prior.damaged) and not any(index.paths for index in prior.indexes),
        emit=emit,
    )
    plan.tasks = [task_of(pieces, plan.build_key) for pieces in known]
    _find_shards(plan, receipts)
    if prior.published is None:
        for shards, _ in Counter(plan.borrowed.values()).most_common(1):
            plan.origin = published_manifest(shards.parent)
    return plan


def _readable_pieces(plan: BuildPlan) -> Iterator[tuple[Piece, ...]]:
    """The pieces of each task, without files that are known to be unreadable."""
    unreadable = {entry["file"] for entry in plan.prior.unreadable}
    shard_bytes = plan.options["shard_bytes"]
    head = file_heads(
        plan.prior.indexes, plan.source, lambda file: text_weight(file) < shard_bytes, rehash=plan.resolved.rehash
    )
    for group in groups(plan.source, shard_bytes, head):
        pieces = tuple(piece for piece in group if piece.file.shown not in unreadable)
        if pieces:
            yield pieces


def _receipts(plan: BuildPlan) -> dict[str, list[Path]]:
    """The folders that have a receipt for a shard, by its name; the folder of the build first. Lists each folder once."""
    receipts: dict[str, list[Path]] = {}
    for shards in (plan.shards, *plan.prior.donors):
        with suppress(OSError):
            for entry in disk.entries(shards):
                shard, suffix = os.path.splitext(entry.name)
                if suffix == ".json" and shard not in plan.prior.damaged:
                    receipts.setdefault(shard, []).append(shards)
    return receipts


def _find_shards(plan: BuildPlan, receipts: dict[str, list[Path]]) -> None:
    """Set which tasks are to be done, and which shards come from donors."""
    missing: dict[str, Task] = {}
    for task in {task.id: task for task in plan.tasks}.values():
        folders = receipts.get(task.id, ()) if task.known else ()
        shards = next((folder for folder in folders if plan.has_shard(task, folder)), None)
        if shards is None:
            missing[task.id] = task
        elif shards != plan.shards:
            plan.borrowed[task.id] = shards
    wanted = {piece.content for task in missing.values() for piece in task.pieces if piece.content}
    encoded = _encoded_pieces(plan, receipts, wanted)
    for task in missing.values():
        pieces = tuple(replace(piece, held=encoded.get(piece.content or "")) for piece in task.pieces)
        plan.todo.append(replace(task, pieces=pieces))


def _encoded_pieces(plan: BuildPlan, receipts: dict[str, list[Path]], wanted: set[str]) -> dict[str, tuple[str, int]]:
    """Which existing shard, and which piece of it, has the tokens of a content. `wanted` keeps those that are not found."""
    encoded: dict[str, tuple[str, int]] = {}
    for shard, folders in receipts.items():
        if not wanted:
            break
        for shards in folders:
            receipt = read_receipt(shards, shard)
            if receipt is not None and is_done(shards, receipt):
                for number, piece in enumerate(receipt["pieces"]):
                    if piece["content"] in wanted and not plan.stops_at(piece):
                        wanted.remove(piece["content"])
                        encoded[piece["content"]] = (str(shards / shard), number)
                break
    return encoded
