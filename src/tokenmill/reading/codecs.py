"""Bytes out of files: plain, compressed, and always complaining when a stream ends before its end."""

from __future__ import annotations

import bz2
import io
import lzma
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import pyarrow as pa

from tokenmill.errors import InputError
from tokenmill.reading.content_hash import Content, Watched
from tokenmill.reading.discover import SourceFile, tag_of


@contextmanager
def open_stream(file: SourceFile, content: Content | None = None) -> Iterator[BinaryIO]:
    """The file's bytes, decompressed. A truncated, damaged or changed file is an InputError that names it.

    `content` gets the bytes of the file as it is, to its end.
    """
    with reading(file), open(file.path, "rb", buffering=0) as raw:
        check_unchanged(file, raw.fileno())
        if content is None:
            yield decompressed(file, raw)
        else:
            watched = Watched(cast(BinaryIO, raw), content)
            yield decompressed(file, watched)
            watched.read_on()
            content.finish()
        check_unchanged(file, file.path)


@contextmanager
def reading(file: SourceFile) -> Iterator[None]:
    """Turn whatever a library raises about a broken file into an InputError that names it."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # each codec and format has errors of its own
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise InputError(f"{file.shown}: {reason[:300]}") from error


def check_unchanged(file: SourceFile, where: int | str) -> None:
    """A file that changed since it was planned would give a shard nobody asked for."""
    if file.spooled:
        return
    info = os.stat(where)
    if (info.st_size, tag_of(info).split(".")[:3]) != (file.size, file.tag.split(".")[:3]):  # a new name is no change
        raise InputError(f"{file.shown}: changed while it was being read; run the build again")


def decompressed(file: SourceFile, raw: io.RawIOBase) -> BinaryIO:
    if file.codec is None:
        return cast(BinaryIO, raw)
    if file.size == 0:
        raise InputError(f"{file.shown}: empty, which no {file.codec} file can be")
    if file.codec == "gzip":
        from isal import igzip

        return cast(BinaryIO, igzip.GzipFile(fileobj=raw, mode="rb"))
    if file.codec in ("xz", "bz2"):
        decoder = lzma.LZMADecompressor if file.codec == "xz" else bz2.BZ2Decompressor
        return cast(BinaryIO, io.BufferedReader(_Streams(raw, decoder), 1 << 20))
    # Arrow raises where a stream ends early, which the codecs' own stream readers do not all do.
    return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), file.codec))


class _Streams(io.RawIOBase):
    """An xz or bz2 file, every stream of it. Python's own readers take damage between two for the end of the file."""

    def __init__(self, raw: io.RawIOBase, decoder: Callable[[], Any]) -> None:
        self.raw, self.new_decoder, self.decoder, self.at_end = raw, decoder, decoder(), False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.at_end:
            data = b""
            if self.decoder.eof:
                self._next_stream()
                continue
            if self.decoder.needs_input:
                data = self.raw.read(1 << 18)
                if not data:
                    raise EOFError("the compressed file ends before its end")
            out = self.decoder.decompress(data, len(buffer))
            if out:
                buffer[: len(out)] = out
                return len(out)
        return 0

    def _next_stream(self) -> None:
        """Past the padding (zeros) between streams to the next one, or to the end."""
        left = self.decoder.unused_data.lstrip(b"\0")
        while not left:
            fresh = self.raw.read(1 << 18)
            if not fresh:
                self.at_end = True
                return
            left = fresh.lstrip(b"\0")
        self.decoder = self.new_decoder()
        self.raw.seek(-len(left), os.SEEK_CUR)
