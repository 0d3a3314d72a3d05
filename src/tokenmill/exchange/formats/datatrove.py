"""datatrove: `.ds` files of ids, `.ds.index` with the end of each document, and a few words in `.ds.metadata`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tokenmill.errors import InputError
from tokenmill.exchange.file_ids import FileIds
from tokenmill.exchange.formats.base import ExchangeFormat, Files, Found, Job, cut, flat_dtype, ids_file, put
from tokenmill.exchange.output import IndexFile, Written
from tokenmill.exchange.selection import Selection

TOKENS_PER_FILE = 1 << 30


class DatatroveFormat(ExchangeFormat):
    """What datatrove's tokenizer step writes, and Nanotron reads."""

    name = "datatrove"
    pattern = "**/*.ds"

    def files(self, job: Job) -> Files:
        dtype = flat_dtype(job.vocab_size)
        data, indexes = [], []
        for name, part in job.selections().items():
            for number, (first, stop) in enumerate(job.ranges(part, TOKENS_PER_FILE)):
                path = f"{job.folder(name)}{number:05d}.ds"
                ids = ids_file(path, self.name, part, dtype, first, stop)
                data.append(ids)
                about = f"{job.tokenizer['name']}|{dtype.itemsize}"
                metadata = partial(_write_metadata, path, about, dtype)
                indexes.append(IndexFile(f"{path}.metadata", [*ids.key, about], metadata))
                indexes.append(
                    IndexFile(f"{path}.index", [*ids.key, "index"], partial(_write_index, part, first, stop))
                )
        return data, indexes

    def read(self, path: Path, dtype: str | None) -> Found:
        kind = np.dtype(dtype or _described(path))
        ids = FileIds(path, kind)
        ends = FileIds(path.with_name(path.name + ".index"), "<u8")[:].astype(np.int64)
        is_within = not len(ends) or (int(ends.min()) >= 0 and int(ends.max()) <= len(ids))
        if len(ends) and (not is_within or (np.diff(ends, prepend=0) < 0).any() or int(ends[-1]) != len(ids)):
            raise InputError(
                f"{path}.index: its last document ends at token {int(ends[-1]):,}, the file has {len(ids):,};"
                " one of them is cut short, or the ids are of another dtype"
            )
        if not len(ends) and len(ids):
            raise InputError(f"{path}.index is empty, but {path} has {len(ids):,} tokens")
        return Found(kind, cut(ids, ends), has_borders=True)


def _write_index(part: Selection, first: int, stop: int, out: BinaryIO, written: Mapping[str, Written]) -> None:
    at = 0
    for lengths in part.lengths(first, stop):
        put(out, (np.cumsum(lengths) + at).astype("<u8"))
        at += int(lengths.sum())


def _write_metadata(path: str, about: str, dtype: np.dtype[Any], out: BinaryIO, written: Mapping[str, Written]) -> None:
    tokens = written[path].bytes // dtype.itemsize
    out.write(f"{about}\n{tokens}\n{_short(tokens)}\n".encode())


def _short(tokens: int) -> str:
    """As datatrove writes it for people: 1.50 BT."""
    for name, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if tokens >= size:
            return f"{tokens / size:.2f} {name}T"
    return f"{tokens} T"


def _described(path: Path) -> str:
    """The dtype that the metadata of a file names; that of a small vocabulary if there is none."""
    try:
        width = int(path.with_name(path.name + ".metadata").read_text().split("\n")[0].rpartition("|")[2])
    except (OSError, ValueError):
        width = 2
    if width not in (2, 4):
        raise InputError(f"{path}.metadata: ids of {width} bytes; 2 or 4 can be read")
    return "uint16" if width == 2 else "uint32"
