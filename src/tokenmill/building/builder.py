"""source x tokenizer -> store. Which receipts are missing? Make those; then write the manifest."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tokenmill.batch import BLANK
from tokenmill.building.crew import Crew, Inside
from tokenmill.building.local import Workers
from tokenmill.building.lock import build_lock
from tokenmill.building.machine import parse_size, share_out
from tokenmill.building.plan import Task, limited, plan
from tokenmill.building.progress import Progress
from tokenmill.building.publish import publish
from tokenmill.encoding import Tokenizer, load_tokenizer
from tokenmill.errors import CorruptError, MismatchError, MissingStoreError, StoreError, UsageError
from tokenmill.events import Event
from tokenmill.reading import Source, check_fields, read, text_weight
from tokenmill.store import Manifest, Store, is_done, read_manifest, read_receipt
from tokenmill.store.files import digest, write_atomically, writing

SMALL_BYTES = 8 << 20  # less text than this is done before a worker would have started


def build(
    source: Any,
    tokenizer: str | os.PathLike[str] | Tokenizer,
    out: str | os.PathLike[str],
    *,
    eos: str | int | None = "auto",
    bos: str | int | None = None,
    shard_bytes: str | int = "32MB",
    workers: int | None = None,
    memory: str | int | None = None,
    engine: str = "auto",
    force: bool = False,
    progress: str | Callable[[Event], None] | None = None,
    **reading: Any,
) -> Store:
    """Tokenize a corpus into a store at `out`, or finish one that was begun, or say that it is up to date.

    `source` is what `tm.read` takes, or what it returns; its options (`text`, `format`, `template`, `separator`, `limit`,
    `on_error`) may be given here. Runs on one worker process per physical core (`workers=0`: inside this process) and
    within `memory` (half of what is free, unless said). `progress` is "auto", "bar", "plain", "quiet" or "verbose", or a
    function that gets each event.

    The store's bytes depend on the input, the tokenizer and `shard_bytes` alone. Input files that cannot be read are left
    out: the store then says `complete == False`, `failed` names them, and the next build tries just those again.
    """
    if workers is not None and workers < 0:
        raise UsageError(f"workers={workers} must be 0 (inside this process) or more")
    shard_size = parse_size(shard_bytes, "shard_bytes")
    if shard_size < 1 << 10:
        raise UsageError(f"shard_bytes={shard_bytes!r} is less than 1KiB; a shard of some tens of MB is usual")
    if not isinstance(source, Source):
        source = read(*(source if isinstance(source, tuple) else (source,)), **reading)
    elif reading:
        raise UsageError(f"give {', '.join(reading)} to tm.read, where the source was made")
    folder = Path(out)
    with ExitStack() as stack:
        stack.enter_context(build_lock(folder))
        watch = stack.enter_context(Progress(progress, folder))
        stack.callback(shutil.rmtree, folder / "spool", ignore_errors=True)
        crew = stack.enter_context(_crew(source, workers, memory, watch.emit))
        if not (folder / "manifest.json").exists():
            crew.start()  # they get ready while the work is planned
        if source.streams:
            from tokenmill.reading.spool import spool

            with writing(folder / "spool"):
                source = spool(source, folder / "spool", shard_size)
        check_fields(source)
        loaded = load_tokenizer(tokenizer, engine)
        around = {"bos": loaded.resolve("bos", bos), "eos": loaded.resolve("eos", eos)}
        options = {**source.options(), "tokenizer": loaded.fingerprint, **around, "shard_bytes": shard_size}
        blank = _blank_manifest(source, loaded, options)
        previous = _agree(folder, blank, force)
        for name, content in loaded.files().items():
            blank.files[f"tokenizer/{name}"] = _keep(folder / "tokenizer" / name, content.encode())
        if previous is None:
            blank.write(folder)
        elif previous.tokenizer["engine"] == loaded.engine:
            blank.tokenizer = previous.tokenizer  # the same by fingerprint; it keeps the name it was first called by
        tasks = plan(source, options, shard_size)
        return _carry_out(folder, source, loaded, blank, previous, tasks, crew, watch.emit)


def _carry_out(
    folder: Path,
    source: Source,
    tokenizer: Tokenizer,
    blank: Manifest,
    previous: Manifest | None,
    tasks: list[Task],
    crew: Crew,
    emit: Callable[[Event], None],
) -> Store:
    """Do what has no receipt, publish, and open the result."""
    began = time.monotonic()
    shards = folder / "shards"
    with writing(shards):
        shards.mkdir(exist_ok=True)
    todo = [task for task in tasks if not _has_receipt(shards, task)]
    if not todo and previous is not None and previous.complete and previous.shard_ids == [task.id for task in tasks]:
        counts = {"documents": previous.documents, "tokens": previous.tokens}
        emit({"event": "up to date", "path": str(folder), **counts})
        return Store(folder, previous)
    emit(
        {
            "event": "plan",
            "files": len(source.files),
            "source_bytes": source.num_bytes,
            "left_out": len(source.left_out),
            "shards": len(tasks),
            "done": len(tasks) - len(todo),
            "tokenizer": tokenizer.name,
            "vocab_size": tokenizer.vocab_size,
            "dtype": blank.dtype,
            "eos": blank.options["eos"],
            "engine": tokenizer.engine,
            "proof": tokenizer.proof,
            "workers": crew.describe(),
        }
    )
    crew.begin(
        {
            "shards": str(shards),
            "source": {name: getattr(source, name) for name in ("format", "text", "template", "separator", "on_error")},
            "tokenizer": str(folder / "tokenizer" / "tokenizer.json"),
            "encoder": {
                "engine_name": tokenizer.engine,
                "vocab_size": tokenizer.vocab_size,
                "bos_id": blank.options["bos"],
                "eos_id": blank.options["eos"],
            },
        }
    )
    emit({"event": "start", "source_bytes": sum(task.nbytes for task in todo)})
    if source.limit is None:
        failures = crew.run(todo, lambda task: _has_receipt(shards, task))
    else:
        tasks, failures = _first_documents(shards, tasks, source.limit, crew)
    for entry in (entry for entries in failures.values() for entry in entries):
        emit({"event": "failed", **entry})
    manifest = publish(folder, blank, tasks, failures)
    emit(
        {
            "event": "finished",
            "seconds": time.monotonic() - began,
            "done_bytes": sum(task.nbytes for task in todo),
            "documents": manifest.documents,
            "tokens": manifest.tokens,
            "quarantined": manifest.quarantined,
            "failed": len(manifest.failed),
            "fingerprint": manifest.fingerprint,
        }
    )
    return Store(folder, manifest)


def _first_documents(
    shards: Path, tasks: list[Task], limit: int, crew: Crew
) -> tuple[list[Task], dict[str, list[dict[str, str]]]]:
    """Tasks one after the other until enough documents were read: how far each goes depends on those before it."""
    done: list[Task] = []
    failures: dict[str, list[dict[str, str]]] = {}
    for task in tasks:
        if limit <= 0:
            break
        task = limited(task, limit)
        if not _has_receipt(shards, task):
            failures |= crew.run([task], lambda task: _has_receipt(shards, task))
        done.append(task)
        receipt = read_receipt(shards, task.id)
        for piece in receipt["pieces"] if receipt else ():
            blank = sum(count for _, count, reason, _ in piece.get("skips", ()) if reason == BLANK)
            limit -= piece["rows"] - blank
    return done, failures


def _has_receipt(shards: Path, task: Task) -> bool:
    receipt = read_receipt(shards, task.id)
    return receipt is not None and not receipt["failed"] and is_done(shards, receipt)


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
        },
        dtype=tokenizer.dtype.name,
        source_bytes=source.num_bytes,
    )


def _agree(folder: Path, new: Manifest, force: bool) -> Manifest | None:
    """The store that is there, if it is of the same making; an error that says what differs, if not."""
    try:
        old = read_manifest(folder)
    except (MissingStoreError, CorruptError):
        return None  # receipts still tell what is done
    except StoreError:
        if not force:
            raise
        return None
    differs = [
        f"{key}: {old.options.get(key)!r} there, {new.options.get(key)!r} now"
        for key in sorted(old.options.keys() | new.options.keys())
        if old.options.get(key) != new.options.get(key)
    ]
    if old.tokenizer["fingerprint"] != new.tokenizer["fingerprint"]:
        differs.append(f"tokenizer name: {old.tokenizer['name']} there, {new.tokenizer['name']} now")
    gone = [name for name in old.source["inputs"] if name not in new.source["inputs"]]
    if gone:
        differs.append(f"input: {', '.join(gone)} there, {', '.join(new.source['inputs'])} now")
    if differs and not force:
        raise MismatchError(
            f"{folder} was built in another way ({'; '.join(differs)}). Build as before, choose another folder, or rebuild"
            " this one with --force (force=True)"
        )
    if force:
        for receipt in (folder / "shards").glob("*.json"):
            receipt.unlink()
        return None
    return old


def _keep(path: Path, content: bytes) -> str:
    """Write a file unless it is there already; returns its digest."""
    with suppress(OSError):
        if path.read_bytes() == content:
            return digest(content)
    with writing(path):
        path.parent.mkdir(exist_ok=True)
    write_atomically(path, content)
    return digest(content)


def _crew(source: Source, workers: int | None, memory: str | int | None, emit: Callable[[Event], None]) -> Crew:
    count, share = share_out(workers, memory)
    small = sum(map(text_weight, source.files)) < SMALL_BYTES and not source.streams
    if workers == 0 or source.limit is not None or (workers is None and small):
        return Inside(share, emit)
    return Workers(count, share, emit)
