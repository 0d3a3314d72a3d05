"""Objects for people: a repr of one short line, a small table for notebooks, equality, and answers to other names."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from tokenmill.formatting import printable

LONGEST_LINE = 200
LONGEST_CELL = 400

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = 3
_SHORT.maxlevel = 2


def shown(value: Any) -> str:
    """The repr of a value, cut in the middle if it is long. Costs the same for any number of items."""
    return _SHORT.repr(value)


def one_line(name: str, *parts: str) -> str:
    """ "Store('corpus', documents=3)" from a name and what is in the brackets, cut at 200 characters."""
    line = printable(f"{name}({', '.join(parts)})").replace("\n", " ").replace("\t", " ")
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 4]}...)"


def fields_in_one_line(value: Any) -> str:
    """A `__repr__` for dataclasses."""
    return one_line(
        type(value).__name__,
        *(f"{field.name}={shown(getattr(value, field.name))}" for field in fields(value) if field.repr),
    )


def html_table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and values for a notebook. Everything is escaped: names and texts come from the corpus."""
    cells = "".join(f"<tr><th>{_cell(name)}</th><td>{_cell(value)}</td></tr>" for name, value in rows if value)
    return f"<table><caption>{_cell(title)}</caption>{cells}</table>"


def _cell(text: str) -> str:
    import html

    short = text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}..."
    return html.escape(printable(short))
