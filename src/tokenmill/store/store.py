"""A finished store: documents as zero-copy arrays. Opening takes milliseconds, whatever its size."""

from __future__ import annotations

import operator
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Never, cast, overload

import numpy as np
import numpy.typing as npt

from tokenmill.callers import warn
from tokenmill.display import html_table, one_line, shown
from tokenmill.documents import BLANK, row_of
from tokenmill.errors import CorruptError, MissingStoreError, StoreError, UsageError
from tokenmill.formatting import some
from tokenmill.habits import Identified, answer, answer_at
from tokenmill.io.atomic import naming_files
from tokenmill.io.mirror import mirror_limit, mirrored_url, prefetch_later, touch
from tokenmill.io.object_store import is_bucket_url, is_url
from tokenmill.option_calls import suggests
from tokenmill.split_names import TRAIN, files_by_split
from tokenmill.store.bucket import open_mirror, remake_mirror
from tokenmill.store.checksums import repair_hint
from tokenmill.store.columns import ENDS, IDS, ColumnSpec, column_path, open_column
from tokenmill.store.first_touch import FirstTouch
from tokenmill.store.integrity import verify_store
from tokenmill.store.lease import USED, Lease, hold
from tokenmill.store.manifest import NAME, Manifest, read_manifest
from tokenmill.store.shard import Damage, require_receipt
from tokenmill.store.side_files import side_file
from tokenmill.store.sources import SOURCES, Sources, read_sources

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenmill.encoding.api import StoredTokenizer

DOCUMENT_COLUMNS_AHEAD = 8  # small files, of a store in a bucket
Several = slice | Sequence[int] | npt.NDArray[np.integer] | npt.NDArray[np.bool_]  # documents, rows
OPEN_COLUMNS = 4096  # files mapped at once; the kernel allows about 65,000 maps per process, and each keeps a file open


class Location(NamedTuple):
    """Where a document came from: the file, and the row (line, record) in it, counted from 0."""

    file: str
    row: int


class Store(Identified):
    """A token store: `store[i]` is the ids of document i, `len(store)` the number of documents.

    Made by `tm.open`, `tm.build` and `tm.import_tokens`. Opening reads only the manifest. Arrays are read-only views of
    memory-mapped files: nothing is copied or loaded, and several processes can share them.
    """

    path: Path  # the folder; of a store in a bucket, that of the local copies
    url: str | None  # of the bucket that the store is in
    columns: dict[str, ColumnSpec]  # what is stored per token and per document, by name

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        *,
        first_touch: bool = False,
        sources: Path | None = None,
        lease: Lease | None = None,
    ) -> None:
        """`sources` is another sources.json for the same contents. `lease` is kept as long as the store is. With
        `first_touch`, blocks are compared with their checksums before they are first used."""
        self._given = str(path)  # for messages; `path` stays valid if the program changes its working directory
        self.path, self._manifest, self._lease = path.absolute(), manifest, lease
        self._shards = self.path / "shards"
        self.columns = {column.name: column for column in manifest.columns}
        self._sources_path = sources or side_file(self.path, manifest, SOURCES)
        self._document_ends = np.cumsum(np.asarray(manifest.shard_documents, np.int64))
        self._token_ends = list(accumulate(manifest.shard_tokens))  # of each shard, in the stream of all tokens
        self._token_starts = [0, *self._token_ends]
        self._mapping = Lock()
        self._mapped: dict[str, dict[int, Any]] = {name: {} for name in self.columns}  # arrays, by column and shard
        self._ids, self._ends = self._mapped[IDS], self._mapped[ENDS]
        self._first_touch: dict[str, FirstTouch] | None = None
        if first_touch:
            self._first_touch = {name: FirstTouch(self._shards, manifest.shard_ids, name) for name in self.columns}
        self.url = mirrored_url(path)
        self._last_receipt: tuple[int, dict[str, Any]] | None = None

    @property
    def name(self) -> str:
        """Where the store is, for messages: the path of its folder, or its URL."""
        return self.url or self._given

    def _with_first_touch(self) -> Store:
        """The same store, which compares each block with its checksum before it is first used."""
        return Store(self.path, self._manifest, first_touch=True, sources=self._sources_path, lease=self._lease)

    def __len__(self) -> int:
        return self._manifest.documents

    @overload
    def __getitem__(self, index: Several) -> list[npt.NDArray[np.unsignedinteger]]: ...

    @overload
    def __getitem__(self, index: int | np.integer) -> npt.NDArray[np.unsignedinteger]: ...

    def __getitem__(self, index: int | np.integer | Several) -> Any:
        several = numbers_of(index, len(self))
        return self._document(index) if several is None else [self._document(i) for i in several]

    def _document(self, index: Any) -> npt.NDArray[np.unsignedinteger]:
        shard, local = self._find(index)
        ends = self._ends_of(shard)
        start = int(ends[local - 1]) if local else 0
        return self._ids_of(shard)[start : int(ends[local])]

    def __array__(self, *_: Any, **options: Any) -> Never:
        raise TypeError(f"documents have different lengths{answer('Store', '__array__')}")

    def text(self, index: int | np.integer) -> str:
        """The text of a document, decoded with the store's own tokenizer, without the bos and eos around it."""
        ids, facts = self[index], self._manifest.tokenizer
        if not isinstance(ids, np.ndarray):
            raise TypeError(f"text takes the number of one document, not {shown(index)}: [store.text(i) for i in ...]")
        start = 1 if len(ids) and facts["bos_id"] == ids[0] else 0
        stop = len(ids) - 1 if len(ids) > start and facts["eos_id"] == ids[-1] else len(ids)
        return self.tokenizer.decode(ids[start:stop])

    def __iter__(self) -> Iterator[npt.NDArray[np.unsignedinteger]]:
        for shard in range(self.num_shards):
            ids, start = self._ids_of(shard), 0
            for end in self._ends_of(shard).tolist():
                yield ids[start:end]
                start = end

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Pickle the manifest and no data: the copy maps the files itself."""
        first_touch = self._first_touch is not None
        if self.url is not None:
            return _unpickled, (self.url, self.path, self._manifest, mirror_limit(self.path), first_touch)
        return partial(Store, first_touch=first_touch, sources=self._sources_path), (self.path, self._manifest)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the mapped files. Nothing else is open, and the store can still be used: it maps them again."""
        with self._mapping:
            for mapped in self._mapped.values():
                mapped.clear()

    def __repr__(self) -> str:
        counts = f"documents={len(self):,}", f"tokens={self.num_tokens:,}"
        return one_line("Store", shown(self.name), *counts, f"dtype={self.dtype.name}", f"shards={self.num_shards:,}")

    def _repr_html_(self) -> str:
        from tokenmill.store.facts import facts_of, info_rows

        return html_table("token store", info_rows(facts_of(self.path, self._manifest)))

    @property
    def num_tokens(self) -> int:
        """The tokens of all documents, with the ids around each."""
        return self._manifest.tokens

    @property
    def num_shards(self) -> int:
        """The shards, which are what a build makes, checks and repairs one by one."""
        return len(self._manifest.shard_ids)

    @cached_property
    def _maps_all(self) -> bool:
        """Whether all shards may be mapped at once. If not, callers copy slices: a slice in use keeps its file open."""
        return self.num_shards <= self._most_mapped

    @cached_property
    def _most_mapped(self) -> int:
        """How many shards may be mapped at once: all columns together take at most half of the files a process may open.

        Of a mirror they take at most half of its limit: a mapped file takes space even after it was removed.
        """
        most = _open_files() // len(self.columns)
        if self.url is None:
            return most
        return max(1, min(most, self._shards_cached // 2))

    @cached_property
    def _shards_cached(self) -> int:
        """How many shards of a store in a bucket this machine keeps."""
        return mirror_limit(self.path) // max(self._manifest.shard_bytes(), default=1)

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """Of the token ids."""
        return np.dtype(self._manifest.dtype)

    @property
    def fingerprint(self) -> str:
        """Equal for equal data from the same tokenizer in shards of the same size, wherever it was built."""
        return self._manifest.fingerprint

    @property
    def source(self) -> dict[str, Any]:
        """How the input was read: inputs, options, the commits of datasets on the Hub ("hub"), an import's counts ("audit")."""
        return self._manifest.source

    @property
    def complete(self) -> bool:
        """False if some input files could not be read; `failed` lists them."""
        return self._manifest.complete

    @property
    def failed(self) -> list[dict[str, str]]:
        """The input files that could not be read, each with the reason."""
        return self._manifest.failed

    @cached_property
    def tokenizer(self) -> StoredTokenizer:
        """The tokenizer that the store was built with and keeps: it encodes and decodes."""
        from tokenmill.encoding.api import StoredTokenizer

        return StoredTokenizer(self.path / "tokenizer", self._manifest.tokenizer)

    @property
    def input_files(self) -> list[str]:
        """The files that the store was built from, in order, as `locate` and `quarantine` name them. Reads sources.json."""
        return list(dict.fromkeys(self._sources.files))

    @cached_property
    def splits(self) -> dict[str, list[str]]:
        """The input files of each split, by their names and folders (see `tokenmill.split_names`). Reads sources.json."""
        split, files = self._manifest.source.get("split"), self._sources.files
        return files_by_split(files, TRAIN) if split is None else {split: list(dict.fromkeys(files))}

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens per document. Reads all ends on first use and takes 8 bytes per document."""
        parts = [np.diff(self._ends_of(shard), prepend=0) for shard in range(self.num_shards)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    @cached_property
    def stream_ends(self) -> npt.NDArray[np.int64]:
        """Where each document ends in the stream of all tokens. Reads all ends on first use; 8 bytes per document."""
        parts = [self._ends_of(shard) + self._token_starts[shard] for shard in range(self.num_shards)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def document_at(self, token: int) -> tuple[int, int]:
        """The document that a token of the stream belongs to, and the position of the token in it."""
        if not 0 <= token < self.num_tokens:
            raise IndexError(f"token {token} of a store with {some(self.num_tokens, 'token')}")
        shard = bisect_right(self._token_ends, token)
        ends, local = self._ends_of(shard), token - self._token_starts[shard]
        number = int(ends.searchsorted(local, "right"))
        before = int(self._document_ends[shard]) - self._manifest.shard_documents[shard]
        return before + number, local - (int(ends[number - 1]) if number else 0)

    def locate(self, index: int | np.integer) -> Location:
        """The file and row a document came from. Reads one receipt."""
        shard, local = self._find(index)
        for piece in self._pieces(shard):
            if local < piece["documents"]:
                return Location(piece["file"], piece["row"] + row_of(local, piece.get("skips", ())))
            local -= piece["documents"]
        raise CorruptError(f"{self.path}: receipt of shard {self._manifest.shard_ids[shard]} lacks document {index}")

    def quarantine(self) -> Iterator[dict[str, str | int]]:
        """Every quarantined document: file, row, reason and, where there is one, a detail. Reads all receipts."""
        for shard in range(self.num_shards):
            for piece in self._pieces(shard):
                for row, count, reason, detail in piece.get("skips", ()):
                    for i in range(count if reason != BLANK else 0):
                        entry = {"file": piece["file"], "row": piece["row"] + row + i, "reason": reason}
                        yield entry | ({"detail": detail} if detail else {})

    @overload
    def to_arrow(self) -> pa.ChunkedArray: ...

    @overload
    def to_arrow(self, columns: Sequence[str]) -> pa.Table: ...

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.ChunkedArray | pa.Table:
        """Every document as a list of ids, one chunk per shard. The ids are not copied.

        With `columns`, a table of these columns with one row per document: a per-token column is a column of lists.
        """
        import pyarrow as pa

        if columns is None:
            return self._chunks(IDS)
        if isinstance(columns, str):
            raise TypeError(f"columns is a list of names: to_arrow([{columns!r}])")
        return pa.table({name: self._chunks(name) for name in columns})

    def _chunks(self, name: str) -> pa.ChunkedArray:
        """A column as Arrow arrays over the mapped files: a value per document, or a list per document.

        Only offsets are copied, 8 bytes per document, and columns of bool, which Arrow packs into bits.
        """
        import pyarrow as pa

        spec = self._spec(name)
        dtype, per_token = pa.from_numpy_dtype(np.dtype(spec.dtype)), spec.per == "token"
        chunks = []
        for shard in range(self.num_shards):
            values = self.column(name, shard)
            if not per_token and not self._maps_all:
                values = values.copy()
            chunk = (
                pa.array(values)
                if spec.dtype == "bool"
                else pa.Array.from_buffers(dtype, len(values), [None, pa.py_buffer(values)])
            )
            if per_token:
                offsets = np.concatenate(([0], self._ends_of(shard)))
                chunk = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), chunk)
            chunks.append(chunk)
        return pa.chunked_array(chunks, pa.large_list(dtype) if per_token else dtype)

    def verify(self) -> list[Damage]:
        """Read everything and compare it with its checksums. An empty list means that all checksums match."""
        return verify_store(self.path)

    def _find(self, index: Any) -> tuple[int, int]:
        """The shard of a document, and its number in the shard."""
        count = len(self)
        try:
            number = operator.index(index)
        except TypeError:
            raise TypeError(
                f"documents are numbered: {shown(index)} is not a whole number or a slice{answer_at(Store, index)}"
            ) from None
        number += count if number < 0 else 0
        if not 0 <= number < count:
            raise IndexError(f"document {index} of a store with {some(count, 'document')}")
        shard = int(np.searchsorted(self._document_ends, number, side="right"))
        before = int(self._document_ends[shard - 1]) if shard else 0
        return shard, number - before

    def _ids_of(self, shard: int) -> npt.NDArray[Any]:
        """The ids of one shard, mapped."""
        values = self._ids.get(shard)
        return self._map(IDS, shard) if values is None else values

    def _ends_of(self, shard: int) -> npt.NDArray[np.int64]:
        """Where each document of one shard ends in it, mapped."""
        values = self._ends.get(shard)
        return self._map(ENDS, shard) if values is None else values

    def column(self, name: str, shard: int) -> npt.NDArray[Any]:
        """Any column of one shard, mapped: a value per token or per document, as `columns[name].per` says.

        With first touch, a per-document column is checked here; of a per-token column `stream.slices` checks what it reads.
        """
        self._spec(name)
        values = self._mapped[name].get(shard)
        return self._map(name, shard) if values is None else values

    def _spec(self, name: str) -> ColumnSpec:
        """The spec of a column. Raises UsageError if the store does not have it."""
        try:
            return self.columns[name]
        except KeyError:
            raise UsageError(f"{self.path} has no column {name!r}; its columns are {', '.join(self.columns)}") from None

    def _map(self, name: str, shard: int) -> npt.NDArray[Any]:
        """Map a column of a shard. If too many are mapped, unmap the one that was mapped first."""
        spec, mapped = self.columns[name], self._mapped[name]
        documents, tokens = self._manifest.shard_documents[shard], self._manifest.shard_tokens[shard]
        length = spec.length(documents=documents, tokens=tokens)
        path = self._path(name, shard)
        if self.url is not None and spec.per == "document":  # the next ones are usually needed too
            self._fetch_ahead(name, range(shard + 1, min(shard + 1 + DOCUMENT_COLUMNS_AHEAD, self.num_shards)))
        values = open_column(path, np.dtype(spec.dtype), length)
        if self.url is not None:
            touch(path)
        if self._first_touch is not None and spec.per == "document":
            self._first_touch[name].check(shard, 0, length, values)
        with self._mapping:
            if len(mapped) >= self._most_mapped:
                del mapped[next(iter(mapped))]
            mapped[shard] = values
        return values

    def _fetch_ahead(self, name: str, shards: Sequence[int]) -> None:
        """Have a column of shards fetched that will be needed soon, for a store in a bucket."""
        mapped, room = self._mapped[name], self._shards_cached // 2
        prefetch_later(self._path(name, shard) for shard in shards[:room] if shard not in mapped)

    def _path(self, name: str, shard: int) -> Path:
        return column_path(self._shards, self._manifest.shard_ids[shard], name)

    def _pieces(self, shard: int) -> list[dict[str, Any]]:
        """The parts of files that one shard was built from: file, first row, rows, documents, skipped rows."""
        pieces, names = self._receipt_of(shard)["pieces"], self._sources.names(shard)
        if len(pieces) != len(names):
            raise CorruptError(
                f"{self._sources_path} does not agree with shard {self._manifest.shard_ids[shard]}; {repair_hint(self.path)}"
            )
        located: list[dict[str, Any]] = []
        row = self._manifest.row_starts[shard]
        for name, piece in zip(names, pieces, strict=True):
            if located:
                row = row + located[-1]["rows"] if located[-1]["file"] == name else 0
            located.append({**piece, "file": name, "row": row})
        return located

    @cached_property
    def _sources(self) -> Sources:
        is_there = self._sources_path.exists()
        return read_sources(self._sources_path if is_there else side_file(self.path, self._manifest, SOURCES))

    def _receipt_of(self, shard: int) -> dict[str, Any]:
        """The receipt of one shard. The last one read is cached."""
        last = self._last_receipt
        if last is not None and last[0] == shard:
            return last[1]
        receipt = require_receipt(self._shards, self._manifest.shard_ids[shard])
        self._last_receipt = shard, receipt
        return receipt


def numbers_of(index: Any, count: int) -> Sequence[int] | npt.NDArray[Any] | None:
    """The numbers that a slice, a list, an array or a mask in square brackets stands for, as in numpy; None for one number."""
    if isinstance(index, slice):
        return range(*index.indices(count))
    if not isinstance(index, list | range):
        if isinstance(index, int | str | tuple) or np.ndim(index) != 1:
            return None
        index = np.asarray(index)
    if not len(index) or not isinstance(index[0], bool | np.bool_):
        return cast(Sequence[int], index)
    if len(index) != count:
        raise IndexError(f"a mask of {len(index):,} values for {count:,}: it has one for each")
    return np.flatnonzero(index)


def _unpickled(url: str, path: Path, manifest: Manifest, limit: int, first_touch: bool) -> Store:  # noqa: FBT001
    """A store in a bucket, perhaps on another machine, which has no mirror of it yet."""
    folder = path if mirrored_url(path) == url else remake_mirror(url, path.name, manifest, limit)
    return Store(folder, manifest, first_touch=first_touch, lease=hold(folder))


def _open_files() -> int:
    """How many columns a process may keep mapped."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except (ImportError, OSError, ValueError):
        return 256
    return OPEN_COLUMNS if limit == resource.RLIM_INFINITY else min(OPEN_COLUMNS, max(16, limit // 2))


def open_store(path: str | os.PathLike[str], *, shard_cache: str | int | None = None) -> Store:
    """Open a store: milliseconds, independent of the number of tokens. Warns if input files are missing in it.

    The path may be the URL of a store in a bucket, such as s3://bucket/store. Its shards are fetched when they are needed,
    and kept on this machine for all processes, up to `shard_cache` bytes ("20GB") in all.

    Example:
        store = tm.open("corpus/")
        len(store), store.num_tokens, store[0], store.locate(0)
    """
    if not isinstance(path, str | os.PathLike):
        hint = answer("opened", type(path).__name__) or answer("given", type(path).__name__)
        raise TypeError(f"a store is opened by its path, not by {type(path).__name__} {shown(path)}{hint}")
    folder = open_mirror(str(path), shard_cache) if is_url(path) else Path(os.path.expanduser(path))
    manifest = read_manifest(folder, is_asked_for=True)
    name = mirrored_url(folder) or folder
    if not manifest.complete:
        if not manifest.shard_ids and not manifest.failed:
            raise StoreError(f"{name}: the build of this store was interrupted; run the same build again to finish it")
        warn(f"{name} is not complete: {some(len(manifest.failed), 'input file')} failed")
    with naming_files():
        is_kept = is_url(path) or (folder / USED).exists()  # in the cache: it could be removed there
        return Store(folder, manifest, lease=hold(folder) if is_kept else None)


def store_unless_text(data: Any, tokenizer: Any) -> Store | None:
    """The store that `data` is or names; None for text, which comes with a tokenizer."""
    path = os.path.expanduser(data) if isinstance(data, str | os.PathLike) else None
    if tokenizer is not None:
        if isinstance(data, Store) or (path is not None and Path(path, NAME).exists()):
            whose = path or data.name
            raise UsageError(f"{whose} is a store, which has its own tokenizer: leave out -t (tokenizer=...)")
        return None
    if isinstance(data, Store):
        return data
    what = f"{shown(data)} is not a store"
    try:
        if path is not None and (is_bucket_url(path) or not is_url(path)):
            return open_store(path)
    except MissingStoreError as error:
        what = str(error)
    raise MissingStoreError(f"{what}; text needs a tokenizer, such as -t gpt2 (tokenizer='gpt2')")


if not TYPE_CHECKING:  # a decorated function has no type before this module is analysed, which __init__ needs
    open_store = suggests(open_store)
