"""Slices of a build: separate processes, on any machines, that make disjoint parts of one plan into one store.

Every slice makes the same plan and does every N-th task of it. Whoever finds that all slices are done finishes the store, with an
ordinary build that has nothing left to encode. A slice that was lost has left receipts for what it did; it is run again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tokenmill.building.build_plan import BuildPlan
from tokenmill.building.plan import Task
from tokenmill.building.source_index import listing_digest
from tokenmill.errors import UsageError
from tokenmill.io import disk, object_store
from tokenmill.io.atomic import canonical, digest, write_atomically
from tokenmill.io.object_store import join
from tokenmill.option_types import option_name

FOLDER = "slices"


@dataclass(frozen=True, slots=True)
class Slice:
    """Part `number` of `count`, from 0."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Slice:
        """Read "K/N"."""
        match = re.fullmatch(r"\s*(\d{1,9})\s*/\s*(\d{1,9})\s*", text)
        number, count = (int(match[1]), int(match[2])) if match is not None else (0, 0)
        if not 0 <= number < count:
            raise UsageError(
                f"{option_name('slice', text)} is not K/N with K from 0 to N-1: the first of eight slices is 0/8, the last 7/8"
            )
        return cls(number, count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def of(self, plan: BuildPlan) -> list[Task]:
        """The tasks of this slice that are not done. Which task is whose depends only on its place in the plan."""
        place: dict[str, int] = {}
        for number, task in enumerate(plan.tasks):
            place.setdefault(task.id, number)
        return [task for task in plan.todo if place[task.id] % self.count == self.number]


class SliceNotes(Protocol):
    """Where slices note that they are done, for the others to see. `key` stands for the input and the options."""

    def note(self, done: Slice, key: str) -> None: ...

    def names(self) -> set[str]:
        """All notes."""
        ...

    def forget(self) -> None:
        """Remove all notes: the store is finished."""
        ...


def slices_key(plan: BuildPlan) -> str:
    """What the slices of one build have in common: their input and options."""
    return digest(canonical([plan.build_key, listing_digest(plan.source)]))


class NotesInFolder:
    """Notes in the folder of a store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    def note(self, done: Slice, key: str) -> None:
        disk.make_folder(self._folder)
        write_atomically(self._folder / _name(done.number, done.count, key), b"")

    def names(self) -> set[str]:
        return {path.name for path in disk.matching(self._folder)}

    def forget(self) -> None:
        disk.remove_tree(self._folder)


class NotesInBucket:
    """Notes beside a store in a bucket."""

    def __init__(self, url: str) -> None:
        self._url = join(url, FOLDER)

    def note(self, done: Slice, key: str) -> None:
        object_store.write(join(self._url, _name(done.number, done.count, key)), b"done")

    def names(self) -> set[str]:
        return {each.url.rpartition("/")[2] for each in object_store.listing(self._url)}

    def forget(self) -> None:
        object_store.delete([each.url for each in object_store.listing(self._url)])


def missing_slices(notes: SliceNotes, count: int, key: str) -> tuple[list[int], list[int]]:
    """The slices that have not noted that they are done; and those of them that were done with other input or options."""
    names = notes.names()
    missing = [number for number in range(count) if _name(number, count, key) not in names]
    others = {int(name.partition("-")[0]) for name in names if re.fullmatch(rf"\d+-of-{count}-[0-9a-f]+", name)}
    return missing, [number for number in missing if number in others]


def _name(number: int, count: int, key: str) -> str:
    return f"{number}-of-{count}-{key}"
