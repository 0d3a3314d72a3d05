"""Tensors of packed rows: `chunk_00000.pt` for `torch.load(weights_only=True)`, and `chunk_00000.safetensors`."""

from __future__ import annotations

import json
import zipfile
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from tokenmill.errors import InputError, UsageError
from tokenmill.exchange.exported_rows import row_blocks, row_bytes, row_dtype, row_key
from tokenmill.exchange.file_ids import FileIds
from tokenmill.exchange.formats.base import ExchangeFormat, Files, Found, Job, facts_file, flat_blocks, in_order, put
from tokenmill.exchange.output import OutputFile
from tokenmill.packing.view import View

TOKENS_PER_FILE = 1 << 24
IDS = "input_ids"
NAMES = {"int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8", "uint16": "U16", "uint32": "U32"}


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
            folder, ranges = job.folder(name), job.ranges(view, TOKENS_PER_FILE)
            facts["splits"][name] = {"rows": ranges[-1][1], "seq_len": view.seq_len, "files": len(ranges)}
            for number, (first, stop) in enumerate(ranges):
                key = [self.name, *row_key(view, first, stop)]
                path, size = f"{folder}chunk_{number:05d}.{self.suffix}", (stop - first) * row_bytes(view)
                data.append(OutputFile(path, key, self._writer(view, first, stop), size))
        return data, [facts_file("metadata.json", facts)]

    def _writer(self, view: View, first: int, stop: int) -> Callable[[BinaryIO], None]:
        return lambda out: self.write(out, view, first, stop)

    def recognizes(self, path: Path) -> bool:
        return bool(self._files(path))

    def find(self, path: Path, dtype: str | None) -> list[Path]:
        files = self._files(path)
        if not files:
            raise InputError(f"{path} has no .{self.suffix} files")
        return files

    def _files(self, path: Path) -> list[Path]:
        if not path.is_dir():
            return [path] if path.suffix == f".{self.suffix}" else []
        return in_order(path, path.rglob(f"*.{self.suffix}"))

    @abstractmethod
    def ids(self, path: Path) -> npt.NDArray[Any]:
        """The ids of a file, row after row."""

    def read(self, path: Path, dtype: str | None) -> Found:
        ids = self.ids(path)
        if ids.dtype.kind not in "iu":
            raise InputError(f"{path}: a tensor of {ids.dtype.name}, not of ids")
        return Found(ids.dtype, flat_blocks(ids.reshape(-1)), has_borders=False)


class TorchTensors(TensorFormat):
    """A tensor, if the view has one array; else a dict of tensors. torch takes the rows of a file together."""

    name = suffix = "pt"

    def write(self, out: BinaryIO, view: View, first: int, stop: int) -> None:
        try:
            import torch
        except ImportError as error:
            raise UsageError("the format pt needs torch: pip install torch") from error
        tensors = {name: torch.from_numpy(values) for name, values in view.rows(range(first, stop)).items()}
        torch.save(next(iter(tensors.values())) if len(tensors) == 1 else tensors, out)

    def ids(self, path: Path) -> npt.NDArray[Any]:
        """Only tensors are loaded (`weights_only`), and only from a file that is as large as it says."""
        import torch

        _check_archive(path)
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except (
            Exception
        ) as error:  # torch raises many kinds, for damaged files and for those that hold more than tensors
            raise InputError(f"{path}: {type(error).__name__}: {str(error).splitlines()[0][:200]}") from error
        found = found.get(IDS) if isinstance(found, dict) else found
        if not isinstance(found, torch.Tensor):
            raise InputError(f"{path}: neither a tensor nor a dict with a tensor {IDS}")
        if found.layout != torch.strided or not found.is_contiguous() or found.nbytes > path.stat().st_size:
            raise InputError(f"{path}: a tensor that is larger than its file, or sparse; it is not loaded")
        return found.detach().numpy()


class SafeTensors(TensorFormat):
    """A header in JSON, and the tensors after it. They are written some rows at a time."""

    name = suffix = "safetensors"

    def write(self, out: BinaryIO, view: View, first: int, stop: int) -> None:
        header, at, shape = {}, 0, [stop - first, view.seq_len]
        for name in view.row_format.fields:
            dtype = row_dtype(view, name)
            end = at + shape[0] * shape[1] * dtype.itemsize
            header[name] = {"dtype": NAMES[dtype.name], "shape": shape, "data_offsets": [at, end]}
            at = end
        raw = json.dumps(header).encode()
        raw += b" " * (-len(raw) % 8)
        out.write(len(raw).to_bytes(8, "little") + raw)
        for name in view.row_format.fields:  # tensor after tensor: rows are made once for each, but never all of them
            alone = View(view.store, view.layout, replace(view.row_format, fields=(name,)), view.splits)
            for block in row_blocks(alone, first, stop):
                put(out, block[name])

    def ids(self, path: Path) -> npt.NDArray[Any]:
        size = path.stat().st_size
        head = FileIds(path, "<u8", stop=8)[:] if size >= 8 else np.zeros(1, np.uint64)
        length = int(head[0])
        try:
            if not 0 < length <= size - 8:
                raise ValueError(f"a header of {length} bytes in a file of {size}")
            entry = json.loads(bytes(FileIds(path, np.uint8, 8, stop=8 + length)[:]))[IDS]
            start, stop = (8 + length + int(offset) for offset in entry["data_offsets"])
            kind = {code: name for name, code in NAMES.items()}[entry["dtype"]]
            if not 8 + length <= start <= stop <= size:
                raise ValueError(f"{IDS} is said to be at bytes {start} to {stop} of {size}")
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: not a safetensors file with a tensor {IDS}: {error}") from error
        return FileIds(path, kind, start, stop=stop)[:]


def _check_archive(path: Path) -> None:
    """Raise InputError unless a file is an archive as torch.save writes it: its parts are stored as they are, and fit into it."""
    try:
        with zipfile.ZipFile(path) as archive:
            parts = archive.infolist()
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f"{path} is not a file of torch.save: {error}") from error
    if (
        any(part.compress_type != zipfile.ZIP_STORED for part in parts)
        or sum(p.file_size for p in parts) > path.stat().st_size
    ):
        raise InputError(f"{path}: its parts are compressed, which torch.save never does; it is not loaded")
