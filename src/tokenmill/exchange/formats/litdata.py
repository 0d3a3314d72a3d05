"""litData: chunks of items behind a table of offsets, and `index.json`. Read with its `TokensLoader`, as litgpt does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tokenmill.errors import InputError
from tokenmill.exchange.file_ids import ZSTD, FileIds, UnpackedBytes, UnpackedIds, offsets_in
from tokenmill.exchange.formats.base import (
    ExchangeFormat,
    Files,
    Found,
    Job,
    Ranges,
    cut,
    index_folders,
    offset_table,
    plain_name,
    size_of,
    write_ids,
)
from tokenmill.exchange.output import IndexFile, OutputFile, Written
from tokenmill.exchange.selection import Selection

INDEX = "index.json"
TOKENS_PER_FILE = 1 << 25
# How litData numbers dtypes of numpy and of torch, of those that hold ids.
NUMPY = {1: "int16", 2: "int32", 3: "int64", 4: "uint8", 5: "uint16", 6: "uint32"}
TORCH = {11: "uint8", 13: "int16", 14: "int16", 15: "int32", 16: "int32", 17: "int64", 18: "int64", 20: "uint16"}


class LitDataFormat(ExchangeFormat):
    """A document is an item. `TokensLoader` cuts the tokens of a chunk into blocks, across documents."""

    name = "litdata"
    reads = "import litdata; data = litdata.StreamingDataset({folder!r}, item_loader=litdata.TokensLoader(2049))"

    def files(self, job: Job) -> Files:
        dtype = np.dtype(np.uint16 if job.vocab_size <= 1 << 16 else np.int32)  # torch has no uint32 that trainers take
        data, indexes = [], []
        for name, part in job.selections().items():
            folder, ranges = job.folder(name), job.ranges(part, TOKENS_PER_FILE)
            files = {f"chunk-0-{number}.bin": each for number, each in enumerate(ranges)}
            for path, (first, stop) in files.items():
                key = [self.name, dtype.name, part.key_of(first, stop)]
                size = size_of(part, first, stop, dtype)
                data.append(OutputFile(folder + path, key, partial(_write_chunk, part, dtype, first, stop), size))
            key = [self.name, dtype.name, part.key_of(0, part.documents), list(files)]
            indexes.append(IndexFile(folder + INDEX, key, partial(_write_index, folder, files, dtype)))
        return data, indexes

    def recognizes(self, path: Path) -> bool:
        return any(_chunks_in(folder)[0] for folder in index_folders(path, INDEX))

    def find(self, path: Path, dtype: str | None) -> list[Path]:
        folders = index_folders(path, INDEX)
        found = [folder / plain_name(chunk["filename"]) for folder in folders for chunk in _chunks_in(folder)[0]]
        if not found:
            raise InputError(f"{path}: no {INDEX} of litData that lists chunks")
        return found

    def read(self, path: Path, dtype: str | None) -> Found:
        chunks, config = _chunks_in(path.parent)
        chunk = next((each for each in chunks if each["filename"] == path.name), None)
        if chunk is None:
            raise InputError(f"{path.parent / INDEX} is missing, not an index of litData, or does not list {path.name}")
        kind = np.dtype(_dtype_in(path, config))
        raw = _bytes_of(path, chunk, config)
        offsets = offsets_in(path, raw, chunk.get("chunk_size"))
        start, lengths = int(offsets[0]), np.diff(offsets)
        if start != 4 + 4 * len(offsets) or (lengths % kind.itemsize).any():
            raise InputError(f"{path}: its table of offsets does not fit items of {kind.name}; the chunk is damaged")
        ids = FileIds(path, kind, start) if isinstance(raw, FileIds) else UnpackedIds(raw, kind, start)
        return Found(kind, cut(ids, np.cumsum(lengths) // kind.itemsize), has_borders=True)


def _bytes_of(path: Path, chunk: dict[str, Any], config: dict[str, Any]) -> FileIds | UnpackedBytes:
    """The bytes of a chunk. Raises InputError for a compression that cannot be read."""
    compression, level = config.get("compression"), config.get("compression_level")
    if config.get("encryption") or (compression and str(compression).partition(":")[0] != ZSTD):
        raise InputError(
            f"{path}: it is encrypted, or compressed with {compression}; plain chunks and {ZSTD} can be read"
        )
    if compression and level not in (None, "", "chunk"):
        raise InputError(f"{path}: compressed by {level}; only whole chunks can be read (compression_level='chunk')")
    return UnpackedBytes(path, ZSTD, int(chunk["chunk_bytes"])) if compression else FileIds(path, np.uint8)


def _write_chunk(part: Selection, dtype: np.dtype[Any], first: int, stop: int, out: BinaryIO) -> None:
    lengths = np.concatenate([np.empty(0, np.int64), *part.lengths(first, stop)])
    out.write(offset_table(lengths * dtype.itemsize))
    write_ids(out, part, dtype, first, stop)


def _write_index(
    folder: str, files: Ranges, dtype: np.dtype[Any], out: BinaryIO, written: Mapping[str, Written]
) -> None:
    chunks: list[dict[str, Any]] = []
    for name, (first, stop) in files.items():
        size = written[folder + name].bytes
        tokens = (size - 4 * (stop - first + 2)) // dtype.itemsize
        chunks.append({"chunk_bytes": size, "chunk_size": stop - first, "dim": tokens, "filename": name})
    code = {"uint16": 20, "int32": 16}[dtype.name]
    config = {
        "chunk_bytes": max(chunk["chunk_bytes"] for chunk in chunks),
        "chunk_size": None,
        "compression": None,
        "data_format": [f"no_header_tensor:{code}"],
        "data_spec": '[1, {"type": null, "context": null, "children_spec": []}]',
        "encryption": None,
        "item_loader": "TokensLoader",
    }
    out.write(json.dumps({"chunks": chunks, "config": config, "updated_at": "0"}).encode())


def _chunks_in(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The chunks and the config of an index; none if it is not one of litData."""
    try:
        body = json.loads((folder / INDEX).read_text())
        chunks, config = body["chunks"], body["config"]
        if isinstance(config, dict) and all(isinstance(chunk["filename"], str) for chunk in chunks):
            return chunks, config
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return [], {}


def _dtype_in(path: Path, config: dict[str, Any]) -> str:
    """The dtype of the ids, from how the items of a dataset are written."""
    [*formats] = config.get("data_format") or []
    kind, _, code = str(formats[0]).partition(":") if len(formats) == 1 else ("", "", "")
    known = {"no_header_numpy": NUMPY, "no_header_tensor": TORCH}.get(kind, {})
    if not code.isdigit() or int(code) not in known:
        raise InputError(
            f"{path}: items of {', '.join(map(str, formats)) or 'no format'}, not token ids as TokensLoader reads"
        )
    return known[int(code)]
