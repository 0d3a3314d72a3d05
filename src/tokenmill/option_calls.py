"""Functions that take declared options as keywords, and answer an unknown one with the name that is meant."""

from __future__ import annotations

import functools
import inspect
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, get_type_hints, overload

from tokenmill.errors import UnknownOptionError
from tokenmill.option_types import Options, declared, with_given
from tokenmill.options import (
    BuildArguments,
    EstimateArguments,
    ExportArguments,
    ImportArguments,
    LoadArguments,
    PackOptions,
    ReadOptions,
)
from tokenmill.synonyms import remedy

VERBS: dict[str, type[Options]] = {
    "tm.read": ReadOptions,
    "tm.build": BuildArguments,
    "tm.estimate": EstimateArguments,
    "tm.pack": PackOptions,
    "tm.load": LoadArguments,
    "tm.export": ExportArguments,
    "tm.import_tokens": ImportArguments,
}

TOKENIZER_HELP = "what tm.load_tokenizer takes: a path, a name, or an object of another library"
_SAY_LITTLE = {
    "fil",
    "keep",
    "byt",
    "read",
    "siz",
    "them",
    "block",
    "group",
    "with",
    "only",
    "that",
    "each",
    "nam",
    "sav",
}
_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
P = ParamSpec("P")
Q = ParamSpec("Q")
F = TypeVar("F", contravariant=True)
R = TypeVar("R", covariant=True)
First = TypeVar("First")
Arguments = TypeVar("Arguments", bound=Options)
Result = TypeVar("Result")


def takes(
    group: Callable[P, Arguments], first_help: str
) -> Callable[[Callable[[First, Arguments], Result]], Callable[Concatenate[First, P], Result]]:
    """Turn a function of (first, arguments) into one that takes the fields of the group as keywords.

    Type checkers, editors and help() see each keyword with its type. An unknown one raises an error with the nearest name.
    """

    def decorate(function: Callable[[First, Arguments], Result]) -> Callable[Concatenate[First, P], Result]:
        first, *_ = inspect.signature(function).parameters.values()
        hints = {**get_type_hints(function), **get_type_hints(group)}  # without the help
        own = [
            each.replace(annotation=hints[each.name]) for each in (first, *inspect.signature(group).parameters.values())
        ]
        signature, name = _Short(own, return_annotation=hints["return"]), f"tm.{function.__name__}"

        @functools.wraps(function)
        def call(*args: Any, **keywords: Any) -> Result:
            refuse_unknown(name, keywords, signature.parameters)
            try:
                (_, value), *rest = signature.bind(*args, **keywords).arguments.items()
            except TypeError as error:
                raise TypeError(f"{name}: {error}{_by_keyword(args, signature)}") from None
            return function(value, with_given(group, dict(rest)))

        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__annotations__ = {each.name: each.annotation for each in own} | {"return": hints["return"]}
        helps = {first.name: first_help, "tokenizer": TOKENIZER_HELP}
        helps |= {name: option.help_line for name, option in declared(group).items()}  # type: ignore[arg-type]
        lines = [f"    {each.name}: {helps[each.name]}" for each in own]
        summary, _, rest = (inspect.getdoc(function) or "").partition("\n\n")
        call.__doc__ = "\n".join([summary, "\nParameters:", *lines, "", rest])
        return call

    return decorate


class MayBeNone(Protocol[F, P, Q, R]):
    """A function whose result may be None, unless it is called as Q."""

    @overload
    def __call__(self, first: F, /, *args: Q.args, **keywords: Q.kwargs) -> R: ...
    @overload
    def __call__(self, first: F, /, *args: P.args, **keywords: P.kwargs) -> R | None: ...


def never_none_as(group: Callable[Q, Any]) -> Callable[[Callable[Concatenate[F, P], R | None]], MayBeNone[F, P, Q, R]]:
    """Tell type checkers with which keywords the result is never None."""
    return lambda function: cast(Any, function)


class _Short(inspect.Signature):
    """A signature whose text has only the first parameters: the docstring of the function lists all."""

    def format(self, **_: Any) -> str:
        first = [each.replace(annotation=each.empty) for each in self.parameters.values() if each.kind is _POSITIONAL]
        returned = re.sub(r"\w+\.", "", inspect.formatannotation(self.return_annotation))
        return f"({', '.join(map(str, first))}, *, ...) -> {returned}"

    __str__ = format  # which help() calls from Python 3.13


def suggests(function: Callable[P, Result]) -> Callable[P, Result]:
    """The same function; an unknown keyword raises UnknownOptionError with the nearest name."""
    known, name = inspect.signature(function).parameters, f"tm.{function.__name__.removesuffix('_store')}"  # open_store

    @functools.wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> Result:
        refuse_unknown(name, keywords, known)
        if more := _by_keyword(args, inspect.signature(function)):
            raise TypeError(f"{name}: too many positional arguments{more}. {(function.__doc__ or '').splitlines()[0]}")
        return function(*args, **keywords)

    function.__qualname__ = name  # in Python's own words on what is missing
    return call


def _by_keyword(args: tuple[Any, ...], signature: inspect.Signature) -> str:
    """How to write what is too much by position, or nothing."""
    by_position = [name for name, each in signature.parameters.items() if each.kind is not each.KEYWORD_ONLY]
    if len(args) <= len(by_position) or any(each.kind is each.VAR_POSITIONAL for each in signature.parameters.values()):
        return ""
    others = {name: each.annotation for name, each in signature.parameters.items() if name not in by_position}
    extra = args[len(by_position)]
    fitting = [
        f"{name}={extra!r}" for name, hint in others.items() if isinstance(extra, str) and repr(extra) in str(hint)
    ]
    rest = "; by keyword " + ", ".join(fitting or [f"{name}=" for name in list(others)[-4:]]) if others else ""
    return f"; by position it takes {', '.join(by_position)}{rest}"


def refuse_unknown(function: str, keywords: Collection[str], known: Collection[str]) -> None:
    """Raise UnknownOptionError for the first keyword that the function does not have, with the verb or the name that is meant."""
    for keyword in keywords:
        if keyword not in known:
            raise UnknownOptionError(f"{function} has no option {keyword!r}{_remedy(function, keyword, known)}")


def _remedy(function: str, keyword: str, known: Collection[str]) -> str:
    where = function.rpartition(".")[2]
    known_here = {name: name for name in known}
    near = remedy(keyword, where, known_here, in_verbs) or by_help(keyword, known_here)
    return near or (f"; help({function}) lists its options" if len(known) > 9 else f"; it has {', '.join(known)}")


def by_help(option: str, known: Mapping[str, str]) -> str:
    """The options whose help has a word of this one, if that sets them apart, such as "mask_labels" for "eod_mask_loss"."""
    every = [item for group in VERBS.values() for item in declared(group).items()]
    helps = {name: _stems(f"{name} {each.help_line}") for name, each in every}
    found = [[each for each in known if stem in helps.get(each, ())] for stem in _stems(option)]
    few = Counter(each for names in found if len(names) < 4 for each in names)
    near = [known[each] for each in sorted(known, key=lambda each: -few[each]) if each in few]
    return f"; is it {' or '.join(near[:3])}?" if near else ""


def _stems(text: str) -> set[str]:
    words = re.findall(r"[a-z]{4,}", text.lower().replace("_", " "))
    return {re.sub(r"(ing|ed|es|s|e)$", "", word) for word in words} - _SAY_LITTLE


def in_verbs(option: str) -> str:
    """ "seq_len of tm.pack and tm.load", or nothing."""
    *most, last = [verb for verb, group in VERBS.items() if option in _names(group)] or [""]
    verbs = f"{', '.join(most)} and {last}" if most else last
    return f"{option} of {verbs}" if verbs else ""


def _names(group: type[Options]) -> list[str]:
    return [field.name for field in fields(group)]
