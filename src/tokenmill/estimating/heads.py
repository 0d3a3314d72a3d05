"""The heads of files that can only be read from the start, such as compressed files, copied to a temporary folder."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any, BinaryIO, cast

from tokenmill.errors import UsageError
from tokenmill.reading import SourceFile
from tokenmill.reading.codecs import decompressed, open_input, reading
from tokenmill.reading.content_hash import Wrapped

READ_BYTES = 1 << 16  # decompressed at a time: how often the consumed input is noted


def copy_head(file: SourceFile, to: Path, most_bytes: int, until: float) -> tuple[int, int]:
    """Copy the start of a file, decompressed, up to `most_bytes` or the time `until`, and cut it at the last line end.

    Returns the bytes that were copied and the size of the whole text, extrapolated from the input consumed so far.
    """
    with reading(file), _MarkedFile(open_input(file)) as raw, open(to, "wb", buffering=0) as out:
        stream = cast(BinaryIO, raw) if file.codec is None else decompressed(file, cast(BinaryIO, raw))
        at_end, disk_full, last = False, None, b""
        while not raw.has_ratio or (raw.given < most_bytes and time.monotonic() < until):
            data = stream.read(READ_BYTES)
            if not data:
                at_end = True
                break
            try:
                out.write(data)
            except OSError as error:  # the temporary folder is full: use what fits
                disk_full = error
                break
            raw.given += len(data)
            last = data
        copied = raw.given
        if not at_end and b"\n" in last:
            copied -= len(last) - last.rfind(b"\n") - 1
            out.truncate(copied)
        text = copied if at_end or not raw.has_ratio else max(raw.text_of(file.size), copied)
        if disk_full is not None and not raw.has_ratio:
            raise UsageError(
                f"no space in {to.parent} for the heads of compressed files: {disk_full.strerror}; set TMPDIR"
            ) from disk_full
    return copied, text


class _MarkedFile(Wrapped):
    """A compressed file that notes, at every read, how far it was read and how much text came out by then.

    A decompressor reads ahead. At the time it asks for more input, it has passed on nearly all text of what it had.
    """

    def __init__(self, raw: BinaryIO) -> None:
        super().__init__(raw)
        self.given = 0
        self.marks: list[tuple[int, int]] = []

    def read(self, size: int | None = -1, /) -> bytes:
        self.marks.append((self.tell(), self.given))
        return self.raw.read(-1 if size is None else size) or b""

    def readinto(self, buffer: Any, /) -> int:
        self.marks.append((self.tell(), self.given))
        return cast(io.FileIO, self.raw).readinto(buffer) or 0

    def close(self) -> None:
        self.raw.close()
        super().close()

    @property
    def has_ratio(self) -> bool:
        """Whether it is known how much text came from the first input: more was read since."""
        return bool(self.marks) and self.marks[-1][0] > 0 and self.marks[-1][1] > 0

    def text_of(self, size: int) -> int:
        """How much text the whole file has, at the ratio between the first mark and the last."""
        marks = [mark for mark in self.marks if mark[1]]
        (first, before), (last, after) = marks[0] if len(marks) > 2 else (0, 0), marks[-1]
        if last == first:
            first, before = 0, 0
        return round(after + (size - last) * (after - before) / (last - first))
