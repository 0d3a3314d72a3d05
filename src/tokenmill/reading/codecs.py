"""Bytes out of files: plain, compressed, and always complaining when a stream ends before its end."""

from __future__ import annotations

import io
import lzma
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import pyarrow as pa

from tokenmill.errors import InputError
from tokenmill.reading.source import SourceFile


@contextmanager
def open_stream(file: SourceFile) -> Iterator[BinaryIO]:
    """The file's bytes, decompressed. A truncated, damaged or changed file is an InputError that names it."""
    with reading(file), open(file.path, "rb", buffering=0) as raw:
        check_unchanged(file, raw.fileno())
        yield _decompressed(file, raw)
        check_unchanged(file, raw.fileno())


@contextmanager
def reading(file: SourceFile) -> Iterator[None]:
    """Turn whatever a library raises about a broken file into an InputError that names it."""
    try:
        yield
    except InputError:
        raise
    except (OSError, EOFError, lzma.LZMAError, zlib.error, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise InputError(f"{file.shown}: {reason[:300]}") from error


def check_unchanged(file: SourceFile, descriptor: int) -> None:
    """A file that changed since it was planned would give a shard nobody asked for."""
    if file.spooled:
        return
    info = os.fstat(descriptor)
    if (info.st_size, str(info.st_mtime_ns)) != (file.size, file.tag):
        raise InputError(f"{file.shown}: changed while it was being read; run the build again")


def _decompressed(file: SourceFile, raw: io.FileIO) -> BinaryIO:
    if file.codec is None:
        return cast(BinaryIO, raw)
    if file.size == 0:
        raise InputError(f"{file.shown}: empty, which no {file.codec} file can be")
    if file.codec == "gzip":
        from isal import igzip

        return cast(BinaryIO, igzip.GzipFile(fileobj=raw, mode="rb"))
    if file.codec == "xz":
        return cast(BinaryIO, lzma.LZMAFile(raw))
    # Arrow raises where a stream ends early, which the codecs' own stream readers do not all do.
    return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), file.codec))
