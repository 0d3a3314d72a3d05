"""The files of an export: written beside their names, synced and renamed, listed in a receipt.

A file is kept if it was made from the same content with the same options and is still as it was written. Files that describe
others, such as an index, are written last and removed before any other file changes: a reader never finds one without the other.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import xxhash

from tokenmill.errors import InputError, UsageError
from tokenmill.exchange.amount_done import AmountDone, PartDone, Report
from tokenmill.io import disk
from tokenmill.io.atomic import canonical, digest, replacing, write_atomically, writing
from tokenmill.io.checked_lines import CheckedLines, read_lines
from tokenmill.io.lock import build_lock
from tokenmill.store.shard import sealed, unsealed

RECEIPT = ".tokenmill-export.json"
JOURNAL = ".tokenmill-export.jsonl"
LOCK = ".lock"
VERSION = 1
MOST_THREADS = 8
_TEMPORARY = re.compile(r"(.+)\.[0-9]+-[0-9a-f]{8}\.tmp")  # what `temporary_path` makes of a name


@dataclass(frozen=True, slots=True)
class Written:
    """A finished file of an export: its size, a digest of its bytes and of what they were made from, and its time."""

    bytes: int
    checksum: str
    key: str
    mtime_ns: int
    ctime_ns: int = 0  # not in earlier receipts


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file to write. `key` is all that its bytes depend on, as JSON values. `size` is about how many bytes it gets."""

    name: str
    key: Any
    write: Callable[[BinaryIO], None]
    size: int = 0


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A file that describes others: it is written when those are finished, from what is known of them."""

    name: str
    key: Any
    write: Callable[[BinaryIO, Mapping[str, Written]], None]


class _Hashing(io.RawIOBase):
    """A file to write to, front to back, that computes the checksum of what is written."""

    def __init__(self, out: BinaryIO, advanced: Callable[[int], None]) -> None:
        self._out, self._hash, self._advanced = out, xxhash.xxh3_128(), advanced
        self.size = 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        view = view.cast("B") if view.nbytes else memoryview(b"")
        self._hash.update(view)
        self._out.write(view)
        self.size += view.nbytes
        self._advanced(view.nbytes)
        return view.nbytes

    def tell(self) -> int:
        return self.size

    def writable(self) -> bool:
        return True

    def checksum(self) -> str:
        return str(self._hash.hexdigest())


class Output:
    """The folder of an export, or one file in a folder. Use it as a context manager: it holds the lock."""

    def __init__(self, folder: Path, report: Report | None = None, *, file: str = "") -> None:
        self.folder, self._file, self._report = folder, file, report
        self._receipt, self._journal, self._lock_file = _own_names(file)
        self._lock = build_lock(folder, name=self._lock_file)
        self._is_stopping = False

    def __enter__(self) -> Output:
        refuse_others(self.folder, self._file)
        self._lock.__enter__()
        self.receipt = read_receipt(self.folder / self._file)
        said = [self.receipt["facts"]] if self.receipt is not None else read_lines(self.folder / self._journal)
        last = self.folder / (self._journal if self.receipt is None else self._receipt)
        self._finished_ns = last.stat().st_mtime_ns if last.exists() else 0
        self.origins = [name for facts in said for name in facts.get("origins", [])]
        return self

    def __exit__(self, *error: Any) -> None:
        with suppress(OSError):
            disk.unlink(self.folder / self._lock_file)
        self._lock.__exit__(*error)

    def is_current(self, facts: dict[str, Any], files: Iterable[OutputFile], indexes: Iterable[IndexFile]) -> bool:
        """Whether these files are there already, with a receipt that says so."""
        if self.receipt is None or self.receipt["facts"] != facts:
            return False
        known = _entries(self.receipt)
        wanted = _keys(files, indexes)
        return known.keys() == wanted.keys() and all(self._is_kept(n, known[n], key) for n, key in wanted.items())

    def write(self, facts: dict[str, Any], files: list[OutputFile], indexes: list[IndexFile]) -> int:
        """Write what is not there yet, and the receipt. Returns how many files were written."""
        known = self._known()
        keys = _keys(files, indexes)
        kept = {n: known[n] for n, key in keys.items() if n in known and self._is_kept(n, known[n], key)}
        for index in indexes:
            kept.pop(index.name, None)
        stats = {name: os.stat(self.folder / name) for name in kept}  # new times are noted: they are compared next time
        kept = {n: replace(e, mtime_ns=stats[n].st_mtime_ns, ctime_ns=stats[n].st_ctime_ns) for n, e in kept.items()}
        with writing(self.folder):
            journal = CheckedLines(self.folder / self._journal)
            try:
                journal.append({"origins": facts.get("origins", [])})
                for name, entry in kept.items():
                    journal.append({"name": name, **asdict(entry)})
                names = [index.name for index in indexes]
                before = [] if self.receipt is None else filter(self._is_mine, self.receipt["indexes"])
                self._forget([*before, *names], sorted({*known, *keys} - kept.keys()))
                todo = [file for file in files if file.name not in kept]
                written = {**kept, **self._write_all(todo, journal)}
                for index in indexes:
                    written[index.name] = self._write_one(index.name, _key(index), _with(index, written))
            finally:
                journal.close()
            entries = {name: asdict(entry) for name, entry in sorted(written.items())}
            body = {"id": RECEIPT, "version": VERSION, "facts": facts, "files": entries, "indexes": names}
            write_atomically(self.folder / self._receipt, sealed(body))
            disk.unlink(self.folder / self._journal)
        return len(todo) + len(indexes)

    def _known(self) -> dict[str, Written]:
        """Files that this or an interrupted export has finished."""
        known = {} if self.receipt is None else _entries(self.receipt)
        for record in read_lines(self.folder / self._journal):
            with suppress(KeyError, TypeError):
                name = record.pop("name")
                known |= {name: Written(**record)} if _is_inside(name) else {}
        return {name: entry for name, entry in known.items() if self._is_mine(name)}

    def _is_mine(self, name: str) -> bool:
        """Whether this export may remove a file that a receipt names: it is in its folder, or is the file itself."""
        return name == self._file if self._file else _is_inside(name)

    def _is_kept(self, name: str, entry: Written, key: str) -> bool:
        """Whether a file is as it was written: by its times, or by its checksum if these changed or are those of the receipt."""
        if entry.key != key:
            return False
        with suppress(OSError):
            path = self.folder / name
            found = os.stat(path)
            times = found.st_mtime_ns, found.st_ctime_ns
            is_known = times == (entry.mtime_ns, entry.ctime_ns) and found.st_ctime_ns < self._finished_ns
            return found.st_size == entry.bytes and (is_known or checksum(path) == entry.checksum)
        return False

    def _forget(self, indexes: list[str], stale: Iterable[str]) -> None:
        """Remove the receipt and what describes files that are about to change; then those files, and what a crash has left."""
        for name in (self._receipt, *indexes, *stale):
            path = self._inside(name)
            disk.unlink(path)
            for left in disk.matching(path.parent, "*.tmp"):
                match = _TEMPORARY.fullmatch(left.name)
                if match and match[1] == path.name:
                    disk.unlink(left)
        disk.sync_folder(self.folder)

    def _inside(self, name: str) -> Path:
        """The path of a file. Raises UsageError if a link leads out of the folder."""
        path = self.folder / name
        if not path.parent.resolve().is_relative_to(self.folder.resolve()):
            raise UsageError(
                f"{path.parent} is a link that leads out of {self.folder}: remove it, or choose another folder"
            )
        return path

    def _write_all(self, files: list[OutputFile], journal: CheckedLines) -> dict[str, Written]:
        written: dict[str, Written] = {}
        threads = max(1, min(len(files), os.cpu_count() or 1, MOST_THREADS))
        pool = ThreadPoolExecutor(threads)
        try:
            amount = AmountDone(sum(file.size for file in files), self._report)
            running = {
                pool.submit(self._write_one, file.name, _key(file), file.write, amount.part(file.size)): file
                for file in files
            }
            while running:
                done, _ = wait(running, return_when=FIRST_EXCEPTION, timeout=0.5)
                for future in done:
                    file = running.pop(future)
                    written[file.name] = future.result()
                    journal.append({"name": file.name, **asdict(written[file.name])})
        except BaseException:
            self._is_stopping = True  # the other threads do not finish their files, which may be large
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        return written

    def _counter(self, part: PartDone | None) -> Callable[[int], None]:
        def count(nbytes: int) -> None:
            if self._is_stopping:
                raise InterruptedError("another file failed, or the export was stopped")
            if part is not None:
                part.advance(nbytes)

        return count

    def _write_one(
        self, name: str, key: str, write: Callable[[BinaryIO], None], part: PartDone | None = None
    ) -> Written:
        path = self._inside(name)
        with writing(path):
            disk.make_folder(path.parent)
        with replacing(path) as raw:
            out = _Hashing(raw, self._counter(part))
            write(out)  # type: ignore[arg-type]
        if part is not None:
            part.finish()
        stat = os.stat(path)
        return Written(out.size, out.checksum(), key, stat.st_mtime_ns, stat.st_ctime_ns)


def _key(file: OutputFile | IndexFile) -> str:
    return digest(canonical(file.key))


def _keys(files: Iterable[OutputFile], indexes: Iterable[IndexFile]) -> dict[str, str]:
    return {**{file.name: _key(file) for file in files}, **{index.name: _key(index) for index in indexes}}


def _with(index: IndexFile, written: Mapping[str, Written]) -> Callable[[BinaryIO], None]:
    return lambda out: index.write(out, written)


def _entries(receipt: dict[str, Any]) -> dict[str, Written]:
    """The files that a receipt lists. A forged one must not name files elsewhere: those it names may be removed."""
    return {name: Written(**entry) for name, entry in receipt["files"].items() if _is_inside(name)}


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def _own_names(file: str) -> tuple[str, str, str]:
    """The names of the receipt, the journal and the lock of an export: a folder, or this file, whose name is in theirs."""
    before = f".{file}" if file else ""
    return before + RECEIPT, before + JOURNAL, before + LOCK


def read_receipt(path: Path) -> dict[str, Any] | None:
    """The receipt of a finished export, a folder or a file; None if there is none, or none that can be read."""
    own = path.parent / _own_names(path.name)[0] if path.is_file() else path / RECEIPT
    try:
        receipt = unsealed(disk.read_bytes(own), RECEIPT, VERSION)
        if receipt is None:
            return None
        is_whole = isinstance(receipt["facts"], dict) and all(isinstance(name, str) for name in receipt["indexes"])
        _entries(receipt)
    except (OSError, KeyError, TypeError, AttributeError):
        return None
    return receipt if is_whole else None


def check_whole(folder: Path, receipt: dict[str, Any] | None, files: Iterable[Path]) -> None:
    """Raise InputError for an export that is not finished, or whose files are not those that were written."""
    if (folder / JOURNAL).exists():
        raise InputError(f"{folder} is an export that was not finished: run it again first")
    if receipt is None:
        return
    known = _entries(receipt)
    for name, entry in known.items():
        try:
            size = (folder / name).stat().st_size
        except OSError as error:
            raise InputError(
                f"{folder / name}: {error.strerror}; it belongs to the export: run the export again"
            ) from error
        if size != entry.bytes:
            raise InputError(f"{folder / name}: {size} bytes where {entry.bytes} were written: run the export again")
    for path in files:
        name = path.relative_to(folder).as_posix()
        if name not in known and f"{name}.bin" not in known:
            raise InputError(f"{path} is not part of the export in this folder: remove it, or import it alone")


def checksum(path: Path, advanced: Callable[[int], None] = lambda nbytes: None) -> str:
    """The checksum of a file as it is computed while one is written."""
    whole = xxhash.xxh3_128()
    with disk.open_to_read(path) as file:
        while block := file.read(1 << 22):
            whole.update(block)
            advanced(len(block))
    return str(whole.hexdigest())


def written_files(path: Path) -> dict[Path, Written]:
    """The files of the export in a folder; for a file or a prefix, those of that name, if an export in its folder lists them."""
    folder = path if path.is_dir() else path.parent
    receipt = read_receipt(path) or read_receipt(folder)
    files = {} if receipt is None else {folder / name: entry for name, entry in _entries(receipt).items()}
    return {file: entry for file, entry in files.items() if path in (folder, file, file.with_suffix(""))}


def refuse_others(folder: Path, file: str = "") -> None:
    """Raise UsageError for a folder with files that no export has written, or for such a file in it."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file; an export is a folder: choose another path")
    names = {path.name for path in disk.matching(folder)}
    receipt, journal, lock = _own_names(file)
    if names & {receipt, journal}:
        return
    if file in names:
        raise UsageError(f"{folder / file} is there, and was not exported by this name: choose another one")
    if not file and names - {lock}:
        raise UsageError(f"{folder} is not empty, and not an export of tokenmill: choose another folder, or empty it")
