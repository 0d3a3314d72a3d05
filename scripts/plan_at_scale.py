"""Plan a build of a corpus that does not exist: 15 TB of parquet by default. Reads no bytes; measures time and memory.

    python scripts/plan_at_scale.py [--terabytes 15] [--file 512MB] [--row-group 128MB] [--shard-bytes 1GB]

Everything is real except the listing and the footers of the files: the tasks are made by the planner of builds, the manifest is
written and read, and a store with as many shards is opened.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenmill.building import build_plan, plan
from tokenmill.building.build_plan import PriorWork, make_plan
from tokenmill.building.request import BuildRequest, resolve
from tokenmill.building.source_index import SourceIndex
from tokenmill.formatting import human, parse_size
from tokenmill.reading import Piece, Source, SourceFile
from tokenmill.reading.formats.base import grouped
from tokenmill.store.columns import columns_with
from tokenmill.store.manifest import NAME, Manifest, read_manifest
from tokenmill.store.store import Store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--terabytes", type=float, default=15)
    parser.add_argument("--file", default="512MB")
    parser.add_argument("--row-group", default="128MB", help="text of a row group")
    parser.add_argument("--shard-bytes", default="1GB")
    options = parser.parse_args()
    size, row_group = parse_size(options.file, "file"), parse_size(options.row_group, "row-group")
    count = int(options.terabytes * 1e12 / size)
    facts: dict[str, Any] = {"files": count, "bytes": count * size}
    source = timed(facts, "listing_seconds", lambda: listing(count, size))
    plan.split_many = footers(row_group)
    with tempfile.TemporaryDirectory() as folder:
        request = BuildRequest(source=source, tokenizer="demo", shard_bytes=options.shard_bytes)
        resolved = resolve(request)
        prior = PriorWork(published=None, indexes=[SourceIndex(Path(folder), source)])
        made = timed(facts, "planning_seconds", lambda: make_plan(resolved, Path(folder), prior, lambda event: None))
        facts["shards"] = len(made.tasks)
        facts["planner_memory"] = human(peak())
        tokens = int(options.terabytes * 1e12 * 3 / 4.5 / len(made.tasks))
        manifest = large_manifest(made, tokens)
        timed(facts, "manifest_writing_seconds", lambda: manifest.write(Path(folder)))
        facts["manifest_bytes"] = human((Path(folder) / NAME).stat().st_size)
        again = timed(facts, "manifest_reading_seconds", lambda: read_manifest(Path(folder)))
        timed(facts, "opening_seconds", lambda: Store(Path(folder), again))
        facts["memory_in_all"] = human(peak())
    print(json.dumps(facts, indent=1))


def timed(facts: dict[str, Any], name: str, call: Callable[[], Any]) -> Any:
    began = time.perf_counter()
    result = call()
    facts[name] = round(time.perf_counter() - began, 2)
    return result


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def listing(count: int, size: int) -> Source:
    files = (
        SourceFile(f"s3://corpus/part-{number:06d}.parquet", size, f"etag.{number:032x}", "parquet")
        for number in range(count)
    )
    return Source(files=tuple(files), inputs=("s3://corpus",))


def footers(row_group: int) -> Callable[[Sequence[SourceFile], Source, int], Iterator[list[Piece]]]:
    """What the footers of the files would say: row groups of equal size."""

    def split_many(files: Sequence[SourceFile], source: Source, piece_bytes: int) -> Iterator[list[Piece]]:
        for file in files:
            yield grouped(file, [row_group] * (file.size * 3 // row_group), piece_bytes)

    return split_many


def large_manifest(made: build_plan.BuildPlan, tokens: int) -> Manifest:
    """A manifest as it would be at the end."""
    shards = len(made.tasks)
    documents = tokens // 1000
    return Manifest(
        options=made.options,
        source={"inputs": ["s3://corpus"], "files": len(made.source.files), "on_error": "quarantine"},
        tokenizer={
            "name": "demo",
            "fingerprint": "",
            "vocab_size": 50_000,
            "engine": "",
            "engine_version": "",
            "proof": "",
            "eos_id": 0,
            "bos_id": None,
        },
        columns=columns_with("uint16"),
        complete=True,
        documents=documents * shards,
        tokens=tokens * shards,
        shard_ids=[task.id for task in made.tasks],
        shard_documents=[documents] * shards,
        shard_tokens=[tokens] * shards,
        row_starts=[0] * shards,
        receipts=["0" * 32] * shards,
    )


if __name__ == "__main__":
    main()
