"""Documents of a finished store, read from their source again and encoded by the reference: is every id still right?"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from tokenmill.building.plan import Task
from tokenmill.building.repair import same_build
from tokenmill.building.task_rows import blocks, good_rows
from tokenmill.documents import text_bytes
from tokenmill.encoding import WHOLE_BYTES, Difference
from tokenmill.errors import StoreError
from tokenmill.reading import Source
from tokenmill.store import Damage, Store, read_manifest, read_receipt

PER_SHARD = 64  # documents from one shard, so that a small N reads a small part of the source


def reencode(folder: Path, count: int) -> tuple[int, list[Damage]]:
    """Encode `count` documents, spread over the store, with the reference: (how many, those that differ).

    Reads the source of the shards they are in. If that is gone or has changed, that is an error: nothing can be said.
    """
    manifest = read_manifest(folder)
    try:  # whatever engine made it: that one may be gone, or refused by now
        build = same_build(folder, replace(manifest, tokenizer={**manifest.tokenizer, "engine": "reference"}), [])
    except StoreError as error:
        raise StoreError(f"no document can be encoded again: {error}") from error
    store = Store(folder, manifest)
    encoder = build.tokenizer.encoder(manifest.options["bos"], manifest.options["eos"])
    starts = np.concatenate(([0], np.cumsum(manifest.shard_documents)))
    tasks = {task.id: task for task in build.tasks}
    found: list[Damage] = []
    checked = 0
    for shard, wanted in _chosen(manifest.shard_documents, count):
        task = tasks[manifest.shard_ids[shard]]
        for place, values in _documents(task, build.source, folder / "shards", wanted):
            document = int(starts[shard]) + place
            expected, stored = encoder.encode(values).ids.tolist(), store[document].tolist()
            checked += 1
            if expected != stored:
                file, row = store.locate(document)
                differs = Difference("", expected, stored)
                found.append(Damage(f"{file}, row {row}", f"differs from the reference, {differs}", task.id))
    return checked, found


def _chosen(documents: list[int], count: int) -> Iterator[tuple[int, set[int]]]:
    """Which documents of which shards: a few shards, many documents of each. Always the same ones."""
    chance = random.Random(f"{count} {documents}")
    full = [shard for shard, held in enumerate(documents) if held]
    while full and count > 0:
        few = chance.sample(full, min(len(full), -(-count // PER_SHARD)))
        each = -(-count // len(few))
        for shard in sorted(few):
            wanted = min(each, documents[shard], count)
            count -= wanted
            if wanted > 0:
                yield shard, set(chance.sample(range(documents[shard]), wanted))
        full = [shard for shard in full if shard not in few]


def _documents(task: Task, source: Source, shards: Path, wanted: set[int]) -> Iterator[tuple[int, pa.LargeStringArray]]:
    """The texts of some of a shard's documents, each with its place in the shard.

    What the build left out after reading (a document that crashed the engine, one too large) is not in the shard, nor is a
    file that could not be read then. Documents that are encoded in parts are passed over.
    """
    receipt = read_receipt(shards, task.id)
    if receipt is None:
        raise StoreError(f"shard {task.id} has no receipt; run: tokenmill verify {shards.parent}")
    left_out = {
        (piece.file.path, piece.start): {row + i for row, rows, _, _ in entry.get("skips", ()) for i in range(rows)}
        for piece, entry in zip(task.pieces, receipt["pieces"], strict=True)
    }
    place, goes_on = 0, False
    for block in blocks(task, source):
        gone = left_out.get((block.piece.file.path, block.piece.start))
        if gone is None:
            goes_on = False
            continue
        for i, row in enumerate(good_rows(block.texts)):
            if block.row + row in gone:
                continue
            if place in wanted and not (i == 0 and goes_on):
                one = block.texts.values.slice(i, 1)
                if text_bytes(one) <= WHOLE_BYTES:
                    yield place, one
            place += 1
        goes_on = block.texts.unfinished
    if place != receipt["documents"]:
        raise StoreError(
            f"no document can be encoded again: the source gives {place:,} of the {receipt['documents']:,} documents of"
            f" shard {task.id}; can {', '.join(sorted({piece.file.shown for piece in task.pieces})[:3])} be read?"
        )
