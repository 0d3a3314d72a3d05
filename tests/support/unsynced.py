"""A model of a file system that loses what was not synced.

`Recorder` notes what a program does to the files of a folder, through the hook of io/disk.py. `states_after` lists folders
that a power failure after some of these steps may leave behind:

- A write, or a change of a file's size, lasts once the file has been synced. Until then it is there, lost, cut short, or as
  many zeros.
- A new, changed or removed name lasts once its folder has been synced. Until then it is there or not, each for itself. A
  rename is one step: never both names, never none. It lasts once the folder of the new name has been synced.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tokenmill.io import disk

ROOT = 0
LOST, CUT, ZEROS, KEPT = "lost", "cut", "zeros", "kept"


@dataclass(frozen=True)
class Step:
    """A change of the file or folder `node`: "put" or "drop" its name, "move" it, "write" to it, "resize" it; or "sync" it."""

    what: str
    node: int
    folder: int = -1  # and `name`: where the node is, or is moved to
    name: str = ""
    old: tuple[int, str] = (-1, "")  # the folder and name it is moved from
    offset: int = 0  # of a write; or the new size
    data: bytes = b""

    @property
    def lasts_with(self) -> int:
        """The file or folder that must be synced for this to last."""
        return self.node if self.what in ("write", "resize") else self.folder


@dataclass
class Tree:
    """Folders and files, by number. A file with two names is a hard link."""

    folders: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})
    files: dict[int, bytes] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)  # of files that have not changed, in nanoseconds

    def copy(self) -> Tree:
        return Tree({node: dict(names) for node, names in self.folders.items()}, dict(self.files), dict(self.times))

    def find(self, *names: str) -> int | None:
        node: int | None = ROOT
        for name in names:
            node = None if node is None else self.folders.get(node, {}).get(name)
        return node

    def apply(self, step: Step) -> None:
        if step.what in ("write", "resize"):
            content = self.files.get(step.node, b"").ljust(step.offset, b"\0")
            end = step.offset + len(step.data)
            rest = content[end:] if step.what == "write" else b""
            self.files[step.node] = content[: step.offset] + step.data + rest
            self.times.pop(step.node, None)
        elif step.what in ("put", "move", "drop"):
            was, gone = step.old if step.what == "move" else (step.folder, step.name)
            if step.what != "put" and self.folders[was].get(gone) == step.node:
                del self.folders[was][gone]
            if step.what != "drop":
                self.folders[step.folder][step.name] = step.node

    def contents(self, node: int = ROOT, path: str = "") -> dict[str, bytes | None]:
        """The content of every file, by path; None for a folder."""
        found: dict[str, bytes | None] = {}
        for name, inner in self.folders[node].items():
            if inner in self.folders:
                found |= {f"{path}{name}": None, **self.contents(inner, f"{path}{name}/")}
            else:
                found[f"{path}{name}"] = self.files.get(inner, b"")
        return found

    def write(self, folder: Path) -> None:
        """Make a folder on disk consist of this tree and nothing else."""
        shutil.rmtree(folder, ignore_errors=True)
        written: dict[int, Path] = {}

        def write_folder(node: int, path: Path) -> None:
            path.mkdir()
            for name, inner in self.folders[node].items():
                if inner in self.folders:
                    write_folder(inner, path / name)
                elif inner in written:
                    os.link(written[inner], path / name)
                else:
                    written[inner] = path / name
                    written[inner].write_bytes(self.files.get(inner, b""))
                    if inner in self.times:
                        os.utime(written[inner], ns=(self.times[inner], self.times[inner]))

        write_folder(ROOT, folder)


def scan(folder: Path) -> Tree:
    """The tree of a folder on disk."""
    tree, numbers = Tree(), {}

    def scan_folder(path: Path, node: int) -> None:
        for entry in sorted(path.iterdir()):
            info = entry.stat()
            number = tree.folders[node][entry.name] = numbers.setdefault(info.st_ino, len(numbers) + 1)
            if entry.is_dir():
                tree.folders[number] = {}
                scan_folder(entry, number)
            else:
                tree.files[number], tree.times[number] = entry.read_bytes(), info.st_mtime_ns

    scan_folder(folder, ROOT)
    return tree


class Recorder:
    """A hook of io/disk.py that makes every call, and notes what it changed below a folder. `now` is the folder's tree."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.steps = folder, list[Step]()
        self.start = scan(folder)
        self.now = self.start.copy()
        self.open: dict[int, int] = {}  # the number of each file that is open for writing, by descriptor

    def __call__(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        result = function(*arguments)
        note = getattr(self, f"note_{name}", None)
        if note is not None and path_of(arguments[0]).is_relative_to(self.folder):
            note(result, *arguments)
        return result

    def note_open(self, file: disk.File, path: Path, mode: str) -> None:
        if mode == "rb":
            return
        node = self._node(path)
        if node is None:
            node = self._new_node()
            self.now.files[node] = b""
            self._add(Step("put", node, *self._place(path)))
        elif "w" in mode:
            self._add(Step("resize", node))
        self.open[file.fileno()] = node

    def note_write(self, written: int, file: disk.File, data: memoryview) -> None:
        self._add(Step("write", self.open[file.fileno()], offset=file.tell() - written, data=bytes(data[:written])))

    def note_truncate(self, size: int, file: disk.File, _: int) -> None:
        self._add(Step("resize", self.open[file.fileno()], offset=size))

    def note_sync(self, _: None, file: Any) -> None:
        self._add(Step("sync", self.open[file.fileno()]))

    def note_sync_folder(self, _: None, path: Path) -> None:
        self._add(Step("sync", self._known(path)))

    def note_mkdir(self, _: None, path: Path) -> None:
        node = self._new_node()
        self.now.folders[node] = {}
        self._add(Step("put", node, *self._place(path)))

    def note_link(self, _: None, path: Path, target: Path) -> None:
        self._add(Step("put", self._known(path), *self._place(target)))

    def note_replace(self, _: None, path: Path, target: Path) -> None:
        self._add(Step("move", self._known(path), *self._place(target), old=self._place(path)))

    def note_unlink(self, _: None, path: Path) -> None:
        self._add(Step("drop", self._known(path), *self._place(path)))

    note_rmdir = note_unlink

    def _add(self, step: Step) -> None:
        self.now.apply(step)
        self.steps.append(step)

    def _node(self, path: Path) -> int | None:
        return self.now.find(*path.relative_to(self.folder).parts)

    def _known(self, path: Path) -> int:
        node = self._node(path)
        assert node is not None, f"{path} was made without io/disk.py"
        return node

    def _place(self, path: Path) -> tuple[int, str]:
        """The number of the folder that a path is in, and the name in that folder."""
        return self._known(path.parent), path.name

    def _new_node(self) -> int:
        return max(*self.now.folders, *self.now.files, 0) + 1


def path_of(target: Any) -> Path:
    """The path that a call is about. `target` is its first argument: a path or an open file."""
    return Path(target if isinstance(target, str | os.PathLike) else target.name)


def states_after(recorder: Recorder, count: int, draws: int = 0) -> Iterator[Tree]:
    """Trees that a power failure after the first `count` steps may leave: five extremes, and `draws` by chance."""
    steps = recorder.steps[:count]
    synced: set[int] = set()
    lasts = [False] * count
    for index in reversed(range(count)):
        if steps[index].what == "sync":
            synced.add(steps[index].node)
        lasts[index] = steps[index].lasts_with in synced
    extremes = [(KEPT, KEPT), (LOST, LOST), (KEPT, LOST), (KEPT, ZEROS), (LOST, KEPT)]
    fates: list[Callable[[Step], str]] = [lambda step, fate=fate: fate[step.data != b""] for fate in extremes]
    fates += [_drawn(random.Random(f"{count} {number}")) for number in range(draws)]
    for fate in fates:
        tree = recorder.start.copy()
        for node in recorder.now.folders:
            tree.folders.setdefault(node, {})
        for step, is_lasting in zip(steps, lasts, strict=True):
            _survive(tree, step, KEPT if is_lasting else fate(step))
        yield tree


def _drawn(chance: random.Random) -> Callable[[Step], str]:
    return lambda step: chance.choice([LOST, CUT, ZEROS, KEPT] if step.data else [LOST, KEPT])


def _survive(tree: Tree, step: Step, fate: str) -> None:
    if fate == CUT:
        step = replace(step, data=step.data[: len(step.data) // 2])
    elif fate == ZEROS:
        step = replace(step, data=bytes(len(step.data)))
    if fate != LOST:
        tree.apply(step)


def all_states(recorder: Recorder, draws: int = 0) -> list[tuple[Tree, bool]]:
    """The different trees after any number of steps, and whether all steps were made."""
    found: dict[bytes, tuple[Tree, bool]] = {}
    for count in range(len(recorder.steps) + 1):
        for tree in states_after(recorder, count, draws):
            key = hashlib.sha256(repr(sorted(tree.contents().items())).encode()).digest()
            found[key] = tree, count == len(recorder.steps)
    return list(found.values())
