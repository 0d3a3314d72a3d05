"""Local copies of files on the Hugging Face Hub, in a cache that `huggingface_hub` writes.

    <cache>/datasets/ORG--NAME/                                  all that is kept of a dataset
    <cache>/datasets/ORG--NAME/datasets--ORG--NAME/blobs/<id>    a file, named by its sha256 or git id

Each dataset has a cache of its own, because that library may share files among the datasets of one cache. A copy appears
under its name when it is complete, and becomes read-only when it was compared with its id. Copies are shared by all commits
that have the file, and by all processes: those that want the same file at once wait for one download.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.errors import BuildError
from tokenmill.reading.hub_client import download
from tokenmill.reading.hub_files import HUB
from tokenmill.reading.hub_names import PREFIX, parts_of

if TYPE_CHECKING:
    from tokenmill.reading.files import Source, SourceFile

DATASETS = "datasets"  # in the cache
_READ_BYTES = 1 << 20


def is_on_hub(file: SourceFile) -> bool:
    return file.path.startswith(PREFIX)


def with_copies_in(source: Source, cache: Path) -> Source:
    """A source whose files on the Hub are copied into a cache; the same source if it is streamed."""
    if source.streaming or not any(map(is_on_hub, source.files)):
        return source
    folder = str(cache / DATASETS)
    files = tuple(file._replace(copies=folder) if is_on_hub(file) else file for file in source.files)
    return replace(source, files=files)


def dataset_folder(file: SourceFile) -> Path:
    """The folder of all copies of a dataset."""
    return Path(file.copies, parts_of(file.path)[0].replace("/", "--"))


def existing_copy(file: SourceFile) -> str | None:
    """The path of the copy of a file on the Hub, if there is one."""
    if not file.copies:
        return None
    path = _place(file)
    try:
        return str(path) if path.stat().st_size == file.size else None
    except OSError:
        return None


def needs_download(file: SourceFile) -> bool:
    """Whether a file is to be copied, and there is no copy that was compared with its id."""
    return bool(file.copies) and (existing_copy(file) is None or not _is_compared(_place(file)))


def make_copy(file: SourceFile, note: Callable[[int], None]) -> None:
    """Download a file, unless there is a copy; and compare it with its id. `note` is called with the bytes of each chunk."""
    path = _place(file)
    for is_last in (False, True):
        if existing_copy(file) is None:
            found = download(file.path, dataset_folder(file), note)
            if not path.exists():  # a server that names files by something else
                os.replace(os.path.realpath(found), path)
        if _is_compared(path) or _matches(path, file):
            path.chmod(path.stat().st_mode & ~0o222)
            return
        for each in (os.path.realpath(path), path, _pointer(file)):
            with suppress(OSError):
                os.unlink(each)
        if is_last:
            raise BuildError(
                f"{file.path}: what was downloaded, twice, differs from what the Hub says it is (size or checksum);"
                " check the proxy and HF_ENDPOINT. What is finished is kept"
            )


def _repository(file: SourceFile) -> Path:
    """The folder that `huggingface_hub` makes for a dataset."""
    folder = dataset_folder(file)
    return folder / f"datasets--{folder.name}"


def _place(file: SourceFile) -> Path:
    return _repository(file) / "blobs" / file.tag.removeprefix(HUB)


def _pointer(file: SourceFile) -> Path:
    """The link to a copy that `huggingface_hub` makes: while it exists, nothing is downloaded."""
    _, commit, path = parts_of(file.path)
    return _repository(file) / "snapshots" / commit / path


def _is_compared(path: Path) -> bool:
    return not path.stat().st_mode & 0o222


def _matches(path: Path, file: SourceFile) -> bool:
    """Whether a file has the size and the id that the Hub says. A git id covers a header with the size."""
    size = path.stat().st_size
    wanted = file.tag.removeprefix(HUB)
    hasher = hashlib.sha256() if len(wanted) == 64 else hashlib.sha1(b"blob %d\0" % size)
    with open(path, "rb", buffering=0) as data:
        while block := data.read(_READ_BYTES):
            hasher.update(block)
    return size == file.size and hasher.hexdigest() == wanted
