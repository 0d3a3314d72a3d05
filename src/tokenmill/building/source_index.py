"""The contents of input files when they were last read, so that a build need not read them again to compare.

    seen.json      path, size, tag and content hashes of every file of the last build
    listing.json   a digest of the list of files: one comparison tells whether anything changed
    seen.*.jsonl   journals of a build in progress; a process writes to its journal before it writes a shard's receipt

Losing any of these only costs time. A file that was modified less than `SETTLING` before it was examined is not trusted, and is
read again next time: it may have changed within the resolution of its time stamp, or through a memory map, whose writes show in
the time stamp only once per write-back of a page. Writes to a mapped file on tmpfs never do; `rehash` finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import xxhash

from tokenmill.building.machine import usable_cores
from tokenmill.building.plan import Task
from tokenmill.errors import InputError
from tokenmill.events import Comparing, Listener
from tokenmill.io import disk
from tokenmill.io.atomic import canonical, digest, temporary_path, writing
from tokenmill.io.checked_lines import CheckedLines, checked_line, read_lines
from tokenmill.reading import Piece, Source, SourceFile, content_of, head_of
from tokenmill.reading.files import STAT
from tokenmill.reading.hub_files import HUB
from tokenmill.reading.hub_names import PREFIX, parts_of, without_commit
from tokenmill.user_cache import read_cached, write_cached

SETTLING = 40 * 10**9  # nanoseconds; Linux writes a changed page of a mapped file back within 35 s
VERSION = 2
HEADS_AT_ONCE = 48  # requests for the first bytes of remote files
HEADS_FETCHED = 2048  # one after the other, before the first is used
Range = tuple[int, int | None]


@dataclass(slots=True)
class Entry:
    """A file as it was at time `at`: its size and tag, and the content hashes of its pieces."""

    size: int
    tag: str
    at: int
    head: str = ""
    contents: dict[Range, str] = field(default_factory=dict)


class SourceIndex:
    """The index of one build, in its folder. Content hashes are only used if `source` is read in the same way."""

    def __init__(self, folder: Path, source: Source) -> None:
        self.folder, self.reading = folder, reading_key(source)
        self.is_finished = (folder / "listing.json").exists()  # else it is the index of a build in progress
        self.files: dict[str, Entry] = {}  # by path, without the commit of datasets on the Hub
        self.commits: dict[str, str] = {}  # of datasets on the Hub
        self._load()
        self.paths = frozenset(self.files)
        self.sizes = frozenset(entry.size for entry in self.files.values())
        self.hub_tags = frozenset(entry.tag for entry in self.files.values() if entry.tag.startswith(HUB))

    def _load(self) -> None:
        saved = _read_current(self.folder / "seen.json") or {"reading": "", "files": []}
        for path, size, tag, at, head, contents in saved["files"]:
            usable = contents if saved["reading"] == self.reading else ()
            self._note_commit(path)
            self.files[without_commit(path)] = Entry(
                size, tag, at, head, {(start, stop): content for start, stop, content in usable}
            )
        for journal in disk.matching(self.folder, "seen.*.jsonl"):
            for record in read_lines(journal):
                if record.get("reading") == self.reading:
                    for path, size, tag, at, start, stop, content in record["pieces"]:
                        self._entry_at(without_commit(path), size, tag, at).contents[start, stop] = content

    def _note_commit(self, path: str) -> None:
        if path.startswith(PREFIX):
            dataset, commit, _ = parts_of(path)
            self.commits[dataset] = commit

    def find(self, file: SourceFile) -> Entry | None:
        """The entry of a file, if the file has not changed since."""
        entry = self.files.get(file.place)
        if entry is None or (entry.size, entry.tag) != (file.size, file.tag) or not is_settled(entry.tag, entry.at):
            return None
        return entry

    def content(self, piece: Piece) -> str | None:
        """The content hash of a piece, if its file has not changed since."""
        entry = self.find(piece.file)
        return None if entry is None else entry.contents.get((piece.start, piece.stop))

    def record(self, piece: Piece, at: int, content: str) -> None:
        file = piece.file
        self._entry_at(file.place, file.size, file.tag, at).contents[piece.start, piece.stop] = content

    def record_head(self, file: SourceFile, at: int, head: str) -> None:
        self._entry_at(file.place, file.size, file.tag, at).head = head

    def _entry_at(self, path: str, size: int, tag: str, at: int) -> Entry:
        """The entry of a file as it was at a time. A later look does not make an earlier, racy record trustworthy."""
        entry = self.files.get(path)
        same = entry is not None and (entry.size, entry.tag) == (size, tag)
        if entry is None or not same or (at > entry.at and not is_settled(tag, entry.at)):
            entry = self.files[path] = Entry(size, tag, at)
        elif at < entry.at and not is_settled(tag, at):
            return Entry(size, tag, at)  # older and racy: not saved
        entry.at = max(entry.at, at)
        return entry

    def write(self, source: Source, **facts: Any) -> None:
        """Save the entries of the files of `source`, and `facts` with the listing. Removes the journals, which they replace."""
        rows = []
        for file in source.files:
            entry = self.files.get(file.place)
            if entry is not None and entry.tag == file.tag:
                contents = [[*where, content] for where, content in entry.contents.items()]
                rows.append([file.path, entry.size, entry.tag, entry.at, entry.head, contents])
        write_cached(self.folder / "seen.json", {"version": VERSION, "reading": self.reading, "files": rows})
        facts["settled"] = all(is_settled(file.tag, source._looked_at) for file in source.files)
        write_cached(self.folder / "listing.json", {"version": VERSION, "listing": listing_digest(source), **facts})
        for journal in disk.matching(self.folder, "seen.*.jsonl"):
            disk.unlink(journal)


class Journal:
    """The content hashes that one process found, kept for the case that its build is interrupted."""

    def __init__(self, folder: Path, reading: str, at: int) -> None:
        self._folder, self.reading, self.at = folder, reading, at

    @cached_property
    def path(self) -> Path:
        """Named by the first process that writes it, which may have been forked since this object was made."""
        return temporary_path(self._folder / "seen").with_suffix(".jsonl")

    def note(self, task: Task, contents: list[str | None]) -> None:
        """Write down the contents of a task. Called before its receipt exists, so that every receipt can be matched."""
        with writing(self.path), closing(CheckedLines(self.path)) as lines:
            lines.append(self._record(task, contents))

    def line(self, task: Task, contents: list[str | None]) -> bytes:
        """What `note` writes, for a journal elsewhere."""
        return checked_line(self._record(task, contents))

    def _record(self, task: Task, contents: list[str | None]) -> dict[str, Any]:
        rows = [
            [piece.file.path, piece.file.size, piece.file.tag, self.at, piece.start, piece.stop, content]
            for piece, content in zip(task.pieces, contents, strict=True)
            if content is not None
        ]
        return {"reading": self.reading, "pieces": rows}


def reading_key(source: Source) -> str:
    """A digest of the reading options. The same bytes have other documents when another field is read."""
    return digest(canonical(source._options()))


def listing_digest(source: Source) -> str:
    """A digest of the names, sizes, tags and formats of all files."""
    lines = "\n".join([f"{file.path}\0{file.size}\0{file.tag}\0{file.format}" for file in source.files])
    return str(xxhash.xxh3_128_hexdigest(lines.encode("utf-8", "surrogateescape")))


def read_listing(folder: Path) -> dict[str, Any] | None:
    """The facts saved with a listing, whatever the files are now."""
    return _read_current(folder / "listing.json")


def current_listing(folder: Path, source: Source) -> dict[str, Any] | None:
    """The facts saved with a listing, if no file of `source` has changed since. Opens none of them."""
    listing = read_listing(folder)
    if listing is None or not listing["settled"] or listing["listing"] != listing_digest(source):
        return None
    return listing


def _read_current(path: Path) -> dict[str, Any] | None:
    saved = read_cached(path)
    return saved if saved is not None and saved.get("version") == VERSION else None


def is_settled(tag: str, at: int) -> bool:
    """Whether a file had been left alone for `SETTLING` when it was examined at time `at`."""
    if not tag.startswith(STAT):
        return True  # the tag is a content hash
    modified, _, changed = tag.removeprefix(STAT).split(".")
    return max(int(modified), int(changed)) < at - SETTLING


def file_heads(
    indexes: list[SourceIndex], source: Source, small: Callable[[SourceFile], bool], *, rehash: bool
) -> Callable[[SourceFile], str]:
    """A function that returns the head hash of a file: from an index, or by opening the file. Records it in the first index.

    Of remote files, those of the following `small` ones are fetched with it.
    """

    def known(file: SourceFile) -> str | None:
        entries = (index.find(file) for index in indexes) if not rehash else ()
        return next((entry.head for entry in entries if entry is not None and entry.head), None)

    fetched: dict[str, str] = {}
    following = (file for file in source.files if file.is_remote and small(file) and not known(file))

    def fetch(file: SourceFile) -> str:
        if file.path not in fetched:
            fetched.clear()
            batch = [file, *islice((each for each in following if each != file), HEADS_FETCHED - 1)]
            with ThreadPoolExecutor(HEADS_AT_ONCE) as pool:
                fetched.update(zip((each.path for each in batch), pool.map(head_of, batch), strict=True))
        return fetched.pop(file.path)

    def head_hash(file: SourceFile) -> str:
        head = known(file) or (fetch(file) if file.is_remote else head_of(file))
        indexes[0].record_head(file, source._looked_at, head)
        return head

    return head_hash


def find_contents(
    groups: Iterable[tuple[Piece, ...]],
    source: Source,
    indexes: list[SourceIndex],
    *,
    rehash: bool,
    read_all: bool,
    emit: Listener,
) -> list[tuple[Piece, ...]]:
    """The same groups, with the content hash of every piece that is known or worth reading before it is encoded.

    Unchanged files are looked up, unless `rehash` says not to trust any index. Others are hashed if an index has a file of
    the same path or size; else their content must be new. `read_all` (there are shards, but no index) hashes every file.
    """
    planned = list(groups)
    pieces = [piece for group in planned for piece in group]
    contents, unknown = _look_up(pieces, [] if rehash else indexes)
    if not read_all:
        unknown = _possibly_indexed(unknown, indexes)
    if unknown:
        files = {piece.file.path: piece.file for piece in unknown}
        emit(Comparing(files=len(files), bytes=sum(file.size for file in files.values())))
        contents |= _hash_pieces(unknown, source)
    for piece, content in contents.items():
        indexes[0].record(piece, source._looked_at, content)
    return [tuple(replace(piece, content=contents.get(piece)) for piece in group) for group in planned]


def _look_up(pieces: list[Piece], indexes: list[SourceIndex]) -> tuple[dict[Piece, str], list[Piece]]:
    """The pieces whose content an index has, and those that no index has."""
    contents: dict[Piece, str] = {}
    unknown: list[Piece] = []
    for piece in pieces:
        content = next((known for index in indexes if (known := index.content(piece))), None)
        if content is None:
            unknown.append(piece)
        else:
            contents[piece] = content
    return contents, unknown


def _possibly_indexed(pieces: list[Piece], indexes: list[SourceIndex]) -> list[Piece]:
    """The pieces of files whose path or size an index has; or, where the tag is that of a content, whose tag it has."""
    paths = frozenset().union(*(index.paths for index in indexes))
    sizes = frozenset().union(*(index.sizes for index in indexes))
    tags = frozenset().union(*(index.hub_tags for index in indexes))
    return [
        piece
        for piece in pieces
        if (
            piece.file.tag in tags
            if piece.file.tag.startswith(HUB)
            else piece.file.path in paths or piece.file.size in sizes
        )
    ]


def _hash_pieces(pieces: list[Piece], source: Source) -> dict[Piece, str]:
    """Read pieces for their content hashes, on all cores. Pieces that cannot be read are missing from the result."""

    def content(piece: Piece) -> str | None:
        try:
            return content_of(piece, source)
        except InputError:
            return None  # the error is reported when the piece is encoded

    with ThreadPoolExecutor(usable_cores()) as pool:
        hashes = pool.map(content, pieces)
        return {piece: found for piece, found in zip(pieces, hashes, strict=True) if found is not None}
