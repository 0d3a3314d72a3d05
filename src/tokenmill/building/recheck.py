"""Documents of a finished store, read from their source again and encoded by the reference: is every id still right?"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.batch import text_bytes
from tokenmill.building.plan import Task
from tokenmill.building.repair import same_build
from tokenmill.building.rows import blocks, locate, nth_good
from tokenmill.encoding import WHOLE_BYTES, Difference, load_tokenizer
from tokenmill.errors import StoreError
from tokenmill.reading import Source
from tokenmill.store import Damage, Store, read_manifest, read_receipt

PER_SHARD = 64  # documents from one shard, so that a small N reads a small part of the source


def reencode(folder: Path, count: int) -> tuple[int, list[Damage]]:
    """Encode `count` documents, spread over the store, with the reference: (how many, those that differ).

    Reads the source of the shards they are in. If that is gone or has changed, that is an error: nothing can be said.
    """
    manifest = read_manifest(folder)
    build = same_build(folder, manifest, [])
    store = Store(folder, manifest)
    around = (manifest.options["bos"], manifest.options["eos"])
    encoder = load_tokenizer(build.tokenizer, engine="reference").encoder(*around)
    starts = np.concatenate(([0], np.cumsum(manifest.shard_documents)))
    tasks = {task.id: task for task in build.tasks}
    found: list[Damage] = []
    checked = 0
    for shard, wanted in _chosen(manifest.shard_documents, count):
        task = tasks[manifest.shard_ids[shard]]
        for place, number, values in _documents(task, build.source, folder / "shards", wanted):
            expected = encoder.encode(values).ids.tolist()
            stored = store[int(starts[shard]) + place].tolist()
            checked += 1
            if expected != stored:
                differs = Difference("", expected, stored)
                found.append(
                    Damage(locate(task, build.source, number), f"differs from the reference, {differs}", task.id)
                )
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


def _documents(
    task: Task, source: Source, shards: Path, wanted: set[int]
) -> Iterator[tuple[int, int, pa.LargeStringArray]]:
    """The texts of some of a shard's documents: (place in the shard, number in the task, text).

    What the build left out after reading (a document that crashed the engine, one too large) is not in the shard. Documents
    that are encoded in parts are passed over.
    """
    receipt = read_receipt(shards, task.id)
    if receipt is None:
        raise StoreError(f"shard {task.id} has no receipt; run: tokenmill verify {shards.parent}")
    pieces = iter(receipt["pieces"])
    entry: dict[str, Any] = {}
    current, place, goes_on = None, 0, False
    left_out: set[int] = set()
    for block in blocks(task, source):
        if block.piece is not current:
            current = block.piece
            entry = next((piece for piece in pieces if piece["file"] == block.piece.file.shown), {})
            left_out = {row + i for row, rows, _, _ in entry.get("skips", ()) for i in range(rows)}
        if not entry:
            continue  # a file that could not be read then
        texts = block.texts
        for i in range(len(texts.values) - texts.unfinished):
            if block.row + nth_good(i, list(texts.skips)) in left_out:
                continue
            one = texts.values.slice(i, 1)
            if place in wanted and text_bytes(one) <= WHOLE_BYTES and not (i == 0 and goes_on):
                yield place, block.number + i, one
            place += 1
        goes_on = texts.unfinished
