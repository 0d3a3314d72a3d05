"""Names, indices and calls that people know from other libraries are answered with what to write here: data/words.toml."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

from tokenmill.errors import UnknownOptionError
from tokenmill.synonyms import nearest_or_all, table

_SAME = {"n": "num", "total": "num", "doc": "document", "seq": "sequence"}
_FILL = {"get", "the", "is", "all"}


@functools.cache
def _words(name: str) -> frozenset[str] | str:
    """ "num_docs", "n_docs" and "totalDocs" are {"num", "document"}; special names are themselves."""
    words = [word.lower().removesuffix("s") for word in re.findall("[A-Z]*[a-z]+|[A-Z]+", name)]
    return (frozenset(_SAME.get(word, word) for word in words) - _FILL if name[:1].isalpha() else None) or name


@functools.cache
def _meant() -> dict[tuple[str, Any], str]:
    named = [(of, name, text) for many, text, names in table("names") for of in many.split() for name in names.split()]
    return {(of, _words(name)): text for of, name, text in named} | {(of, name): text for of, name, text in named}


@functools.cache
def answer(of: str | type, name: str) -> str:
    """ ": write len(store)", or nothing. `of` is a key of the table, or a class, also of what it inherits from."""
    for each in [of] if isinstance(of, str) else [kind.__name__ for kind in of.__mro__]:
        if text := _meant().get((each, name)) or _meant().get((each, _words(name))):
            return f": {text.replace('{name}', name).replace('{self}', each.lower())}"
    return ""


def answer_at(kind: type, index: object) -> str:
    """The same for what is not an index."""
    name = index if isinstance(index, str) else type(index).__name__
    return answer(kind, f"[{name}]") or answer(kind, name) or answer(kind, f"[{type(index).__name__}]")


class _Answered(type):
    if not TYPE_CHECKING:  # type checkers still find misspelt names

        def __getattr__(cls, name):
            if name in vars(cls).get("__annotations__", ()):  # dataclasses look for the defaults of fields
                raise AttributeError(name)
            raise _unknown(cls, name, cls)

        def __call__(cls, *args, **keywords):
            return _answering(super().__call__, cls, "__init__")(*args, **keywords)


class Answering(metaclass=_Answered):
    """The base of what users hold: an unknown name is answered with what to write instead."""

    __slots__ = ()
    if not TYPE_CHECKING:

        def __init_subclass__(cls):
            for name in {"encode", "decode", "__call__"} & vars(cls).keys():
                of = f"{cls.__name__}.{name.replace('__call__', 'encode')}"
                setattr(cls, name, _answering(vars(cls)[name], of))

        def __getattr__(self, name):
            if any(name in vars(each) for each in type(self).__mro__):  # a property has failed: its own error
                return object.__getattribute__(self, name)
            raise _unknown(type(self), name, self)

        def __getitem__(self, index):
            raise TypeError(f"{type(self).__name__} objects have no items{answer_at(type(self), index)}")

        def __add__(self, other):
            text = answer(type(self), "__add__")
            if not text:
                return NotImplemented
            raise TypeError(f"{type(self).__name__} + {type(other).__name__}{text}")


class Identified(Answering):
    """What users' objects share: equality by fingerprint, and answers to names that other libraries have."""

    if TYPE_CHECKING:

        @property
        def fingerprint(self) -> str: ...

    def __eq__(self, other: object) -> bool:
        return self.fingerprint == other.fingerprint if isinstance(other, type(self)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.fingerprint)


def _unknown(kind: type, name: str, found: object) -> AttributeError:
    if name.startswith("_"):  # what libraries look for is no mistake, and costs nothing
        return AttributeError(f"{kind.__name__!r} has no attribute {name!r}", name=name, obj=None)
    if text := answer(kind, name):
        return AttributeError(f"{kind.__name__} has no {name!r}{text}", name=name, obj=None)
    who = f"type object {kind.__name__!r}" if found is kind else f"{kind.__name__!r} object"
    near = nearest_or_all(name, lambda: dir(found))
    return AttributeError(f"{who} has no attribute {name!r}{near}", name=name, obj=None)


def _answering(function: Any, of: str | type, *names: str) -> Any:
    """The function; a call that does not fit it is answered with what one of the names or keywords stands for."""

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except TypeError as error:
            found = next(filter(None, (answer(of, name) for name in [*names, *keywords])), "")
            if not found or error.__traceback__ is None or error.__traceback__.tb_next is not None:  # from within
                raise
            raise (TypeError if names else UnknownOptionError)(f"{error}{found}") from None

    return call
