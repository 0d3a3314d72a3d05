"""nanoGPT: a flat file of ids per split, `train.bin` and `val.bin`, that `np.memmap(path, dtype, "r")` reads; and `meta.json`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tokenmill.errors import InputError
from tokenmill.exchange.file_ids import FileIds
from tokenmill.exchange.formats.base import (
    ExchangeFormat,
    Files,
    Found,
    Job,
    facts_file,
    flat_blocks,
    flat_dtype,
    ids_file,
    in_order,
)

META = "meta.json"


class NanoGptFormat(ExchangeFormat):
    """Ids alone: documents end at eos."""

    name = "nanogpt"
    keeps_borders = False

    def files(self, job: Job) -> Files:
        dtype, parts = flat_dtype(job.vocab_size), job.selections()
        facts = {
            "vocab_size": job.vocab_size,
            "dtype": dtype.name,
            "eos_id": job.tokenizer["eos_id"],
            "tokenizer": job.tokenizer["name"],
            "files": {f"{name}.bin": {"documents": p.documents, "tokens": p.tokens} for name, p in parts.items()},
        }

        data = [ids_file(f"{name}.bin", self.name, p, dtype, 0, p.documents) for name, p in parts.items()]
        return data, [facts_file(META, facts)]

    def recognizes(self, path: Path) -> bool:
        return path.suffix == ".bin" or (path.is_dir() and (path / "train.bin").exists())

    def find(self, path: Path, dtype: str | None) -> list[Path]:
        files = in_order(path, path.glob("*.bin")) if path.is_dir() else [path]
        if not files:
            raise InputError(f"{path} has no .bin files")
        return files

    def read(self, path: Path, dtype: str | None) -> Found:
        kind = np.dtype(dtype or _described(path) or "uint16")
        return Found(kind, flat_blocks(FileIds(path, kind)), has_borders=False)


def _described(path: Path) -> str | None:
    """The dtype that a meta.json beside a file names."""
    try:
        dtype = json.loads((path.parent / META).read_text())["dtype"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return dtype if dtype in ("uint16", "uint32") else None
