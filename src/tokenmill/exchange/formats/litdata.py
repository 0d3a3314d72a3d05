"""litData: chunks of items behind a table of offsets, and `index.json`. Read with its `TokensLoader`, as litgpt does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tokenmill.errors import InputError, UsageError
from tokenmill.exchange.file_ids import ZSTD, FileIds, UnpackedBytes, UnpackedIds
from tokenmill.exchange.formats.base import (
    ExchangeFormat,
    Files,
    Found,
    Job,
    cut,
    index_folders,
    plain_name,
    put,
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
            names = [f"chunk-0-{number}.bin" for number in range(len(ranges))]
            for path, (first, stop) in zip(names, ranges, strict=True):
                key = [self.name, dtype.name, part.key_of(first, stop)]
                size = size_of(part, first, stop, dtype)
                data.append(OutputFile(folder + path, key, _chunk_writer(part, dtype, first, stop), size))
            key = [self.name, dtype.name, part.key_of(0, part.documents), names]
            indexes.append(IndexFile(folder + INDEX, key, _index_writer(folder, names, ranges, dtype)))
        return data, indexes

    def recognizes(self, path: Path) -> bool:
        return any(_chunks_in(folder) is not None for folder in index_folders(path, INDEX))

    def find(self, path: Path, dtype: str | None) -> list[Path]:
        found = []
        for folder in index_folders(path, INDEX):
            index = _chunks_in(folder)
            if index is not None:
                found += [folder / plain_name(chunk["filename"]) for chunk in index[0]]
        if not found:
            raise InputError(f"{path}: no {INDEX} of litData that lists chunks")
        return found

    def read(self, path: Path, dtype: str | None) -> Found:
        index = _chunks_in(path.parent)
        if index is None:
            raise InputError(f"{path.parent / INDEX} is missing or not an index of litData")
        chunks, config = index
        chunk = next((each for each in chunks if each["filename"] == path.name), None)
        if chunk is None:
            raise InputError(f"{path}: {INDEX} does not list it")
        kind = np.dtype(_dtype_in(path, config))
        raw = _bytes_of(path, chunk, config)
        size = len(raw)
        items = int(raw[:4].view("<u4")[0]) if size >= 8 else -1
        start = 8 + 4 * items
        offsets = raw[4:start].view("<u4") if items >= 0 and start <= size else np.empty(0, np.uint32)
        if not len(offsets) or int(offsets[0]) != start or int(offsets[-1]) != size:
            raise InputError(f"{path}: its table of offsets does not fit its {size} bytes; it is cut short or damaged")
        if chunk.get("chunk_size") not in (None, items):
            raise InputError(f"{path}: {items} items where {INDEX} says {chunk['chunk_size']}; one of them is damaged")
        bounds = offsets.astype(np.int64)
        lengths = bounds[1:] - bounds[:-1]
        if (lengths < 0).any() or (lengths % kind.itemsize).any():
            raise InputError(f"{path}: an item of {int(lengths.min())} bytes; the chunk is damaged")
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


def _chunk_writer(part: Selection, dtype: np.dtype[Any], first: int, stop: int) -> Callable[[BinaryIO], None]:
    def write(out: BinaryIO) -> None:
        sizes = np.concatenate([np.zeros(1, np.int64), *part.lengths(first, stop)]) * dtype.itemsize
        offsets = np.cumsum(sizes) + 4 * (stop - first + 2)
        if int(offsets[-1]) >= 1 << 32:
            raise UsageError(
                "a chunk of litData holds at most 4 GB: give a smaller tokens_per_file, or build smaller shards"
            )
        put(out, np.array([stop - first], "<u4"))
        put(out, offsets.astype("<u4"))
        write_ids(out, part, dtype, first, stop)

    return write


def _index_writer(
    folder: str, names: list[str], ranges: list[tuple[int, int]], dtype: np.dtype[Any]
) -> Callable[[BinaryIO, Mapping[str, Written]], None]:
    def write(out: BinaryIO, written: Mapping[str, Written]) -> None:
        chunks: list[dict[str, Any]] = []
        for name, (first, stop) in zip(names, ranges, strict=True):
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

    return write


def _chunks_in(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
    """The chunks and the config of an index, if it is one of litData."""
    try:
        body = json.loads((folder / INDEX).read_text())
        chunks, config = body["chunks"], body["config"]
        if isinstance(config, dict) and all(isinstance(chunk["filename"], str) for chunk in chunks):
            return chunks, config
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


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
