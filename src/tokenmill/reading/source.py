"""What to read: paths, globs, folders and lists become files with a format, a codec and an identity."""

from __future__ import annotations

import glob
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tokenmill.errors import InputError, UsageError
from tokenmill.reading.template import Template

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
PACKED_TABLES = ("parquet", "arrow")  # they compress inside; a codec around them would make them unseekable


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file to read, and what it was when it was planned.

    `tag` changes whenever the content may have: of a file it is made from its times and its inode, of text that was spooled
    from its hash. `key` is the path below the input it was found by, the same wherever the corpus lies. `name` is what people
    are shown where there is no file to show, because the text was spooled.
    """

    path: str
    size: int
    tag: str
    format: str
    codec: str | None = None
    key: str = ""
    name: str = ""

    @property
    def shown(self) -> str:
        return self.name or self.path

    @property
    def spooled(self) -> bool:
        return bool(self.name)


@dataclass(frozen=True, slots=True)
class Stream:
    """Text that is not a file (standard input, a table, an iterable); a build spools it before planning."""

    name: str
    data: Any = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Source:
    """A corpus to read: which files, and how a document's text is found in them."""

    files: tuple[SourceFile, ...]
    inputs: tuple[str, ...]
    streams: tuple[Stream, ...] = ()
    format: str = "auto"
    text: str = "text"
    template: str | None = None
    separator: str | None = None
    limit: int | None = None
    on_error: str = "quarantine"
    left_out: tuple[str, ...] = ()
    looked_at: int = 0  # when the files were, in nanoseconds

    @property
    def num_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields a document's text is made from."""
        return Template(self.template).fields if self.template else (self.text,)

    def options(self) -> dict[str, Any]:
        """What the documents depend on beside the files' own content."""
        return {
            "format": self.format,
            "text": None if self.template else self.text,
            "template": self.template,
            "separator": self.separator,
        }


def read(
    *inputs: Any,
    format: str = "auto",
    text: str = "text",
    template: str | None = None,
    separator: str | None = None,
    limit: int | None = None,
    on_error: str = "quarantine",
) -> Source:
    """Describe a corpus. Costs one stat per file; nothing is read yet.

    Each input is a path, a glob, a folder (taken recursively), "@list.txt" (one input a line), "-" (standard input), an
    Arrow table, a Hugging Face dataset, or an iterable of strings. Files are taken in sorted order, once each.
    """
    _check(format, template, separator, limit, on_error)
    looked_at = time.time_ns()
    if not inputs:
        raise UsageError("nothing to read: name at least one file, glob or folder")
    found: dict[str, tuple[str, str]] = {}
    spellings: list[str] = []
    streams: list[Stream] = []
    left_out: list[str] = []
    for item in _flatten(inputs):
        if isinstance(item, Source):
            raise UsageError("read() takes paths and data; a Source is already read")
        if isinstance(item, (str, os.PathLike)):
            text_item = os.fspath(item)
            if text_item == "-":
                streams.append(Stream("<stdin>", sys.stdin.buffer))
                spellings.append("-")
                continue
            spellings.append(_spelling(text_item))
            for path, chosen, base in _expand(text_item, format, left_out):
                found.setdefault(os.path.abspath(path), (chosen, os.path.relpath(path, base)))
        else:
            new = list(_streams(item))
            streams += new
            spellings += [stream.name for stream in new]
    if len({stream.name for stream in streams}) < len(streams):
        streams = [replace(stream, name=f"{stream.name[:-1]}:{i}>") for i, stream in enumerate(streams)]
    files = tuple(_describe(path, *found[path]) for path in sorted(found))
    wrong = next((file for file in files if separator is not None and file.format != "text"), None)
    if wrong is not None:
        raise UsageError(
            f"separator goes with plain text, but {wrong.path} is read as {wrong.format}; say --format text"
        )
    if not files and not streams:
        hint = f" ({len(left_out)} files of other kinds were left out; --format takes them)" if left_out else ""
        raise UsageError(f"no file to read in {', '.join(spellings)}{hint}")
    return Source(
        files=files,
        inputs=tuple(dict.fromkeys(spellings)),
        streams=tuple(streams),
        format=format,
        text=text,
        template=template,
        separator=separator,
        limit=limit,
        on_error=on_error,
        left_out=tuple(path for path in left_out if os.path.abspath(path) not in found),
        looked_at=looked_at,
    )


def format_of(path: str, format: str = "auto") -> tuple[str | None, str | None]:
    """The format and codec a file's name promises: ("jsonl", "zstd") for a.jsonl.zst; None where it promises none."""
    stem, suffix = os.path.splitext(path.lower())
    codec = CODECS.get(suffix)
    if codec:
        suffix = os.path.splitext(stem)[1]
    if format != "auto":
        return format, codec
    return SUFFIXES.get(suffix) or ("text" if suffix in PROSE_AND_CODE else None), codec


def _check(format: str, template: str | None, separator: str | None, limit: int | None, on_error: str) -> None:
    if format not in ("auto", *FORMATS):
        raise UsageError(f"format={format!r} is not one of auto, {', '.join(FORMATS)}")
    if on_error not in ("quarantine", "raise"):
        raise UsageError(f"on_error={on_error!r} is not one of quarantine, raise")
    if limit is not None and limit < 1:
        raise UsageError(f"limit={limit} must be at least 1 document")
    if separator == "":
        raise UsageError("separator must not be empty; for one document per line use --format lines")
    if separator is not None and format not in ("auto", "text"):
        raise UsageError(f"separator goes with plain text, not with format={format!r}")
    if template is not None:
        Template(template)


def _flatten(inputs: Iterable[Any]) -> Iterator[Any]:
    """A list of paths counts as that many inputs; a list of anything else is data."""
    for item in inputs:
        if isinstance(item, (list, tuple)) and item and all(isinstance(x, os.PathLike) for x in item):
            yield from item
            continue
        named = _names_a_file(item) if isinstance(item, (list, tuple)) else None
        if named is not None:
            raise UsageError(
                f"a list of strings is a list of documents, but {named!r} names a file: for files"
                " give them one by one, tm.read(*paths), or as pathlib.Path; for documents give iter(list)"
            )
        yield item


def _names_a_file(items: Sequence[Any]) -> str | None:
    """The first string of a short list that is a path or a glob with matches; texts of a corpus seldom are."""
    for item in items[:1000]:
        if not isinstance(item, str) or not 0 < len(item) < 1000 or "\n" in item or "\0" in item:
            continue
        if os.path.exists(item) or (glob.has_magic(item) and next(glob.iglob(item, recursive=True), None)):
            return item
    return None


def _streams(item: Any) -> Iterator[Stream]:
    kind = type(item).__module__.partition(".")[0]
    if kind == "pyarrow" or hasattr(item, "__arrow_c_stream__"):
        yield Stream("<table>", item)
    elif kind == "datasets" and hasattr(item, "items"):
        for split, dataset in item.items():
            yield Stream(f"<dataset {split}>", dataset)
    elif kind == "datasets":
        yield Stream("<dataset>", item)
    elif isinstance(item, Iterable) and not isinstance(item, (bytes, dict)):
        yield Stream("<iterable>", item)
    else:
        raise UsageError(
            f"cannot read a {type(item).__name__}: give paths, an Arrow table, a dataset or an iterable of strings"
        )


def _spelling(item: str) -> str:
    """An input without the accidents of how it was typed, so that ./data and data are the same."""
    if item.startswith("@"):
        return "@" + os.path.abspath(item[1:])
    return os.path.abspath(item)


def _expand(item: str, format: str, left_out: list[str], depth: int = 0) -> Iterator[tuple[str, str, str]]:
    """The files an input stands for: (path, format, the folder the input begins in)."""
    if item.startswith("@") and not os.path.exists(item):
        yield from _expand_list(item[1:], format, left_out, depth)
    elif os.path.isdir(item):
        for path in _walk(item):
            suffix = os.path.splitext(os.path.splitext(path)[0] if _has_codec(path) else path)[1].lower()
            chosen, _ = format_of(path, format)
            odd = os.path.exists(path) and not os.path.isfile(path)  # a pipe, a socket, a device
            if odd or chosen is None or (format == "auto" and suffix in PROSE_AND_CODE):
                left_out.append(path)
            else:
                yield path, chosen, item
    elif os.path.exists(item):
        yield item, _required_format(item, format), os.path.dirname(item) or "."
    elif glob.has_magic(item):
        matches = [path for path in glob.iglob(item, recursive=True) if not os.path.isdir(path)]
        if not matches:
            raise UsageError(f"no file matches {item!r} (quote globs, and check the folder you are in)")
        for path in matches:
            yield path, _required_format(path, format), _fixed_part(item)
    else:
        raise UsageError(f"no such file or folder: {item}")


def _fixed_part(pattern: str) -> str:
    """The folder a glob begins in, before its first wildcard."""
    here = os.path.dirname(pattern)
    while glob.has_magic(here):
        here = os.path.dirname(here)
    return here or "."


def _expand_list(path: str, format: str, left_out: list[str], depth: int) -> Iterator[tuple[str, str, str]]:
    if depth > 8:
        raise UsageError(f"the list of files {path} names itself, or lists within lists without end")
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the list of files {path}: {error}") from error
    for line in lines:
        if line.strip():
            yield from _expand(line.strip(), format, left_out, depth + 1)


def _has_codec(path: str) -> bool:
    return os.path.splitext(path.lower())[1] in CODECS


def _required_format(path: str, format: str) -> str:
    chosen, codec = format_of(path, format)
    if chosen is None:
        raise UsageError(
            f"cannot tell the format of {path} from its name; say --format {'|'.join(FORMATS)} (format=... in Python)"
        )
    if codec and chosen in PACKED_TABLES:
        raise UsageError(f"{path}: a {chosen} file compresses inside; decompress this one with the {codec} tool first")
    return chosen


def _walk(folder: str) -> Iterator[str]:
    """Every visible file below a folder, links followed, each folder entered once."""
    seen: set[tuple[int, int]] = set()
    for here, folders, names in os.walk(folder, followlinks=True, onerror=_cannot_list):
        info = os.stat(here)
        if (info.st_dev, info.st_ino) in seen:
            folders.clear()
            continue
        seen.add((info.st_dev, info.st_ino))
        if "manifest.json" in names and "shards" in folders:
            folders.clear()  # a token store, not a source
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield os.path.join(here, name)


def _cannot_list(error: OSError) -> None:
    raise InputError(f"cannot list the folder {error.filename}: {error.strerror}")


def _describe(path: str, format: str, key: str) -> SourceFile:
    try:
        info = os.stat(path)
    except OSError:  # a dangling link, say: it fails when it is read, by name, and the others do not
        return SourceFile(path, 0, "gone", format, format_of(path)[1], key)
    if not stat.S_ISREG(info.st_mode):
        raise UsageError(f"{path} is not a regular file; pipe it in with '-' instead")
    return SourceFile(path, info.st_size, tag_of(info), format, format_of(path)[1], key)


def tag_of(info: os.stat_result) -> str:
    """Modification time, inode, change time. The last also changes with a new name, and cannot be set back."""
    return f"{info.st_mtime_ns}.{info.st_ino}.{info.st_ctime_ns}"
