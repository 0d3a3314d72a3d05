"""Tensors of packed rows: `chunk_00000.pt` for `torch.load(weights_only=True)`, and `chunk_00000.safetensors`."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np

from tokenmill.errors import UsageError
from tokenmill.exchange.exported_rows import row_key, row_ranges
from tokenmill.exchange.formats.base import ExchangeFormat, Files, Job, put
from tokenmill.exchange.output import IndexFile, OutputFile, Written
from tokenmill.packing.view import View

TOKENS_PER_FILE = 1 << 24
NAMES = {"int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8", "bool": "BOOL"}


class TensorFormat(ExchangeFormat):
    """A tensor per array of the view, of shape (rows, seq_len), in files of `rows_per_file` rows."""

    takes = ("rows",)
    keeps_borders = False
    suffix: str

    @abstractmethod
    def write(self, out: BinaryIO, view: View, first: int, stop: int) -> None: ...

    def files(self, job: Job) -> Files:
        data: list[OutputFile] = []
        facts: dict[str, Any] = {"tokenizer": job.tokenizer["name"], "vocab_size": job.vocab_size, "splits": {}}
        for name, view in job.views().items():
            folder = f"{name}/" if len(job.parts) > 1 else ""
            ranges = row_ranges(view, job.options, TOKENS_PER_FILE)
            facts["splits"][name] = {"rows": ranges[-1][1], "seq_len": view.seq_len, "files": len(ranges)}
            for number, (first, stop) in enumerate(ranges):
                key = [self.name, *row_key(view, first, stop)]
                data.append(
                    OutputFile(f"{folder}chunk_{number:05d}.{self.suffix}", key, self._writer(view, first, stop))
                )

        def metadata(out: BinaryIO, written: Mapping[str, Written]) -> None:
            out.write(json.dumps(facts, indent=1).encode() + b"\n")

        return data, [IndexFile("metadata.json", facts, metadata)]

    def _writer(self, view: View, first: int, stop: int) -> Callable[[BinaryIO], None]:
        return lambda out: self.write(out, view, first, stop)


class TorchTensors(TensorFormat):
    """A tensor, if the view has one array; else a dict of tensors."""

    name = suffix = "pt"

    def write(self, out: BinaryIO, view: View, first: int, stop: int) -> None:
        try:
            import torch
        except ImportError as error:
            raise UsageError("the format pt needs torch: pip install torch") from error
        tensors = {name: torch.from_numpy(values) for name, values in view.rows(range(first, stop)).items()}
        torch.save(next(iter(tensors.values())) if len(tensors) == 1 else tensors, out)


class SafeTensors(TensorFormat):
    """A header in JSON, and the tensors after it."""

    name = suffix = "safetensors"

    def write(self, out: BinaryIO, view: View, first: int, stop: int) -> None:
        arrays = {name: np.ascontiguousarray(values) for name, values in view.rows(range(first, stop)).items()}
        header, at = {}, 0
        for name, values in arrays.items():
            header[name] = {
                "dtype": NAMES[values.dtype.name],
                "shape": list(values.shape),
                "data_offsets": [at, at + values.nbytes],
            }
            at += values.nbytes
        raw = json.dumps(header).encode()
        raw += b" " * (-len(raw) % 8)
        out.write(len(raw).to_bytes(8, "little") + raw)
        for values in arrays.values():
            put(out, values)
