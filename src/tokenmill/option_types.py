"""What an option is: a field of a dataclass whose annotation carries its kind of value, its range and one line of help.

    @dataclass(frozen=True, kw_only=True, eq=False, repr=False)
    class LayoutOptions(Options):
        tail: Annotated[Literal["keep", "drop"], Help("concat: a last row that is not full")] = "keep"

`tokenmill.options` declares all of them. Value checks, Python signatures, command-line flags, recipe keys, the JSON Schema
and docs/options.md are derived from these declarations.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tokenmill.errors import UsageError, WrongTypeError
from tokenmill.option_kinds import Flag, Kind, OneOf, Refused, Schema, SomeOf, Text, Whole


@dataclass(eq=False, repr=False)
class Help:
    """One line of help, what the default means if the value does not say it, the name of the value, and a short flag."""

    text: str
    default: str = ""
    metavar: str = ""
    short: str = ""


@dataclass(eq=False, repr=False)
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


def option_name(name: str, value: Any = None) -> str:
    """An option as commands and as Python spell it, for messages that both show: "--eos none (eos='none')"."""
    flag = f"--{name.replace('_', '-')}"
    if value is None:
        return f"{flag} ({name}=...)"
    if value is True:
        return f"{flag} ({name}=True)"
    typed = shlex.quote(str(value).replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t"))
    return f"{flag} {typed} ({name}={value!r})"


def whole_number(name: str, value: Any, low: int, high: int) -> int:
    """An argument as a whole number in a range; UsageError if it is not one."""
    number: int = _checked(name, Whole(low, high), value)
    return number


def _checked(name: str, kind: Kind, value: Any) -> Any:
    try:
        return kind.check(value)
    except Refused as refused:
        is_of_type = isinstance(value, kind.types) and not isinstance(value, bool)
        raise (UsageError if is_of_type else WrongTypeError)(f"{name}={value!r} {refused}") from None


@dataclass(frozen=True, eq=False, repr=False)
class Options:
    """The base of every group of options. A value that an option does not take raises UsageError, naming both."""

    def __post_init__(self) -> None:
        for name, option in declared(type(self)).items():
            object.__setattr__(self, name, option.check(getattr(self, name)))


Given = TypeVar("Given", bound=Options)


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


def with_given(group: Callable[..., Given], values: dict[str, Any]) -> Given:
    """Options that remember which of them were given, for `given_of`."""
    options = group(**values)
    object.__setattr__(options, "_given", frozenset(values))
    return options


def values_of(group: type[Options], options: Options) -> dict[str, Any]:
    """The values that `options` has for the options of one group."""
    return {name: getattr(options, name) for name in declared(group)}


def given_of(group: type[Options], options: Options) -> dict[str, Any]:
    """The same, but only those that were given, as `with_given` has noted, or else that differ from the default."""
    values = values_of(group, options)
    names = getattr(options, "_given", None)
    if names is None:
        names = [name for name, option in declared(group).items() if values[name] != option.default]
    return {name: value for name, value in values.items() if name in names}
