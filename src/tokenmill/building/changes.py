"""Describe, in words, how a build differs from an earlier one and what it will cost."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenmill.building.build_plan import BuildPlan
from tokenmill.building.machine import usable_cores
from tokenmill.building.source_index import SourceIndex
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.selection.choosing import proof_seconds, reference_rate
from tokenmill.encoding.tokenizer import Tokenizer
from tokenmill.formatting import first_names, human, human_time, some
from tokenmill.reading import Source
from tokenmill.user_cache import cache_folder, read_cached, write_cached

MIN_SPEED_BYTES = 4 << 20  # in smaller builds, starting up takes most of the time
DEFAULT_SPEED = 50_000_000  # bytes per second and core, until a build with the tokenizer was measured


@dataclass(slots=True)
class FileChanges:
    """How the input files differ from those of an earlier build."""

    files: int
    changed: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    retried: list[str] = field(default_factory=list)  # could not be read the last time

    def describe(self) -> list[str]:
        lines = []
        if self.changed:
            lines.append(f"{len(self.changed):,} of {some(self.files, 'file')} changed: {first_names(self.changed)}")
        for names, what in ((self.added, "added"), (self.removed, "removed"), (self.retried, "tried again")):
            if names:
                lines.append(f"{some(len(names), 'file')} {what}: {first_names(names)}")
        if self.renamed:
            pairs = [f"{os.path.basename(old)} -> {os.path.basename(new)}" for old, new in self.renamed]
            lines.append(f"{some(len(pairs), 'file')} renamed: {first_names(pairs)}")
        return lines


def describe_changes(plan: BuildPlan) -> list[str]:
    """What changed in the files since the last finished build of the same inputs, and the cost. Empty if there was none."""
    if plan.limit is not None or not plan.earlier_contents:
        return []
    changes = _content_changes(plan).describe()
    moved = "; ".join(_moves(plan))
    if moved:
        changes = [f"{moved}: {changes[0] if changes else 'no file changed'}", *changes[1:]]
    return [*changes, describe_cost(plan)] if changes else []


def _moves(plan: BuildPlan) -> list[str]:
    """The branches of datasets on the Hub that lead to another commit than in the last build."""
    earlier = plan.index.commits
    return [
        f"{pin.dataset}: {pin.revision} has moved from {earlier[pin.dataset][:7]} to {pin.commit[:7]}"
        for pin in plan.source._pins
        if earlier.get(pin.dataset, pin.commit) != pin.commit
    ]


def _content_changes(plan: BuildPlan) -> FileChanges:
    now: dict[str, dict[Any, str | None]] = {}
    for task in plan.tasks:
        for piece in task.pieces:
            now.setdefault(piece.file.place, {})[piece.start, piece.stop] = piece.content
    earlier: dict[str, dict[Any, str | None]] = {path: {**found} for path, found in plan.earlier_contents.items()}
    gone: defaultdict[frozenset[Any], list[str]] = defaultdict(list)  # by content
    for path, contents in earlier.items():
        if path not in now:
            gone[frozenset(contents.items())].append(path)
    changes = FileChanges(files=len(now))
    for path, contents in now.items():
        if path in earlier:
            if contents != earlier[path]:
                (changes.changed if earlier[path] else changes.retried).append(path)
            continue
        old_paths = gone[frozenset(contents.items())]
        if old_paths:
            changes.renamed.append((old_paths.pop(0), path))
        else:
            changes.added.append(path)
    changes.removed = [path for paths in gone.values() for path in paths]
    return changes


def describe_file_stats(index: SourceIndex, source: Source) -> list[str]:
    """How files differ by size and times from those of an index; for builds that encode all of them anyway."""
    now = {file.place: (file.size, file.tag) for file in source.files}
    earlier = {path: (entry.size, entry.tag) for path, entry in index.files.items()}
    return FileChanges(
        files=len(now),
        changed=[path for path in now if path in earlier and now[path] != earlier[path]],
        added=[path for path in now if path not in earlier],
        removed=[path for path in earlier if path not in now],
    ).describe()


def describe_cost(plan: BuildPlan) -> str:
    """What has to be done: "rebuilding 3 files, 1.2 GB, about 6 s"."""
    if plan.limit is not None:
        return "a trial, which stops early"
    pieces = plan.new_pieces
    nbytes = sum(piece.nbytes for piece in pieces)
    files = len({piece.file.path for piece in pieces})
    if plan.source._streams:
        return "text that is not in files, and is not known before it is read"
    if not files:
        return "nothing to tokenize"
    verb = "building" if files == len(plan.source.files) else "rebuilding"
    return f"{verb} {some(files, 'file')}, {human(nbytes)}, about {human_time(_seconds(plan, nbytes))}"


def _seconds(plan: BuildPlan, nbytes: int) -> float:
    """How long it takes to build this much input, from the last build with this tokenizer on this machine if there is one."""
    tokenizer = plan.tokenizer
    measured = read_cached(_speed_path(tokenizer))
    speed = measured["speed"] if measured is not None else DEFAULT_SPEED * usable_cores()
    if tokenizer._needs_proof(plan.weight):
        return proof_seconds(tokenizer._definition) + nbytes / speed
    if tokenizer._leaves_to_reference(plan.weight):
        speed = reference_rate(tokenizer._definition)
    return nbytes / speed


def record_speed(tokenizer: Tokenizer, nbytes: int, seconds: float) -> None:
    """Remember how fast a build was, for `describe_cost`. Small builds are ignored."""
    if nbytes >= MIN_SPEED_BYTES:
        write_cached(_speed_path(tokenizer), {"speed": nbytes / max(seconds, 1e-3)})


def _speed_path(tokenizer: Tokenizer) -> Path:
    return cache_folder() / "speeds" / f"{tokenizer.fingerprint}.json"


def describe_options(old: dict[str, Any], new: dict[str, Any], *, ignore: tuple[str, ...] = ()) -> list[str]:
    """The options that differ: "eos: was 0, now None"."""
    return [
        f"{name}: was {old.get(name)!r}, now {new.get(name)!r}"
        for name in sorted(old.keys() | new.keys())
        if name not in ignore and old.get(name) != new.get(name)
    ]


def describe_tokenizer(old: Definition, new: Definition) -> str:
    """How two tokenizers differ: "tokenizer: 2 added tokens differ (<|im_start|>, <|im_end|>)"."""
    differences: list[str] = []
    if old.reference != new.reference:
        differences.append(f"reference library: was {old.reference}, now {new.reference}")
    elif old.json is not None and new.json is not None:
        differences += _json_differences(json.loads(old.json), json.loads(new.json))
    if old.special_tokens != new.special_tokens:
        differences.append(f"special_tokens: was {old.special_tokens!r}, now {new.special_tokens!r}")
    if not differences:
        names = sorted(old.files.keys() | new.files.keys())
        differences += [f"{name} differs" for name in names if old.files.get(name) != new.files.get(name)][:1]
    return f"tokenizer: {', '.join(differences) or 'it changed'}"


def _json_differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """How two tokenizer.json differ."""
    added = _differing_keys(_added_tokens(old), _added_tokens(new))
    differences = [_differ(len(added), "added token", added)] if added else []
    if old["model"]["type"] != new["model"]["type"]:
        return [*differences, f"model: was {old['model']['type']}, now {new['model']['type']}"]
    words = sorted(_differing_keys(_vocabulary(old["model"]), _vocabulary(new["model"])))
    if words:
        differences.append(_differ(len(words), "vocabulary token", words))
    merges = _differing_merges(old["model"], new["model"])
    if merges:
        differences.append(_differ(merges, "merge"))
    differences += [f"{part} differs" for part in ("normalizer", "pre_tokenizer") if old.get(part) != new.get(part)]
    settings = sorted(old["model"].keys() - {"vocab", "merges"})
    return differences + [f"model.{key} differs" for key in settings if old["model"][key] != new["model"].get(key)]


def _added_tokens(body: dict[str, Any]) -> dict[str, Any]:
    return {token["content"]: token for token in body["added_tokens"] or ()}


def _vocabulary(model: dict[str, Any]) -> dict[str, Any]:
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        return vocabulary
    return {word: [i, score] for i, (word, score) in enumerate(vocabulary)}


def _differing_keys(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return [key for key in {**old, **new} if old.get(key) != new.get(key)]


def _differing_merges(old: dict[str, Any], new: dict[str, Any]) -> int:
    """How many merges differ, position by position. A merge is a pair or a string, depending on the file's version."""
    before, after = _merges(old), _merges(new)
    changed = [pair for pair in zip(before, after, strict=False) if pair[0] != pair[1]]
    return len(changed) + abs(len(before) - len(after))


def _merges(model: dict[str, Any]) -> list[str]:
    return ["".join(merge) if isinstance(merge, list) else merge for merge in model.get("merges") or ()]


def _differ(count: int, noun: str, names: list[str] | None = None) -> str:
    """(2, "merge") -> "2 merges differ"."""
    shown = f" ({first_names(names)})" if names else ""
    return f"{some(count, noun)} differ{'s' if count == 1 else ''}{shown}"
