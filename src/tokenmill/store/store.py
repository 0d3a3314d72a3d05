"""A finished store: documents as zero-copy arrays, opened in milliseconds whatever its size."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from tokenmill.documents import BLANK
from tokenmill.errors import CorruptError, StoreError
from tokenmill.store.checksums import FirstTouch
from tokenmill.store.lease import USED, hold
from tokenmill.store.manifest import Manifest, read_manifest
from tokenmill.store.shard import Damage, open_column, read_receipt
from tokenmill.store.sources import SOURCES, Sources, read_sources

if TYPE_CHECKING:
    import os

    import pyarrow as pa

OPEN_COLUMNS = 4096  # mapped at once; the kernel allows a process some 65,000 maps, and each holds a file open


class Location(NamedTuple):
    """Where a document came from: the file, and its row (line, record) in it, from 0."""

    file: str
    row: int


@dataclass(frozen=True, slots=True)
class StoredTokenizer:
    """The tokenizer a store was made with. `tm.load_tokenizer(info.path)` brings it to life."""

    name: str
    fingerprint: str
    vocab_size: int
    eos_id: int | None
    bos_id: int | None
    engine: str
    path: Path


class Store:
    """Tokens at rest. `store[i]` is document i, `len(store)` how many there are.

    Opening reads the manifest and nothing else. Documents are views into mapped files: no copy, no load, safe to share
    among processes. Arrays are read-only.
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        *,
        first_touch: bool = False,
        sources: Path | None = None,
        held: object = None,
    ) -> None:
        self.path = path
        self.manifest = manifest
        self.held = held  # kept for as long as this store is
        self.sources_path = sources or path / SOURCES  # the same contents may go by other names
        self.first_touch = FirstTouch(self) if first_touch else None
        self._document_ends = np.cumsum(np.asarray(manifest.shard_documents, np.int64))
        self.token_ends = list(accumulate(manifest.shard_tokens))  # of each shard, in the stream of all
        self.token_starts = [0, *self.token_ends]
        self._mapping = Lock()
        self.mapped_ids: dict[int, npt.NDArray[Any]] = {}
        self.mapped_ends: dict[int, npt.NDArray[Any]] = {}
        self._last_receipt: tuple[int, dict[str, Any]] | None = None

    def with_first_touch(self) -> Store:
        """The same store, which compares each block with its checksum before it hands on the first token of it."""
        return Store(self.path, self.manifest, first_touch=True, sources=self.sources_path, held=self.held)

    def __len__(self) -> int:
        return self.manifest.documents

    @overload
    def __getitem__(self, index: int) -> npt.NDArray[np.unsignedinteger]: ...

    @overload
    def __getitem__(self, index: slice) -> list[npt.NDArray[np.unsignedinteger]]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        shard, local = self._find(index)
        ends = self.ends_of(shard)
        start = int(ends[local - 1]) if local else 0
        return self.ids_of(shard)[start : int(ends[local])]

    def __iter__(self) -> Iterator[npt.NDArray[np.unsignedinteger]]:
        for shard in range(self.num_shards):
            ids, start = self.ids_of(shard), 0
            for end in self.ends_of(shard).tolist():
                yield ids[start:end]
                start = end

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """A copy for another process maps the files itself; no token travels."""
        return _again, (self.path, self.manifest, self.first_touch is not None, self.sources_path)

    def __repr__(self) -> str:
        return (
            f"Store({str(self.path)!r}, documents={len(self):,}, tokens={self.num_tokens:,}, dtype={self.dtype.name},"
            f" shards={self.num_shards})"
        )

    @property
    def num_tokens(self) -> int:
        return self.manifest.tokens

    @property
    def num_shards(self) -> int:
        return len(self.manifest.shard_ids)

    @cached_property
    def maps_all(self) -> bool:
        """Whether all shards may be mapped at once; if not, a slice that is held keeps a file open."""
        return self.num_shards <= _columns_at_once()

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.manifest.dtype)

    @property
    def fingerprint(self) -> str:
        """The same for the same tokens by the same tokenizer, however and wherever they were built."""
        return self.manifest.fingerprint

    @property
    def complete(self) -> bool:
        """False while some input file could not be read; `failed` names them."""
        return self.manifest.complete

    @property
    def failed(self) -> list[dict[str, str]]:
        return self.manifest.failed

    @property
    def tokenizer(self) -> StoredTokenizer:
        facts = self.manifest.tokenizer
        return StoredTokenizer(
            name=facts["name"],
            fingerprint=facts["fingerprint"],
            vocab_size=facts["vocab_size"],
            eos_id=facts["eos_id"],
            bos_id=facts["bos_id"],
            engine=facts["engine"],
            path=self.path / "tokenizer",
        )

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens per document, 8 bytes each; read from the shards' ends on first use."""
        parts = [np.diff(self.ends_of(shard), prepend=0) for shard in range(self.num_shards)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    @cached_property
    def stream_ends(self) -> npt.NDArray[np.int64]:
        """Where each document ends in the stream of all tokens, 8 bytes each; read from the shards' ends on first use."""
        parts = [self.ends_of(shard) + self.token_starts[shard] for shard in range(self.num_shards)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def document_at(self, token: int) -> tuple[int, int]:
        """Which document a token of the stream belongs to, and which of its tokens it is."""
        if not 0 <= token < self.num_tokens:
            raise IndexError(f"token {token} of a store of {self.num_tokens} tokens")
        shard = bisect_right(self.token_ends, token)
        ends, local = self.ends_of(shard), token - self.token_starts[shard]
        number = int(ends.searchsorted(local, "right"))
        before = int(self._document_ends[shard]) - self.manifest.shard_documents[shard]
        return before + number, local - (int(ends[number - 1]) if number else 0)

    def locate(self, index: int) -> Location:
        """The file and row a document came from: arithmetic over one receipt."""
        shard, local = self._find(index)
        for piece in self.pieces(shard):
            if local < piece["documents"]:
                return Location(piece["file"], piece["row"] + _row_of(local, piece.get("skips", ())))
            local -= piece["documents"]
        raise CorruptError(f"{self.path}: the receipt of shard {self.manifest.shard_ids[shard]} lacks document {index}")

    def quarantine(self) -> Iterator[dict[str, Any]]:
        """Every document that was left out: file, row, reason, and a detail where there is one. Reads every receipt."""
        for shard in range(self.num_shards):
            for piece in self.pieces(shard):
                for row, count, reason, detail in piece.get("skips", ()):
                    for i in range(count if reason != BLANK else 0):
                        entry = {"file": piece["file"], "row": piece["row"] + row + i, "reason": reason}
                        yield entry | ({"detail": detail} if detail else {})

    def to_arrow(self) -> pa.ChunkedArray:
        """Every document as a list of ids, one chunk a shard, over the mapped files: no token is copied."""
        import pyarrow as pa

        chunks = []
        for shard in range(self.num_shards):
            offsets = np.concatenate(([0], self.ends_of(shard)))
            ids = self.ids_of(shard)
            values = pa.Array.from_buffers(pa.from_numpy_dtype(ids.dtype), len(ids), [None, pa.py_buffer(ids)])
            chunks.append(pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values))
        return pa.chunked_array(chunks, pa.large_list(pa.from_numpy_dtype(self.dtype)))

    def verify(self) -> list[Damage]:
        """Read everything and compare it with its checksums; an empty list means not one bit differs."""
        from tokenmill.store.integrity import verify_store

        return verify_store(self.path)

    def _find(self, index: int) -> tuple[int, int]:
        count = len(self)
        wanted = index + count if index < 0 else index
        if not 0 <= wanted < count:
            raise IndexError(f"document {index} of a store of {count} documents")
        shard = int(np.searchsorted(self._document_ends, wanted, side="right"))
        before = int(self._document_ends[shard - 1]) if shard else 0
        return shard, wanted - before

    def ids_of(self, shard: int) -> npt.NDArray[Any]:
        """The ids of one shard, mapped."""
        column = self.mapped_ids.get(shard)
        if column is None:
            column = self._column(shard, ".npy", self.dtype, self.manifest.shard_tokens[shard], self.mapped_ids)
        return column

    def ends_of(self, shard: int) -> npt.NDArray[np.int64]:
        """Where the documents of one shard end in it, mapped."""
        column = self.mapped_ends.get(shard)
        if column is None:
            count = self.manifest.shard_documents[shard]
            column = self._column(shard, ".ends.npy", np.dtype(np.int64), count, self.mapped_ends)
        return column

    def _column(
        self, shard: int, suffix: str, dtype: np.dtype[Any], count: int, mapped: dict[int, npt.NDArray[Any]]
    ) -> npt.NDArray[Any]:
        """Map a column; where many are mapped, the one that has been for longest is given up."""
        path = self.path / "shards" / f"{self.manifest.shard_ids[shard]}{suffix}"
        column = open_column(path, dtype, count)
        if self.first_touch is not None and mapped is self.mapped_ends:
            self.first_touch.ends(shard, column)
        with self._mapping:
            if len(mapped) >= _columns_at_once():
                del mapped[next(iter(mapped))]
            mapped[shard] = column
        return column

    def pieces(self, shard: int) -> list[dict[str, Any]]:
        """The stretches of files that one shard was made from: file, first row, rows, documents, what was left out."""
        pieces, names = self.receipt_of(shard)["pieces"], self._sources.names(shard)
        if len(pieces) != len(names):
            raise CorruptError(
                f"{self.sources_path} does not agree with shard {self.manifest.shard_ids[shard]};"
                f" run: tokenmill verify {self.path} --repair"
            )
        found: list[dict[str, Any]] = []
        row = self.manifest.row_starts[shard]
        for name, piece in zip(names, pieces, strict=True):
            if found:
                row = row + found[-1]["rows"] if found[-1]["file"] == name else 0
            found.append({**piece, "file": name, "row": row})
        return found

    @cached_property
    def _sources(self) -> Sources:
        return read_sources(self.sources_path if self.sources_path.exists() else self.path / SOURCES)

    def receipt_of(self, shard: int) -> dict[str, Any]:
        """The receipt of one shard: which documents of which files."""
        last = self._last_receipt
        if last is not None and last[0] == shard:
            return last[1]
        shard_id = self.manifest.shard_ids[shard]
        receipt = read_receipt(self.path / "shards", shard_id)
        if receipt is None:
            raise CorruptError(
                f"{self.path}: the receipt of shard {shard_id} is missing or damaged;"
                f" run: tokenmill verify {self.path} --repair"
            )
        self._last_receipt = shard, receipt
        return receipt


def _again(path: Path, manifest: Manifest, first_touch: bool, sources: Path) -> Store:
    return Store(path, manifest, first_touch=first_touch, sources=sources)


def _columns_at_once() -> int:
    """Of ids and of ends: together at most half of the files this process may open."""
    try:
        import resource

        return min(OPEN_COLUMNS, max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)) // 2
    except (ImportError, OSError, ValueError):
        return 128


def _row_of(local: int, skips: Any) -> int:
    """The row of the local-th document of a piece, past the rows that gave none."""
    row = local
    for first, count, *_ in skips:
        if first > row:
            break
        row += count
    return row


def open_store(path: str | os.PathLike[str]) -> Store:
    """Open a store. Costs milliseconds; the price does not grow with the tokens."""
    folder = Path(path)
    manifest = read_manifest(folder)
    if not manifest.complete:
        if not manifest.shard_ids and not manifest.failed:
            raise StoreError(
                f"{folder}: the build of this store was interrupted; run the same build again to finish it"
            )
        warnings.warn(
            f"{folder} is not complete: {len(manifest.failed)} input files failed and are not in it", stacklevel=2
        )
    return Store(folder, manifest, held=hold(folder) if (folder / USED).exists() else None)
