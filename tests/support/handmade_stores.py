"""Stores written shard by shard, without a build: any documents, dtypes and columns. And ways to damage them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.documents import Tokens
from tokenmill.io.atomic import canonical, digest
from tokenmill.store.columns import ColumnSpec, columns_with
from tokenmill.store.manifest import Manifest, store_fingerprint
from tokenmill.store.shard import ShardWriter, content_digest
from tokenmill.store.sources import SOURCES, Sources

TOKENIZER = {
    "name": "none", "fingerprint": "f" * 32, "vocab_size": 70000, "engine": "tokenizers",
    "engine_version": "0", "proof": "",
    "eos_id": 0, "bos_id": None,
}  # fmt: skip


def as_tokens(documents: Sequence[Sequence[int]], dtype: Any = "uint16", rest: Sequence[int] = (), **columns) -> Tokens:
    """Documents end to end, then the start of a document that continues; `columns` are lists of further values."""
    flat = [i for document in documents for i in document] + list(rest)
    ends = np.cumsum([len(document) for document in documents], dtype=np.int64)
    return Tokens(np.array(flat, dtype), ends, columns=columns)


def write_shard(folder: Path, name: str, documents: Sequence[Sequence[int]], dtype: Any = "uint16") -> dict[str, Any]:
    """One shard of these documents, each a row of a file named after the shard."""
    writer = ShardWriter(folder / "shards", name, dtype)
    writer.append(as_tokens(documents, dtype))
    return writer.commit(pieces=one_piece(len(documents)), text_bytes=0)


def one_piece(documents: int) -> list[dict[str, Any]]:
    """What a receipt says of a shard that was made from one piece."""
    return [{"content": None, "rows": documents, "documents": documents}]


def write_manifest(
    folder: Path,
    receipts: list[dict[str, Any]],
    dtype: Any = "uint16",
    extra: Sequence[ColumnSpec] = (),
    **changes: Any,
) -> Manifest:
    """A manifest and sources.json over finished shards of one piece each; `changes` replaces fields."""
    raw = [(folder / "shards" / f"{receipt['id']}.json").read_bytes() for receipt in receipts]
    one_each = [1] * len(receipts)
    names = Sources([f"{receipt['id']}.txt" for receipt in receipts], one_each, one_each)
    (folder / SOURCES).write_bytes(names.as_bytes())
    contents = [content_digest(receipt) for receipt in receipts if "columns" in receipt]
    fields: dict[str, Any] = {
        "options": {"eos": 0, "bos": None},
        "source": {"inputs": [], "files": 1, "on_error": "quarantine"},
        "tokenizer": TOKENIZER | {"vocab_size": int(np.iinfo(dtype).max) + 1},
        "columns": columns_with(dtype, extra),
        "complete": True,
        "documents": sum(receipt["documents"] for receipt in receipts),
        "tokens": sum(receipt["tokens"] for receipt in receipts),
        "shard_ids": [receipt["id"] for receipt in receipts],
        "shard_documents": [receipt["documents"] for receipt in receipts],
        "shard_tokens": [receipt["tokens"] for receipt in receipts],
        "row_starts": [0 for _ in receipts],
        "receipts": [digest(one) for one in raw],
        "fingerprint": store_fingerprint("f" * 32, [None, 0], np.dtype(dtype).name, contents),
    }
    manifest = Manifest(**{**fields, **changes})
    manifest.write(folder)
    return manifest


def flip(path: Path, byte: int = -1, bit: int = 0) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(data)


def cut(path: Path) -> None:
    """Cut a file short, in the middle of a line if it is a log: whole lines that are missing at its end do not show."""
    data = path.read_bytes()
    size = len(data) * 2 // 3
    path.write_bytes(data[: size - 2 if b"\n" in data[size - 2 : size] else size])


def write_forged_manifest(path: Path, body: dict[str, Any]) -> None:
    """Write a parsed and changed manifest.json, with a right checksum."""
    del body["checksum"]
    text = "{\n" + ",\n".join(f"{json.dumps(key)}: {canonical(value).decode()}" for key, value in body.items())
    path.write_text(f'{text},\n"checksum": "{digest(text.encode())}"\n}}\n')
