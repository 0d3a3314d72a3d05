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
    separator: bool = False  # whether the separator option applies


REGISTERED = {
    entry.name: entry
    for entry in (
        Registration("text", "text", (".txt", ".text"), separator=True),
        Registration("lines", "text", ()),
        Registration("jsonl", "jsonl", (".jsonl", ".ndjson", ".json")),
        Registration("parquet", "parquet", (".parquet", ".pq"), expansion=3, codecs=False),
        Registration("arrow", "arrow", (".arrow", ".feather", ".ipc"), codecs=False),
        Registration("csv", "csv_tsv", (".csv",)),
        Registration("tsv", "csv_tsv", (".tsv",)),
    )
}
COMPRESSED_EXPANSION = 3  # bytes of text per byte of a compressed file, about


@cache
def get_format(name: str) -> Format:
    """The format of this name; imports its module."""
    module = import_module(f"{__name__}.{REGISTERED[name].module}")
    found: Format = module.FORMATS[name]
    return found


def text_weight(file: SourceFile) -> int:
    """About how many bytes of text a file has. Does not open it."""
    return file.size * (COMPRESSED_EXPANSION if file.codec else REGISTERED[file.format].expansion)


__all__ = ["REGISTERED", "Entry", "Format", "Part", "Registration", "get_format", "text_weight"]
