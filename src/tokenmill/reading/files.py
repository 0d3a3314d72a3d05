"""The values every reader works on: a source, its files, and pieces of them."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Never
from weakref import WeakSet

from tokenmill.display import one_line, shown
from tokenmill.errors import UsageError
from tokenmill.formatting import human, some
from tokenmill.habits import Answering
from tokenmill.io.object_store import is_url
from tokenmill.options import ReadOptions
from tokenmill.reading.hub_names import Pin, without_commit
from tokenmill.reading.template import Template

STAT = "stat."  # prefix of the tag of a local file


class SourceFile(NamedTuple):
    """One file to read, and its state when the source was described.

    `path` is a path or an URL. `tag` changes whenever the content may have changed. For a local file it is made from its
    times and inode; for an object it is its ETag; for spooled text it is a hash of the content. `name` is shown instead of
    the path where the text was spooled, and `first_row` is its place in the whole. `copies` is the folder for copies of files
    on the Hub, if they are copied.
    """

    path: str
    size: int
    tag: str
    format: str
    codec: str | None = None
    name: str = ""
    first_row: int = 0
    copies: str = ""

    @property
    def shown(self) -> str:
        """The name for messages."""
        return self.name or self.path

    @property
    def is_remote(self) -> bool:
        """Whether the path is an URL."""
        return "://" in self.path and is_url(self.path)

    @property
    def place(self) -> str:
        """The path without the commit of a dataset on the Hub: the same for all versions of a file."""
        return without_commit(self.path)

    @property
    def spooled(self) -> bool:
        return bool(self.name)


class Ignored(NamedTuple):
    """Something in an input folder that is not read, and why."""

    path: str
    reason: str


def by_reason(ignored: Iterable[Ignored]) -> dict[str, int]:
    """How many are ignored for each reason, the most frequent first."""
    return dict(Counter(reason for _, reason in ignored).most_common())


def tag_of(info: os.stat_result) -> str:
    """Modification time, inode, change time. The change time also changes with a rename and cannot be set back."""
    return f"{STAT}{info.st_mtime_ns}.{info.st_ino}.{info.st_ctime_ns}"


class RawRow(NamedTuple):
    """What a row of a file holds, before it is parsed."""

    text: str
    is_cut: bool  # whether there is more of it


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a file that can be read on its own. What `start` and `stop` count depends on the format: bytes of a file
    of lines, row groups of a parquet file, record batches of an Arrow file. `stop` None means to the end.

    `content` is the digest of the piece, if known. `held` names a piece of a finished shard with the same content, as
    (path of the shard without suffix, number of the piece in it).
    """

    file: SourceFile
    start: int = 0
    stop: int | None = None
    nbytes: int = 0  # approximate bytes on disk, for progress and balance
    content: str | None = None
    held: tuple[str, int] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the piece is the whole file."""
        return self.start == 0 and self.stop is None

    @property
    def is_first(self) -> bool:
        """Whether nothing comes before the piece, neither in its file nor in the stream that the file is a segment of."""
        return self.start == 0 and self.file.first_row == 0


STDIN = "<stdin>"
_BEGUN: WeakSet[Any] = WeakSet()  # iterators of which something was taken


@dataclass(frozen=True, slots=True)
class Stream:
    """Text that is not in a file: standard input, a table, an iterable. A build writes it to files, a segment at a time."""

    name: str
    data: Any = field(repr=False, compare=False)
    begun: list[bool] = field(default_factory=list, repr=False, compare=False)

    @property
    def is_standard_input(self) -> bool:
        """Whether it is a stream of bytes: the only such one."""
        return self.name.startswith(STDIN[:-1])  # a second one has a number in its name

    def begin(self) -> None:
        """Called before the first item is taken. An iterator cannot be read again from its start."""
        if self.begun or any(each is self.data for each in _BEGUN):
            raise UsageError(f"{self.name} was read before, and can be read only once: pass a new one")
        if self.data is sys.stdin.buffer or getattr(self.data, "__next__", None) is not None:
            self.begun.append(True)
            with suppress(TypeError):  # an iterator of a list cannot be remembered without keeping it
                _BEGUN.add(self.data)


@dataclass(frozen=True)
class Source(ReadOptions, Answering):
    """A corpus to read: which files, and how the text of a document is found in them. Made by `tm.read`."""

    files: tuple[SourceFile, ...]  # what is read, in this order
    inputs: tuple[str, ...]  # as they were given
    _streams: tuple[Stream, ...] = ()  # text that is not in files
    ignored: tuple[Ignored, ...] = ()  # what is in input folders and is not read, with the reason
    _looked_at: int = 0  # when the files were listed, in nanoseconds
    _pins: tuple[Pin, ...] = ()  # the commits of datasets on the Hub

    def __repr__(self) -> str:
        text = [f"template={shown(self.template)}"] if self.template else [f"text_field={shown(self.text_field)}"]
        streams = [some(len(self._streams), "stream")] if self._streams else []
        files = [f"{some(len(self.files), 'file')} of {human(self.num_bytes)}"] if self.files or not streams else []
        return one_line(
            "Source", *files, *streams, f"format={self.format}", *text, f"inputs={shown(list(self.inputs))}"
        )

    def __len__(self) -> int:
        raise TypeError("documents are counted when they are read: tm.estimate(source, tokenizer), or len(store)")

    def __iter__(self) -> Never:
        raise TypeError("a source has no texts before it is read: tm.build(source, tokenizer, max_documents=9).text(0)")

    def __bool__(self) -> bool:
        return True

    @property
    def ignored_by_reason(self) -> dict[str, int]:
        """How many files and folders are ignored for each reason, the most frequent first."""
        return by_reason(self.ignored)

    @property
    def num_bytes(self) -> int:
        """The size of all files, as they are on disk."""
        return sum(file.size for file in self.files)

    @property
    def _text_template(self) -> Template:
        """How the text of a document is made from the fields of a record."""
        return Template(self.template) if self.template else Template.of_field(self.text_field)

    @property
    def _fields(self) -> tuple[str, ...]:
        """The fields that the text of a document is made from."""
        return self._text_template.fields

    def _selection(self) -> dict[str, str]:
        """The options that change which files the inputs stand for, as far as they were given."""
        options = {"split": self.split, "config": self.config, "revision": self.revision}
        return {name: value for name, value in options.items() if value is not None}

    def _options(self) -> dict[str, Any]:
        """The options that change which documents the files give."""
        options = {
            "format": self.format,
            "text_field": None if self.template else self.text_field,
            "template": self.template,
            "separator": self.separator,
        }
        if self.separator and self.separator_newlines != "keep":
            options["separator_newlines"] = self.separator_newlines
        if self.delimiter is not None:
            options["delimiter"] = self.delimiter
        return options
