"""Encode documents of a finished store again, from their source and with the reference, and compare the ids."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.building.plan import Task
from tokenmill.building.repair import original_plan
from tokenmill.building.spot_check import Difference
from tokenmill.building.task_rows import blocks, good_rows
from tokenmill.documents import text_bytes
from tokenmill.encoding.encoder import WHOLE_BYTES
from tokenmill.encoding.engines import ENGINES, engine_version
from tokenmill.errors import StoreError
from tokenmill.formatting import some
from tokenmill.reading import Source
from tokenmill.store.manifest import Manifest, read_manifest
from tokenmill.store.shard import Damage, read_receipt
from tokenmill.store.store import Store

PER_SHARD = 64  # documents of one shard, so that a small sample reads a small part of the source


def reencode(folder: Path, count: int) -> tuple[int, list[Damage]]:
    """Encode `count` documents, spread over the store, with the reference. Returns how many, and those that differ.

    Reads the source of the shards they are in. Raises StoreError if that is gone or has changed.
    """
    manifest = read_manifest(folder)
    try:
        plan = original_plan(folder, manifest, engine="reference")
    except StoreError as error:
        raise StoreError(f"no document can be encoded again: {error}") from error
    store = Store(folder, manifest)
    encoder = plan.tokenizer._encoder(manifest.options["bos"], manifest.options["eos"])
    first_documents = np.concatenate(([0], np.cumsum(manifest.shard_documents)))
    tasks = {task.id: task for task in plan.tasks}
    differences: list[Damage] = []
    checked = 0
    for shard, positions in _sample(manifest.shard_documents, count):
        task = tasks[manifest.shard_ids[shard]]
        for position, text in _texts(task, plan.source, folder / "shards", positions):
            document = int(first_documents[shard]) + position
            expected, stored = encoder.encode(text).ids.tolist(), store[document].tolist()
            checked += 1
            if expected != stored:
                file, row = store.locate(document)
                difference = Difference("", expected, stored)
                differences.append(
                    Damage(f"{file}, row {row}", f"differs from {reference_of(manifest)}, {difference}", task.id)
                )
    return checked, differences


def reference_of(manifest: Manifest) -> str:
    """The reference that is installed, in words; and the one that the store was built with, if that is another."""
    name = manifest.tokenizer.get("reference", "the reference")  # an imported store has none
    installed = engine_version(name) if name in ENGINES else ""
    built_with = manifest.tokenizer.get("reference_version", installed)
    return f"{name} {installed}".strip() + (
        f" (the store was built with {built_with})" if built_with != installed else ""
    )


def _sample(documents: list[int], count: int) -> Iterator[tuple[int, set[int]]]:
    """Shards, and positions of documents in them: few shards, many documents of each. The same call gives the same sample."""
    chance = random.Random(f"{count} {documents}")
    shards = [shard for shard, size in enumerate(documents) if size]
    while shards and count > 0:
        chosen = chance.sample(shards, min(len(shards), -(-count // PER_SHARD)))
        each = -(-count // len(chosen))
        for shard in sorted(chosen):
            size = min(each, documents[shard], count)
            count -= size
            if size > 0:
                yield shard, set(chance.sample(range(documents[shard]), size))
        shards = [shard for shard in shards if shard not in chosen]


def _texts(task: Task, source: Source, shards: Path, positions: set[int]) -> Iterator[tuple[int, pa.LargeStringArray]]:
    """The texts of the documents at these positions of a shard, each with its position.

    Rows that the build skipped, and files that it could not read, are not in the shard. Documents that are encoded in parts
    are left out.
    """
    receipt = read_receipt(shards, task.id)
    if receipt is None:
        raise StoreError(f"shard {task.id} has no receipt; run: tokenmill verify {shards.parent}")
    skipped = _skipped_rows(task, receipt)
    position, continues = 0, False
    for block in blocks(task, source):
        skipped_rows = skipped.get((block.piece.file.path, block.piece.start))
        if skipped_rows is None:
            continues = False
            continue
        for i, row in enumerate(good_rows(block.texts)):
            if block.row + row in skipped_rows:
                continue
            if position in positions and not (i == 0 and continues):
                text = block.texts.values.slice(i, 1)
                if text_bytes(text) <= WHOLE_BYTES:
                    yield position, text
            position += 1
        continues = block.texts.unfinished
    if position != receipt["documents"]:
        raise StoreError(
            f"no document can be encoded again: the source gives {position:,} of the {some(receipt['documents'], 'document')} of"
            f" shard {task.id}; can {', '.join(sorted({piece.file.shown for piece in task.pieces})[:3])} be read?"
        )


def _skipped_rows(task: Task, receipt: dict[str, Any]) -> dict[tuple[str, int], set[int]]:
    """The rows that the build left out, by path and start of each piece."""
    return {
        (piece.file.path, piece.start): {row + i for row, rows, _, _ in entry.get("skips", ()) for i in range(rows)}
        for piece, entry in zip(task.pieces, receipt["pieces"], strict=True)
    }
