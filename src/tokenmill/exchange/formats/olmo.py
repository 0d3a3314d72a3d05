"""OLMo and dolma: flat `.npy` files of ids (without a header, in spite of their name) and `.csv.gz` files that list documents."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from tokenmill.errors import InputError
from tokenmill.exchange.file_ids import FileIds
from tokenmill.exchange.formats.base import ExchangeFormat, Files, Found, Job, cut, flat_dtype, ids_file
from tokenmill.exchange.output import IndexFile, Written
from tokenmill.exchange.selection import Selection

TOKENS_PER_FILE = 1 << 29


class OlmoFormat(ExchangeFormat):
    """What dolma's `tokens` command writes: in the lists, start and end of each document, its number and its place."""

    name = "olmo"
    pattern = "**/*.npy"

    def files(self, job: Job) -> Files:
        dtype = flat_dtype(job.vocab_size)
        data, indexes = [], []
        for name, part in job.selections().items():
            for number, (first, stop) in enumerate(job.ranges(part, TOKENS_PER_FILE)):
                path = f"{job.folder(name)}part-{number:05d}"
                ids = ids_file(f"{path}.npy", self.name, part, dtype, first, stop)
                data.append(ids)
                indexes.append(IndexFile(f"{path}.csv.gz", [*ids.key, first], partial(_write_list, part, first, stop)))
        return data, indexes

    def recognizes(self, path: Path) -> bool:
        files = path.glob(self.pattern) if path.is_dir() else [path]
        return any(_list_of(file).exists() for file in files)

    def read(self, path: Path, dtype: str | None) -> Found:
        ends = _read_list(_list_of(path))
        tokens = int(ends[-1]) if len(ends) else 0
        kind = np.dtype(dtype or ("uint32" if path.stat().st_size == 4 * tokens else "uint16"))
        return Found(kind, cut(FileIds(path, kind, count=tokens), ends), has_borders=True)


def _write_list(part: Selection, first: int, stop: int, out: BinaryIO, written: Mapping[str, Written]) -> None:
    number, at = first, 0
    with gzip.GzipFile("", "wb", 1, fileobj=out, mtime=0) as packed:
        for lengths in part.lengths(first, stop):
            ends = np.cumsum(lengths) + at
            starts = (ends - lengths).tolist()
            lines = [
                f"{start},{end},{number + i},,{number + i}\n"
                for i, (start, end) in enumerate(zip(starts, ends.tolist(), strict=True))
            ]
            packed.write("".join(lines).encode())
            number, at = number + len(lines), int(ends[-1])


def _list_of(path: Path) -> Path:
    return path.with_suffix(".csv.gz")


def _read_list(path: Path) -> npt.NDArray[np.int64]:
    """Where the documents end. Raises InputError unless they follow each other from the first token on."""
    ends: list[int] = []
    before = 0
    try:
        with gzip.open(path, "rb") as packed:
            for row in csv.reader(io.TextIOWrapper(packed, "utf-8")):
                start, end = int(row[0]), int(row[1])
                if start != before or end < start:
                    raise InputError(
                        f"{path}: document {len(ends)} is said to be at {start} to {end}, after one that ends at {before}"
                    )
                ends.append(end)
                before = end
    except (OSError, EOFError, zlib.error, ValueError, IndexError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: {type(error).__name__}: {error}") from error
    return np.array(ends, np.int64)
