"""The tables of a byte-level BPE tokenizer as arrays for a GPU: hash tables that words.cu reads."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokenmill.encoding.gpu.bpe_tables import BpeTables, bpe_tables
from tokenmill.io import disk
from tokenmill.io.atomic import write_atomically
from tokenmill.user_cache import cache_folder

VERSION = 1  # of what is kept
CLASSES = 2_000_000  # bytes for the classes of all characters and other small tables
SHORT = 16  # bytes; shorter words are keys of their own
PLAIN = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")  # most of long words
_FACTOR = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class HashTables:
    """`vocabulary`: rows of (first eight bytes, the others with the length on top, id, 0). `pairs`: rows of (ids, rank and id).

    `beyond`: words that are looked up before they are merged, longer than the keys, and not what merging gives: documents that
    hold one are left to the reference. `longest`: bytes of the longest token; `longest_plain`: of those
    that have only PLAIN bytes. `is_ordered`: the parts of every merge are
    made by earlier ones.
    """

    vocabulary: Words
    pairs: Words
    byte_ids: npt.NDArray[np.uint32]
    beyond: tuple[bytes, ...]
    longest: int
    longest_plain: int
    is_ordered: bool

    @property
    def nbytes(self) -> int:
        return self.vocabulary.nbytes + self.pairs.nbytes + self.byte_ids.nbytes + CLASSES


def tables_of(tokenizer_json: str) -> HashTables:
    """The tables of a tokenizer.json, which must be one that a GPU can run. Kept in the user's cache."""
    key = hashlib.sha256(f"{VERSION} {tokenizer_json}".encode()).hexdigest()[:32]
    path = cache_folder() / "gpu" / f"{key}.npz"
    kept = _read(path)
    if kept is None:
        tables, why = bpe_tables(json.loads(tokenizer_json))
        assert tables is not None, why
        kept = hash_tables(tables)
        _write(path, kept)
    return kept


def _read(path: Path) -> HashTables | None:
    try:
        with np.load(io.BytesIO(disk.read_bytes(path))) as saved:  # never unpickles
            values = {name: saved[name] for name in saved.files}
        lengths = np.cumsum(values.pop("beyond_lengths")).tolist()
        text = values.pop("beyond").tobytes()
        beyond = tuple(text[low:high] for low, high in pairwise([0, *lengths]))
        numbers = {name: values.pop(name).item() for name in ("longest", "longest_plain", "is_ordered")}
        return HashTables(**values, **numbers, beyond=beyond)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None


def _write(path: Path, tables: HashTables) -> None:
    """Losing it only costs time."""
    values = {name: getattr(tables, name) for name in tables.__slots__ if name != "beyond"}
    values["beyond"] = np.frombuffer(b"".join(tables.beyond), np.uint8)
    values["beyond_lengths"] = np.array([len(word) for word in tables.beyond], np.int64)
    written = io.BytesIO()
    np.savez_compressed(written, **values)
    with suppress(OSError):
        disk.make_folder(path.parent)
        write_atomically(path, written.getvalue())


def hash_tables(tables: BpeTables) -> HashTables:
    short = {word: number for word, number in tables.words.items() if len(word) < SHORT}
    keys = np.zeros((len(short), 2), np.uint64)
    for row, word in enumerate(short):
        padded = word.ljust(SHORT, b"\0")
        keys[row] = int.from_bytes(padded[:8], "little"), int.from_bytes(padded[8:], "little") | len(word) << 56
    values = np.fromiter(short.values(), np.uint64, len(short))
    vocabulary = np.zeros((_size(len(short)), 4), np.uint64)
    places = _places(_mixed(keys[:, 0] ^ _mixed(keys[:, 1])), len(vocabulary))
    vocabulary[places, 0], vocabulary[places, 1], vocabulary[places, 2] = keys[:, 0], keys[:, 1], values
    return HashTables(
        vocabulary=vocabulary,
        pairs=_pairs(tables),
        byte_ids=tables.byte_ids,
        beyond=_beyond(tables),
        longest=max(map(len, tables.words), default=1),
        longest_plain=max((len(word) for word in tables.words if PLAIN.issuperset(word)), default=1),
        is_ordered=_is_ordered(tables),
    )


def _pairs(tables: BpeTables) -> Words:
    count = len(tables.pairs)
    keys = np.fromiter((left << 32 | right for left, right in tables.pairs), np.uint64, count)
    values = np.fromiter((rank | number << 32 for rank, number in tables.pairs.values()), np.uint64, count)
    pairs = np.zeros((_size(count), 2), np.uint64)
    pairs[:, 0] = np.uint64(0xFFFFFFFFFFFFFFFF)
    places = _places(_mixed(keys + np.uint64(1)), len(pairs))
    pairs[places, 0], pairs[places, 1] = keys, values
    return pairs


def _mixed(values: Words) -> Words:
    """As `mixed` in words.cu."""
    for _ in range(2):
        values = (values ^ values >> _HALF) * _FACTOR
    return values ^ values >> _HALF


def _size(count: int) -> int:
    """A power of two, at least four times as many."""
    return 1 << max(4, (4 * count - 1).bit_length())


def _places(hashes: Words, size: int) -> npt.NDArray[np.int64]:
    """A place for each hash: the first that is free from the hash on."""
    taken, places = np.zeros(size, bool), np.empty(len(hashes), np.int64)
    for row, place in enumerate((hashes & np.uint64(size - 1)).astype(np.int64).tolist()):
        while taken[place]:
            place = (place + 1) % size
        taken[place], places[row] = True, place
    return places


def _beyond(tables: BpeTables) -> tuple[bytes, ...]:
    """With `looks_up_first`, the long words that merging does not give."""
    if not tables.looks_up_first:
        return ()
    made = {number for _, number in tables.pairs.values()}
    return tuple(
        word
        for word, number in tables.words.items()
        if len(word) >= SHORT and not _is_merged(word, number, tables, made)
    )


def _is_merged(word: bytes, number: int, tables: BpeTables, made: set[int]) -> bool:
    if number not in made:
        return False
    ids = [int(tables.byte_ids[byte]) for byte in word]
    while len(ids) > 1:
        ranks = [
            (tables.pairs.get((left, right), (1 << 60, 0))[0], at) for at, (left, right) in enumerate(pairwise(ids))
        ]
        rank, at = min(ranks)
        if rank == 1 << 60:
            return False
        ids[at : at + 2] = [tables.pairs[ids[at], ids[at + 1]][1]]
    return ids == [number]


def _is_ordered(tables: BpeTables) -> bool:
    """Whether every merge that makes a token comes before every merge that uses it."""
    last_made: dict[int, int] = {}
    for rank, number in tables.pairs.values():
        last_made[number] = max(last_made.get(number, -1), rank)
    return all(
        max(last_made.get(left, -1), last_made.get(right, -1)) < rank
        for (left, right), (rank, _) in tables.pairs.items()
    )
