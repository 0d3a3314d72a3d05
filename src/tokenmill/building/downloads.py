"""Files on the Hugging Face Hub are downloaded while others are encoded: tasks are handed out as their files arrive."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from tokenmill.building.plan import Task
from tokenmill.events import Downloading, Listener
from tokenmill.io import disk
from tokenmill.io.atomic import writing
from tokenmill.reading import SourceFile
from tokenmill.reading.hub_copies import dataset_folder, make_copy, needs_download
from tokenmill.store.lease import Lease, hold

DOWNLOADS_AT_ONCE = 4
STOP_SECONDS = 5.0  # to wait for downloads that were ended; one that waits for an answer ends later
FILES_AHEAD = 16  # that are downloaded, or on their way, before a task needs them


@contextmanager
def downloading(tasks: Sequence[Task], emit: Listener) -> Iterator[Iterable[Task]]:
    """The tasks of a build. Each is handed out when there are copies of its files; those of the next ones are on their way.

    As long as this lasts, no copy that the tasks read is removed from the cache.
    """
    files = {piece.file.path: piece.file for task in tasks for piece in task.pieces if piece.held is None}
    leases = _hold_datasets(file for file in files.values() if file.copies)
    missing = [file for file in files.values() if needs_download(file)]
    with ExitStack() as stack:
        if not missing:
            yield tasks
        else:
            nbytes = sum(file.size for file in missing)
            emit(Downloading(files=len(missing), bytes=nbytes, folder=missing[0].copies))
            downloads = Downloads(missing)
            stack.callback(downloads.stop)
            yield _as_they_arrive(tasks, downloads)
    del leases


def _as_they_arrive(tasks: Sequence[Task], downloads: Downloads) -> Iterator[Task]:
    for task in tasks:
        for piece in task.pieces:
            downloads.wait_for(piece.file)
        yield task


def _hold_datasets(files: Iterable[SourceFile]) -> list[Lease | None]:
    leases = []
    for folder in sorted({dataset_folder(file) for file in files}):
        with writing(folder):
            disk.make_folder(folder)
        leases.append(hold(folder))
    return leases


class _Stopped(BaseException):
    """A download is not wanted any more. No error, so that nothing tries again."""


class Downloads:
    """Downloads files in order, several at a time, and never many more than are wanted."""

    def __init__(self, files: Sequence[SourceFile]) -> None:
        self._files = files
        self._numbers = {file.path: number for number, file in enumerate(files)}
        self._changed = threading.Condition()
        self._begun = 0  # files whose download has begun
        self._wanted = 0  # the last file that a task has waited for
        self._done: set[int] = set()
        self._problem: BaseException | None = None
        self._is_stopped = False
        self._threads = [
            threading.Thread(target=self._download, name="download", daemon=True)
            for _ in range(min(DOWNLOADS_AT_ONCE, len(files)))
        ]
        for thread in self._threads:
            thread.start()

    def wait_for(self, file: SourceFile) -> None:
        """Wait until there is a copy of a file. Raises the error of a download that failed, of this file or another one."""
        number = self._numbers.get(file.path)
        if number is None:
            return
        with self._changed:
            self._wanted = max(self._wanted, number)
            self._changed.notify_all()
            while number not in self._done:
                if self._problem is not None:
                    raise self._problem
                self._changed.wait()

    def stop(self) -> None:
        """Begin no other download, and end those on their way, which removes what they have written."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        deadline = time.monotonic() + STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _download(self) -> None:
        while (number := self._next()) is not None:
            try:
                make_copy(self._files[number], self._check_stopped)
            except _Stopped:
                return
            except BaseException as error:
                with self._changed:
                    self._problem = self._problem or error
                    self._changed.notify_all()
                return
            with self._changed:
                self._done.add(number)
                self._changed.notify_all()

    def _next(self) -> int | None:
        """The number of the next file to download, when it is near enough; None if there is nothing more to do."""
        with self._changed:
            while not self._is_over and self._begun > self._wanted + FILES_AHEAD:
                self._changed.wait()
            if self._is_over:
                return None
            self._begun += 1
            return self._begun - 1

    @property
    def _is_over(self) -> bool:
        return self._is_stopped or self._problem is not None or self._begun >= len(self._files)

    def _check_stopped(self, nbytes: int) -> None:
        if self._is_stopped:
            raise _Stopped
