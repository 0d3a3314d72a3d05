"""The contract of a format: which files an export has, and how documents are read back.

`tokenmill.testing.exchange` has the conformance tests for new formats.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from tokenmill.errors import InputError, UsageError
from tokenmill.exchange.output import IndexFile, OutputFile
from tokenmill.exchange.selection import BLOCK_TOKENS, Block, Selection
from tokenmill.options import ExportOptions
from tokenmill.packing.view import View

Kind = Literal["documents", "rows"]
Part = Selection | View


@dataclass(frozen=True, slots=True)
class Job:
    """What is exported: the parts by name (one, or one per split), and the options."""

    parts: dict[str, Part]
    options: ExportOptions
    tokenizer: dict[str, Any]  # what the manifest says about it

    def selections(self) -> dict[str, Selection]:
        """The parts of an export of documents."""
        return {name: part for name, part in self.parts.items() if isinstance(part, Selection)}

    def views(self) -> dict[str, View]:
        """The parts of an export of rows."""
        return {name: part for name, part in self.parts.items() if isinstance(part, View)}

    @property
    def vocab_size(self) -> int:
        return int(self.tokenizer["vocab_size"])


Files = tuple[list[OutputFile], list[IndexFile]]


@dataclass(frozen=True, slots=True)
class Found:
    """Tokens in another format: the dtype of the ids, and blocks of documents in order.

    A block may end inside a document if `ends_inside` is set on the reader; then eos decides where documents end.
    """

    dtype: np.dtype[Any]
    blocks: Iterator[Block]
    has_borders: bool  # else the documents end at eos


class ExchangeFormat(ABC):
    """A format of another tool."""

    name: ClassVar[str]
    takes: ClassVar[tuple[Kind, ...]] = ("documents",)
    keeps_borders: ClassVar[bool] = True  # of documents; else a reader finds them by eos

    @abstractmethod
    def files(self, job: Job) -> Files:
        """The files of an export, in the order in which a reader needs them."""

    def recognizes(self, path: Path) -> bool:
        """Whether a file or folder is in this format, by what can be seen at once."""
        return False

    def find(self, path: Path, dtype: str | None) -> list[Path]:
        """The files or folders to read, in order. Raises InputError if there are none."""
        raise UsageError(f"{self.name} can be written, but not read")

    def read(self, path: Path, dtype: str | None) -> Found:
        """The tokens of one of these. Raises InputError for what is damaged, or not of this format."""
        raise UsageError(f"{self.name} can be written, but not read")


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


def write_ids(
    out: BinaryIO, selection: Selection, dtype: npt.DTypeLike, first: int = 0, stop: int | None = None
) -> None:
    """Write the ids of documents end to end."""
    kind = np.dtype(dtype).newbyteorder("<")
    for block in selection.blocks(first, stop):
        for low in range(0, len(block.ids), BLOCK_TOKENS):
            put(out, block.ids[low : low + BLOCK_TOKENS].astype(kind, copy=False))


def put(out: BinaryIO, values: npt.NDArray[Any]) -> None:
    """Write the bytes of an array."""
    out.write(np.ascontiguousarray(values).data)


def flat_dtype(vocab_size: int) -> np.dtype[Any]:
    """uint16 where ids fit into it, else uint32."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)


def map_ids(
    path: Path, dtype: npt.DTypeLike, start: int = 0, count: int | None = None, stop: int | None = None
) -> npt.NDArray[Any]:
    """The ids in a file, or in some bytes of it, as a read-only memory map. Raises InputError if they are not whole."""
    kind = np.dtype(dtype).newbyteorder("<")
    try:
        length = path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    size = (length if stop is None else min(length, stop)) - start
    if size < 0 or size % kind.itemsize:
        raise InputError(
            f"{path}: {length} bytes are not a whole number of {kind.name} ids; it is cut short, or of another dtype"
        )
    found = size // kind.itemsize
    if count is not None and found != count:
        raise InputError(f"{path}: {found} ids where its header or index says {count}; it is cut short or damaged")
    return np.asarray(np.memmap(path, kind, "r", start, (found,))) if found else np.empty(0, kind)


def plain_name(name: Any) -> str:
    """A name that a file gives for another one: it must not lead out of its folder."""
    if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
        raise InputError(f"{name!r} is not the name of a file")
    return name


def cut(ids: npt.NDArray[Any], ends: npt.NDArray[np.int64]) -> Iterator[Block]:
    """Documents that end at `ends` in a flat array, in blocks."""
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1])) if len(ends) else ends
    low = 0
    while low < len(ends):
        upto = low + max(1, int(ends[low:].searchsorted(starts[low] + BLOCK_TOKENS, "right")))
        yield Block(ids[int(starts[low]) : int(ends[upto - 1])], ends[low:upto] - starts[low:upto])
        low = upto
