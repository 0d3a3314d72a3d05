"""Is every bit still what it was? Reads the whole store once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tokenmill.errors import CorruptError
from tokenmill.io.atomic import digest
from tokenmill.io.checked_lines import damaged_lines
from tokenmill.store.manifest import NAME, read_manifest
from tokenmill.store.shard import Damage, check_shard, receipt_path, unsealed


def verify_store(folder: Path) -> list[Damage]:
    """Everything that differs from its checksum. Runs on a few threads; memory is a few blocks."""
    try:
        manifest = read_manifest(folder)
    except CorruptError as error:
        return [Damage(NAME, str(error))]
    if not manifest.complete and not manifest.failed:
        return [Damage(NAME, "the build of this store was interrupted; run it again to finish it")]
    found: list[Damage] = []
    for name, expected in manifest.files.items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise CorruptError(f"{folder / NAME} names a file outside the store: {name!r}")
        try:
            if digest(path.read_bytes()) != expected:
                found.append(Damage(name, "damaged: its checksum does not match"))
        except OSError as error:
            found.append(Damage(name, error.strerror or str(error)))
    with ThreadPoolExecutor(4) as pool:
        pairs = zip(manifest.shard_ids, manifest.receipts, strict=True)
        for damages in pool.map(lambda pair: _check(folder / "shards", *pair), pairs):
            found += damages
    found += [Damage("events.jsonl", f"line {number} is damaged") for number in damaged_lines(folder / "events.jsonl")]
    return found


def _check(shards: Path, shard_id: str, expected: str) -> list[Damage]:
    name = f"shards/{shard_id}.json"
    try:
        raw = receipt_path(shards, shard_id).read_bytes()
    except OSError as error:
        return [Damage(name, error.strerror or str(error), shard_id)]
    receipt = unsealed(raw, shard_id)
    if receipt is None or digest(raw) != expected:
        return [Damage(name, "the receipt is damaged: its checksum does not match", shard_id)]
    return check_shard(shards, receipt)
