"""The formats that can be read. This table is the only place that knows their names.

A format is a module of this package with a dict FORMATS of its `Format` objects by name. Modules are imported when the
first file of their kind is read: a build of JSON lines does not load the parquet reader.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import NamedTuple

from tokenmill.reading.files import SourceFile
from tokenmill.reading.formats.base import Entry, Format, Part


class Registration(NamedTuple):
    """What must be known of a format before a file is read."""

    name: str
    module: str
    suffixes: tuple[str, ...]
    expansion: int = 1  # bytes of text per byte of an uncompressed file, about
    codecs: bool = True  # whether a whole file may be compressed with gzip, zstd, ...
    option: str = ""  # the option that no other kind of file takes
    may_crash: bool = False  # whether a damaged file can crash the library that reads it: it is read in a child process


REGISTERED = {
    entry.name: entry
    for entry in (
        Registration("text", "text", (".txt", ".text"), option="separator"),
        Registration("lines", "text", ()),
        Registration("jsonl", "jsonl", (".jsonl", ".ndjson", ".json")),
        Registration("parquet", "parquet", (".parquet", ".pq"), expansion=3, codecs=False, may_crash=True),
        Registration("arrow", "arrow", (".arrow", ".feather", ".ipc"), codecs=False, may_crash=True),
        Registration("csv", "csv_tsv", (".csv",), option="delimiter"),
        Registration("tsv", "csv_tsv", (".tsv",), option="delimiter"),
    )
}
COMPRESSED_EXPANSION = 3  # bytes of text per byte of a compressed file, about


_this_process_may_crash = False


def expect_crashes() -> None:
    """Read all files in this process from now on: it is one whose death is survived."""
    global _this_process_may_crash
    _this_process_may_crash = True


def get_format(name: str) -> Format:
    """The format of this name. Files that may crash the library that reads them are read in a child process."""
    if _this_process_may_crash or not REGISTERED[name].may_crash:
        return read_in_this_process(name)
    return _isolated(name)


@cache
def read_in_this_process(name: str) -> Format:
    """The format of this name; imports its module."""
    module = import_module(f"{__name__}.{REGISTERED[name].module}")
    found: Format = module.FORMATS[name]
    return found


@cache
def _isolated(name: str) -> Format:
    from tokenmill.reading.isolation import IsolatedFormat

    return IsolatedFormat(read_in_this_process(name))


def text_weight(file: SourceFile) -> int:
    """About how many bytes of text a file has. Does not open it."""
    return file.size * (COMPRESSED_EXPANSION if file.codec else REGISTERED[file.format].expansion)


__all__ = [
    "REGISTERED",
    "Entry",
    "Format",
    "Part",
    "Registration",
    "expect_crashes",
    "get_format",
    "read_in_this_process",
    "text_weight",
]
