"""What to read, and how a document's text is found in it."""

from __future__ import annotations

import glob
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tokenmill.errors import UsageError
from tokenmill.reading.discover import FORMATS, SourceFile, files_of
from tokenmill.reading.template import Template


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
    text_field: str = "text"
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
        return Template(self.template).fields if self.template else (self.text_field,)

    def options(self) -> dict[str, Any]:
        """What the documents depend on beside the files' own content."""
        return {
            "format": self.format,
            "text_field": None if self.template else self.text_field,
            "template": self.template,
            "separator": self.separator,
        }


def read(
    *inputs: Any,
    format: str = "auto",
    text_field: str = "text",
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
    found: dict[str, SourceFile] = {}
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
            for file in files_of(text_item, format, left_out):
                found.setdefault(file.path, file)
        else:
            new = list(_streams(item))
            streams += new
            spellings += [stream.name for stream in new]
    if len({stream.name for stream in streams}) < len(streams):
        streams = [replace(stream, name=f"{stream.name[:-1]}:{i}>") for i, stream in enumerate(streams)]
    files = tuple(found[path] for path in sorted(found))
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
        text_field=text_field,
        template=template,
        separator=separator,
        limit=limit,
        on_error=on_error,
        left_out=tuple(sorted(path for path in left_out if path not in found)),
        looked_at=looked_at,
    )


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
