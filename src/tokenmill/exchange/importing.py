"""`tm.import_tokens`: tokens that another tool has written, as a store."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.building.publish import ShardEntry, publish, published_manifest, tokenizer_facts, write_tokenizer
from tokenmill.callers import warn
from tokenmill.display import shown
from tokenmill.encoding.api import load_tokenizer
from tokenmill.encoding.encoder import id_dtype
from tokenmill.encoding.tokenizer import Tokenizer
from tokenmill.errors import InputError, MismatchError, MissingInputError, TokenmillError, UsageError, WrongTypeError
from tokenmill.exchange.amount_done import AmountDone, Report
from tokenmill.exchange.formats.base import ExchangeFormat, Found
from tokenmill.exchange.imported_shards import Audit, ImportedShards
from tokenmill.exchange.other_columns import MASK
from tokenmill.exchange.output import check_whole, checksum, read_receipt, written_files
from tokenmill.exchange.registry import FORMATS, recognize
from tokenmill.formatting import first_names, some
from tokenmill.habits import answer
from tokenmill.io import disk
from tokenmill.io.atomic import canonical, digest, naming_files
from tokenmill.io.lock import build_lock
from tokenmill.io.object_store import is_url
from tokenmill.option_calls import takes
from tokenmill.option_types import option_name
from tokenmill.options import ImportArguments
from tokenmill.store.columns import ID_DTYPES, columns_with, is_count
from tokenmill.store.manifest import TOKENIZER_KEYS, TRIAL, Manifest
from tokenmill.store.store import Store

IMPORTED = "imported"  # in the place of an engine
UINT16 = (1 << 16) - 1  # the largest id it holds
# What wrong numbers and types in a file lead to, where nothing has checked them.
_CONSEQUENCES = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
    csv.Error,
)


@takes(ImportArguments, "the file or folder of the other tool")
def import_tokens(source: str | Path, arguments: ImportArguments) -> Store:
    """Make a store from tokens in the format of another tool.

    Documents end where the format says, or at eos where it does not. With a tokenizer every id is checked against its
    vocabulary. Ids keep their order; nothing is left out. An export of tokenmill becomes the store it was, with the same
    fingerprint. The same import again finds that the store is there already.

    Example:
        store = tm.import_tokens("nano/", "imported/")
    """
    return import_files(source, arguments)


def import_files(source: str | Path, arguments: ImportArguments, report: Report | None = None) -> Store:
    """The same; `report` is told how many bytes are read, of how many."""
    if not isinstance(source, str | os.PathLike):
        hint = answer("imported", type(source).__name__) or answer("given", type(source).__name__)
        raise WrongTypeError(f"tokens are imported from a path, not from {type(source).__name__} {shown(source)}{hint}")
    for place in (source, arguments.out):
        if is_url(place):
            raise UsageError(
                f"{place}: imports are from a file or folder into a folder; copy them from or to the bucket"
            )
    path, folder = Path(os.path.expanduser(source)), Path(arguments.out)
    with naming_files(), ExitStack() as stack:
        with _blaming(path):
            plan = _Plan(path, arguments)
        published = published_manifest(folder)
        if published is not None and published.source.get("import") != plan.key:
            raise MismatchError(f"{folder} holds another store: choose another folder, or remove it")
        if published is None and folder.exists() and [each for each in disk.matching(folder) if each.name != ".lock"]:
            raise UsageError(
                f"{folder} is not empty, and not a store of this import: choose another folder, or empty it"
            )
        if published is not None and published.complete:
            return Store(folder, published)
        stack.enter_context(build_lock(folder))
        try:
            store = plan.run(folder, report)
        except BaseException:
            disk.remove_tree(folder)
            raise
    if plan.unkept_labels:
        plan.suspicions.append(
            f"the labels of {some(plan.unkept_labels, 'document')} differ from input_ids and are not kept:"
            " a store holds token ids only"
        )
    for suspicion in plan.suspicions:
        warn(f"{path}: {suspicion}")
    return store


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Turn what a damaged or forged file leads to into an InputError that names it."""
    try:
        yield
    except TokenmillError:
        raise
    except _CONSEQUENCES as error:
        why = f"{type(error).__name__}: {str(error)[:200]}"
        raise InputError(f"{path}: corrupt or in another format ({why})") from error


class _Plan:
    """An import: what is read, and what the store says about it."""

    def __init__(self, path: Path, arguments: ImportArguments) -> None:
        self.path, self.arguments = path, arguments
        self.unkept_labels = 0  # documents
        self.suspicions: list[str] = []
        receipt = read_receipt(path)
        self.exported: dict[str, Any] = receipt["facts"] if receipt is not None else {}
        self.format = self._format()
        dtype: Any = arguments.dtype
        self.files = self.format.find(path, dtype)
        if len(set(self.files)) < len(self.files):
            raise InputError(f"{path}: its index lists {max(self.files, key=self.files.count).name} twice")
        if path.is_dir():
            check_whole(path, receipt, self.files)
        self._check_exported()
        self.tokenizer = self._tokenizer()
        self.eos = self._eos()
        self.bos = self.exported.get("bos")
        known = self.exported.get("tokenizer", {}).get("vocab_size")
        self.vocab_size: int | None = self.tokenizer.vocab_size if self.tokenizer else known
        self.dtype = self._dtype()
        if self.eos is not None and self.eos > np.iinfo(self.dtype).max:
            raise UsageError(f"eos={self.eos} is not an id of {self.dtype.name}: change it, or {option_name('dtype')}")
        stats = [[str(file.absolute()), *_identity(file)] for file in self.files]
        fingerprint = self.tokenizer.fingerprint if self.tokenizer else None
        options = [arguments.dtype, self.eos, arguments.shard_tokens, fingerprint]
        self.key = digest(canonical([self.format.name, stats, options, self.exported.get("store")]))

    def _format(self) -> ExchangeFormat:
        if not self.path.exists() and not self.path.with_name(f"{self.path.name}.idx").exists():
            raise MissingInputError(f"{self.path}: no such file or folder; a folder gives all its files")
        if self.arguments.format != "auto":
            return FORMATS[self.arguments.format]
        known = FORMATS.get(str(self.exported.get("format")))
        return recognize(self.path) if known is None else known

    def _check_exported(self) -> None:
        """Raise InputError for a receipt with facts of other types: it is forged. Warn if it lists rows."""
        if not self.exported:
            return
        facts, counts = self.exported, self.exported.get("shard_documents", [])
        is_right = (
            facts["dtype"] in ID_DTYPES
            and facts["tokenizer"].keys() >= TOKENIZER_KEYS
            and all(facts[name] is None or is_count(facts[name]) for name in ("bos", "eos"))
            and isinstance(counts, list)
            and all(map(is_count, counts))
            and is_count(facts["tokenizer"]["vocab_size"])
            and all(is_count(number) for part in facts["splits"].values() for number in part.values())
        )
        if not is_right:
            raise InputError(f"{self.path}: the metadata of the export is inconsistent; export it again")
        if any("rows" in part for part in facts["splits"].values()):
            documents = "each becomes a document" if self.format.keeps_borders else "documents end at eos"
            padding = f"padding becomes tokens unless there is an {MASK}"
            warn(f"{self.path} holds packed rows: {documents}, and {padding}")

    def _tokenizer(self) -> Tokenizer | None:
        given: Any = self.arguments.tokenizer
        if given is None and self.exported and (self.path / "tokenizer").is_dir():
            given = self.path / "tokenizer"
        tokenizer = None if given is None else load_tokenizer(given)
        known = self.exported.get("tokenizer")
        if tokenizer is not None and known is not None and tokenizer.fingerprint != known["fingerprint"]:
            raise MismatchError(
                f"{self.path} was exported with the tokenizer {known['name']}, not with {tokenizer.name}:"
                " leave out -t (tokenizer=...)"
            )
        return tokenizer

    def _eos(self) -> int | None:
        given = self.arguments.eos
        if self.exported:
            eos: int | None = self.exported["eos"]
            if given is not None and str(given) != str(eos):
                raise UsageError(f"{self.path} was exported with eos {eos}: leave out {option_name('eos')}")
            return eos
        if self.tokenizer is not None:
            return self.tokenizer._resolve("eos", "auto" if given is None else given)
        try:
            return None if given is None else int(given)
        except ValueError:
            raise UsageError(
                f"eos={given!r} is a name: give its id, or the tokenizer with -t (tokenizer=...)"
            ) from None

    def _dtype(self) -> np.dtype[Any]:
        if self.exported:
            return np.dtype(str(self.exported["dtype"]))
        if self.vocab_size is not None:
            return id_dtype(self.vocab_size)
        is_narrow = all(self._read(file).dtype == np.uint16 for file in self.files)
        return np.dtype("uint16" if is_narrow else "uint32")

    def _read(self, file: Path) -> Found:
        """A file, with ids of the dtype that was given, that it says, or that the tokenizer or eos decides."""
        dtype: Any = self.arguments.dtype
        if dtype is None and not self.format.says_dtype(file):
            if self.vocab_size is None and (self.eos is None or self.eos <= UINT16):
                raise UsageError(f"{file} does not say its dtype: give {option_name('dtype')}, uint16 or uint32")
            dtype = "uint16" if self.vocab_size is not None and self.vocab_size <= UINT16 + 1 else "uint32"
        found = self.format.read(file, dtype)
        if self.arguments.dtype is not None and found.dtype.itemsize != np.dtype(dtype).itemsize:
            raise UsageError(f"{file}: its ids are {found.dtype.name}, as it says: leave out {option_name('dtype')}")
        return found

    def run(self, folder: Path, report: Report | None) -> Store:
        counts = self.exported.get("shard_documents")
        self._first_manifest(-1).write(folder)  # so that an interrupted import is recognised
        writer = ImportedShards(folder / "shards", self.dtype, self.arguments.shard_tokens, counts)
        sizes = [_size(file) for file in self.files]
        written = written_files(self.path)
        amount = AmountDone(sum(sizes) + sum(entry.bytes for entry in written.values()), report)
        largest, bos = -1, self.tokenizer.bos_id if self.tokenizer is not None and not self.exported else self.bos
        audit, empty = Audit(self.vocab_size, bos, self.eos), list[str]()
        try:
            for file, entry in written.items():
                part = amount.part(entry.bytes)
                if checksum(file, part.advance) != entry.checksum:
                    raise InputError(f"{file} has changed since it was exported, by its checksum: export it again")
                part.finish()
            for file, size in zip(self.files, sizes, strict=True):
                part = amount.part(size)
                with _blaming(file):
                    found = self._read(file)
                if not found.has_borders and self.eos is None:
                    give_eos = (
                        f"give the eos token with {option_name('eos', 50256)}, or the tokenizer with -t (tokenizer=...)"
                    )
                    keep = "its store has no eos: export it in a format that keeps documents, such as megatron"
                    raise UsageError(
                        f"{file}: {self.format.name} files do not say where documents end: {keep if self.exported else give_eos}"
                    )
                writer.begin(str(file.absolute()))
                for ids, ends in _documents(file, found, self.eos):
                    if not found.has_borders and not writer.tokens:
                        self._check_width(file, found.dtype, ids)
                    largest = max(largest, self._check(file, ids, writer.tokens))
                    audit.add(ids, ends, is_open=writer.is_open)
                    writer.add(ids.astype(self.dtype, copy=False), ends)
                    part.advance(ids.nbytes)
                writer.end()
                empty += [] if writer.tokens or self.exported else [file.name]
                part.finish()
                self.unkept_labels += found.unkept_labels.documents
            entries = writer.finish()
            self._check_totals(entries)
            if empty and len(empty) == len(self.files):
                raise InputError(f"{self.path} holds no ids")
        except BaseException:
            writer.discard()
            raise
        manifest = self._first_manifest(largest)
        manifest.source["audit"] = audit.facts()
        if empty:
            self.suspicions.append(f"no ids are in {first_names(empty)}")
        if not self.exported:
            self.suspicions += audit.suspicions(len(self.files), largest)
        if self.tokenizer is not None:
            manifest.files |= write_tokenizer(folder, self.tokenizer)
        return Store(folder, publish(folder, manifest, entries))

    def _check_totals(self, entries: list[ShardEntry]) -> None:
        """Raise InputError unless an export has given all of its tokens."""
        parts = list(self.exported.get("splits", {}).values())
        if parts and all("tokens" in part for part in parts):
            expected = sum(part["tokens"] for part in parts)
            tokens = sum(entry.receipt["tokens"] for entry in entries)
            if tokens != expected:
                raise InputError(f"{self.path}: {tokens:,} tokens where the export has {expected:,}: export it again")

    def _check(self, file: Path, ids: npt.NDArray[Any], before: int) -> int:
        """The largest id. Raises InputError for one that the tokenizer does not have, or that no store can hold."""
        if not len(ids):
            return -1
        low, high = int(ids.min()), int(ids.max())
        limit = self.vocab_size if self.vocab_size is not None else np.iinfo(self.dtype).max + 1
        if low < 0 or high >= limit:
            wrong = low if low < 0 else high
            at = before + int(np.flatnonzero(ids == wrong)[0])
            whose = "the tokenizer's vocabulary" if self.vocab_size is not None else self.dtype.name
            raise InputError(
                f"{file}: id {wrong} at token {at:,} is not one of the {limit:,} of {whose}; the file is damaged, or its ids are"
                f" of another dtype, {option_name('dtype')}, or tokenizer"
            )
        return high

    def _check_width(self, file: Path, dtype: np.dtype[Any], ids: npt.NDArray[Any]) -> None:
        """Raise InputError if the first ids look like halves of wider ones. Warn if their dtype was given."""
        if self.exported or len(ids) < 16 or not ids.any() or (ids[::2].any() and ids[1::2].any()):
            return
        text = f"every second id is 0, as if wider ids are read as {dtype.name}: give {option_name('dtype')}"
        if self.arguments.dtype is None:
            raise InputError(f"{file}: {text}")
        self.suspicions.append(f"{file.name}: {text}")

    def _first_manifest(self, largest: int) -> Manifest:
        """The manifest before any shard is listed."""
        around = {"bos": self.bos, "eos": self.eos}
        source = {"inputs": [str(self.path)], "files": len(self.files), "import": self.key}
        return Manifest(
            options={**dict.fromkeys(TRIAL), **around, "format": f"{IMPORTED} {self.format.name}"},
            source={**source, "on_error": "raise", "ignored_by_reason": {}, "ignored": []},
            tokenizer=self._facts(largest),
            columns=columns_with(self.dtype),
            source_bytes=sum(map(_size, self.files)),
        )

    def _facts(self, largest: int) -> dict[str, Any]:
        if self.exported:
            return dict(self.exported["tokenizer"])
        about = {"engine": IMPORTED, "engine_version": "", "proof": "the ids come from elsewhere"}
        if self.tokenizer is not None:
            return {**tokenizer_facts(self.tokenizer, self.bos, self.eos), **about}
        ends = {"eos_id": self.eos, "bos_id": self.bos, "eos_token": None, "bos_token": None}
        return {"name": "unknown", "fingerprint": "unknown", "vocab_size": largest + 1, **about, **ends}


def _size(path: Path) -> int:
    """The bytes of a file; of a prefix, those of its ids."""
    return (path if path.is_file() else path.with_name(path.name + ".bin")).stat().st_size


def _identity(path: Path) -> list[int]:
    """Size and time of a file; of a prefix, those of its files."""
    files = [path] if path.is_file() else [path.with_name(path.name + suffix) for suffix in (".bin", ".idx")]
    return [number for file in files for number in (file.stat().st_size, file.stat().st_mtime_ns)]


def _documents(file: Path, found: Found, eos: int | None) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.int64]]]:
    """Ids, and where documents end in them. Ids after the last end continue in what follows."""
    blocks = iter(found.blocks)
    while True:
        with _blaming(file):
            block = next(blocks, None)
        if block is None:
            return
        if not found.has_borders:
            yield block.ids, np.flatnonzero(block.ids == eos) + 1
            continue
        if (block.lengths < 0).any() or int(block.lengths.sum()) != len(block.ids):
            raise InputError(f"{file}: the lengths of its documents are not those of its ids; it is damaged")
        yield block.ids, np.cumsum(block.lengths)
