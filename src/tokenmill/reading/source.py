"""The description of a corpus: which files to read, and how the text of a document is found in them."""

from __future__ import annotations

import glob
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tokenmill.errors import UsageError
from tokenmill.option_types import suggests, values_of
from tokenmill.options import Format, ReadOptions
from tokenmill.reading.discover import files_of
from tokenmill.reading.files import SourceFile
from tokenmill.reading.formats import REGISTERED
from tokenmill.reading.template import Template


@dataclass(frozen=True, slots=True)
class Stream:
    """Text that is not in a file: standard input, a table, an iterable. A build writes it to files before planning."""

    name: str
    data: Any = field(repr=False, compare=False)


@dataclass(frozen=True)
class Source(ReadOptions):
    """A corpus to read: which files, and how the text of a document is found in them."""

    files: tuple[SourceFile, ...]
    inputs: tuple[str, ...]
    streams: tuple[Stream, ...] = ()
    left_out: tuple[str, ...] = ()
    looked_at: int = 0  # when the files were listed, in nanoseconds

    @property
    def num_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that the text of a document is made from."""
        return Template(self.template).fields if self.template else (self.text_field,)

    def options(self) -> dict[str, Any]:
        """The options that change which documents the files give."""
        return {
            "format": self.format,
            "text_field": None if self.template else self.text_field,
            "template": self.template,
            "separator": self.separator,
        }


@suggests
def read(
    *inputs: Any,
    format: Format = "auto",
    text_field: str = "text",
    template: str | None = None,
    separator: str | None = None,
    on_error: Literal["quarantine", "raise"] = "quarantine",
) -> Source:
    """Describe a corpus. Costs one stat per file; nothing is read yet.

    Each input is a path, a glob, a folder (searched recursively), "@list.txt" (one input per line), "-" (standard input),
    an Arrow table, a Hugging Face dataset, or an iterable of strings. Files are read in sorted order, once each.
    """
    options = ReadOptions(
        format=format, text_field=text_field, template=template, separator=separator, on_error=on_error
    )
    _check(options)
    looked_at = time.time_ns()
    if not inputs:
        raise UsageError("nothing to read: give at least one file, glob or folder")
    found = _Inputs(format)
    for item in _flatten(inputs):
        found.add(item)
    files = tuple(found.files[path] for path in sorted(found.files))
    if separator is not None:
        _check_separator(files)
    if not files and not found.streams:
        left_out = len(found.left_out)
        hint = f" ({left_out} files of other kinds were left out; --format takes them)" if left_out else ""
        raise UsageError(f"no file to read in {', '.join(found.spellings)}{hint}")
    return Source(
        files=files,
        inputs=tuple(dict.fromkeys(found.spellings)),
        streams=_distinct(found.streams),
        left_out=tuple(sorted(path for path in found.left_out if path not in found.files)),
        looked_at=looked_at,
        **values_of(ReadOptions, options),
    )


def _check(options: ReadOptions) -> None:
    """Refuse options that exclude each other, and a template that cannot be used."""
    if options.separator and options.format != "auto" and not REGISTERED[options.format].separator:
        raise UsageError(f"separator applies to plain text, not to format={options.format!r}")
    if options.template is not None:
        Template(options.template)


def _check_separator(files: Iterable[SourceFile]) -> None:
    for file in files:
        if not REGISTERED[file.format].separator:
            raise UsageError(
                f"separator applies to plain text, but {file.path} is read as {file.format}; pass --format text"
            )


class _Inputs:
    """What the inputs stand for: files by path, streams, how each input is written, and files that were left out."""

    def __init__(self, format: str) -> None:
        self.format = format
        self.files: dict[str, SourceFile] = {}
        self.streams: list[Stream] = []
        self.spellings: list[str] = []
        self.left_out: list[str] = []

    def add(self, item: Any) -> None:
        if isinstance(item, Source):
            raise UsageError("read() takes paths and data, not a Source")
        if not isinstance(item, (str, os.PathLike)):
            self._add_streams(_streams(item))
        elif os.fspath(item) == "-":
            self._add_streams([Stream("<stdin>", sys.stdin.buffer)], spelling="-")
        else:
            path = os.fspath(item)
            self.spellings.append(_spelling(path))
            for file in files_of(path, self.format, self.left_out):
                self.files.setdefault(file.path, file)

    def _add_streams(self, streams: Iterable[Stream], spelling: str | None = None) -> None:
        for stream in streams:
            self.streams.append(stream)
            self.spellings.append(spelling or stream.name)


def _distinct(streams: list[Stream]) -> tuple[Stream, ...]:
    """The streams with numbered names, if two have the same name."""
    if len({stream.name for stream in streams}) == len(streams):
        return tuple(streams)
    return tuple(replace(stream, name=f"{stream.name[:-1]}:{i}>") for i, stream in enumerate(streams))


def _flatten(inputs: Iterable[Any]) -> Iterator[Any]:
    """A list of paths is one input per path; a list of anything else is data."""
    for item in inputs:
        if isinstance(item, (list, tuple)) and item and all(isinstance(x, os.PathLike) for x in item):
            yield from item
            continue
        path = _first_path(item) if isinstance(item, (list, tuple)) else None
        if path is not None:
            raise UsageError(
                f"a list of strings is a list of documents, but {path!r} names a file: for files"
                " pass tm.read(*paths) or pathlib.Path objects; for documents pass iter(list)"
            )
        yield item


def _first_path(items: Sequence[Any]) -> str | None:
    """The first of 1,000 items that is the path of a file or a glob with matches; texts of a corpus rarely are."""
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
            f"cannot read a {type(item).__name__}: pass paths, an Arrow table, a dataset or an iterable of strings"
        )


def _spelling(item: str) -> str:
    """An input as an absolute path, so that ./data and data are the same."""
    if item.startswith("@"):
        return "@" + os.path.abspath(item[1:])
    return os.path.abspath(item)
