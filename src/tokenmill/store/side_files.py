"""The files beside the shards that a manifest lists, such as sources.json, and how they are replaced together with it.

A new version waits as NAME.next until the manifest that lists it is in place, and then takes its name. A reader uses whichever of
the two has the digest that the manifest lists, so at any moment it sees all files of the old store or all of the new one.
"""

from __future__ import annotations

from pathlib import Path

from tokenmill.io import disk
from tokenmill.io.atomic import digest, writing
from tokenmill.store.manifest import Manifest

NEXT = ".next"
QUARANTINE = "quarantine.jsonl"


def side_file(folder: Path, manifest: Manifest, name: str) -> Path:
    """The file of this name that belongs to a manifest."""
    waiting = folder / (name + NEXT)
    return waiting if _belongs(waiting, manifest, name) else folder / name


def settle(folder: Path, manifest: Manifest) -> None:
    """Give the waiting files that belong to the manifest in place their names, and remove the others."""
    with writing(folder):
        for waiting in disk.matching(folder, f"*{NEXT}"):
            name = waiting.name.removesuffix(NEXT)
            if _belongs(waiting, manifest, name):
                disk.replace(waiting, folder / name)
            else:
                disk.unlink(waiting)
        disk.sync_folder(folder)


def _belongs(waiting: Path, manifest: Manifest, name: str) -> bool:
    try:
        return digest(disk.read_bytes(waiting)) == manifest.files.get(name)
    except FileNotFoundError:
        return False
