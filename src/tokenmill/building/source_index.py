"""What input files held when they were last read, so that nobody has to read them again to know.

    seen.json      path, size, tag and contents of every file of the last build
    listing.json   a digest of that list: the answer to "has anything changed?" in one comparison
    seen.*.jsonl   the same of a build that is under way, written down by whoever reads, before the shard's receipt

All of it only saves time. A file that was touched right before it was looked at is not believed: it may have changed again
within the same tick of the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import xxhash

from tokenmill.building.machine import usable_cores
from tokenmill.building.plan import Task
from tokenmill.errors import InputError
from tokenmill.io.atomic import canonical, digest, temporary_path, writing
from tokenmill.io.checked_lines import CheckedLines, read_lines
from tokenmill.reading import Piece, Source, SourceFile, content_of, head_of
from tokenmill.reading.files import STAT
from tokenmill.user_cache import read_cached, write_cached

TICK = 2 * 10**9  # nanoseconds; the coarsest clock of a file system that is still about
VERSION = 1
Range = tuple[int, int | None]


@dataclass(slots=True)
class Entry:
    """A file as it was, when that was, and the contents of its pieces."""

    size: int
    tag: str
    at: int
    head: str = ""
    contents: dict[Range, str] = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        return settled(self.tag, self.at)


class SourceIndex:
    """The list of one build, in its folder. Contents that were read in another way than `source` is stay unknown."""

    def __init__(self, folder: Path, source: Source) -> None:
        self.folder, self.way = folder, way_of(source)
        self.is_whole = (folder / "listing.json").exists()  # else it is that of a build under way
        self.files: dict[str, Entry] = {}
        kept = _kept(folder / "seen.json") or {"way": "", "files": []}
        for path, size, tag, at, head, contents in kept["files"]:
            known = contents if kept["way"] == self.way else ()
            self.files[path] = Entry(size, tag, at, head, {(start, stop): content for start, stop, content in known})
        for journal in folder.glob("seen.*.jsonl"):
            for record in read_lines(journal):
                for path, size, tag, at, start, stop, content in record["pieces"] if record["way"] == self.way else ():
                    self._note(path, size, tag, at, (start, stop), content)
        self.paths = frozenset(self.files)
        self.sizes = frozenset(entry.size for entry in self.files.values())

    def entry(self, file: SourceFile) -> Entry | None:
        """What is known of a file, if it is as it was."""
        entry = self.files.get(file.path)
        if entry is None or (entry.size, entry.tag) != (file.size, file.tag) or not entry.settled:
            return None
        return entry

    def content(self, piece: Piece) -> str | None:
        entry = self.entry(piece.file)
        return None if entry is None else entry.contents.get((piece.start, piece.stop))

    def note(self, piece: Piece, at: int, content: str) -> None:
        self._note(piece.file.path, piece.file.size, piece.file.tag, at, (piece.start, piece.stop), content)

    def note_head(self, file: SourceFile, at: int, head: str) -> None:
        self._at(file.path, file.size, file.tag, at).head = head

    def _note(self, path: str, size: int, tag: str, at: int, where: Range, content: str) -> None:
        self._at(path, size, tag, at).contents[where] = content

    def _at(self, path: str, size: int, tag: str, at: int) -> Entry:
        """What is known of a file as it was at a time. What was not to be believed before is not, because of a later look."""
        entry = self.files.get(path)
        same = entry is not None and (entry.size, entry.tag) == (size, tag)
        if entry is None or not same or (at > entry.at and not entry.settled):
            entry = self.files[path] = Entry(size, tag, at)
        elif at < entry.at and not settled(tag, at):
            return Entry(size, tag, at)  # older, and doubtful: not kept
        entry.at = max(entry.at, at)
        return entry

    def write(self, source: Source, **facts: Any) -> None:
        """Keep what is known of a source's files, and only of those; what was noted under way is in it now."""
        rows = [
            [
                file.path,
                entry.size,
                entry.tag,
                entry.at,
                entry.head,
                [[*where, content] for where, content in entry.contents.items()],
            ]
            for file in source.files
            if (entry := self.files.get(file.path)) is not None and entry.tag == file.tag
        ]
        write_cached(self.folder / "seen.json", {"version": VERSION, "way": self.way, "files": rows})
        facts["settled"] = all(settled(file.tag, source.looked_at) for file in source.files)
        write_cached(self.folder / "listing.json", {"version": VERSION, "listing": listing(source), **facts})
        for journal in self.folder.glob("seen.*.jsonl"):
            journal.unlink(missing_ok=True)


class Journal:
    """What one process reads, written down for a build that may not come to its end."""

    def __init__(self, folder: Path, way: str, at: int) -> None:
        self.path, self.way, self.at = temporary_path(folder / "seen").with_suffix(".jsonl"), way, at

    def note(self, task: Task, contents: list[str | None]) -> None:
        """Before the receipt: so that whoever finds the receipt's shard also knows what it was made from."""
        rows = [
            [piece.file.path, piece.file.size, piece.file.tag, self.at, piece.start, piece.stop, content]
            for piece, content in zip(task.pieces, contents, strict=True)
            if content is not None
        ]
        with writing(self.path), closing(CheckedLines(self.path)) as lines:
            lines.append({"way": self.way, "pieces": rows})


def way_of(source: Source) -> str:
    """How text is found in files: the same bytes hold other documents for another field."""
    return digest(canonical(source.options()))


def unchanged(folder: Path, source: Source) -> dict[str, Any] | None:
    """What was noted with a listing, if every file is as it was then: one comparison for all of them."""
    kept = noted(folder)
    if kept is None or not kept["settled"] or kept["listing"] != listing(source):
        return None
    return kept


def noted(folder: Path) -> dict[str, Any] | None:
    """What was noted with a listing, whatever the files are now."""
    return _kept(folder / "listing.json")


def _kept(path: Path) -> dict[str, Any] | None:
    kept = read_cached(path)
    return kept if kept is not None and kept.get("version") == VERSION else None


def heads(seen: list[SourceIndex], source: Source, rehash: bool = False) -> Callable[[SourceFile], str]:
    """How the head of a file is found: as it was noted, or by opening the file."""

    def head(file: SourceFile) -> str:
        entries = (one.entry(file) for one in seen) if not rehash else ()
        found = next((entry.head for entry in entries if entry is not None and entry.head), None) or head_of(file)
        seen[0].note_head(file, source.looked_at, found)
        return found

    return head


def listing(source: Source) -> str:
    """A digest of which files there are and how they were found."""
    lines = "\n".join([f"{file.path}\0{file.size}\0{file.tag}\0{file.format}" for file in source.files])
    return str(xxhash.xxh3_128_hexdigest(lines.encode("utf-8", "surrogateescape")))


def settled(tag: str, at: int) -> bool:
    """Whether a file had been left alone for a moment when it was looked at."""
    if not tag.startswith(STAT):
        return True  # a hash, which is as good as the content
    modified, _, changed = tag.removeprefix(STAT).split(".")
    return max(int(modified), int(changed)) < at - TICK


def with_contents(
    groups: Iterable[tuple[Piece, ...]],
    source: Source,
    seen: list[SourceIndex],
    *,
    rehash: bool = False,
    read_all: bool = False,
    checking: Callable[[int, int], None] = lambda files, nbytes: None,
) -> list[tuple[Piece, ...]]:
    """Pieces with what they hold, where that is known or worth finding out before they are read for good.

    A file that is as it was holds what it did. Another is read for its content if there is one of that name or size among
    those seen, else it cannot be the same. `read_all` (nothing is known of shards that are there) and `rehash` (nothing is
    believed) have all of them read. `checking` is told how many files and bytes that is.
    """
    paths = frozenset().union(*(one.paths for one in seen))
    sizes = frozenset().union(*(one.sizes for one in seen))
    found: dict[Piece, str] = {}
    doubtful: list[Piece] = []
    planned = list(groups)
    for piece in (piece for group in planned for piece in group):
        content = None if rehash else next((known for one in seen if (known := one.content(piece))), None)
        if content is not None:
            found[piece] = content
        elif read_all or piece.file.path in paths or piece.file.size in sizes:
            doubtful.append(piece)
    if doubtful:
        files = {piece.file.path: piece.file for piece in doubtful}
        checking(len(files), sum(file.size for file in files.values()))
        with ThreadPoolExecutor(usable_cores()) as pool:
            for piece, content in zip(doubtful, pool.map(lambda piece: _content(piece, source), doubtful), strict=True):
                if content is not None:
                    found[piece] = content
    for piece, content in found.items():
        seen[0].note(piece, source.looked_at, content)
    return [tuple(replace(piece, content=found.get(piece)) for piece in group) for group in planned]


def _content(piece: Piece, source: Source) -> str | None:
    try:
        return content_of(piece, source)
    except InputError:
        return None  # it will fail when it is read for good, by name
