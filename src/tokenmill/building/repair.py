"""Mend a damaged store: do the broken shards' tasks again, from their source. Nothing else is touched."""

from __future__ import annotations

from pathlib import Path

from tokenmill.building.destination import without_own_files
from tokenmill.building.executors.in_process import InProcess
from tokenmill.building.machine import share_out
from tokenmill.building.reporting import EventSink, listener_for
from tokenmill.building.sequence import Build
from tokenmill.building.source_index import SourceIndex
from tokenmill.encoding import load_tokenizer
from tokenmill.errors import StoreError, TokenmillError
from tokenmill.io.checked_lines import CheckedLines, read_lines
from tokenmill.io.lock import build_lock
from tokenmill.reading import Source, read
from tokenmill.store import Damage, Manifest, read_manifest
from tokenmill.store.manifest import trial_of


def repair(folder: Path, damages: list[Damage]) -> None:
    """Rebuild damaged shards from their source, inside this process.

    If the source is gone, or no longer what the store was built from, that is an error, and the store stays as it is:
    its undamaged shards may be all that is left of it.
    """
    with build_lock(folder):
        before = read_manifest(folder)
        if any(damage.file == "events.jsonl" for damage in damages):
            _mend_log(folder / "events.jsonl")
        with EventSink(listener_for("quiet"), folder) as watch:
            build = same_build(folder, before, damages)
            redo = frozenset(damage.shard for damage in damages if damage.shard is not None)
            with InProcess(share_out(0, None)[1], watch.emit) as crew:
                after = build.carry_out(crew, watch.emit, redo)
            build.seen[0].write(build.source)
    if after.fingerprint != before.fingerprint:
        raise StoreError(
            f"{folder}: repaired, but not to what it was: {after.fingerprint}, before {before.fingerprint}"
        )


def same_build(folder: Path, before: Manifest, damages: list[Damage]) -> Build:
    """The build that made this store, planned anew; an error if it would make another."""
    is_trial = bool(trial_of(before.options))
    if is_trial or any(name.startswith(("<", "-")) for name in before.source["inputs"]):
        what = "only a trial" if is_trial else "built from text that is not in files"
        raise StoreError(f"{folder} was {what}: build it again in the same way; every undamaged shard is kept")
    broken = any(damage.file.startswith("tokenizer/") for damage in damages)
    try:
        source = _source(folder.absolute(), before)
        tokenizer = load_tokenizer(
            before.tokenizer["name"] if broken else folder / "tokenizer",
            before.tokenizer["engine"],
            before.options["special_tokens"],
        )
    except TokenmillError as error:
        raise StoreError(f"{folder} cannot be repaired: {error}") from error
    if tokenizer.fingerprint != before.tokenizer["fingerprint"]:
        raise StoreError(f"{folder} cannot be repaired: {before.tokenizer['name']} is another tokenizer now")
    failed = frozenset(entry["file"] for entry in before.failed)
    build = Build(folder, source, tokenizer, before.options, before, [SourceIndex(folder, source)], leave_out=failed)
    build.plan(lambda event: None)
    planned = {task.id for task in build.tasks}
    changed = [shard for shard in before.shard_ids if shard not in planned]
    if changed or (before.complete and len(build.tasks) != len(before.shard_ids)):
        raise StoreError(
            f"{folder} cannot be repaired: its source has changed since ({', '.join(before.source['inputs'])}; it no longer"
            f" gives {len(changed)} of {len(before.shard_ids)} shards). Nothing was touched. Build again to follow the source"
        )
    return build


def _source(folder: Path, before: Manifest) -> Source:
    options = before.options
    source = read(
        *before.source["inputs"],
        format=options["format"],
        text_field=options["text_field"] or "text",
        template=options["template"],
        separator=options["separator"],
        on_error=before.source["on_error"],
    )
    return without_own_files(source, folder, cache=folder.parent.parent)  # a store of the cache lies two below its root


def _mend_log(path: Path) -> None:
    """Keep the lines of the log that are whole."""
    records = list(read_lines(path))
    path.unlink()
    lines = CheckedLines(path)
    for record in records:
        lines.append(record)
    lines.close()
