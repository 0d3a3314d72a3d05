"""YAML as plain values, each with the line it is on. No tag ever constructs an object.

YAML has traps: `no` is false, `017` is 15, `1:30` is 90, `1e3` is text. Numbers are read as people mean them, and values keep
what was typed, so that errors can show it and explain what YAML made of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from tokenmill.errors import MissingInputError, UsageError, WrongTypeError
from tokenmill.option_kinds import Kind, Refused, Whole

_TAG = "tag:yaml.org,2002:"
_SCALARS = {"str", "int", "float", "bool", "null", "timestamp", "merge", "value"}
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9_]*)")  # numbers that people and YAML read alike; not 017, 0x1F, 1:30
_EXPONENT = re.compile(r"[-+]?[0-9]*\.?[0-9]+[eE][-+]?[0-9]+")  # numbers that YAML 1.1 takes for text
_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # as YAML counts lines
_BOOLEANS = ("yes", "no", "on", "off", "y", "n", "true", "false")
_DEEPEST = 20


@dataclass(frozen=True, slots=True)
class YamlValue:
    """A value and its place. Lists and mappings hold further YamlValues.

    `typed` is the text of a scalar without quotes, which YAML may have read as something else. `escapes` is whether a \\n
    in the text would have become a line end.
    """

    value: Any
    where: str
    typed: str | None = None
    escapes: bool = True

    def checked(self, kind: Kind, name: str) -> Any:
        """The value, if it is of this kind; else UsageError with the place, the key and a hint about YAML."""
        value = [item.value for item in self.value] if isinstance(self.value, list) else self.value
        try:
            return kind.check(value)
        except Refused as refused:
            raise self.wrong(name, f"{refused}{self._hint(kind)}") from None

    def _hint(self, kind: Kind) -> str:
        """What YAML made of the text, if that is why it was refused."""
        value, typed = self.value, self.typed
        if kind.written_as == "number":
            if isinstance(value, float) and value.is_integer() and isinstance(kind, Whole):
                return f"; write {int(value)}"
            in_quotes = isinstance(value, str) and typed is None and re.fullmatch(r"[-+.\d_eE]+", value)
            return "; write it without quotes" if in_quotes else ""
        if kind.written_as != "text" or typed is None or value is None or isinstance(value, str):
            return ""
        if typed.lower() in _BOOLEANS:
            return f": YAML reads {str(value).lower()} there; write text such as this in quotes"
        return "; write a number that is meant as text in quotes"

    def wrong(self, name: str, what: str) -> UsageError:
        """The error for a value: its place, its key, the value and what is wrong with it."""
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


def from_file(path: str | os.PathLike[str]) -> YamlValue:
    """Read a YAML file."""
    name = os.fsdecode(path)
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        kind = MissingInputError if isinstance(error, FileNotFoundError) else UsageError
        raise kind(f"cannot read the recipe {name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text (byte {error.start}); a recipe is YAML") from error
    return _read(text, name, lines=True)


def from_python(value: Any, where: str, depth: int = 0) -> YamlValue:
    """Convert a recipe, or a part of one, from plain Python values."""
    if isinstance(value, os.PathLike):
        value = os.fsdecode(value)
    if depth > _DEEPEST:
        raise UsageError(f"{where}: lists and mappings are nested without end")
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise UsageError(f"{where}: {name!r} is not a key; keys are text")
        return YamlValue({name: from_python(each, where, depth + 1) for name, each in value.items()}, where)
    if isinstance(value, list | tuple):
        return YamlValue([from_python(each, where, depth + 1) for each in value], where)
    if value is None or isinstance(value, str | bool):
        return YamlValue(value, where)
    if isinstance(value, Real):  # numpy's numbers too
        return YamlValue(int(value) if isinstance(value, Integral) else float(value), where)
    raise WrongTypeError(
        f"{where}: a recipe cannot hold a {type(value).__name__}, only text, numbers, lists and mappings"
    )


def with_set(recipe: YamlValue, changes: Mapping[str, Any] | Iterable[str] | None) -> YamlValue:
    """The recipe with some keys set: {"pack.seq_len": 8192}, or texts as for --set, "pack.seq_len=8192"."""
    if changes is None:
        return recipe
    if isinstance(changes, Mapping):
        for name, value in changes.items():
            recipe = _set(recipe, str(name).split("."), from_python(value, f"set {name}"), str(name))
        return recipe
    for text in [changes] if isinstance(changes, str) else changes:
        name, equals, typed = str(text).partition("=")
        if not equals:
            raise UsageError(f"--set {text}: give a key and its value, as in --set pack.seq_len=8192")
        value = _read(typed, f"--set {text}", lines=False)
        recipe = _set(recipe, name.strip().split("."), value, name.strip())
    return recipe


def _set(recipe: YamlValue, path: list[str], value: YamlValue, name: str) -> YamlValue:
    """Set a key in a copy: with YAML aliases, the same mapping may be in two places."""
    if not all(path):
        raise value.error(f"{name!r} is not the name of a key, such as pack.seq_len")
    if not path[1:]:
        inner = value
    else:
        below = recipe.value.get(path[0]) if isinstance(recipe.value, dict) else None
        if below is None or (below.value is None and below.typed == ""):
            below = YamlValue({}, value.where)
        if isinstance(below.value, str | list) and name.split(".")[0] == "sources":  # the short form of {path: ...}
            below = replace(below, value={"path": below})
        if not isinstance(below.value, dict):
            raise value.error(f"{path[0]} is {below.shown} ({below.where}), which has no keys to set")
        inner = _set(below, path[1:], value, name)
    return replace(recipe, value={**recipe.value, path[0]: inner})


def _read(text: str, name: str, *, lines: bool) -> YamlValue:
    """Read YAML. Places are lines of the file `name`, or the name alone for a value given to --set."""
    import yaml

    def where(line: int) -> str:
        return f"{name}, line {line}" if lines else name

    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)  # nodes only: no tag constructs an object
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise UsageError(f"{where(line)}: this is not YAML: {problem}{_hint(problem, text, line)}") from error
    except yaml.reader.ReaderError as error:
        line = len(_LINE_END.split(text[: error.position]))
        raise UsageError(f"{where(line)}: a character that YAML does not allow, {chr(error.character)!r}") from error
    except RecursionError as error:
        raise UsageError(f"{name}: lists or mappings are nested too deeply") from error
    if node is None:
        raise UsageError(f"{name} has no value" if name.startswith("--set") else f"{name} is empty")
    return _converted(node, where, {}, 0)


def _hint(problem: str, text: str, line: int) -> str:
    if "${" in _LINE_END.split(text)[line - 1]:
        return "; a recipe has no variables: --set pack.seq_len=128 (set=) changes a key"
    if "'\\t'" in problem or _LINE_END.split(text)[line - 1].startswith("\t"):
        return "; indent with spaces, not tabs"
    if "alias" in problem or "cannot start any token" in problem:
        return '; write text that begins with * & @ % or ` in quotes, as in "*.jsonl"'
    if "mapping values are not allowed" in problem:
        return "; is a line indented too far, or a text with a colon not in quotes?"
    return ""


def _converted(node: Any, where: Any, known: dict[int, YamlValue], depth: int) -> YamlValue:
    """Convert a YAML node and those below it. A node that an alias refers to is converted once."""
    import yaml

    here = where(node.start_mark.line + 1)
    if depth > _DEEPEST:
        raise UsageError(f"{here}: lists and mappings are nested without end")
    if id(node) in known:
        return known[id(node)]
    kind = node.tag.removeprefix(_TAG)
    wanted = _SCALARS if isinstance(node, yaml.ScalarNode) else {"seq", "map"}
    if kind not in wanted:
        raise UsageError(f"{here}: the tag {node.tag.replace(_TAG, '!!')} is not supported; a recipe has plain values")
    if isinstance(node, yaml.MappingNode):
        value = YamlValue(_mapping(node, where, known, depth), here)
    elif isinstance(node, yaml.SequenceNode):
        value = YamlValue([_converted(each, where, known, depth + 1) for each in node.value], here)
    else:
        plain = node.style is None
        value = YamlValue(
            _scalar(kind, node.value, plain=plain), here, node.value if plain else None, node.style == '"'
        )
    known[id(node)] = value
    return value


def _mapping(node: Any, where: Any, known: dict[int, YamlValue], depth: int) -> dict[str, YamlValue]:
    values: dict[str, YamlValue] = {}
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        name = key.value  # as typed: a source may be named no
        if not isinstance(name, str) or not name:
            raise UsageError(f"{where(line)}: a key must be a word, not a list, a mapping or nothing")
        if name == "<<":
            raise UsageError(f"{where(line)}: << is not supported; write the keys out, or an alias for the whole value")
        if name in values:
            raise UsageError(f"{where(line)}: {name} is given twice, in line {lines[name]} too; leave one out")
        lines[name] = line
        values[name] = replace(_converted(value, where, known, depth + 1), where=where(line))
    return values


def _scalar(kind: str, typed: str, *, plain: bool) -> Any:
    """The value people mean, or what was typed, where YAML reads something else."""
    if kind == "null":
        return None
    if kind == "bool":
        return typed.lower() in ("yes", "true", "on")
    if kind == "int" and _WHOLE.fullmatch(typed):
        return int(typed)
    if kind == "float" or (kind == "str" and plain and _EXPONENT.fullmatch(typed)):
        try:
            return float(typed)
        except ValueError:
            return typed
    return typed
