"""Repair a damaged store: build the damaged shards again from their source. Nothing else is changed."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

from tokenmill.building.build_plan import BuildPlan, PriorWork, make_plan
from tokenmill.building.destination import FolderDestination
from tokenmill.building.request import ResolvedRequest
from tokenmill.building.sequence import run_build
from tokenmill.building.source_index import SourceIndex
from tokenmill.building.source_text import read_source
from tokenmill.encoding.api import load_tokenizer
from tokenmill.errors import StoreError, TokenmillError
from tokenmill.events import Listener
from tokenmill.formatting import some
from tokenmill.io import disk
from tokenmill.io.atomic import temporary_path, writing
from tokenmill.io.checked_lines import CheckedLines, read_lines
from tokenmill.io.lock import build_lock
from tokenmill.store.manifest import Manifest, read_manifest, trial_of
from tokenmill.store.shard import Damage
from tokenmill.store.store import Store


def repair(folder: Path, damages: list[Damage]) -> None:
    """Rebuild damaged shards from their source, in this process.

    Raises StoreError if the source is gone or has changed. The store is left as it is then: its undamaged shards may be
    all that is left of the source.
    """
    manifest = read_manifest(folder)
    tokenizer_is_damaged = any(damage.file.startswith("tokenizer/") for damage in damages)
    resolved = original_request(folder, manifest, from_name=tokenizer_is_damaged)
    after = run_build(resolved, RepairDestination(folder, manifest, damages), lambda event: None)
    if after.fingerprint != manifest.fingerprint:
        raise StoreError(
            f"{folder} was repaired, but differs from the original: its fingerprint is {after.fingerprint}, and was"
            f" {manifest.fingerprint}"
        )


def original_request(
    folder: Path, manifest: Manifest, *, from_name: bool = False, engine: str | None = None
) -> ResolvedRequest:
    """The request that a store was built for. Raises StoreError if it cannot be built again.

    The tokenizer is read from the store, or with `from_name` from where it came from.
    """
    if "import" in manifest.source:
        raise StoreError(f"{folder} was imported as tokens, not built from text: import it again into another folder")
    is_trial = bool(trial_of(manifest.options))
    if is_trial or any(name.startswith(("<", "-")) for name in manifest.source["inputs"]):
        what = "is only a trial" if is_trial else "was built from text that is not in files"
        raise StoreError(f"{folder} {what}: build it again with the same options, which keeps every undamaged shard")
    options = manifest.options
    try:
        source = read_source(folder.absolute(), manifest)
        tokenizer = load_tokenizer(
            manifest.tokenizer["name"] if from_name else folder / "tokenizer",
            engine or manifest.tokenizer["engine"],
            options["special_tokens"],
        )
    except TokenmillError as error:
        raise StoreError(f"{folder} cannot be repaired: {error}") from error
    if tokenizer.fingerprint != manifest.tokenizer["fingerprint"]:
        raise StoreError(f"{folder} cannot be repaired: {manifest.tokenizer['name']} is a different tokenizer now")
    built_with = options.get("tokenizers")
    if engine is None and tokenizer.reference_line != built_with:
        raise StoreError(
            f"{folder} cannot be repaired: it was built with tokenizers {built_with}, and {tokenizer.reference_line} gives other"
            " ids for some texts: install that version"
        )
    resolved = ResolvedRequest(
        source=source,
        tokenizer=tokenizer,
        bos=options["bos"],
        eos=options["eos"],
        shard_bytes=options["shard_bytes"],
        workers=0,
    )
    resolved.options["tokenizers"] = built_with  # which names the shards
    return resolved


class RepairDestination(FolderDestination):
    """An existing store, of which the damaged shards are built again."""

    def __init__(self, folder: Path, manifest: Manifest, damages: list[Damage]) -> None:
        super().__init__(folder)
        self.manifest, self.damages = manifest, damages

    def open(self, stack: ExitStack, emit: Listener) -> Store | None:
        stack.enter_context(build_lock(self.folder))
        if read_manifest(self.folder) != self.manifest:
            raise StoreError(f"{self.folder} was built again in the meantime; verify it again")
        if any(damage.file == "events.jsonl" for damage in self.damages):
            drop_damaged_lines(self.folder / "events.jsonl")
        return None

    def prior_work(self, resolved: ResolvedRequest) -> PriorWork:
        return PriorWork(
            published=self.manifest,
            indexes=[SourceIndex(self.folder, resolved.source)],
            damaged=frozenset(damage.shard for damage in self.damages if damage.shard is not None),
            unreadable=self.manifest.failed,
            is_repair=True,
        )

    def existing_store(self, plan: BuildPlan) -> Store | None:
        """None: a repaired store is always published. Raises StoreError unless the plan has the shards of the store."""
        planned = {task.id for task in plan.tasks}
        missing = [shard for shard in self.manifest.shard_ids if shard not in planned]
        if missing or (self.manifest.complete and len(plan.tasks) != len(self.manifest.shard_ids)):
            raise StoreError(
                f"{self.folder} cannot be repaired: its source has changed ({', '.join(self.manifest.source['inputs'])} no"
                f" longer gives {len(missing):,} of {some(len(self.manifest.shard_ids), 'shard')}). Nothing was changed. Build it"
                " again to follow the source"
            )
        return None

    def reasons(self, plan: BuildPlan) -> list[str]:
        return []


def original_plan(folder: Path, manifest: Manifest, *, engine: str) -> BuildPlan:
    """The plan that a store was built from, for reading its documents again. Raises StoreError if the source changed."""
    resolved = original_request(folder, manifest, engine=engine)
    destination = RepairDestination(folder, manifest, [])
    plan = make_plan(resolved, folder, destination.prior_work(resolved), lambda event: None)
    destination.existing_store(plan)
    return plan


def drop_damaged_lines(path: Path) -> None:
    """Replace a log by one without its damaged lines."""
    temporary = temporary_path(path)
    try:
        with writing(path), closing(CheckedLines(temporary)) as lines:
            for record in read_lines(path):
                lines.append(record)
            disk.replace(temporary, path)
    finally:
        disk.unlink(temporary)
