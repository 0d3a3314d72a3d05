"""Which files an input stands for: paths, globs, folders and lists, with a format, a codec and an identity each.

There may be 100,000 of them, and this is done before every build, so each costs one stat and little more.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tokenmill.errors import InputError, UsageError

FORMATS = ("text", "lines", "jsonl", "parquet", "arrow", "csv", "tsv")
CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz", ".lz4": "lz4"}
SUFFIXES = {
    ".txt": "text", ".text": "text",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
    ".csv": "csv", ".tsv": "tsv",
}  # fmt: skip
# Taken as text when named or matched by a glob, left alone in a folder: a README.md beside the data is not data.
PROSE_AND_CODE = frozenset({
    ".md", ".markdown", ".rst", ".tex", ".html", ".htm", ".xml", ".py", ".pyi", ".ipynb", ".c", ".h", ".cc", ".cpp", ".hpp",
    ".cu", ".rs", ".go", ".java", ".kt", ".js", ".ts", ".jsx", ".tsx", ".rb", ".php", ".swift", ".scala", ".sh", ".sql",
    ".r", ".jl", ".lua", ".pl", ".hs", ".yaml", ".yml", ".toml", ".log", ".srt", ".vtt",
})  # fmt: skip
STAT = "stat."  # how the tag of a file on this machine begins
PACKED_TABLES = ("parquet", "arrow")  # they compress inside; a codec around them would make them unseekable


class SourceFile(NamedTuple):
    """One file to read, and what it was when it was planned.

    `tag` changes whenever the content may have: of a file it is made from its times and its inode, of text that was spooled
    it is its hash (and of a remote object it would be its ETag). `name` is what people are shown where there is no file to
    show, because the text was spooled.
    """

    path: str
    size: int
    tag: str
    format: str
    codec: str | None = None
    name: str = ""

    @property
    def shown(self) -> str:
        return self.name or self.path

    @property
    def spooled(self) -> bool:
        return bool(self.name)


def format_of(path: str, format: str = "auto") -> tuple[str | None, str | None]:
    """The format and codec a file's name promises: ("jsonl", "zstd") for a.jsonl.zst; None where it promises none."""
    suffix = _suffix(path)
    codec = CODECS.get(suffix)
    if codec:
        suffix = _suffix(path[: -len(suffix)])
    if format != "auto":
        return format, codec
    return SUFFIXES.get(suffix) or ("text" if suffix in PROSE_AND_CODE else None), codec


def _suffix(path: str) -> str:
    dot = path.rfind(".")
    return path[dot:].lower() if dot > path.rfind("/") + 1 else ""


def tag_of(info: os.stat_result) -> str:
    """Modification time, inode, change time. The last also changes with a new name, and cannot be set back."""
    return f"{STAT}{info.st_mtime_ns}.{info.st_ino}.{info.st_ctime_ns}"


def files_of(item: str, format: str, left_out: list[str], depth: int = 0) -> Iterator[SourceFile]:
    """The files an input stands for, under absolute paths. What a folder holds beside them is put into `left_out`."""
    try:
        info = os.stat(item)
    except (OSError, ValueError):
        info = None
    if info is not None and stat.S_ISDIR(info.st_mode):
        yield from _in_folder(os.path.abspath(item), format, left_out)
    elif info is not None:
        path = os.path.abspath(item)
        yield _described(path, info, format)
    elif item.startswith("@"):
        yield from _in_list(item[1:], format, left_out, depth)
    elif glob.has_magic(item):
        yield from _matching(item, format)
    else:
        raise UsageError(f"no such file or folder: {item}")


def _in_folder(folder: str, format: str, left_out: list[str]) -> Iterator[SourceFile]:
    for entry in _walk(folder):
        path = entry.path
        chosen, codec = format_of(path, format)
        if chosen is None or (format == "auto" and _is_prose_or_code(path, codec)):
            left_out.append(path)
            continue
        try:
            info = entry.stat()
        except OSError:  # a dangling link, say: it fails when it is read, by name, and the others do not
            yield SourceFile(path, 0, "gone", chosen, codec)
            continue
        if stat.S_ISREG(info.st_mode):
            yield SourceFile(path, info.st_size, tag_of(info), chosen, codec)
        else:
            left_out.append(path)  # a pipe, a socket, a device


def _is_prose_or_code(path: str, codec: str | None) -> bool:
    return _suffix(path[: path.rfind(".")] if codec else path) in PROSE_AND_CODE


def _matching(pattern: str, format: str) -> Iterator[SourceFile]:
    any_came = False
    plain = not {"", ".", ".."}.intersection(pattern.split("/")[1:])  # what matches needs no other spelling, then
    here = "" if os.path.isabs(pattern) else os.path.join(os.getcwd(), "")
    plain = plain and not pattern.startswith((".", "//"))
    for match in glob.iglob(pattern, recursive=True):
        path = here + match if plain else os.path.abspath(match)
        try:
            info = os.stat(path)
        except OSError:
            info = None
        if info is None or not stat.S_ISDIR(info.st_mode):
            any_came = True
            yield _described(path, info, format)
    if not any_came:
        raise UsageError(f"no file matches {pattern!r} (quote globs, and check the folder you are in)")


def _in_list(path: str, format: str, left_out: list[str], depth: int) -> Iterator[SourceFile]:
    if depth > 8:
        raise UsageError(f"the list of files {path} names itself, or lists within lists without end")
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the list of files {path}: {error}") from error
    for line in lines:
        if line.strip():
            yield from files_of(line.strip(), format, left_out, depth + 1)


def _described(path: str, info: os.stat_result | None, format: str) -> SourceFile:
    """A file that was named, or matched by a glob: it must be one that can be read."""
    chosen, codec = format_of(path, format)
    if chosen is None:
        raise UsageError(
            f"cannot tell the format of {path} from its name; say --format {'|'.join(FORMATS)} (format=... in Python)"
        )
    if codec and chosen in PACKED_TABLES:
        raise UsageError(f"{path}: a {chosen} file compresses inside; decompress this one with the {codec} tool first")
    if info is None:
        return SourceFile(path, 0, "gone", chosen, codec)
    if not stat.S_ISREG(info.st_mode):
        raise UsageError(f"{path} is not a regular file; pipe it in with '-' instead")
    return SourceFile(path, info.st_size, tag_of(info), chosen, codec)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _walk(folder: str) -> Iterator[os.DirEntry[str]]:
    """Every visible file below a folder, links followed, each folder entered once."""
    seen: set[tuple[int, int]] = set()
    folders = [folder]
    while folders:
        here = folders.pop()
        try:
            info = os.stat(here)
            with os.scandir(here) as listed:
                entries = list(listed)
        except OSError as error:
            raise InputError(f"cannot list the folder {error.filename}: {error.strerror}") from error
        if (info.st_dev, info.st_ino) in seen:
            continue
        seen.add((info.st_dev, info.st_ino))
        below = {entry.name: entry for entry in entries if _is_folder(entry)}
        names = {entry.name for entry in entries}
        if ("shards" in below and "manifest.json" in names) or {"listing.json", "seen.json"} <= names:
            continue  # a token store, or what is known of one in a cache; not a source
        folders += [entry.path for name, entry in below.items() if not name.startswith(".")]
        for entry in entries:
            if entry.name not in below and not entry.name.startswith("."):
                yield entry
