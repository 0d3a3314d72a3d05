"""manifest.json: what a store is, which shards it holds and in which order. Replaced whole, or not at all."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenmill.errors import CorruptError, MissingStoreError, StoreError
from tokenmill.io.atomic import canonical, checked_names, digest, write_atomically

FORMAT = "tokenmill-store"
VERSION = 2
NAME = "manifest.json"
TRIAL = ("max_rows", "max_documents", "max_tokens")  # options that stop a build early
SEAL = b',\n"checksum": '


def trial_of(options: dict[str, Any]) -> dict[str, int]:
    """Where a build with these options stops early; nothing for one of the whole."""
    return {name: limit for name in TRIAL if (limit := options.get(name)) is not None}


@dataclass(slots=True, kw_only=True)
class Manifest:
    """The whole of a store in numbers. Shards are columns, so that a million of them still open quickly.

    `options` is what the tokens depend on beside the input; `source` says where the input came from. `row_starts` gives
    the row number, in its file, at which a shard's first piece begins. `fingerprint` covers the tokens and the
    tokenizer and nothing else: no name, no date, no path.
    """

    options: dict[str, Any]
    source: dict[str, Any]
    tokenizer: dict[str, Any]
    dtype: str
    complete: bool = False
    documents: int = 0
    tokens: int = 0
    source_bytes: int = 0
    text_bytes: int = 0
    special_documents: int = 0
    quarantined: dict[str, int] = field(default_factory=dict)
    failed: list[dict[str, str]] = field(default_factory=list)
    shard_ids: list[str] = field(default_factory=list)
    shard_documents: list[int] = field(default_factory=list)
    shard_tokens: list[int] = field(default_factory=list)
    row_starts: list[int] = field(default_factory=list)
    receipts: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    fingerprint: str = ""

    def write(self, folder: Path) -> None:
        body = {"format": FORMAT, "version": VERSION} | {name: getattr(self, name) for name in self.__slots__}
        unsealed = _pretty(body)
        write_atomically(folder / NAME, unsealed + _seal(unsealed))


def read_manifest(folder: Path) -> Manifest:
    """Read and check a manifest; any damage to it is found here."""
    path = folder / NAME
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise MissingStoreError(f"no token store at {folder} (there is no {NAME} in it)") from None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    remedy = "run the build again with the same arguments: it keeps every finished shard"
    try:
        body = json.loads(raw)
        del body["checksum"]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise CorruptError(f"{path} is damaged; {remedy}") from None
    if body.get("format") != FORMAT:
        raise CorruptError(f"{path} is not the manifest of a token store; {remedy}")
    unsealed = raw[: raw.rfind(SEAL)]
    sound = raw == unsealed + _seal(unsealed)  # over the bytes as they are: a million shards are not written out again
    if sound and body.get("version") != VERSION:
        older = isinstance(body.get("version"), int) and body["version"] < VERSION
        raise StoreError(
            f"{path}: store format {body.get('version')}, but this tokenmill reads {VERSION};"
            f" {'build it again with --force' if older else 'upgrade tokenmill'}"
        )
    if not sound:
        raise CorruptError(f"{path} is damaged: its checksum does not match; {remedy}")
    del body["format"], body["version"]
    try:
        manifest = Manifest(**body)
        _check_shape(manifest)
    except (TypeError, KeyError, ValueError) as error:
        if isinstance(error, CorruptError):
            raise
        raise CorruptError(f"{path} is not a manifest of this version ({error}); {remedy}") from None
    return manifest


def _check_shape(manifest: Manifest) -> None:
    """Refuse what no build writes, before anything relies on it."""
    for name in ("shard_documents", "shard_tokens", "row_starts"):
        column = getattr(manifest, name)
        if not isinstance(column, list) or any(type(n) is not int or n < 0 for n in column):
            raise ValueError(f"{name} is not a list of counts")
    for name in ("shard_ids", "receipts"):
        if not isinstance(getattr(manifest, name), list):
            raise ValueError(f"{name} is not a list")
    columns = (manifest.shard_documents, manifest.shard_tokens, manifest.row_starts, manifest.receipts)
    if any(len(column) != len(manifest.shard_ids) for column in columns):
        raise ValueError("the columns of shards differ in length")
    if (manifest.documents, manifest.tokens) != (sum(manifest.shard_documents), sum(manifest.shard_tokens)):
        raise ValueError("the totals are not the sums of the shards")
    if manifest.dtype not in ("uint16", "uint32"):
        raise ValueError(f"dtype {manifest.dtype!r}")
    for name in ("options", "source", "tokenizer", "quarantined", "files"):
        if not isinstance(getattr(manifest, name), dict):
            raise ValueError(f"{name} is not a table")
    missing = {
        "name",
        "fingerprint",
        "vocab_size",
        "engine",
        "engine_version",
        "proof",
        "eos_id",
        "bos_id",
    } - manifest.tokenizer.keys()
    if missing:
        raise ValueError(f"the tokenizer lacks {', '.join(sorted(missing))}")
    checked_names(manifest.shard_ids)


def store_fingerprint(tokenizer: str, around: list[int | None], dtype: str, shards: list[str]) -> str:
    """The root fingerprint: the tokenizer's, the ids put around documents, and each shard's content, in order."""
    return hashlib.sha256(canonical([FORMAT, 1, tokenizer, around, dtype, shards])).hexdigest()[:32]


def _pretty(body: dict[str, Any]) -> bytes:
    """One line a key: short enough to read, quick enough to parse. The seal closes it."""
    lines = (f"{json.dumps(key)}: {canonical(value).decode()}" for key, value in body.items())
    return ("{\n" + ",\n".join(lines)).encode()


def _seal(unsealed: bytes) -> bytes:
    """The last lines of a manifest: a checksum over all bytes before them."""
    return SEAL + f'"{digest(unsealed)}"\n}}\n'.encode()
