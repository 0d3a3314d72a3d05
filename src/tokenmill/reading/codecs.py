"""Bytes from plain and compressed files. A stream that ends early is always an error."""

from __future__ import annotations

import bz2
import io
import lzma
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import pyarrow as pa

from tokenmill.errors import InputError, TokenmillError
from tokenmill.io.object_store import ConditionError
from tokenmill.reading.content_hash import Content, Watched, range_reader
from tokenmill.reading.files import SourceFile, tag_of
from tokenmill.reading.hub_copies import existing_copy

CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz", ".lz4": "lz4"}


def open_input(file: SourceFile) -> BinaryIO:
    """The bytes of a file as they are stored: on disk, in a local copy, or behind an URL."""
    path = local_path(file)
    if path is None:
        from tokenmill.io.object_file import ObjectFile

        return cast(BinaryIO, ObjectFile(file.path, file.size, file.tag, range_reader(file)))
    return cast(BinaryIO, open(path, "rb", buffering=0))


def local_path(file: SourceFile) -> str | None:
    """Where a file is on this machine: its path, or a copy of a file on the Hub. None if it is elsewhere."""
    return existing_copy(file) if file.is_remote else file.path


def expect(raw: Any, ranges: Iterable[tuple[int, int]]) -> None:
    """Have ranges of a remote file fetched before they are read. For other files there is nothing to do."""
    if isinstance(raw, io.RawIOBase) and hasattr(raw, "expect"):
        raw.expect(ranges)


@contextmanager
def open_raw(file: SourceFile, start: int = 0, stop: int | None = None) -> Iterator[BinaryIO]:
    """The bytes of a file as they are stored. A file that cannot be read or that changed is an InputError that names it.

    `start` and `stop` say which of them will be read; others may be read too.
    """
    with reading(file), open_input(file) as raw:
        if file.is_remote:
            expect(raw, [(start, file.size if stop is None else stop)])
            yield raw  # every request says which version of the object it means
            return
        check_unchanged(file, raw.fileno())
        yield raw
        check_unchanged(file, file.path)


@contextmanager
def open_stream(
    file: SourceFile, content: Content | None = None, start: int = 0, stop: int | None = None
) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed. A truncated file is an InputError too.

    `content` gets the bytes as they are stored, to the end of the file. `start` and `stop` are as for `open_raw`.
    """
    with open_raw(file, start, stop) as raw:
        if content is None:
            yield decompressed(file, raw)
        else:
            watched = Watched(raw, content)
            yield decompressed(file, cast(BinaryIO, watched))
            watched.read_rest()


def hash_file(file: SourceFile, content: Content) -> None:
    """Hash all bytes of a file as they are stored."""
    with open_raw(file) as raw:
        Watched(raw, content).read_rest()


@contextmanager
def reading(file: SourceFile) -> Iterator[None]:
    """Turn any exception of a library about a broken file into an InputError that names it."""
    try:
        yield
    except TokenmillError:
        raise
    except ConditionError:
        raise InputError(f"{file.shown}: changed since it was listed; run the build again") from None
    except Exception as error:  # each codec and format has errors of its own
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise InputError(f"{file.shown}: {reason[:300]}") from error


def check_unchanged(file: SourceFile, where: int | str) -> None:
    """Raise InputError if a file changed since the source was described. `where` is its path or descriptor."""
    if file.spooled:
        return
    info = os.stat(where)
    # The change time is left out: it also changes with a rename.
    if (info.st_size, tag_of(info).split(".")[:3]) != (file.size, file.tag.split(".")[:3]):
        raise InputError(f"{file.shown}: changed while it was being read; run the build again")


def decompressed(file: SourceFile, raw: BinaryIO) -> BinaryIO:
    """A stream of the decompressed bytes of `raw`, by the codec of the file."""
    if file.codec is None:
        return raw
    if file.size == 0:
        raise InputError(f"{file.shown}: empty; a {file.codec} file has at least a header")
    if file.codec == "gzip":
        from isal import igzip

        return cast(BinaryIO, igzip.GzipFile(fileobj=raw, mode="rb"))
    if file.codec in ("xz", "bz2"):
        decoder = lzma.LZMADecompressor if file.codec == "xz" else bz2.BZ2Decompressor
        return cast(BinaryIO, io.BufferedReader(_Streams(raw, decoder), 1 << 20))
    # Arrow raises where a stream ends early; not all stream readers of the codecs do.
    return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), file.codec))


class Continued(io.RawIOBase):
    """The rest of a stream, after its first bytes were read."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data, self._head = self._head[: len(buffer)], self._head[len(buffer) :]
        buffer[: len(data)] = data
        return len(data) + (cast(io.FileIO, self._rest).readinto(memoryview(buffer)[len(data) :]) or 0)


class _Streams(io.RawIOBase):
    """An xz or bz2 file with all of its streams. Python's own readers take damage between two for the end of the file."""

    def __init__(self, raw: BinaryIO, decoder: Callable[[], Any]) -> None:
        self.raw, self.new_decoder, self.decoder, self.at_end = raw, decoder, decoder(), False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.at_end:
            if self.decoder.eof:
                self._next_stream()
                continue
            data = self.raw.read(1 << 18) if self.decoder.needs_input else b""
            if self.decoder.needs_input and not data:
                raise EOFError("the compressed file is truncated")
            out = self.decoder.decompress(data, len(buffer))
            if out:
                buffer[: len(out)] = out
                return len(out)
        return 0

    def _next_stream(self) -> None:
        """Skip the padding (zeros) between streams, up to the next stream or the end."""
        rest = self.decoder.unused_data.lstrip(b"\0")
        while not rest:
            fresh = self.raw.read(1 << 18)
            if not fresh:
                self.at_end = True
                return
            rest = fresh.lstrip(b"\0")
        self.decoder = self.new_decoder()
        self.raw.seek(-len(rest), os.SEEK_CUR)
