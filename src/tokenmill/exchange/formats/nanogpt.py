"""nanoGPT: a flat file of ids per split, `train.bin` and `val.bin`, that `np.memmap(path, dtype, "r")` reads; and `meta.json`."""

from __future__ import annotations

import json
import re
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
)

META = "meta.json"
# How llm.c's files, arrays with a header, archives, compressed files, tables and Git LFS pointers begin.
_OTHERS = re.compile(
    rb"[\x88\xa1][\xd8\xd9]4\x01|\x93NUM|PK\x03\x04|\x1f\x8b\x08[\x00\x08]|\x28\xb5\x2f\xfd|PAR1|ARROW1|version http"
)


class NanoGptFormat(ExchangeFormat):
    """Ids alone: documents end at eos."""

    name = "nanogpt"
    pattern = "*.bin"
    keeps_borders = False
    suffix = ".bin"

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

    def says_dtype(self, path: Path) -> bool:
        return _described(path) is not None

    def read(self, path: Path, dtype: str | None) -> Found:
        kind = np.dtype(dtype or _described(path) or "uint16")
        ids = FileIds(path, kind)
        if _OTHERS.match(FileIds(path, np.uint8)[:16].tobytes()):
            raise InputError(
                f"{path} does not hold ids alone: it begins like a file of another format, or a compressed one"
            )
        return Found(kind, flat_blocks(ids), has_borders=False)


def _described(path: Path) -> str | None:
    """The dtype that a meta.json beside a file names."""
    try:
        dtype = json.loads((path.parent / META).read_text())["dtype"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return dtype if dtype in ("uint16", "uint32") else None
