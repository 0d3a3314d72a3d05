"""Verification: compare a store with its checksums, or, much faster, its files with their expected sizes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenmill.errors import CorruptError
from tokenmill.io import disk
from tokenmill.io.atomic import digest, naming_files
from tokenmill.io.checked_lines import damaged_lines
from tokenmill.io.mirror import mirrored_url
from tokenmill.store.bucket import open_mirror
from tokenmill.store.columns import column_path, file_bytes, receipt_path
from tokenmill.store.consistency import check_agreement, check_columns
from tokenmill.store.manifest import NAME, Manifest, read_manifest
from tokenmill.store.shard import Damage, check_shard, has_columns, unsealed
from tokenmill.store.side_files import side_file

VERIFIED_AT_ONCE = 1 << 30  # bytes of shards of a bucket that are on this machine


@naming_files()
def verify_store(folder: Path) -> list[Damage]:
    """Read a whole store and return everything that differs from its checksums, or does not agree with the rest.

    Uses four threads and a few MB, beside the receipts. Of a mirror all shards are fetched again.
    """
    url = mirrored_url(folder)
    if url is None:
        return _verify(folder)
    with TemporaryDirectory() as temporary:
        return _verify(open_mirror(url, VERIFIED_AT_ONCE, Path(temporary)))


def _verify(folder: Path) -> list[Damage]:
    try:
        manifest = read_manifest(folder, is_asked_for=True)
    except CorruptError as error:
        return [Damage(NAME, str(error))]
    if not manifest.complete and not manifest.failed:
        return [Damage(NAME, "the build of this store was interrupted; run it again to finish it")]
    damages = _check_files(folder, manifest)
    receipts = []
    with ThreadPoolExecutor(4) as pool:
        check = partial(_check_shard, folder / "shards", manifest)
        for receipt, shard_damages in pool.map(check, manifest.shard_ids, manifest.receipts):
            damages += shard_damages
            receipts.append(receipt)
    if not damages:
        damages = check_agreement(folder, manifest, receipts)
    return damages + [
        Damage("events.jsonl", f"line {number} is damaged") for number in damaged_lines(folder / "events.jsonl")
    ]


def _check_files(folder: Path, manifest: Manifest) -> list[Damage]:
    """Compare the files that the manifest lists beside the shards: the tokenizer, the sources, the quarantine."""
    damages = []
    for name, expected in manifest.files.items():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise CorruptError(f"{folder / NAME} names a file outside the store: {name!r}")
        try:
            if digest(disk.read_bytes(side_file(folder, manifest, name))) != expected:
                damages.append(Damage(name, "damaged: its checksum does not match"))
        except OSError as error:
            damages.append(Damage(name, error.strerror or str(error)))
    return damages


def _check_shard(
    shards: Path, manifest: Manifest, shard_id: str, receipt_digest: str
) -> tuple[dict[str, Any], list[Damage]]:
    path = receipt_path(shards, shard_id)
    name = f"shards/{path.name}"
    try:
        raw = disk.read_bytes(path)
    except OSError as error:
        return {}, [Damage(name, error.strerror or str(error), shard_id)]
    receipt = unsealed(raw, shard_id)
    if receipt is None or digest(raw) != receipt_digest:
        return {}, [Damage(name, "the receipt is damaged: its checksum does not match", shard_id)]
    if not has_columns(receipt, manifest.columns):
        return receipt, [Damage(name, "the receipt is damaged: its columns are not those of the manifest", shard_id)]
    damages = check_shard(shards, receipt)
    return receipt, damages or check_columns(shards, receipt, manifest.tokenizer["vocab_size"])


def files_are_complete(folder: Path, manifest: Manifest) -> bool:
    """Whether every file of a store exists, in its full size. Lists one folder and reads no file."""
    shards = folder / "shards"
    try:
        sizes = {entry.name: entry.stat().st_size for entry in disk.entries(shards)}
    except OSError:
        return False
    if not all(side_file(folder, manifest, name).exists() for name in manifest.files):
        return False
    counts = zip(manifest.shard_ids, manifest.shard_documents, manifest.shard_tokens, strict=True)
    return all(
        receipt_path(shards, shard_id).name in sizes
        and all(
            sizes.get(column_path(shards, shard_id, column.name).name)
            == file_bytes(column.dtype, column.length(documents=documents, tokens=tokens))
            for column in manifest.columns
        )
        for shard_id, documents, tokens in counts
    )
