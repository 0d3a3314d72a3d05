"""Megatron-LM: `PREFIX.bin` with the ids and `PREFIX.idx` with the lengths of sequences and where documents begin."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from tokenmill.errors import InputError
from tokenmill.exchange.file_ids import FileIds
from tokenmill.exchange.formats.base import ExchangeFormat, Files, Found, Job, cut, ids_file, in_order, put
from tokenmill.exchange.output import IndexFile, Written
from tokenmill.exchange.selection import Selection

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
CODES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}  # of those that hold ids
SMALL_VOCABULARY = 65_500  # below this Megatron uses uint16
LONGEST = (1 << 31) - 1  # tokens of a sequence; a longer document is several sequences
HEADER = struct.Struct("<9sQBQQ")


class MegatronFormat(ExchangeFormat):
    """A document is a sequence, which is all that Megatron's own preprocessing makes."""

    name = "megatron"
    reads = "from megatron.core.datasets.indexed_dataset import IndexedDataset; data = IndexedDataset({prefix!r})"

    def files(self, job: Job) -> Files:
        dtype = np.dtype(np.uint16 if job.vocab_size < SMALL_VOCABULARY else np.int32)
        data, indexes = [], []
        for name, part in job.selections().items():
            ids = ids_file(f"{name}.bin", self.name, part, dtype, 0, part.documents)
            data.append(ids)
            indexes.append(IndexFile(f"{name}.idx", [*ids.key, "index"], partial(_write_index, part, dtype)))
        return data, indexes

    def recognizes(self, path: Path) -> bool:
        return bool(_prefixes(path))

    def find(self, path: Path, dtype: str | None) -> list[Path]:
        prefixes = _prefixes(path)
        if not prefixes:
            raise InputError(f"{path}: no .idx file beside a .bin file, as Megatron-LM writes them")
        return prefixes

    def read(self, path: Path, dtype: str | None) -> Found:
        index = path.with_name(path.name + ".idx")
        kind, lengths, pointers, documents = _read_index(index)
        ids = FileIds(path.with_name(path.name + ".bin"), kind)
        ends = np.cumsum(lengths, dtype=np.int64)
        _check(index, len(ids), kind, ends, pointers, documents)
        return Found(np.dtype(kind), cut(ids, ends[documents[1:] - 1] if len(ends) else ends), has_borders=True)


def _lengths(part: Selection) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """The lengths of sequences, and how many each document has."""
    for lengths in part.lengths():
        if len(lengths) and lengths.max() > LONGEST:
            counts = np.maximum(1, -(-lengths // LONGEST))
            parts = np.full(int(counts.sum()), LONGEST)
            parts[np.cumsum(counts) - 1] = lengths - (counts - 1) * LONGEST
            yield parts, counts
        else:
            yield lengths, np.ones(len(lengths), np.int64)


def _write_index(part: Selection, dtype: np.dtype[Any], out: BinaryIO, written: Mapping[str, Written]) -> None:
    code = next(code for code, name in CODES.items() if name == dtype.name)
    sequences = sum(len(lengths) for lengths, _ in _lengths(part))
    out.write(HEADER.pack(MAGIC, VERSION, code, sequences, part.documents + 1))
    for lengths, _ in _lengths(part):
        put(out, lengths.astype("<i4"))
    at = 0
    for lengths, _ in _lengths(part):
        ends = np.cumsum(lengths) * dtype.itemsize + at
        put(out, (ends - lengths * dtype.itemsize).astype("<i8"))
        at = int(ends[-1]) if len(ends) else at
    put(out, np.zeros(1, "<i8"))
    before = 0
    for _, counts in _lengths(part):
        put(out, (np.cumsum(counts) + before).astype("<i8"))
        before += int(counts.sum())


def _prefixes(path: Path) -> list[Path]:
    """The prefixes of pairs of .bin and .idx: in a folder, or of one of its files, or as Megatron takes it."""
    if path.is_dir():
        found = in_order(path, path.glob("*.idx"))
    elif path.suffix in (".bin", ".idx"):
        found = [path.with_suffix(".idx")]
    else:
        found = [path.with_name(path.name + ".idx")]
    return [each.with_suffix("") for each in found if each.is_file() and each.with_suffix(".bin").is_file()]


def _read_index(path: Path) -> tuple[str, Any, Any, Any]:
    """The dtype of the ids, the lengths and byte offsets of sequences, and the first sequence of each document."""
    try:
        with open(path, "rb") as file:
            head = file.read(HEADER.size)
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    if not head.startswith(MAGIC[: len(head)]):
        raise InputError(f"{path} is not an index of Megatron-LM: it does not begin with MMIDIDX")
    if len(head) < HEADER.size:
        raise InputError(f"{path}: {size} bytes, shorter than the header of an index of Megatron-LM; it is cut short")
    _, version, code, sequences, documents = HEADER.unpack(head)
    if version != VERSION:
        raise InputError(f"{path}: version {version} of Megatron-LM's index, of which {VERSION} can be read")
    if code not in CODES:
        raise InputError(f"{path}: its dtype code {code} is not one for token ids")
    needed = HEADER.size + 12 * sequences + 8 * documents
    if size < needed:  # multimodal files have more
        raise InputError(f"{path}: {size} bytes where its header needs {needed}; it is cut short or damaged")
    if not documents:
        raise InputError(f"{path}: it lists no documents, not even where the first one begins")
    at = [HEADER.size, HEADER.size + 4 * sequences, HEADER.size + 12 * sequences]
    lengths, pointers = FileIds(path, "<i4", at[0], stop=at[1])[:], FileIds(path, "<i8", at[1], stop=at[2])[:]
    return CODES[code], lengths, pointers, FileIds(path, "<i8", at[2], stop=needed)[:]


def _check(path: Path, tokens: int, kind: str, ends: Any, pointers: Any, documents: Any) -> None:
    """Raise InputError unless the index describes the whole .bin file, front to back."""
    width, total = np.dtype(kind).itemsize, int(ends[-1]) if len(ends) else 0
    lengths = np.diff(ends, prepend=0)
    if len(lengths) and lengths.min() < 0:
        raise InputError(f"{path}: a sequence has a negative length; the index is damaged")
    if total != tokens:
        raise InputError(
            f"{path} describes {total:,} tokens, the .bin file has {tokens:,}; one of them is cut short or damaged"
        )
    if (pointers != (ends - lengths) * width).any():
        wrong = int(np.flatnonzero(pointers != (ends - lengths) * width)[0])
        raise InputError(
            f"{path}: sequence {wrong} is said to begin at byte {int(pointers[wrong])}, which is not where the one before ends"
        )
    if int(documents[0]) != 0 or int(documents[-1]) != len(ends) or (np.diff(documents) <= 0).any():
        raise InputError(f"{path}: the list of documents does not lead from sequence 0 to {len(ends)}; it is damaged")
