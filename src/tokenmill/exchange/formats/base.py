"""The contract of a format: which files an export has, and how documents are read back.

`tokenmill.testing.exchange` has the conformance tests for new formats.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from tokenmill.errors import InputError, UsageError
from tokenmill.exchange.exported_rows import row_bytes, row_key, row_ranges
from tokenmill.exchange.file_ids import READ_TOKENS, FileIds, UnpackedIds
from tokenmill.exchange.other_columns import UnkeptLabels
from tokenmill.exchange.output import IndexFile, OutputFile, Written
from tokenmill.exchange.selection import Block, Selection
from tokenmill.options import ExportOptions
from tokenmill.packing.view import View
from tokenmill.split_names import named_split

Kind = Literal["documents", "rows"]
Part = Selection | View


@dataclass(frozen=True, slots=True)
class Job:
    """What is exported: the parts by name (one, or one per split), and the options."""

    parts: dict[str, Part]
    options: ExportOptions
    tokenizer: dict[str, Any]  # what the manifest says about it
    # The documents or rows in the files of a part, as `ranges` made them.
    ends: dict[Part, int] = field(default_factory=dict)

    def selections(self) -> dict[str, Selection]:
        """The parts of an export of documents."""
        return {name: part for name, part in self.parts.items() if isinstance(part, Selection)}

    def views(self) -> dict[str, View]:
        """The parts of an export of rows."""
        return {name: part for name, part in self.parts.items() if isinstance(part, View)}

    @property
    def vocab_size(self) -> int:
        return int(self.tokenizer["vocab_size"])

    def folder(self, name: str) -> str:
        """What the names of the files of a part begin with, in formats that have a folder for each of several parts."""
        return f"{name}/" if len(self.parts) > 1 else ""

    def ranges(self, part: Part, tokens: int) -> list[tuple[int, int]]:
        """The documents or rows of each file of a part. `tokens` is how many a file has unless the options say it."""
        tokens = self.options.tokens_per_file or tokens
        ranges = file_ranges(part, tokens) if isinstance(part, Selection) else row_ranges(part, self.options, tokens)
        self.ends[part] = ranges[-1][1]
        return ranges


Files = tuple[list[OutputFile], list[IndexFile]]
Ranges = dict[str, tuple[int, int]]  # the documents or rows [first, stop) of each file of a part, by its name


@dataclass(frozen=True, slots=True)
class Found:
    """Tokens in another format: the dtype of the ids, and blocks of documents in order.

    Without borders the blocks are parts of the file, and documents end at eos. Labels are counted while blocks are read.
    """

    dtype: np.dtype[Any]
    blocks: Iterator[Block]
    has_borders: bool
    unkept_labels: UnkeptLabels = field(default_factory=UnkeptLabels)


class ExchangeFormat(ABC):
    """A format of another tool."""

    name: ClassVar[str]
    takes: ClassVar[tuple[Kind, ...]] = ("documents",)
    keeps_borders: ClassVar[bool] = True  # of documents; else a reader finds them by eos
    pattern: ClassVar[str]  # of the files in a folder that hold ids
    suffix: ClassVar[str] = ""  # of a file that is an export by itself; empty if there always are several
    # Python that reads the first file back, given {out}, {file}, {folder}, {prefix} and {dtype}; if not overridden, ids alone.
    reads: ClassVar[str] = "import numpy as np; data = np.memmap({file!r}, {dtype!r}, 'r')"

    @abstractmethod
    def files(self, job: Job) -> Files:
        """The files of an export, in the order in which a reader needs them."""

    def recognizes(self, path: Path) -> bool:
        """Whether a file or folder is in this format, by what can be seen at once: if not overridden, by names of files."""
        return path.match(self.pattern.removeprefix("**/")) or any(path.glob(self.pattern))

    def find(self, path: Path, dtype: str | None) -> list[Path]:
        """The files or folders to read, in order. Raises InputError if there are none."""
        files = in_order(path, path.glob(self.pattern)) if path.is_dir() else [path]
        if not files:
            raise InputError(f"{path} has no {self.pattern.rpartition('*')[2]} files")
        return files

    def says_dtype(self, path: Path) -> bool:
        """Whether the dtype of the ids can be told from a file or what is beside it."""
        return True

    @abstractmethod
    def read(self, path: Path, dtype: str | None) -> Found:
        """The tokens of one of these. Raises InputError for what is damaged, or not of this format."""


def file_ranges(selection: Selection, tokens: int) -> list[tuple[int, int]]:
    """Ranges of documents for files of at least so many tokens: whole shards, so that a file changes only with these."""
    ranges, first, stop, size = [], 0, 0, 0
    for documents, count in selection.shard_counts:
        stop, size = stop + documents, size + count
        if size >= tokens:
            ranges.append((first, stop))
            first, size = stop, 0
    if stop > first or not ranges:
        ranges.append((first, stop))
    return ranges


def size_of(part: Part, first: int, stop: int, dtype: np.dtype[Any]) -> int:
    """About how many bytes the documents [first, stop) of a part have with ids of this dtype, or the rows in their own."""
    if isinstance(part, Selection):
        return part.tokens_in(first, stop) * dtype.itemsize
    return (stop - first) * row_bytes(part)


def key_of(part: Part, first: int, stop: int) -> list[Any]:
    """What the bytes of the documents or rows [first, stop) of a part depend on."""
    return part.key_of(first, stop) if isinstance(part, Selection) else row_key(part, first, stop)


def write_ids(
    out: BinaryIO, selection: Selection, dtype: npt.DTypeLike, first: int = 0, stop: int | None = None
) -> None:
    """Write the ids of documents end to end."""
    kind = np.dtype(dtype).newbyteorder("<")
    for ids in selection.flat(first, stop):
        put(out, narrowed(ids, kind))


def ids_file(name: str, format: str, part: Selection, dtype: np.dtype[Any], first: int, stop: int) -> OutputFile:
    """A file with the ids of the documents [first, stop), and nothing else."""
    key = [format, dtype.name, part.key_of(first, stop)]
    size = size_of(part, first, stop, dtype)
    return OutputFile(name, key, lambda out: write_ids(out, part, dtype, first, stop), size)


def constant_file(name: str, key: Any, body: bytes) -> IndexFile:
    """A file that describes others, and depends on nothing but its key."""

    def write(out: BinaryIO, written: Mapping[str, Written]) -> None:
        out.write(body)

    return IndexFile(name, key, write)


def facts_file(name: str, facts: dict[str, Any]) -> IndexFile:
    """A file of JSON for people and programs."""
    return constant_file(name, facts, json.dumps(facts, indent=1).encode() + b"\n")


def narrowed(ids: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Ids in another dtype. Raises UsageError if one does not fit into it."""
    kind = np.dtype(dtype)
    if np.iinfo(kind).max < np.iinfo(ids.dtype).max and len(ids) and int(ids.max()) > np.iinfo(kind).max:
        raise UsageError(
            f"id {int(ids.max())} does not fit into {kind.name}, which this format holds: choose another format"
        )
    return ids.astype(kind, copy=False)


def put(out: BinaryIO, values: npt.NDArray[Any]) -> None:
    """Write the bytes of an array."""
    out.write(np.ascontiguousarray(values).data)


def offset_table(sizes: npt.NDArray[np.int64], between: int = 0) -> bytes:
    """The number of some samples, where each begins and the last one ends: after this and so many bytes `between`."""
    offsets = np.cumsum(np.concatenate((np.zeros(1, np.int64), sizes))) + 4 * (len(sizes) + 2) + between
    if int(offsets[-1]) >= 1 << 32:
        raise UsageError(
            "files of this format hold at most 4 GB: give a smaller tokens_per_file, or build smaller shards"
        )
    return np.append(len(sizes), offsets).astype("<u4").tobytes()


def flat_dtype(vocab_size: int) -> np.dtype[Any]:
    """uint16 where ids fit into it, else uint32."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)


def index_folders(path: Path, index: str) -> list[Path]:
    """The folder of an index: the path itself, or folders in it, one per split, `train` first."""
    if (path / index).is_file():
        return [path]
    return in_order(path, (each.parent for each in path.glob(f"*/{index}")))


def in_order(folder: Path, paths: Iterable[Path]) -> list[Path]:
    """Files or folders below a folder by name, chunk_2 before chunk_10; those of the split `train` before all others."""
    padded = {path: [re.sub(r"\d+", lambda number: number[0].zfill(20), part) for part in path.parts] for path in paths}
    return sorted(padded, key=lambda path: (not is_train(path.relative_to(folder).as_posix()), padded[path], path))


def is_train(name: str) -> bool:
    """Whether a path names the split `train`, in any of its spellings."""
    return named_split(name) == "train"


def plain_name(name: Any) -> str:
    """A name that a file gives for another one: it must not lead out of its folder."""
    if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
        raise InputError(f"{name!r} is not the name of a file")
    return name


def flat_blocks(ids: FileIds | npt.NDArray[Any]) -> Iterator[Block]:
    """All ids of a file, in blocks that are not documents."""
    for low in range(0, len(ids), READ_TOKENS):
        part = ids[low : low + READ_TOKENS]
        yield Block(part, np.array([len(part)]))


def cut(ids: FileIds | UnpackedIds, ends: npt.NDArray[np.int64]) -> Iterator[Block]:
    """Documents that end at `ends` in a flat file, in blocks."""
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1])) if len(ends) else ends
    low = 0
    while low < len(ends):
        upto = low + max(1, int(ends[low:].searchsorted(starts[low] + READ_TOKENS, "right")))
        yield Block(ids[int(starts[low]) : int(ends[upto - 1])], ends[low:upto] - starts[low:upto])
        low = upto
