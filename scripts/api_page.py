"""Writes docs/api.md, the reference of the public names of tokenmill, from their signatures and docstrings.

python scripts/api_page.py            # rewrite the page; a test fails while it is out of date
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
HEAD = """\
# Python API

`import tokenmill as tm`. Nothing else is public, except the events of a build ([events.md](events.md)) and the contracts in
`tokenmill.testing`. The keywords of `build`, `estimate`, `load`, `pack` and `read` are options: [options.md](options.md) has
their values.

Written by `scripts/api_page.py` from signatures and docstrings.
"""


def page() -> str:
    """The page, from the names in `tokenmill.__all__`: functions first, then classes."""
    import tokenmill

    public = {name: getattr(tokenmill, name) for name in tokenmill.__all__}
    parts = [HEAD]
    for name, value in public.items():
        if inspect.isroutine(value):
            parts += [f"## tm.{name}\n", *_function(f"tm.{name}", value)]
    for name, value in public.items():
        if inspect.isclass(value):
            parts += [f"## tm.{name}\n", _prose(value), *_members(value)]
    parts += ["## tm.errors\n", _prose(public["errors"])]
    return "\n".join(parts)


def _function(name: str, function: Any) -> list[str]:
    return [f"```py\n{_signature(name, function)}\n```\n", _prose(function)]


def _members(owner: type) -> list[str]:
    """The public fields, properties and methods of a class, in the order of its source."""
    fields = inspect.get_annotations(owner)
    properties = [f"| `{name}` | `{_cell(fields[name])}` | |" for name in fields if not name.startswith("_")]
    methods = []
    for name, member in vars(owner).items():
        found = member.func if hasattr(member, "func") else getattr(member, "fget", None)
        if name.startswith("_"):
            continue
        if found is not None:
            line = " ".join((inspect.getdoc(found) or "").split("\n\n")[0].split())
            properties.append(f"| `{name}` | `{_cell(inspect.signature(found).return_annotation)}` | {line} |")
        elif inspect.isfunction(member):
            methods += [f"### {owner.__name__}.{name}\n", *_function(name, member)]
    table = ["| property | type | |\n|---|---|---|", *properties, ""] if properties else []
    return [*table, *methods]


def _signature(name: str, function: Any) -> str:
    """The call, one keyword a line where it would be longer than a line. `self` is left out."""
    signature = inspect.signature(function)
    parameters = [value for value in signature.parameters.values() if value.name != "self"]
    arguments = [_argument(value) for value in parameters]
    keyword = [value.kind is inspect.Parameter.KEYWORD_ONLY for value in parameters]
    starred = any(value.kind is inspect.Parameter.VAR_POSITIONAL for value in parameters)
    if any(keyword) and not starred:
        arguments.insert(keyword.index(True), "*")
    returned = signature.return_annotation
    result = "" if returned is inspect.Signature.empty else f" -> {_plain(returned)}"
    line = f"{name}({', '.join(arguments)}){result}"
    return line if len(line) <= 110 else f"{name}(\n" + "".join(f"    {each},\n" for each in arguments) + f"){result}"


def _argument(parameter: inspect.Parameter) -> str:
    """A parameter with its type and default. Types of declared options are left out: docs/options.md has their values."""
    kind = parameter.annotation if isinstance(parameter.annotation, str) else ""
    shown = f"{parameter.name}: {_plain(kind)}" if kind else parameter.name
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    if parameter.default is parameter.empty:
        return stars + shown
    return f"{shown} = {parameter.default!r}" if kind else f"{shown}={parameter.default!r}"


def _plain(annotation: Any) -> str:
    """An annotation without the modules of its names."""
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", str(annotation))


def _cell(annotation: Any) -> str:
    return _plain(annotation).replace("|", "or")


def _prose(value: Any) -> str:
    """A docstring, as Markdown: indented lines stay as they are written. The list of options is that of docs/options.md."""
    blocks = []
    for block in (inspect.getdoc(value) or "").split("\n\nOptions:\n")[0].split("\n\n"):
        title, _, rest = block.partition("\n")
        if block.startswith("    "):
            blocks.append(f"```\n{inspect.cleandoc(block)}\n```")
        elif rest.startswith("    "):
            blocks.append(f"{title}\n\n```\n{inspect.cleandoc(rest)}\n```")
        else:
            blocks.append(block)
    return "\n\n".join(blocks) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
