"""A recipe as it is written: plain values, each with the place where it stands. No YAML ever makes an object here.

YAML has traps: `no` is false, `017` is 15, `1:30` is 90, `1e3` is a text. So values keep what was typed, and the kinds of
keys (`kinds.py`) decide what that may mean.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from tokenmill.errors import UsageError

_TAG = "tag:yaml.org,2002:"
_SCALARS = {"str", "int", "float", "bool", "null", "timestamp", "merge", "value"}
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9_]*)")  # what people and YAML both read as this number; not 017, 0x1F, 1:30
_DEEPEST = 20


@dataclass(frozen=True, slots=True)
class Written:
    """A value, and where it stands. Lists and mappings hold more of these.

    `typed` is what stands there, where YAML has an opinion on it: a scalar without quotes. `escapes` says whether a \\n
    in it would have become the end of a line.
    """

    value: Any
    where: str
    typed: str | None = None
    escapes: bool = True

    def wrong(self, name: str, what: str) -> UsageError:
        """The error that says: here, this key, this value, and what is wrong with it."""
        if self.typed == "":
            return self.error(f"{name} has no value; give it one, or leave it out")
        return self.error(f"{name}: {self.shown} {what}")

    def error(self, text: str) -> UsageError:
        return UsageError(f"{self.where}: {text}")

    @property
    def shown(self) -> str:
        if isinstance(self.value, dict | list):
            return "a mapping" if isinstance(self.value, dict) else "a list"
        shown = repr(self.value) if self.typed is None else self.typed
        return shown if len(shown) <= 80 else f"{shown[:77]}..."


def from_file(path: str | os.PathLike[str]) -> Written:
    """A recipe from a YAML file."""
    name = os.fsdecode(path)
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read the recipe {name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text (byte {error.start}); a recipe is YAML") from error
    return _read(text, lambda line: f"{name}, line {line}", name)


def from_text(text: str, where: str) -> Written:
    """A value as it is typed behind --set: a scalar, or a list or mapping in brackets."""
    return _read(text, lambda _: where, where)


def from_python(value: Any, where: str, depth: int = 0) -> Written:
    """A recipe, or a part of one, that is held as plain Python values."""
    if isinstance(value, os.PathLike):
        value = os.fsdecode(value)
    if depth > _DEEPEST:
        raise UsageError(f"{where}: lists and mappings within each other, without end")
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise UsageError(f"{where}: {name!r} is not a key; keys are text")
        return Written({name: from_python(each, where, depth + 1) for name, each in value.items()}, where)
    if isinstance(value, list | tuple):
        return Written([from_python(each, where, depth + 1) for each in value], where)
    if value is None or isinstance(value, str | bool):
        return Written(value, where)
    if isinstance(value, Real):  # numpy's numbers too
        return Written(int(value) if isinstance(value, Integral) else float(value), where)
    raise UsageError(
        f"{where}: a {type(value).__name__} stands there; a recipe holds text, numbers, lists and mappings"
    )


def with_set(recipe: Written, changes: Mapping[str, Any] | Iterable[str] | None) -> Written:
    """The same recipe with some keys set: {"pack.seq_len": 8192}, or texts as --set takes them, "pack.seq_len=8192"."""
    if changes is None:
        return recipe
    if isinstance(changes, Mapping):
        for name, value in changes.items():
            recipe = _set(recipe, str(name).split("."), from_python(value, f"set {name}"), str(name))
        return recipe
    for text in [changes] if isinstance(changes, str) else changes:
        name, equals, typed = str(text).partition("=")
        if not equals:
            raise UsageError(f"--set {text}: write the key and its value, as --set pack.seq_len=8192")
        recipe = _set(recipe, name.strip().split("."), from_text(typed, f"--set {text}"), name.strip())
    return recipe


def _set(recipe: Written, way: list[str], value: Written, name: str) -> Written:
    """A copy along the way: with YAML's aliases, a part may stand in two places."""
    if not all(way):
        raise value.error(f"{name!r} is not the name of a key, as pack.seq_len")
    if not way[1:]:
        inner = value
    else:
        below = recipe.value.get(way[0]) if isinstance(recipe.value, dict) else None
        if below is None or (below.value is None and below.typed == ""):
            below = Written({}, value.where)
        if isinstance(below.value, str | list) and name.split(".")[0] == "sources":  # a path on its own
            below = replace(below, value={"path": below})
        if not isinstance(below.value, dict):
            raise value.error(f"there is nothing to set below {way[0]}, which is {below.shown} ({below.where})")
        inner = _set(below, way[1:], value, name)
    return replace(recipe, value={**recipe.value, way[0]: inner})


def _read(text: str, where: Any, name: str) -> Written:
    import yaml

    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)  # nodes only: nothing is constructed, whatever its tag
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        said = ", ".join(part for part in (error.context, error.problem) if part)
        raise UsageError(f"{where(line)}: this is not YAML: {said}{_hint(said, text, line)}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UsageError(f"{where(line)}: a character that YAML does not allow, {chr(error.character)!r}") from error
    except RecursionError as error:
        raise UsageError(f"{name}: lists or mappings within each other, far too deep") from error
    if node is None:
        raise UsageError(f"{name} has no value" if name.startswith("--set") else f"{name} is empty")
    return _written(node, where, {}, 0)


def _hint(said: str, text: str, line: int) -> str:
    if "'\\t'" in said or "\t" in text.split("\n")[line - 1][:1]:
        return "; indent by spaces, not by tabs"
    if "alias" in said or "cannot start any token" in said:
        return '; what begins with * & @ % or ` is written in quotes, as "*.jsonl"'
    if "mapping values are not allowed" in said:
        return "; is a line indented too far, or a text with a colon not in quotes?"
    return ""


def _written(node: Any, where: Any, known: dict[int, Written], depth: int) -> Written:
    """A node of YAML, and those below it; what an alias names again is made once."""
    import yaml

    here = where(node.start_mark.line + 1)
    if depth > _DEEPEST:
        raise UsageError(f"{here}: lists and mappings within each other, without end")
    if id(node) in known:
        return known[id(node)]
    kind = node.tag.removeprefix(_TAG)
    wanted = _SCALARS if isinstance(node, yaml.ScalarNode) else {"seq", "map"}
    if kind not in wanted:
        raise UsageError(f"{here}: the tag {node.tag.replace(_TAG, '!!')} is not taken; a recipe holds plain values")
    if isinstance(node, yaml.MappingNode):
        found = Written(_mapping(node, where, known, depth), here)
    elif isinstance(node, yaml.SequenceNode):
        found = Written([_written(each, where, known, depth + 1) for each in node.value], here)
    else:
        plain = node.style is None
        found = Written(_scalar(kind, node.value), here, node.value if plain else None, node.style == '"')
    known[id(node)] = found
    return found


def _mapping(node: Any, where: Any, known: dict[int, Written], depth: int) -> dict[str, Written]:
    found: dict[str, Written] = {}
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        name = key.value  # as typed: a source may be called no
        if not isinstance(name, str) or not name:
            raise UsageError(f"{where(line)}: a key is a word; this is a list, a mapping or nothing")
        if name == "<<":
            raise UsageError(f"{where(line)}: << is not taken; write the keys out, or use an alias for the whole value")
        if name in found:
            raise UsageError(f"{where(line)}: {name} stands twice, in line {lines[name]} too; leave one out")
        lines[name] = line
        found[name] = replace(_written(value, where, known, depth + 1), where=where(line))
    return found


def _scalar(kind: str, typed: str) -> Any:
    """The value people mean; where YAML's reading is another one, what was typed."""
    if kind == "null":
        return None
    if kind == "bool":
        return typed.lower() in ("yes", "true", "on")
    if kind == "int" and _WHOLE.fullmatch(typed):
        return int(typed)
    if kind == "float":
        try:
            return float(typed)
        except ValueError:
            return typed
    return typed
