"""Mosaic's MDS: shards of samples behind a table of offsets, and `index.json`. Read with `streaming.StreamingDataset`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from tokenmill.errors import InputError, UsageError
from tokenmill.exchange.exported_rows import check_rows, row_blocks, row_dtype
from tokenmill.exchange.file_ids import ZSTD, FileIds, UnpackedBytes
from tokenmill.exchange.formats.base import (
    ExchangeFormat,
    Files,
    Found,
    Job,
    Ranges,
    flat_dtype,
    index_folders,
    key_of,
    offset_table,
    plain_name,
    put,
    size_of,
)
from tokenmill.exchange.formats.mds_samples import Samples
from tokenmill.exchange.other_columns import UnkeptLabels
from tokenmill.exchange.output import IndexFile, OutputFile, Written
from tokenmill.exchange.selection import Block, Selection
from tokenmill.packing.view import View

INDEX = "index.json"
VERSION = 2
TOKENS_PER_FILE = 1 << 25
COLUMN = "tokens"  # as llm-foundry calls it
SIZE_LIMIT = 1 << 26  # written into the index; nothing depends on it
SMALL, MIDDLE = 1 << 8, 1 << 16  # a length below these is written in one byte, or in two


class MdsFormat(ExchangeFormat):
    """A sample is a document in the column `tokens`, or a row with a column per array: `tokens`, if that is the ids alone."""

    name = "mds"
    reads = "from streaming import LocalDataset; data = LocalDataset({folder!r})"
    takes = ("documents", "rows")

    def files(self, job: Job) -> Files:
        dtype = flat_dtype(job.vocab_size)
        data, indexes = [], []
        for name, part in job.parts.items():
            folder, ranges = job.folder(name), job.ranges(part, TOKENS_PER_FILE)
            if isinstance(part, Selection):
                facts = _facts({COLUMN: (f"ndarray:{dtype.name}", None)})
                write = partial(_write_documents, part, dtype, facts)
            else:
                facts = _facts(_columns(part))
                write = partial(_write_rows, part, facts)
            files = {f"shard.{number:05d}.mds": each for number, each in enumerate(ranges)}
            for path, (first, stop) in files.items():
                key, size = [self.name, facts, key_of(part, first, stop)], size_of(part, first, stop, dtype)
                data.append(OutputFile(folder + path, key, partial(write, first, stop), size))
            whole = [self.name, facts, key_of(part, 0, ranges[-1][1]), list(files)]
            indexes.append(IndexFile(folder + INDEX, whole, partial(_write_index, folder, files, facts)))
        return data, indexes

    def recognizes(self, path: Path) -> bool:
        return any(_shards_in(folder) is not None for folder in index_folders(path, INDEX))

    def find(self, path: Path, dtype: str | None) -> list[Path]:
        found = [
            folder / _file_of(folder, shard)
            for folder in index_folders(path, INDEX)
            for shard in _shards_in(folder) or []
        ]
        if not found:
            raise InputError(f"{path}: no {INDEX} that lists MDS shards")
        return found

    def read(self, path: Path, dtype: str | None) -> Found:
        shards = _shards_in(path.parent) or []
        shard = next((each for each in shards if _file_of(path.parent, each) == path.name), None)
        if shard is None:
            raise InputError(f"{path.parent / INDEX} does not list {path.name}")
        samples, unkept = Samples(path, shard, dtype), UnkeptLabels()
        blocks = samples.blocks(_bytes_of(path, shard), unkept)
        return Found(samples.ids.dtype, blocks, has_borders=True, unkept_labels=unkept)


def _file_of(folder: Path, shard: dict[str, Any]) -> str:
    """The file of a shard: the plain one if it is there, else the compressed one."""
    raw, packed = (
        None if shard[key] is None else plain_name(shard[key]["basename"]) for key in ("raw_data", "zip_data")
    )
    if packed is None or (raw is not None and (folder / raw).is_file()):
        return plain_name(raw)
    if str(shard["compression"]).partition(":")[0] != ZSTD:
        raise InputError(
            f"{folder / packed}: compressed with {shard['compression']}; decompress it first, or use {ZSTD}"
        )
    return packed


def _bytes_of(path: Path, shard: dict[str, Any]) -> FileIds | UnpackedBytes:
    raw = shard["raw_data"]
    return FileIds(path, np.uint8) if raw["basename"] == path.name else UnpackedBytes(path, ZSTD, int(raw["bytes"]))


def _columns(view: View) -> dict[str, tuple[str, int | None]]:
    """The encoding and the size in bytes of each array of a row."""
    check_rows(view)
    found: dict[str, tuple[str, int | None]] = {}
    for name in sorted(view._row_format.fields):
        dtype = row_dtype(view, name)
        found[_column_name(view, name)] = f"ndarray:{dtype.name}:{view.seq_len}", dtype.itemsize * view.seq_len
    return found


def _column_name(view: View, name: str) -> str:
    return COLUMN if tuple(view._row_format.fields) == ("input_ids",) else name


def _facts(columns: dict[str, tuple[str, int | None]]) -> dict[str, Any]:
    return {
        "column_encodings": [encoding for encoding, _ in columns.values()],
        "column_names": list(columns),
        "column_sizes": [size for _, size in columns.values()],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": SIZE_LIMIT,
    }


def _head(sizes: npt.NDArray[np.int64], facts: dict[str, Any]) -> bytes:
    """What comes before the samples: their number, their offsets, and the columns."""
    config = json.dumps(facts, sort_keys=True).encode()
    return offset_table(sizes, len(config)) + config


def _write_documents(
    part: Selection, dtype: np.dtype[Any], facts: dict[str, Any], first: int, stop: int, out: BinaryIO
) -> None:
    lengths = np.concatenate([np.empty(0, np.int64), *part.lengths(first, stop)])
    if len(lengths) and not lengths.min():
        raise UsageError("MDS cannot hold a document without tokens: build the store with an eos token")
    out.write(_head(4 + 1 + _width(lengths) + lengths * dtype.itemsize, facts))
    for block in part.blocks(first, stop):
        put(out, _encoded(block, dtype))


def _width(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """In how many bytes each length is written."""
    return np.where(lengths < SMALL, 1, np.where(lengths < MIDDLE, 2, 4)).astype(np.int64)


def _encoded(block: Block, dtype: np.dtype[Any]) -> npt.NDArray[np.uint8]:
    """The samples of some documents: the size of the value; one dimension and the width of its length; the length; the ids."""
    lengths, width = block.lengths, _width(block.lengths)
    sizes = 1 + width + lengths * dtype.itemsize
    starts = np.cumsum(sizes + 4) - sizes - 4
    out = np.empty(int((sizes + 4).sum()), np.uint8)
    is_id = np.ones(len(out), bool)
    for i in range(4):
        out[starts + i], is_id[starts + i] = (sizes >> 8 * i) & 0xFF, False
    out[starts + 4], is_id[starts + 4] = 1 << 2 | np.log2(width).astype(np.uint8), False
    for i in range(4):
        these = width > i
        at = starts[these] + 5 + i
        out[at], is_id[at] = (lengths[these] >> 8 * i) & 0xFF, False
    out[is_id] = np.ascontiguousarray(block.ids, dtype.newbyteorder("<")).view(np.uint8)
    return out


def _write_rows(view: View, facts: dict[str, Any], first: int, stop: int, out: BinaryIO) -> None:
    out.write(_head(np.full(stop - first, sum(facts["column_sizes"]), np.int64), facts))
    for block in row_blocks(view, first, stop):
        arrays = {_column_name(view, name): values for name, values in block.items()}
        columns = [np.ascontiguousarray(arrays[name]) for name in facts["column_names"]]
        put(out, np.concatenate([column.view(np.uint8) for column in columns], axis=1))


def _write_index(
    folder: str, files: Ranges, facts: dict[str, Any], out: BinaryIO, written: Mapping[str, Written]
) -> None:
    shards = [
        {
            **facts,
            "raw_data": {"basename": name, "bytes": written[folder + name].bytes, "hashes": {}},
            "samples": stop - first,
            "version": VERSION,
            "zip_data": None,
        }
        for name, (first, stop) in files.items()
    ]
    out.write(json.dumps({"shards": shards, "version": VERSION}, sort_keys=True).encode())


def _shards_in(folder: Path) -> list[dict[str, Any]] | None:
    """The shards of an index, if it is one of MDS."""
    try:
        index = json.loads((folder / INDEX).read_text())
        shards = index["shards"]
        if not all(shard["format"] == "mds" and len(shard["column_names"]) for shard in shards):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if wrong := [each for each in (index, *shards) if each.get("version", VERSION) != VERSION]:
        raise InputError(f"{folder / INDEX}: version {wrong[0]['version']} of MDS, of which {VERSION} can be read")
    return list(shards)
