"""The kinds of values that options take: how each is checked, read from the command line, described and put in a schema."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

from tokenmill.formatting import size_in_bytes
from tokenmill.synonyms import choice_remedy

Schema = dict[str, Any]


class Refused(Exception):
    """A value that an option does not take. The message completes "name=value ...", as in "is not a size"."""


class Kind:
    """The values an option takes. None is not among them: it is allowed by `| None` in the type."""

    written_as: Literal["text", "number", "other"] = "other"  # in a recipe, where text may need quotes
    types: ClassVar[tuple[type, ...]] = (object,)  # a refused value of another type is a TypeError too

    def check(self, value: Any) -> Any:
        """The value in the form the library uses; raises Refused."""
        raise NotImplementedError

    def parse(self, text: str) -> Any:
        """The value from the command line; raises Refused. Ranges are left to `check`."""
        return text

    def schema(self) -> Schema:
        """The values as JSON Schema."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """The values in a few words, for the reference page."""
        raise NotImplementedError


@dataclass(eq=False, repr=False)
class Whole(Kind):
    """A whole number in a range, of Python's type or numpy's; an amount may be written as 1e6, which is a float.

    It may also be text that matches `or_text`, such as `such_as`.
    """

    low: int
    high: int
    is_amount: bool = False
    or_text: str = ""
    such_as: str = ""
    written_as = "number"
    types = (Integral,)

    def check(self, value: Any) -> Any:
        if self.or_text and isinstance(value, str) and re.fullmatch(self.or_text, value):
            return value
        try:
            is_float = self.is_amount and isinstance(value, float) and value.is_integer()
            number = int(value) if is_float else operator.index(value)
        except TypeError:
            number = self.low - 1
        if isinstance(value, bool) or not self.low <= number <= self.high:
            text = f", or {self.such_as}" if self.or_text else ""
            raise Refused(f"is not a whole number from {self.low} to {self.high}{text}")
        return number

    def parse(self, text: str) -> Any:
        with suppress(ValueError):
            return int(text)
        with suppress(ValueError):
            if self.is_amount and (number := float(text)).is_integer():
                return int(number)
        if self.or_text:  # `check` says what else it may be
            return text
        raise Refused("is not a whole number")

    def schema(self) -> Schema:
        number = {"type": "integer", "minimum": self.low, "maximum": self.high}
        text = {"type": "string", "pattern": f"^({self.or_text})$"}
        return {"anyOf": [number, text]} if self.or_text else number

    @property
    def label(self) -> str:
        text = f", or {self.such_as}" if self.or_text else ""
        return f"whole number{f' from {self.low}' if self.low >= 0 else ''}{text}"


@dataclass(eq=False, repr=False)
class Number(Kind):
    """A number in a range; `above` excludes the low end."""

    low: float
    high: float
    above: bool = False
    written_as = "number"
    types = (Real,)

    def check(self, value: Any) -> float:
        try:
            number = float("nan") if isinstance(value, str | bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if not (self.low < number if self.above else self.low <= number) or number > self.high:
            span = f"above {self.low:g} and up to" if self.above else f"from {self.low:g} to"
            raise Refused(f"is not a number {span} {self.high:g}")
        return value if isinstance(value, int) else number

    def parse(self, text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise Refused("is not a number") from None

    def schema(self) -> Schema:
        return {"type": "number", "exclusiveMinimum" if self.above else "minimum": self.low, "maximum": self.high}

    @property
    def label(self) -> str:
        return f"number {'above' if self.above else 'from'} {self.low:g}"


class Flag(Kind):
    """True or False."""

    label = "true or false"
    types = (bool,)

    def check(self, value: Any) -> bool:
        if type(value).__name__ not in ("bool", "bool_"):  # Python's or numpy's
            raise Refused("is not true or false")
        return bool(value)

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(eq=False, repr=False)
class Text(Kind):
    """Text that is not empty. With `escapes` it may hold line ends, typed as \\n on a command line.

    With `pairs` it may be a dict: {"train": 0.99, "val": 0.01} is train=0.99,val=0.01.
    """

    escapes: bool = False
    pairs: bool = False
    written_as = "text"
    label = "text"
    types = (str,)

    def check(self, value: Any) -> Any:
        if self.pairs and isinstance(value, Mapping):
            return ",".join(f"{name}={each}" for name, each in value.items())
        if not isinstance(value, str) or not value:
            share = "; parts by shares: view.split(train=0.9, val=0.1)" if isinstance(value, float) else ""
            raise Refused("is empty; leave it out" if value == "" else f"is not text{share}")
        return value

    def parse(self, text: str) -> str:
        return text.replace("\\n", "\n").replace("\\t", "\t") if self.escapes else text

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1}


class Place(Text):
    """A path: text, or an object such as pathlib.Path."""

    label = "path"

    def check(self, value: Any) -> Any:
        return os.path.expanduser(value if hasattr(value, "__fspath__") else super().check(value))


@dataclass(eq=False, repr=False)
class OneOf(Kind):
    """One of several words; with `functions`, or any function, True or False."""

    words: tuple[str, ...]
    functions: bool = False
    written_as = "text"
    types: ClassVar[tuple[type, ...]] = (str,)

    def check(self, value: Any) -> Any:
        if self.functions and isinstance(value, bool):
            return "auto" if value else "quiet"
        if self.functions and callable(value):
            return value
        if not isinstance(value, str) or value not in self.words:
            function = ", or a function" if self.functions else ""
            near = choice_remedy("values", value, self.words) if isinstance(value, str) else ""
            raise Refused(f"is not one of {', '.join(self.words)}{function}{near}")
        return value

    def schema(self) -> Schema:
        return {"enum": [*self.words, *((True, False) if self.functions else ())]}

    @property
    def label(self) -> str:
        *most, last = self.words
        return f"{', '.join(most)} or {last}" if most else last


class DTypeName(OneOf):
    """A dtype by name, or as an object of numpy or torch; always a name after the check."""

    types = (object,)

    def check(self, value: Any) -> Any:
        name = getattr(value, "__name__", None) or getattr(value, "name", None)
        if name is None and type(value).__module__ == "torch":
            name = str(value).removeprefix("torch.")
        return super().check(value if name is None else name)


@dataclass(eq=False, repr=False)
class Many(Kind):
    """A list of one kind, with commas between the items on a command line; a tuple after the check."""

    item: Kind
    types = (str, Iterable)

    def check(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
            raise Refused(f"is not a {self.label}")
        return tuple(map(self.item.check, value))

    def parse(self, text: str) -> tuple[Any, ...]:
        return tuple(map(self.item.parse, text.split(",")))

    def schema(self) -> Schema:
        return {"type": "array", "items": self.item.schema(), "minItems": 1}


class Wholes(Many):
    """Several whole numbers."""

    label = "list of whole numbers, such as (128, 512)"


class Texts(Many):
    """A text, or a list of one or more."""

    label = "text, or a list of texts"

    def check(self, value: Any) -> tuple[str, ...]:
        texts = super().check([value] if isinstance(value, str) else value)
        if not texts:
            raise Refused("is empty; give one or more")
        return texts

    def schema(self) -> Schema:
        return {"anyOf": [self.item.schema(), super().schema()]}


@dataclass(eq=False, repr=False)
class SomeOf(Many):
    """One of several words, or a list of them; a tuple in the order of the words after the check, each word once."""

    item: OneOf

    def check(self, value: Any) -> tuple[str, ...]:
        several = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | Mapping) else (value,)
        for word in several:
            try:
                self.item.check(word)
            except Refused as refused:
                raise Refused(f"has {word!r}, which {refused}" if len(several) > 1 else str(refused)) from None
        return tuple(word for word in self.item.words if word in several)

    def schema(self) -> Schema:
        return {"anyOf": [self.item.schema(), {"type": "array", "items": self.item.schema()}]}

    @property
    def label(self) -> str:
        return f"any of {', '.join(self.item.words)}"


@dataclass(eq=False, repr=False)
class Size(Kind):
    """A number of bytes: a whole number, or text such as 64MB. It stays in the form it was given in."""

    low: int = 1
    label = "size, such as 64MB"
    types = (str, Real)

    def check(self, value: Any) -> Any:
        try:
            nbytes = size_in_bytes(value)
        except ValueError as error:
            raise Refused(str(error)) from None
        if nbytes < self.low:
            least = f"{self.low >> 20}MiB" if self.low >= 1 << 20 else f"{self.low >> 10}KiB"
            raise Refused(f"is less than {least}, the least that works; write {least} or more")
        return value

    def schema(self) -> Schema:
        pattern = r"^\s*[0-9]+(\.[0-9]+)?\s*[kKmMgGtT]?[iI]?[bB]?\s*$"
        return {"anyOf": [{"type": "integer", "minimum": self.low}, {"type": "string", "pattern": pattern}]}


class Token(Kind):
    """A token: its text, its id, "auto" or "none"."""

    written_as = "text"
    label = "token, id, auto or none"
    types = (str, Real)

    def check(self, value: Any) -> str | int:
        if isinstance(value, str) and value:
            return value
        try:
            return int(Whole(0, 2**62).check(value))
        except Refused:
            raise Refused("is not a token, an id from 0, auto or none") from None

    def schema(self) -> Schema:
        return {"anyOf": [Text().schema(), {"type": "integer", "minimum": 0}]}


class Device(Kind):
    """A device by name or number, or as an object of torch."""

    label = "device, such as cuda"

    def check(self, value: Any) -> Any:
        if value == "" or isinstance(value, bool | float | list | dict | tuple):
            raise Refused("is not a device, such as cuda")
        return value

    def schema(self) -> Schema:
        return Token().schema()
