"""llm.c and modded-nanogpt: `.bin` files of ids behind a header of 256 int32: magic number, version, number of tokens."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tokenmill.errors import InputError, UsageError
from tokenmill.exchange.file_ids import FileIds
from tokenmill.exchange.formats.base import ExchangeFormat, Files, Found, Job, flat_blocks, put, size_of, write_ids
from tokenmill.exchange.output import OutputFile
from tokenmill.exchange.selection import Selection
from tokenmill.option_types import option_name

HEADER = 256  # int32 values
KINDS = {20240520: (1, "uint16"), 20240801: (7, "uint32")}  # magic number: version and dtype, for GPT-2 and for Llama 3
TOKENS_PER_FILE = 100_000_000


class LlmcFormat(ExchangeFormat):
    """Ids alone: documents end at eos. Files of about a hundred million tokens."""

    name = "llmc"
    pattern = "*.bin"
    keeps_borders = False
    suffix = ".bin"
    reads = "import numpy as np; data = np.memmap({file!r}, {dtype!r}, 'r', offset=1024)"

    def files(self, job: Job) -> Files:
        magic = 20240520 if job.vocab_size <= 1 << 16 else 20240801
        files = []
        for name, part in job.selections().items():
            for number, (first, stop) in enumerate(job.ranges(part, TOKENS_PER_FILE)):
                key = [self.name, magic, part.key_of(first, stop)]
                path, size = f"tokens_{name}_{number:06d}.bin", size_of(part, first, stop, np.dtype(KINDS[magic][1]))
                files.append(OutputFile(path, key, partial(_write, part, first, stop, magic), size))
        return files, []

    def recognizes(self, path: Path) -> bool:
        return _header(next(iter(sorted(path.glob("*.bin"))), path)) is not None

    def read(self, path: Path, dtype: str | None) -> Found:
        header = _header(path)
        if header is None:
            magics = " or ".join(map(str, KINDS))
            raise InputError(f"{path} is not a file of llm.c: its first number is not {magics}")
        magic, version, count = (int(each) for each in header[:3])
        expected, kind = KINDS[magic]
        if version != expected:
            raise InputError(f"{path}: version {version} of the format of llm.c, of which {expected} can be read")
        return Found(np.dtype(kind), flat_blocks(FileIds(path, kind, HEADER * 4, count)), has_borders=False)


def _write(part: Selection, first: int, stop: int, magic: int, out: BinaryIO) -> None:
    version, dtype = KINDS[magic]
    tokens = sum(int(lengths.sum()) for lengths in part.lengths(first, stop))
    if tokens >= 1 << 31:
        raise UsageError(
            f"{tokens:,} tokens do not fit into a file of llm.c, whose header counts them in 31 bits: give a folder,"
            f" or build the store with smaller shards, {option_name('shard_bytes')}"
        )
    header = np.zeros(HEADER, "<i4")
    header[:3] = magic, version, tokens
    put(out, header)
    write_ids(out, part, dtype, first, stop)


def _header(path: Path) -> np.ndarray | None:
    """The header of a file, if it begins with a known number."""
    try:
        with open(path, "rb") as file:
            header = np.frombuffer(file.read(HEADER * 4), "<i4")
    except (OSError, ValueError):
        return None
    return header if len(header) == HEADER and int(header[0]) in KINDS else None
