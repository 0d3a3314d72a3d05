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

```python
import tokenmill as tm
```

Nothing else is public, except the events of a build ([events.md](events.md)), `LoaderState` for the Trainer of Hugging Face
([loading.md](loading.md#integrations)) and the contracts in `tokenmill.testing`. The keywords of the functions are options;
[options.md](options.md) has their values. The examples run one after the other.

Written by `scripts/api_page.py` from signatures and docstrings.
"""
# The guide to each function, and the parts of docs/options.md with its keywords.
GUIDES = {
    "build": "building.md",
    "estimate": "estimate.md",
    "export": "formats.md",
    "import_tokens": "formats.md",
    "load": "loading.md",
    "load_tokenizer": "tokenizers.md",
    "mix": "loading.md#mixtures",
    "open": "building.md#a-store-in-python",
    "pack": "packing.md",
    "read": "building.md",
    "recipe": "recipes.md",
}
OPTIONS = {
    "build": ("Reading", "Tokens", "Building", "Trial builds"),
    "estimate": ("Reading", "Tokens", "Estimating"),
    "export": ("Exporting", "Packing"),
    "import_tokens": ("Importing",),
    "load": ("Loading", "Packing"),
    "pack": ("Packing",),
    "read": ("Reading",),
}
FIRST = ("source", "data", "store")  # parameters that are no options
# Options that an object keeps as attributes.
KEPT = {
    "Loader": ("load", "global_batch_size rank world_size seed shuffle epochs drop_last prefetch"),
    "Source": (
        "read",
        "format text_field template delimiter separator separator_newlines split config revision streaming on_error",
    ),
}


def page() -> str:
    """The page: functions and classes in `dir(tokenmill)`, then the classes that functions return."""
    import tokenmill

    public = {f"tm.{name}": getattr(tokenmill, name) for name in dir(tokenmill) if not name.startswith("_")}
    functions = {name: value for name, value in public.items() if inspect.isroutine(value)}
    classes = {name: value for name, value in public.items() if inspect.isclass(value)} | returned_classes()
    parts = [HEAD, *_index(functions, classes)]
    for name, value in functions.items():
        parts += [f"## {name}\n", *_function(name, value), *_more(name.removeprefix("tm."))]
    for name, value in classes.items():
        parts += [f"## {name}\n", _prose(value), *_members(value)]
    parts += ["## tm.errors\n", _prose(public["tm.errors"])]
    return _linked("\n".join(parts), [*public, *classes])


def returned_classes() -> dict[str, type]:
    """What functions return that has no name in `tokenmill`, because nobody makes one."""
    from tokenmill.encoding.api import StoredTokenizer
    from tokenmill.estimating.result import Estimate
    from tokenmill.exchange.api import Exported
    from tokenmill.loading.mixture import Mixture
    from tokenmill.packing.stats import Stats
    from tokenmill.recipes.api import Recipe

    return {each.__name__: each for each in (Estimate, Exported, Mixture, Recipe, Stats, StoredTokenizer)}


def _index(functions: dict[str, Any], classes: dict[str, type]) -> list[str]:
    rows = [f"| `{name}` | {_first_sentence(value)} |" for name, value in {**functions, **classes}.items()]
    rows.append("| `tm.errors` | Every error tokenmill raises on purpose, and the exit code each becomes. |")
    return ["| name | meaning |\n|---|---|", *rows, ""]


def _more(name: str) -> list[str]:
    """Where a function is explained: its options and its guide."""
    links = [f"[{title.lower()}](options.md#{title.lower().replace(' ', '-')})" for title in OPTIONS.get(name, ())]
    options = f"Options: {', '.join(links)}. " if links else ""
    target = GUIDES[name]
    return [f"{options}Guide: [{target.partition('#')[0]}]({target}).\n"]


def _function(name: str, function: Any) -> list[str]:
    return [f"```py\n{_signature(name, function)}\n```\n", _prose(function)]


def _members(owner: type) -> list[str]:
    """The public fields, properties and methods of a class, in the order of its source."""
    comments = dict(re.findall(r"^    (\w+): [^#\n]*  # (.+)$", inspect.getsource(owner), re.MULTILINE))
    fields = [name for name in inspect.get_annotations(owner) if not name.startswith("_")]
    kinds = {name: _cell(inspect.get_annotations(owner)[name]) for name in fields}
    lines = {name: _sentence(comments.get(name, "")) for name in fields}
    methods = {}
    for name, member in vars(owner).items():
        found = member.func if hasattr(member, "func") else getattr(member, "fget", None)
        if name.startswith("_"):
            continue
        if found is not None:
            kinds[name], lines[name] = _cell(inspect.signature(found).return_annotation), _first_paragraph(found)
        elif inspect.isfunction(member):
            methods[name] = member
    rows = [f"| `{name}` | `{kind}` | {lines[name]} |" for name, kind in kinds.items()]
    rows += [f"| `{name}` | option of `tm.{verb}` | {text} |" for name, verb, text in _kept(owner)]
    parts = ["| property | type | meaning |\n|---|---|---|", *rows, ""] if rows else []
    for name, member in methods.items():
        parts += [f"### {owner.__name__}.{name}\n", *_function(name, member)]
    return parts


def _kept(owner: type) -> list[tuple[str, str, str]]:
    """The options that an object keeps: name, function, help."""
    from tokenmill.option_calls import VERBS
    from tokenmill.option_types import declared

    verb, names = KEPT.get(owner.__name__, ("", ""))
    return [(name, verb, _sentence(declared(VERBS[f"tm.{verb}"])[name].help.text)) for name in names.split()]


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
    kind = parameter.annotation if isinstance(parameter.annotation, str) or parameter.name in FIRST else ""
    shown = f"{parameter.name}: {_plain(kind)}" if kind else parameter.name
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    if parameter.default is parameter.empty:
        return stars + shown
    return f"{shown} = {parameter.default!r}" if kind else f"{shown}={parameter.default!r}"


def _plain(annotation: Any) -> str:
    """An annotation without the modules of its names."""
    written = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", written)


def _cell(annotation: Any) -> str:
    return _plain(annotation).replace("|", "or")


def _prose(value: Any) -> str:
    """A docstring, as Markdown: indented lines stay as they are written. The list of options is that of docs/options.md."""
    blocks = []
    for block in (inspect.getdoc(value) or "").split("\n\n"):
        title, _, rest = block.partition("\n")
        if title == "Parameters:":
            continue
        if title == "Example:":
            blocks.append(f"```python\n{inspect.cleandoc(rest)}\n```")
        elif block.startswith("    "):
            blocks.append(f"```\n{inspect.cleandoc(block)}\n```")
        elif rest.startswith("    "):
            blocks.append(f"{title}\n\n```\n{inspect.cleandoc(rest)}\n```")
        else:
            blocks.append(block)
    return "\n\n".join(blocks) + "\n"


def _first_paragraph(value: Any) -> str:
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split()).replace("|", "\\|")


def _first_sentence(value: Any) -> str:
    """The first sentence of a docstring, without an example in it."""
    return re.split(r"(?<=[^.]\.) |: `tm", _first_paragraph(value))[0].rstrip(".") + "."


def _sentence(comment: str) -> str:
    """A comment beside a field, as a sentence."""
    return f"{comment[0].upper()}{comment[1:].rstrip('.')}." if comment else ""


def _linked(text: str, names: list[str]) -> str:
    """The page with links from names in prose to their sections. Names in code blocks and headings stay as they are."""
    anchors = {name: re.sub(r"[^\w-]", "", name.lower()) for name in names}
    parts = re.split(r"(^```.*?^```$|^#[^\n]*$)", text, flags=re.MULTILINE | re.DOTALL)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(
            r"`((?:tm\.)?\w+)`",
            lambda match: f"[`{match[1]}`](#{anchors[match[1]]})" if match[1] in anchors else match[0],
            parts[i],
        )
        parts[i] = re.sub(r"\bdocs/(\w+\.md)", r"[\1](\1)", parts[i])
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
