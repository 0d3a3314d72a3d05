"""How a document's text is made from a record's fields: one field, or a template over several."""

from __future__ import annotations

import json
import string
from typing import Any

from tokenmill.errors import UsageError


class Template:
    """A text with {field} holes: "{title}\\n\\n{body.text}". Doubled braces stand for themselves.

    Holes are field names only. Nothing is looked up on Python objects, so a template cannot reach anything but data.
    """

    def __init__(self, template: str) -> None:
        self.literals: list[str] = [""]
        holes: list[str] = []
        try:
            for literal, name, spec, conversion in string.Formatter().parse(template):
                self.literals[-1] += literal
                if name is None:
                    continue
                if not name or spec or conversion:
                    raise UsageError(f"template hole {{{name}}} must be a plain field name, as in {{title}}")
                holes.append(name)
                self.literals.append("")
        except ValueError as error:
            raise UsageError(f"template {template!r} is not valid: {error}") from error
        if not holes:
            raise UsageError(f"template {template!r} names no field, as in '{{title}}\\n\\n{{body}}'")
        self.fields = tuple(holes)

    def join(self, values: list[str]) -> str:
        """The text of one record; for the careful path only."""
        parts = [self.literals[0]]
        for value, literal in zip(values, self.literals[1:], strict=True):
            parts += [value, literal]
        return "".join(parts)


def dig(record: Any, path: str) -> tuple[bool, Any]:
    """Find a dotted field in a parsed record: (found, value). A key that itself holds dots is found too."""
    here = record
    for key in path.split("."):
        if not isinstance(here, dict) or key not in here:
            return (True, record[path]) if isinstance(record, dict) and path in record else (False, None)
        here = here[key]
    return True, here


class Literal(str):
    """A number as it is written in JSON: never converted, so never too large and never rounded."""


def parse_record(line: str) -> Any:
    """A JSON record, numbers left as they are written."""
    return json.loads(line, parse_int=Literal, parse_float=Literal, parse_constant=Literal)


def as_text(value: Any, *, lenient: bool) -> str | None:
    """A field's text, or None where it has none. Templates take numbers and booleans too, as JSON writes them."""
    if isinstance(value, Literal):
        return str(value) if lenient else None
    if isinstance(value, bool):
        return json.dumps(value) if lenient else None
    return value if isinstance(value, str) else None
