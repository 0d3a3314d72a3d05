"""The values every reader works on: a file with its format and identity, and a part of one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

STAT = "stat."  # prefix of the tag of a local file


class SourceFile(NamedTuple):
    """One file to read, and its state when the source was described.

    `tag` changes whenever the content may have changed. For a local file it is made from its times and inode; for
    spooled text it is a hash of the content. `name` is shown instead of the path where the text was spooled.
    """

    path: str
    size: int
    tag: str
    format: str
    codec: str | None = None
    name: str = ""

    @property
    def shown(self) -> str:
        """The name for messages."""
        return self.name or self.path

    @property
    def spooled(self) -> bool:
        return bool(self.name)


def tag_of(info: os.stat_result) -> str:
    """Modification time, inode, change time. The change time also changes with a rename and cannot be set back."""
    return f"{STAT}{info.st_mtime_ns}.{info.st_ino}.{info.st_ctime_ns}"


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
