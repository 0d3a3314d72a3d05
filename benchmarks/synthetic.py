"""Stores made for benchmarks: documents with lengths like those of web pages, always the same, without a tokenizer.

Lengths are log-normal with a median of 400 tokens and sigma 1.15: a mean of 775, and 2% of the documents longer than 4096.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.io.atomic import digest
from tokenmill.store.checksums import CHECK_BLOCK
from tokenmill.store.columns import HEADER_BYTES, column_path, columns_with, npy_header, receipt_path
from tokenmill.store.manifest import Manifest, read_manifest, store_fingerprint
from tokenmill.store.shard import RECEIPT_VERSION, content_digest, sealed
from tokenmill.store.sources import SOURCES, Sources

MEDIAN, SIGMA, MEAN = 400, 1.15, 775
SHARD_DOCUMENTS = 10_000  # about what a build puts into a shard: 8 million tokens
TOKENS = 10**12
LONG_SHARD, LONG_DOCUMENTS = 500_000_000, 500  # of the store of 10^12 tokens: a million documents in 2000 shards
SMALL_SHARD = 8_000_000  # tokens of 32 MB of text


def write_store(
    folder: Path,
    shards: Iterable[npt.NDArray[np.int64]],
    plain: Path | None = None,
    only: tuple[int, ...] | None = None,
) -> None:
    """A store of documents of these lengths. Its ids are holes in files, or, with `plain`, random and in that file too.

    With `only`, no other shards have files at all.
    """
    home = folder / "shards"
    home.mkdir(parents=True)
    dtype, ends_dtype = np.dtype(np.uint16), np.dtype(np.int64)
    rng = np.random.default_rng(0)
    documents: list[int] = []
    tokens: list[int] = []
    with open(plain, "wb") if plain else nullcontext() as flat:
        for number, lengths in enumerate(shards):
            ends = np.cumsum(lengths)
            documents.append(len(ends))
            tokens.append(int(ends[-1]))
            if only is not None and number not in only:
                continue
            with open(home / f"{number:06}.npy", "wb") as out:
                out.write(npy_header(dtype, tokens[-1]))
                if flat:
                    some = rng.integers(0, 50_000, tokens[-1], dtype)
                    out.write(some.data)
                    flat.seek(HEADER_BYTES + dtype.itemsize * sum(tokens[:-1]))
                    flat.write(some.data)
                else:
                    out.truncate(out.tell() + tokens[-1] * dtype.itemsize)
            with open(home / f"{number:06}.ends.npy", "wb") as out:
                out.write(npy_header(ends_dtype, len(ends)))
                out.write(ends.data)
        if flat:
            flat.seek(0)
            flat.write(npy_header(dtype, sum(tokens)))
    ids = [f"{number:06}" for number in range(len(tokens))]
    tokenizer = dict.fromkeys(("name", "fingerprint", "engine", "engine_version", "proof"), "bench")
    Manifest(
        options={"bos": None, "eos": 0},
        source={},
        tokenizer={**tokenizer, "vocab_size": 50_000, "eos_id": 0, "bos_id": None},
        columns=columns_with(dtype),
        complete=True,
        documents=sum(documents),
        tokens=sum(tokens),
        shard_ids=ids,
        shard_documents=documents,
        shard_tokens=tokens,
        row_starts=[0] * len(ids),
        receipts=[""] * len(ids),
        fingerprint=store_fingerprint("bench", [0, None], dtype.name, [f"{n}" for n in tokens]),
    ).write(folder)


def web_lengths(documents: int) -> Iterator[npt.NDArray[np.int64]]:
    """The lengths of `documents` documents like web pages, one shard after another."""
    for number, first in enumerate(range(0, documents, SHARD_DOCUMENTS)):
        rng = np.random.default_rng([0, number])
        lengths = np.exp(rng.normal(np.log(MEDIAN), SIGMA, min(SHARD_DOCUMENTS, documents - first)))
        yield np.maximum(1, lengths.round()).astype(np.int64)


def first_lengths(shards: Iterable[npt.NDArray[np.int64]], documents: int) -> npt.NDArray[np.int64]:
    held: list[npt.NDArray[np.int64]] = []
    for lengths in shards:
        held.append(lengths)
        if len(held) * SHARD_DOCUMENTS >= documents:
            break
    return np.concatenate(held)[:documents]


def long_shards(shards: int, tokens: int) -> Iterator[npt.NDArray[np.int64]]:
    """Shards of exactly `tokens` tokens each, in a few documents of uneven lengths."""
    for number in range(shards):
        weights = np.random.default_rng([1, number]).lognormal(0, SIGMA, LONG_DOCUMENTS)
        ends = np.round(np.cumsum(weights) / weights.sum() * tokens).astype(np.int64)
        yield np.diff(ends, prepend=0)


def write_receipts(folder: Path) -> None:
    """Give a store of `write_store` the receipts a build would have written, with the checksums of its files."""
    manifest, home = read_manifest(folder), folder / "shards"
    columns = zip(manifest.shard_ids, manifest.shard_documents, manifest.shard_tokens, strict=True)
    manifest.receipts, contents = [], list[str]()
    for shard_id, documents, tokens in columns:
        receipt = {
            "version": RECEIPT_VERSION,
            "id": shard_id,
            "documents": documents,
            "tokens": tokens,
            "text_bytes": 0,
            "pieces": [{"content": None, "rows": documents, "documents": documents}],
            "check_block": CHECK_BLOCK,
            "columns": {
                column.name: {
                    "per": column.per,
                    "dtype": column.dtype,
                    "length": column.length(documents=documents, tokens=tokens),
                    "checksums": _sums(column_path(home, shard_id, column.name)),
                }
                for column in manifest.columns
            },
        }
        receipt_path(home, shard_id).write_bytes(sealed(receipt))
        manifest.receipts.append(digest(sealed(receipt)))
        contents.append(content_digest(receipt))
    one_each = [1] * len(contents)
    (folder / SOURCES).write_bytes(Sources(manifest.shard_ids, one_each, one_each).as_bytes())
    manifest.fingerprint = store_fingerprint("bench", [None, 0], manifest.dtype, contents)
    manifest.write(folder)


def _sums(path: Path) -> list[str]:
    data = np.memmap(path, np.uint8, "r", HEADER_BYTES)
    return [xxhash.xxh3_64_hexdigest(data[at : at + CHECK_BLOCK]) for at in range(0, len(data), CHECK_BLOCK)]
