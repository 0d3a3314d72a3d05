"""The log of a build, read on as it grows."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from threading import Lock

from tokenmill.io import disk
from tokenmill.io.checked_lines import checked_record
from tokenmill.watching.history import History, Run

LOG = "events.jsonl"
CHUNK = 4 << 20
CLOCK_SECONDS = 5.0  # by which two clocks of one machine may differ


class FollowedLog:
    """The history of the builds in a folder. `update` reads what was written since; a log that was replaced is read anew."""

    def __init__(self) -> None:
        self.history = History()
        self._file: tuple[int, int] | None = None  # device and inode
        self._position = 0
        self._lock = Lock()
        self.is_gone = False  # with its folder

    def update(self, folder: Path) -> bool:
        """Whether there was something new."""
        with self._lock:
            try:
                return self._read_on(folder / LOG)
            except OSError:  # it does not exist yet, or no longer: what is known stays, unless the folder is gone
                if self._file is None or folder.exists():
                    return False
                self.history, self._file, self._position, self.is_gone = History(), None, 0, True
                return True

    def _read_on(self, path: Path) -> bool:
        info = path.stat()
        if (info.st_dev, info.st_ino) != self._file or info.st_size < self._position:
            self.history, self._file, self._position = History(), (info.st_dev, info.st_ino), 0
        if info.st_size == self._position:
            return False
        before = self._position
        with disk.open_to_read(path) as lines:
            lines.seek(self._position)
            while data := lines.read(CHUNK):
                end = data.rfind(b"\n") + 1 or (len(data) if len(data) == CHUNK else 0)  # no event is that long
                if not end:  # a line is being written
                    break
                for line in data[:end].splitlines(keepends=True):
                    self.history.add(checked_record(line))
                self._position += end
                lines.seek(self._position)
        return self._position > before


def is_alive(run: Run | None) -> bool | None:
    """Whether the process of a build exists. None if that cannot be known here."""
    begun = None if run is None else run.begun
    if begun is None or begun.get("host") != socket.gethostname():
        return None
    import psutil

    try:
        process = psutil.Process(int(begun["pid"]))
        if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
            return False
        return bool(process.create_time() <= begun["time"] + CLOCK_SECONDS)
    except psutil.NoSuchProcess:
        return False
    except (psutil.Error, ValueError):
        return None
