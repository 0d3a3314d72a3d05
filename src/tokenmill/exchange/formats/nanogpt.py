"""nanoGPT: a flat file of ids per split, `train.bin` and `val.bin`, that `np.memmap(path, dtype, "r")` reads; and `meta.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tokenmill.errors import InputError
from tokenmill.exchange.file_ids import FileIds
from tokenmill.exchange.formats.base import ExchangeFormat, Files, Found, Job, flat_blocks, flat_dtype, write_ids
from tokenmill.exchange.output import IndexFile, OutputFile, Written
from tokenmill.exchange.selection import Selection

META = "meta.json"


class NanoGptFormat(ExchangeFormat):
    """Ids alone: documents end at eos."""

    name = "nanogpt"
    keeps_borders = False

    def files(self, job: Job) -> Files:
        dtype = flat_dtype(job.vocab_size)

        def data(name: str, part: Selection) -> OutputFile:
            key = [self.name, dtype.name, part.key_of(0, part.documents)]
            return OutputFile(f"{name}.bin", key, lambda out: write_ids(out, part, dtype))

        parts = job.selections()
        facts = {
            "vocab_size": job.vocab_size,
            "dtype": dtype.name,
            "eos_id": job.tokenizer["eos_id"],
            "tokenizer": job.tokenizer["name"],
            "files": {f"{name}.bin": {"documents": p.documents, "tokens": p.tokens} for name, p in parts.items()},
        }

        def meta(out: BinaryIO, written: Mapping[str, Written]) -> None:
            out.write(json.dumps(facts, indent=1).encode() + b"\n")

        return [data(*each) for each in parts.items()], [IndexFile(META, facts, meta)]

    def recognizes(self, path: Path) -> bool:
        return path.suffix == ".bin" or (path.is_dir() and (path / "train.bin").exists())

    def find(self, path: Path, dtype: str | None) -> list[Path]:
        files = sorted(path.glob("*.bin"), key=_train_first) if path.is_dir() else [path]
        if not files:
            raise InputError(f"{path} has no .bin files")
        return files

    def read(self, path: Path, dtype: str | None) -> Found:
        kind = np.dtype(dtype or _described(path) or "uint16")
        return Found(kind, flat_blocks(FileIds(path, kind)), has_borders=False)


def _train_first(path: Path) -> tuple[bool, str]:
    return path.stem != "train", path.name


def _described(path: Path) -> str | None:
    """The dtype that a meta.json beside a file names."""
    try:
        dtype = json.loads((path.parent / META).read_text())["dtype"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return dtype if dtype in ("uint16", "uint32") else None
