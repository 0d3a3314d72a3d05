"""What an option is: a field of a dataclass whose annotation carries its kind of value, its range and one line of help.

    @dataclass(frozen=True, kw_only=True)
    class LayoutOptions(Options):
        tail: Annotated[Literal["keep", "drop"], Help("concat: a last row that is not full")] = "keep"

`tokenmill.options` declares all of them. Value checks, Python signatures, command-line flags, recipe keys, the JSON Schema
and docs/options.md are derived from these declarations.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from types import NoneType, UnionType
from typing import Annotated, Any, Concatenate, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from tokenmill.errors import UsageError
from tokenmill.formatting import parse_size

P = ParamSpec("P")
First = TypeVar("First")
Arguments = TypeVar("Arguments", bound="Options")
Result = TypeVar("Result")

Schema = dict[str, Any]


class Refused(Exception):
    """A value that an option does not take. The message completes "name=value ...", as in "is not a size"."""


class Kind:
    """The values an option takes. None is not among them: it is allowed by `| None` in the type."""

    written_as: Literal["text", "number", "other"] = "other"  # in a recipe, where text may need quotes

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


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number in a range, of Python's type or numpy's."""

    low: int
    high: int
    written_as = "number"

    def check(self, value: Any) -> int:
        try:
            number = operator.index(value)
        except TypeError:
            number = self.low - 1
        if isinstance(value, bool) or not self.low <= number <= self.high:
            raise Refused(f"is not a whole number from {self.low} to {self.high}")
        return number

    def parse(self, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise Refused("is not a whole number") from None

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}

    @property
    def label(self) -> str:
        return f"whole number from {self.low}" if self.low >= 0 else "whole number"


@dataclass(frozen=True)
class Number(Kind):
    """A number in a range; `above` excludes the low end."""

    low: float
    high: float
    above: bool = False
    written_as = "number"

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

    def check(self, value: Any) -> bool:
        if type(value).__name__ not in ("bool", "bool_"):  # Python's or numpy's
            raise Refused("is not true or false")
        return bool(value)

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Text(Kind):
    """Text that is not empty. With `escapes` it may hold line ends, typed as \\n on a command line."""

    escapes: bool = False
    written_as = "text"
    label = "text"

    def check(self, value: Any) -> Any:
        if not isinstance(value, str) or not value:
            raise Refused("is empty; leave it out" if value == "" else "is not text")
        return value

    def parse(self, text: str) -> str:
        return text.replace("\\n", "\n").replace("\\t", "\t") if self.escapes else text

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1}


class Place(Text):
    """A path: text, or an object such as pathlib.Path."""

    label = "path"

    def check(self, value: Any) -> Any:
        return value if hasattr(value, "__fspath__") else super().check(value)


@dataclass(frozen=True)
class OneOf(Kind):
    """One of several words; with `functions`, or any function."""

    words: tuple[str, ...]
    functions: bool = False
    written_as = "text"

    def check(self, value: Any) -> Any:
        if self.functions and callable(value):
            return value
        if not isinstance(value, str) or value not in self.words:
            function = ", or a function" if self.functions else ""
            near = nearest(value, self.words) if isinstance(value, str) else ""
            raise Refused(f"is not one of {', '.join(self.words)}{function}{near}")
        return value

    def schema(self) -> Schema:
        return {"enum": list(self.words)}

    @property
    def label(self) -> str:
        *most, last = self.words
        return f"{', '.join(most)} or {last}" if most else last


class DTypeName(OneOf):
    """A dtype by name, or as an object of numpy or torch; always a name after the check."""

    def check(self, value: Any) -> Any:
        name = getattr(value, "__name__", None) or getattr(value, "name", None)
        if name is None and type(value).__module__ == "torch":
            name = str(value).removeprefix("torch.")
        return super().check(value if name is None else name)


@dataclass(frozen=True)
class Many(Kind):
    """A list of one kind, with commas between the items on a command line; a tuple after the check."""

    item: Kind

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


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Size(Kind):
    """A number of bytes: a whole number, or text such as 64MB. It stays in the form it was given in."""

    low: int = 1
    label = "size, such as 64MB"

    def check(self, value: Any) -> Any:
        try:
            nbytes = parse_size(value, "") if isinstance(value, str | int) and not isinstance(value, bool) else 0
        except UsageError:
            nbytes = 0
        if not nbytes:
            raise Refused("is not a size; write it like 64MB, 4GB or 1.5GiB")
        if nbytes < self.low:
            raise Refused(f"is less than {self.low >> 10}KiB")
        return value

    def schema(self) -> Schema:
        pattern = r"^\s*[0-9]+(\.[0-9]+)?\s*[kKmMgGtT]?[iI]?[bB]?\s*$"
        return {"anyOf": [{"type": "integer", "minimum": self.low}, {"type": "string", "pattern": pattern}]}


class Token(Kind):
    """A token: its text, its id, "auto" or "none"."""

    written_as = "text"
    label = "token, id, auto or none"

    def check(self, value: Any) -> str | int:
        if isinstance(value, str) and value:
            return value
        try:
            return Whole(0, 2**62).check(value)
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


def nearest(name: str, names: Collection[str]) -> str:
    """ "; did you mean ...?", if one of the names is similar."""
    near = difflib.get_close_matches(name.lower().replace("-", "_"), names, 1, 0.6)
    return f"; did you mean {near[0]}?" if near else ""


@dataclass(frozen=True)
class Help:
    """One line of help, what the default means if the value does not say it, the name of the value, and a short flag."""

    text: str
    default: str = ""
    metavar: str = ""
    short: str = ""


@dataclass(frozen=True)
class Option:
    """One declared option."""

    name: str
    kind: Kind
    help: Help
    default: Any = None
    required: bool = False
    optional: bool = False  # None is allowed

    def check(self, value: Any) -> Any:
        """The value in the form the library uses; UsageError if the option does not take it."""
        return None if value is None and self.optional else _checked(self.name, self.kind, value)

    def schema(self) -> Schema:
        schema = self.kind.schema()
        if self.optional:
            schema = {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]}
        return {"description": self.help_line, **schema}

    @property
    def help_line(self) -> str:
        """The help with the choices and the default, as `tokenmill COMMAND --help` shows it."""
        choices = f": {self.kind.label}" if isinstance(self.kind, OneOf | SomeOf) else ""
        default = "" if self.default is False else self.default_text
        return f"{self.help.text}{choices}{f' ({default})' if default else ''}"

    @property
    def default_text(self) -> str:
        if self.help.default or self.required or self.default is None:
            return self.help.default
        if isinstance(self.default, tuple):
            return ", ".join(map(str, self.default))
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)


def whole_number(name: str, value: Any, low: int, high: int) -> int:
    """An argument as a whole number in a range; UsageError if it is not one."""
    number: int = _checked(name, Whole(low, high), value)
    return number


def _checked(name: str, kind: Kind, value: Any) -> Any:
    try:
        return kind.check(value)
    except Refused as refused:
        raise UsageError(f"{name}={value!r} {refused}") from None


@dataclass(frozen=True)
class Options:
    """The base of every group of options. A value that an option does not take raises UsageError, naming both."""

    def __post_init__(self) -> None:
        for name, option in declared(type(self)).items():
            object.__setattr__(self, name, option.check(getattr(self, name)))


def declared(group: type[Any]) -> dict[str, Option]:
    """The options of a group by name, required ones first. Fields without help are not options."""
    key: Any = group  # mypy does not take a class for hashable
    return _declared(key)


@functools.cache
def _declared(group: type[Any]) -> dict[str, Option]:
    hints = get_type_hints(group, include_extras=True)
    options = []
    for field in fields(group):
        hint = hints[field.name]
        help = next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Help)), None)
        if help is not None:
            required = field.default is MISSING
            default = None if required else field.default
            optional = NoneType in get_args(hint.__origin__)
            options.append(Option(field.name, _kind(hint), help, default, required, optional))
    return {option.name: option for option in sorted(options, key=lambda option: not option.required)}


def _kind(hint: Any) -> Kind:
    """The kind in an annotation, or the one that a plain type means."""
    origin, members = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kinds = [each for each in hint.__metadata__ if isinstance(each, Kind)]
        return kinds[0] if kinds else _kind(hint.__origin__)
    if origin is Literal:
        return OneOf(members)
    if origin in (Union, UnionType):
        words = [each for each in members if get_origin(each) is Literal]
        if words and any(get_origin(each) is Callable for each in members):
            return OneOf(get_args(words[0]), functions=True)
        (only,) = (each for each in members if each is not NoneType)
        return _kind(only)
    simple: dict[Any, Kind] = {bool: Flag(), str: Text()}
    return simple[hint]


def values_of(group: type[Options], options: Options) -> dict[str, Any]:
    """The values that `options` has for the options of one group."""
    return {name: getattr(options, name) for name in declared(group)}


def given_of(group: type[Options], options: Options) -> dict[str, Any]:
    """The same, but only those that were passed to a function made by `takes`, or else that differ from the default."""
    values = values_of(group, options)
    names = getattr(options, "_given", None)
    if names is None:
        names = [name for name, option in declared(group).items() if values[name] != option.default]
    return {name: value for name, value in values.items() if name in names}


def takes(
    group: Callable[P, Arguments],
) -> Callable[[Callable[[First, Arguments], Result]], Callable[Concatenate[First, P], Result]]:
    """Turn a function of (first, arguments) into one that takes the fields of the group as keywords.

    Type checkers, editors and help() see each keyword with its type. An unknown one raises UsageError with the nearest name.
    """

    def decorate(function: Callable[[First, Arguments], Result]) -> Callable[Concatenate[First, P], Result]:
        first = next(iter(inspect.signature(function).parameters.values()))
        hints = get_type_hints(group)  # without the help
        own = [each.replace(annotation=hints[each.name]) for each in inspect.signature(group).parameters.values()]
        signature, name = inspect.Signature([first, *own]), f"tm.{function.__name__}"

        @functools.wraps(function)
        def call(*args: Any, **keywords: Any) -> Result:
            refuse_unknown(name, keywords, signature.parameters)
            try:
                (_, value), *rest = signature.bind(*args, **keywords).arguments.items()
            except TypeError as error:
                raise TypeError(f"{name}: {error}") from None
            arguments = group(**dict(rest))  # type: ignore[call-arg]
            object.__setattr__(arguments, "_given", frozenset(each for each, _ in rest))
            return function(value, arguments)

        call.__signature__ = signature  # type: ignore[attr-defined]
        lines = [f"    {name}: {option.help_line}" for name, option in declared(group).items()]  # type: ignore[arg-type]
        call.__doc__ = "\n".join([f"{inspect.getdoc(function)}\n\nOptions:", *lines])
        return call

    return decorate


def suggests(function: Callable[P, Result]) -> Callable[P, Result]:
    """The same function; an unknown keyword raises UsageError with the nearest name."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> Result:
        refuse_unknown(f"tm.{function.__name__}", keywords, known)
        return function(*args, **keywords)

    return call


def refuse_unknown(function: str, keywords: Collection[str], known: Collection[str]) -> None:
    """Raise UsageError for the first keyword that the function does not have, with the nearest one that it has."""
    for keyword in keywords:
        if keyword not in known:
            near = nearest(keyword, known) or f"; it has {', '.join(known)}"
            raise UsageError(f"{function} has no option {keyword!r}{near}")
