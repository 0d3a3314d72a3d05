"""Tensors of packed rows: `chunk_00000.pt` for `torch.load(weights_only=True)`, and `chunk_00000.safetensors`."""

from __future__ import annotations

import json
import zipfile
from abc import abstractmethod
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from tokenmill.errors import InputError, UsageError
from tokenmill.exchange.exported_rows import row_blocks, row_bytes, row_dtype, row_key
from tokenmill.exchange.file_ids import FileIds
from tokenmill.exchange.formats.base import ExchangeFormat, Files, Found, Job, facts_file, flat_blocks, put
from tokenmill.exchange.other_columns import LABELS, MASK, UnkeptLabels
from tokenmill.exchange.output import OutputFile
from tokenmill.packing.view import View

TOKENS_PER_FILE = 1 << 24
IDS = "input_ids"
NAMES_READ = (IDS, MASK, LABELS)
NAMES = {f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)} | {f"uint{bits}": f"U{bits}" for bits in (8, 16, 32)}
NAMES["bool"] = "BOOL"


class TensorFormat(ExchangeFormat):
    """A tensor per array of the view, of shape (rows, seq_len), in files of `rows_per_file` rows."""

    takes = ("rows",)
    keeps_borders = False

    @abstractmethod
    def write(self, view: View, first: int, stop: int, out: BinaryIO) -> None: ...

    def files(self, job: Job) -> Files:
        data: list[OutputFile] = []
        facts: dict[str, Any] = {"tokenizer": job.tokenizer["name"], "vocab_size": job.vocab_size, "splits": {}}
        for name, view in job.views().items():
            folder, ranges = job.folder(name), job.ranges(view, TOKENS_PER_FILE)
            facts["splits"][name] = {"rows": ranges[-1][1], "seq_len": view.seq_len, "files": len(ranges)}
            for number, (first, stop) in enumerate(ranges):
                key = [self.name, *row_key(view, first, stop)]
                path, size = f"{folder}chunk_{number:05d}{self.suffix}", (stop - first) * row_bytes(view)
                data.append(OutputFile(path, key, partial(self.write, view, first, stop), size))
        return data, [facts_file("metadata.json", facts)]

    @abstractmethod
    def arrays(self, path: Path) -> dict[str, npt.NDArray[Any]]:
        """The ids of a file by rows, and the mask and labels of the same shape, if there are any."""

    def read(self, path: Path, dtype: str | None) -> Found:
        arrays = self.arrays(path)
        for name, array in arrays.items():
            if array.dtype.kind not in ("iu" if name == IDS else "iub"):
                raise InputError(f"{path}: {name} is a tensor of {array.dtype.name}, not of whole numbers")
            if array.shape != arrays[IDS].shape:
                raise InputError(f"{path}: {name} has another number of values than {IDS}; it is damaged")
        ids, mask, labels = (arrays.get(name, arrays[IDS]) for name in NAMES_READ)
        stays = mask != 0 if MASK in arrays else np.ones_like(ids, np.bool_)
        unkept = UnkeptLabels(int(((labels != ids) & stays).any(-1).sum()))
        return Found(ids.dtype, flat_blocks(ids[stays]), has_borders=False, unkept_labels=unkept)


class TorchTensors(TensorFormat):
    """A tensor, if the view has one array; else a dict of tensors. torch takes the rows of a file together."""

    name = "pt"
    suffix = ".pt"
    pattern = "**/*.pt"
    reads = "import torch; data = torch.load({file!r}, weights_only=True)"

    def write(self, view: View, first: int, stop: int, out: BinaryIO) -> None:
        try:
            import torch
        except ImportError as error:
            raise UsageError("the format pt needs torch: pip install torch") from error
        tensors = {name: torch.from_numpy(values) for name, values in view.rows(range(first, stop)).items()}
        torch.save(next(iter(tensors.values())) if len(tensors) == 1 else tensors, out)

    def arrays(self, path: Path) -> dict[str, npt.NDArray[Any]]:
        """Only tensors are loaded (`weights_only`), and only from a file that is as large as it says."""
        import torch

        _check_archive(path)
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # of many kinds, for damaged files and for those that hold more than tensors
            raise InputError(f"{path}: {type(error).__name__}: {str(error).splitlines()[0][:200]}") from error
        found = found if isinstance(found, dict) else {IDS: found}
        if not isinstance(found.get(IDS), torch.Tensor):
            raise InputError(f"{path}: neither a tensor nor a dict with a tensor {IDS}")
        found = {name: found[name] for name in NAMES_READ if isinstance(found.get(name), torch.Tensor)}
        for each in found.values():
            if each.layout != torch.strided or not each.is_contiguous() or each.nbytes > path.stat().st_size:
                raise InputError(
                    f"{path}: a tensor that is larger than its file, sparse or not contiguous; it is not loaded"
                )
        return {name: each.detach().numpy() for name, each in found.items()}


class SafeTensors(TensorFormat):
    """A header in JSON, and the tensors after it. They are written some rows at a time."""

    name = "safetensors"
    suffix = ".safetensors"
    pattern = "**/*.safetensors"
    reads = "from safetensors.torch import load_file; data = load_file({file!r})"

    def write(self, view: View, first: int, stop: int, out: BinaryIO) -> None:
        header, at, shape = {}, 0, [stop - first, view.seq_len]
        for name in view._row_format.fields:
            dtype = row_dtype(view, name)
            end = at + shape[0] * shape[1] * dtype.itemsize
            header[name] = {"dtype": NAMES[dtype.name], "shape": shape, "data_offsets": [at, end]}
            at = end
        raw = json.dumps(header).encode()
        raw += b" " * (-len(raw) % 8)
        out.write(len(raw).to_bytes(8, "little") + raw)
        for name in view._row_format.fields:  # tensor after tensor: rows are made once for each, but never all of them
            alone = View(view.store, view._layout, replace(view._row_format, fields=(name,)), view._splits)
            for block in row_blocks(alone, first, stop):
                put(out, block[name])

    def arrays(self, path: Path) -> dict[str, npt.NDArray[Any]]:
        size = path.stat().st_size
        head = FileIds(path, "<u8", stop=8)[:] if size >= 8 else np.zeros(1, np.uint64)
        length = int(head[0])
        try:
            if not 0 < length <= size - 8:
                raise ValueError(f"a header of {length} bytes in a file of {size}")
            header, found = json.loads(bytes(FileIds(path, np.uint8, 8, stop=8 + length)[:])), {}
            for name in (IDS, *(name for name in NAMES_READ[1:] if name in header)):
                start, stop = (8 + length + int(offset) for offset in header[name]["data_offsets"])
                kind = {code: name for name, code in NAMES.items()}[header[name]["dtype"]]
                if not 8 + length <= start <= stop <= size:
                    raise ValueError(f"{name} is said to be at bytes {start} to {stop} of {size}")
                found[name] = FileIds(path, kind, start, stop=stop)[:].reshape(header[name]["shape"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: not a safetensors file with a tensor {IDS}: {error}") from error
        return found


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
