"""How the text of a document is made from the fields of a record: one field, or a template over several."""

from __future__ import annotations

import json
import string
from typing import Any

from tokenmill.errors import UsageError


class Template:
    """A text with {field} placeholders: "{title}\\n\\n{body.text}". Doubled braces stand for themselves.

    Placeholders are field names only. They are never evaluated as Python attributes, so a template reaches only data.
    A template is `lenient`: it takes numbers and booleans too. `Template.of_field` is the text of one field and nothing else.
    """

    lenient = True

    def __init__(self, template: str) -> None:
        self.literals: list[str] = [""]
        fields: list[str] = []
        try:
            for literal, name, spec, conversion in string.Formatter().parse(template):
                self.literals[-1] += literal
                if name is None:
                    continue
                if not name or spec or conversion:
                    raise UsageError(f"template placeholder {{{name}}} must be a plain field name, such as {{title}}")
                fields.append(name)
                self.literals.append("")
        except ValueError as error:
            raise UsageError(f"template {template!r} is not valid: {error}") from error
        if not fields:
            raise UsageError(f"template {template!r} names no field; write it like '{{title}}\\n\\n{{body}}'")
        self.fields = tuple(fields)

    @classmethod
    def of_field(cls, name: str) -> Template:
        """The text of one field, which must be text."""
        template = cls("{field}")
        template.fields, template.lenient = (name,), False
        return template

    def join(self, values: list[str]) -> str:
        """The text of one record, for records that are read one by one."""
        parts = [self.literals[0]]
        for value, literal in zip(values, self.literals[1:], strict=True):
            parts += [value, literal]
        return "".join(parts)


def dig(record: Any, path: str) -> tuple[bool, Any]:
    """Look up a dotted field in a parsed record: (found, value). Also finds a key that itself contains dots."""
    here = record
    for key in path.split("."):
        if not isinstance(here, dict) or key not in here:
            return (True, record[path]) if isinstance(record, dict) and path in record else (False, None)
        here = here[key]
    return True, here


class JsonNumber(str):
    """A number as written in JSON. It is never converted, so it cannot overflow or lose digits."""


def parse_record(line: str) -> Any:
    """Parse a JSON record; numbers stay as written."""
    return json.loads(line, parse_int=JsonNumber, parse_float=JsonNumber, parse_constant=JsonNumber)


def as_text(value: Any, *, lenient: bool) -> str | None:
    """The text of a field, or None if it has none. Templates (`lenient`) also take numbers and booleans, as in JSON."""
    if isinstance(value, JsonNumber):
        return str(value) if lenient else None
    if isinstance(value, bool):
        return json.dumps(value) if lenient else None
    return value if isinstance(value, str) else None
