"""What a key's value may be: checked with its line, and told to editors as JSON Schema."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

from tokenmill.errors import UsageError
from tokenmill.formatting import parse_size
from tokenmill.recipes.yaml_lines import Written

Schema = dict[str, Any]
_NAMES_TRUTH = ("yes", "no", "on", "off", "y", "n", "true", "false")


class Kind(Protocol):
    def take(self, written: Written, name: str) -> Any:
        """The value, as the verb takes it; a UsageError with its line where it is none."""
        ...

    def schema(self) -> Schema: ...


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a recipe: what it may be, what it says, and whether null (Python's None) may stand there."""

    kind: Kind
    says: str
    none: bool = False

    def take(self, written: Written, name: str) -> Any:
        if written.value is None and self.none and written.typed != "":
            return None
        return self.kind.take(written, name)

    def schema(self) -> Schema:
        schema = self.kind.schema()
        if self.none:
            schema = {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]}
        return {"description": self.says, **schema}


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number."""

    low: int
    high: int

    def take(self, written: Written, name: str) -> int:
        value = written.value
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            number = _number(written)
            hint = (
                f"; write {int(number)}"
                if number is not None and number.is_integer() and type(value) is not int
                else ""
            )
            raise written.wrong(name, f"is not a whole number from {self.low} to {self.high}{hint}{_quoted(written)}")
        return value

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a range; `above` leaves out the low end."""

    low: float
    high: float
    above: bool = False

    def take(self, written: Written, name: str) -> float:
        number = _number(written)
        if number is None or not (self.low < number if self.above else self.low <= number) or number > self.high:
            span = f"{'above' if self.above else 'from'} {self.low:g} {'and up ' if self.above else ''}to {self.high:g}"
            raise written.wrong(name, f"is not a number {span}{_quoted(written)}")
        return written.value if isinstance(written.value, int) else number

    def schema(self) -> Schema:
        return {"type": "number", "exclusiveMinimum" if self.above else "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Flag:
    """Yes or no."""

    def take(self, written: Written, name: str) -> bool:
        if not isinstance(written.value, bool):
            raise written.wrong(name, "is not true or false")
        return written.value

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Text:
    """A text. With `ends`, one that may hold line ends: \\n is one in double quotes only, and is refused in others."""

    ends: bool = False

    def take(self, written: Written, name: str) -> str:
        if not isinstance(written.value, str) or not written.value:
            raise written.wrong(name, f"is not text{_unquoted(written)}")
        if self.ends and not written.escapes and re.search(r"\\[nt]", written.value):
            raise written.wrong(name, r"has \n or \t as two characters; write it in double quotes")
        return written.value

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True, slots=True)
class Texts:
    """A text, or a list of them; always a list for the verb."""

    def take(self, written: Written, name: str) -> list[str]:
        if not isinstance(written.value, list):
            return [Text().take(written, name)]
        if not written.value:
            raise written.wrong(name, "is empty; give one or more")
        return [Text().take(each, f"{name}[{number}]") for number, each in enumerate(written.value)]

    def schema(self) -> Schema:
        return {"anyOf": [Text().schema(), {"type": "array", "items": Text().schema(), "minItems": 1}]}


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of some words."""

    words: tuple[str, ...]

    def take(self, written: Written, name: str) -> str:
        if written.value not in self.words:
            raise written.wrong(name, f"is not one of {', '.join(self.words)}{_unquoted(written)}")
        return str(written.value)

    def schema(self) -> Schema:
        return {"enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class SomeOf:
    """One of some words, or a list of them; the list may be empty."""

    words: tuple[str, ...]

    def take(self, written: Written, name: str) -> tuple[str, ...]:
        each = written.value if isinstance(written.value, list) else [written]
        return tuple(OneOf(self.words).take(word, name) for word in each)

    def schema(self) -> Schema:
        return {"anyOf": [{"enum": list(self.words)}, {"type": "array", "items": {"enum": list(self.words)}}]}


@dataclass(frozen=True, slots=True)
class Wholes:
    """A list of whole numbers."""

    low: int
    high: int

    def take(self, written: Written, name: str) -> list[int]:
        if not isinstance(written.value, list) or not written.value:
            raise written.wrong(name, "is not a list of whole numbers, as [128, 512]")
        return [Whole(self.low, self.high).take(each, f"{name}[{i}]") for i, each in enumerate(written.value)]

    def schema(self) -> Schema:
        return {"type": "array", "items": Whole(self.low, self.high).schema(), "minItems": 1}


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes: a number, or a text as 64MB."""

    def take(self, written: Written, name: str) -> str | int:
        value = written.value
        try:
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise UsageError("")
            parse_size(value, name)
        except UsageError as error:
            raise written.wrong(name, "is not a size; write it like 64MB, 4GB or 1.5GiB") from error
        return value

    def schema(self) -> Schema:
        pattern = r"^\s*[0-9]+(\.[0-9]+)?\s*[kKmMgGtT]?[iI]?[bB]?\s*$"
        return {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": pattern}]}


@dataclass(frozen=True, slots=True)
class Token:
    """A token: its text, its id, auto or none."""

    def take(self, written: Written, name: str) -> str | int:
        value = written.value
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        if not isinstance(value, str) or not value:
            meant = " (none puts no token there)" if isinstance(value, bool) else ""
            raise written.wrong(name, f"is not a token, an id from 0, auto or none{_unquoted(written)}{meant}")
        return value

    def schema(self) -> Schema:
        return {"anyOf": [Text().schema(), {"type": "integer", "minimum": 0}]}


def _number(written: Written) -> float | None:
    """The number that was meant: also 1e-3, which YAML takes for a text."""
    value = written.value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and (written.typed is None or not re.fullmatch(r"[-+.0-9]+[eE][-+]?[0-9]+", value)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _quoted(written: Written) -> str:
    """A number in quotes is a text."""
    is_number = isinstance(written.value, str) and written.typed is None and re.fullmatch(r"[-+.\d_eE]+", written.value)
    return "; write it without quotes" if is_number else ""


def _unquoted(written: Written) -> str:
    """A word that YAML takes for something else."""
    if written.typed is None or isinstance(written.value, str) or written.value is None:
        return ""
    if written.typed.lower() in _NAMES_TRUTH:
        return f": YAML reads {str(written.value).lower()} there; a word that is meant as text is written in quotes"
    return "; a number that is meant as text is written in quotes"
