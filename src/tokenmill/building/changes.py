"""Why there is something to do, in words: what differs between a store and what is asked for now."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokenmill.building.machine import usable_cores
from tokenmill.formatting import human, human_time, some
from tokenmill.user_cache import cache_folder, read_cached, write_cached

if TYPE_CHECKING:
    from tokenmill.building.sequence import Build
    from tokenmill.building.source_index import SourceIndex
    from tokenmill.encoding import Tokenizer
    from tokenmill.encoding.definition import Definition
    from tokenmill.reading import Source

SHOWN = 3  # names of a list that are said
WORTH_A_SPEED = 4 << 20  # bytes; less says more of the start than of the speed
GUESSED_SPEED = 50_000_000  # bytes a second and core, before there was a build with a tokenizer


@dataclass(slots=True)
class Changes:
    """How the files of a build differ from those of the one before, by what they hold."""

    files: int = 0
    changed: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    again: list[str] = field(default_factory=list)  # that could not be read the last time

    def told(self) -> list[str]:
        said = []
        if self.changed:
            said.append(f"{len(self.changed):,} of {some(self.files, 'file')} changed: {_some_of(self.changed)}")
        for names, what in ((self.added, "added"), (self.removed, "removed"), (self.again, "tried again")):
            if names:
                said.append(f"{some(len(names), 'file')} {what}: {_some_of(names)}")
        if self.renamed:
            pairs = [f"{os.path.basename(old)} -> {os.path.basename(new)}" for old, new in self.renamed]
            said.append(f"{some(len(pairs), 'file')} renamed: {_some_of(pairs)}")
        return said


def changes(build: Build) -> Changes:
    """What became of the files since the list that the build began with."""
    now: dict[str, dict[Any, str | None]] = {}
    for piece in (piece for task in build.tasks for piece in task.pieces):
        now.setdefault(piece.file.path, {})[piece.start, piece.stop] = piece.content
    then: dict[str, dict[Any, str | None]] = {path: {**contents} for path, contents in build.before.items()}
    found = Changes(files=len(now))
    gone = {frozenset(contents.items()): path for path, contents in then.items() if path not in now}
    for path, contents in now.items():
        if path in then:
            if contents != then[path]:
                (found.changed if then[path] else found.again).append(path)
        elif (old := gone.pop(frozenset(contents.items()), None)) is not None:
            found.renamed.append((old, path))
        else:
            found.added.append(path)
    found.removed = list(gone.values())
    return found


def looks_told(seen: SourceIndex, source: Source) -> list[str]:
    """How files differ, from outside, from those of a build of another making: all are to be encoded anyway."""
    now = {file.path: (file.size, file.tag) for file in source.files}
    then = {path: (entry.size, entry.tag) for path, entry in seen.files.items()}
    found = Changes(
        files=len(now),
        changed=[path for path in now if path in then and now[path] != then[path]],
        added=[path for path in now if path not in then],
        removed=[path for path in then if path not in now],
    )
    return found.told()


def told(build: Build) -> list[str]:
    """What changed in the files, and what that costs."""
    if build.limit is not None:
        return []
    said = changes(build).told() if build.before else []
    return [*said, cost(build)] if said else []


def cost(build: Build) -> str:
    """What there is to do: "rebuilding 3 files, 1.2 GB, about 6 s"."""
    if build.limit is not None:
        return "a trial, which stops early"
    pieces = [piece for task in build.todo for piece in task.pieces if piece.held is None]
    nbytes = sum(piece.nbytes for piece in pieces)
    files = len({piece.file.path for piece in pieces})
    if not files:
        return "nothing to tokenize"
    seconds = nbytes / speed(build.tokenizer)
    verb = "building" if files == len(build.source.files) else "rebuilding"
    return f"{verb} {some(files, 'file')}, {human(nbytes)}, about {human_time(seconds)}"


def speed(tokenizer: Tokenizer) -> float:
    """Bytes of input a second that a build with this tokenizer did last on this machine, or a guess."""
    kept = read_cached(_speed_path(tokenizer))
    return kept["speed"] if kept is not None else GUESSED_SPEED * usable_cores()


def note_speed(tokenizer: Tokenizer, nbytes: int, seconds: float) -> None:
    if nbytes >= WORTH_A_SPEED:
        write_cached(_speed_path(tokenizer), {"speed": nbytes / max(seconds, 1e-3)})


def _speed_path(tokenizer: Tokenizer) -> Any:
    return cache_folder() / "speeds" / f"{tokenizer.fingerprint}.json"


def options_told(old: dict[str, Any], new: dict[str, Any], but: tuple[str, ...] = ()) -> list[str]:
    """Options that differ, but for some that are told in other words."""
    return [
        f"{name}: {old.get(name)!r} there, {new.get(name)!r} now"
        for name in sorted(old.keys() | new.keys())
        if name not in but and old.get(name) != new.get(name)
    ]


def tokenizer_told(old: Definition, new: Definition) -> str:
    """In what two tokenizers differ: "tokenizer: 2 added tokens differ (<|im_start|>, <|im_end|>)"."""
    said: list[str] = []
    if old.reference != new.reference:
        said.append(f"{old.reference} decides there, {new.reference} now")
    elif old.json is not None and new.json is not None:
        said += _json_told(json.loads(old.json), json.loads(new.json))
    if old.special_tokens != new.special_tokens:
        said.append(f"special tokens in the text are {old.special_tokens!r} there, {new.special_tokens!r} now")
    for name in sorted(old.files.keys() | new.files.keys()):
        if old.files.get(name) != new.files.get(name) and not said:
            said.append(f"{name} differs")
    return f"tokenizer: {', '.join(said) or 'another one'}"


def _json_told(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    said: list[str] = []
    added = [{token["content"]: token for token in body["added_tokens"] or ()} for body in (old, new)]
    names = [name for name in {**added[0], **added[1]} if added[0].get(name) != added[1].get(name)]
    if names:
        said.append(f"{some(len(names), 'added token')} differ{'s' if len(names) == 1 else ''} ({_some_of(names)})")
    before, after = old["model"], new["model"]
    if before["type"] != after["type"]:
        return [*said, f"a {before['type']} model there, {after['type']} now"]
    words = [_vocabulary(model["vocab"]) for model in (before, after)]
    other = [word for word in words[0].keys() | words[1].keys() if words[0].get(word) != words[1].get(word)]
    if other:
        said.append(
            f"{some(len(other), 'token')} of the vocabulary differ{'s' if len(other) == 1 else ''} ({_some_of(sorted(other))})"
        )
    merges = [
        ["".join(merge) if isinstance(merge, list) else merge for merge in m.get("merges") or ()]
        for m in (before, after)
    ]
    moved = sum(a != b for a, b in zip(*merges, strict=False)) + abs(len(merges[0]) - len(merges[1]))
    if moved:
        said.append(f"{some(moved, 'merge')} differ{'s' if moved == 1 else ''}")
    for part in ("normalizer", "pre_tokenizer"):
        if old.get(part) != new.get(part):
            said.append(f"another {part}")
    rest = [{k: v for k, v in model.items() if k not in ("vocab", "merges")} for model in (before, after)]
    said += [f"model.{key} differs" for key in sorted(rest[0]) if rest[0][key] != rest[1].get(key)]
    return said


def _vocabulary(vocabulary: Any) -> dict[str, Any]:
    return (
        vocabulary if isinstance(vocabulary, dict) else {word: [i, score] for i, (word, score) in enumerate(vocabulary)}
    )


def _some_of(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
