"""Receipts -> manifest: the moment a store comes to be, in one rename."""

from __future__ import annotations

import os
import re
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

from tokenmill.building.executors.base import Failures
from tokenmill.building.plan import Task
from tokenmill.documents import BLANK
from tokenmill.errors import BuildError
from tokenmill.io.atomic import canonical, digest, sync_folder, temporary_path, write_atomically, writing
from tokenmill.store import Manifest, content_digest, has_columns, read_receipt, shard_of_file, store_fingerprint
from tokenmill.store.shard import sealed
from tokenmill.store.sources import SOURCES, Sources

QUARANTINE = "quarantine.jsonl"
_HALF_WRITTEN = re.compile(
    r"(manifest\.json|sources\.json|quarantine\.jsonl|tokenizer/.+|listing|seen)\.[0-9a-f-]+\.tmp"
)


def publish(
    folder: Path, manifest: Manifest, tasks: list[Task], shards: dict[str, str], failures: Failures
) -> Manifest:
    """Put finished shards in order, count everything, and replace the manifest. Then sweep what it does not name.

    `shards` has the names of the shards that tasks became.
    """
    contents: list[str] = []
    quarantined: Counter[str] = Counter()
    rows_so_far: dict[str, int] = {}
    failed_files = {entry["file"] for entry in chain(*failures.values())}
    files: list[str] = []
    pieces_of_files: list[int] = []
    pieces_of_shards: list[int] = []
    with _Quarantine(folder / QUARANTINE) as quarantine:
        for task in tasks:
            if failed_files and failed_files.issuperset(piece.file.shown for piece in task.pieces):
                continue  # a file is in a store whole, or not at all
            shard = shards.get(task.id, task.id)
            receipt = read_receipt(folder / "shards", shard)
            if receipt is None:
                raise BuildError(f"shard {shard} has no receipt after the build; run it again")
            if not has_columns(receipt, manifest.columns):
                raise BuildError(f"the columns of shard {shard} are not those of the store; build with --force")
            contents.append(content_digest(receipt))
            manifest.shard_ids.append(shard)
            manifest.shard_documents.append(receipt["documents"])
            manifest.shard_tokens.append(receipt["tokens"])
            manifest.receipts.append(digest(sealed(receipt)))
            manifest.text_bytes += receipt["text_bytes"]
            manifest.special_documents += receipt.get("special_documents", 0)
            names = _names(task, failures)
            pieces_of_shards.append(len(receipt["pieces"]))
            manifest.row_starts.append(rows_so_far.get(names[0], 0) if names and receipt["pieces"] else 0)
            for name, piece in zip(names, receipt["pieces"], strict=False):  # a trial may stop before the last
                first = rows_so_far.get(name, 0)
                rows_so_far = {name: first + piece["rows"]}
                if not files or files[-1] != name:
                    files.append(name)
                    pieces_of_files.append(0)
                pieces_of_files[-1] += 1
                for row, count, reason, detail in piece.get("skips", ()):
                    if reason != BLANK:
                        quarantined[reason] += count
                        quarantine.add(name, first + row, count, reason, detail)
    manifest.documents, manifest.tokens = sum(manifest.shard_documents), sum(manifest.shard_tokens)
    manifest.quarantined = dict(sorted(quarantined.items()))
    manifest.failed = each_once(failures)
    manifest.complete = not manifest.failed
    sources = Sources(files, pieces_of_files, pieces_of_shards).as_bytes()
    write_atomically(folder / SOURCES, sources)
    manifest.files |= {QUARANTINE: quarantine.digest, SOURCES: digest(sources)}
    manifest.fingerprint = store_fingerprint(
        manifest.tokenizer["fingerprint"], [manifest.options["bos"], manifest.options["eos"]], manifest.dtype, contents
    )
    manifest.write(folder)
    sweep(folder, set(manifest.shard_ids))
    return manifest


def _names(task: Task, failures: Failures) -> list[str]:
    """The files of the pieces that are in a task's shard."""
    failed = {entry["file"] for entry in failures.get(task.id, ())}
    return [piece.file.shown for piece in task.pieces if piece.file.shown not in failed]


def each_once(failures: Failures) -> list[dict[str, str]]:
    """The files that failed, in order; a file cut into pieces may have failed in several."""
    return list(
        {entry["file"]: dict(entry) for entry in sorted(chain(*failures.values()), key=lambda e: e["file"])}.values()
    )


class _Quarantine:
    """quarantine.jsonl: a line for every document left out; replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path, self.beside = path, temporary_path(path)

    def __enter__(self) -> _Quarantine:
        import xxhash

        self.hash = xxhash.xxh3_128()
        with writing(self.path):
            self.out = open(self.beside, "wb")
        return self

    def add(self, file: str, row: int, count: int, reason: str, detail: str) -> None:
        for i in range(count):
            entry: dict[str, Any] = {"file": file, "row": row + i, "reason": reason}
            line = canonical(entry | ({"detail": detail} if detail else {})) + b"\n"
            self.hash.update(line)
            with writing(self.path):
                self.out.write(line)

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            with writing(self.path):
                with self.out:
                    self.out.flush()
                    os.fsync(self.out.fileno())
                if kind is None:
                    os.replace(self.beside, self.path)
                    sync_folder(self.path.parent)
        finally:
            self.beside.unlink(missing_ok=True)
        self.digest = self.hash.hexdigest()


def sweep(folder: Path, keep: set[str]) -> None:
    """Remove shards no manifest names any more and what a crash left half written; what is not ours is left alone."""
    for path in (folder / "shards").glob("*"):
        shard = shard_of_file(path.name)
        if shard is not None and (shard not in keep or path.name.endswith(".tmp")):
            path.unlink(missing_ok=True)
    for path in (*folder.glob("*.tmp"), *(folder / "tokenizer").glob("*.tmp")):
        if _HALF_WRITTEN.fullmatch(path.relative_to(folder).as_posix()):
            path.unlink(missing_ok=True)
