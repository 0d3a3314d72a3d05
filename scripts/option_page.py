"""Writes docs/options.md, the reference of every option, from the declarations in tokenmill.options; and the tables of
docs/coming.md, what words of other tools mean here, from tokenmill/data/words.toml.

python scripts/option_page.py            # rewrite the pages; a test fails while they are out of date
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "options.md"
WORDS_PAGE = PAGE.with_name("coming.md")
PLACES = {
    "sources": "sources of a recipe",
    "top": "a recipe",
    "loader": "`recipe.loader`",
}  # others are commands or functions
HEAD = """\
# Options

Every option is declared once, in `tokenmill.options`. It has the same name as a keyword in Python (`max_rows=100`), as a flag on
the command line (`--max-rows 100`, where the command takes it) and as a key of a [recipe](recipes.md) (`max_rows: 100`). A value
out of range, or a name that does not exist, raises `UsageError` with the nearest name that does.

Written by `scripts/option_page.py` from the declarations.
"""


def page() -> str:
    """The page, from the declarations."""
    from tokenmill.options import (
        BuildArguments,
        ExportArguments,
        ImportArguments,
        LayoutOptions,
        LoadArguments,
        PackOptions,
        ReadOptions,
        RowOptions,
        SampleOptions,
        SplitOptions,
        TokenOptions,
        TrialOptions,
    )

    before_building = (ReadOptions, TokenOptions, TrialOptions)
    packing = (LayoutOptions, RowOptions)
    parts = [
        HEAD,
        *_part("Reading", "`tm.read`; also `tm.build` and `tm.estimate`, if they are given paths.", ReadOptions),
        *_part("Tokens", "`tm.build` and `tm.estimate`.", TokenOptions),
        *_part("Building", "`tm.build`.", BuildArguments, without=before_building),
        *_part("Trial builds", "`tm.build`. A trial is never taken for the whole.", TrialOptions),
        *_part("Estimating", "`tm.estimate`.", SampleOptions),
        *_part(
            "Packing", "`tm.pack`; also `tm.load` and `tm.export`, if they are not given a view already.", PackOptions
        ),
        *_part("Splitting", "`view.split`, beside the named parts.", SplitOptions),
        *_part("Loading", "`tm.load`.", LoadArguments, without=packing),
        *_part("Exporting", "`tm.export`.", ExportArguments, without=packing),
        *_part("Importing", "`tm.import_tokens`.", ImportArguments),
    ]
    return "\n".join(parts)


def _part(title: str, where: str, group: type, without: Collection[type] = ()) -> list[str]:
    """The options of a group, except those that other groups declare in the same words."""
    elsewhere = {row for other in without for row in _rows(other)}
    rows = [row for row in _rows(group) if row not in elsewhere]
    return [f"## {title}", "", where, "", "| option | values | default | meaning |", "|---|---|---|---|", *rows, ""]


def _rows(group: type) -> list[str]:
    from tokenmill.option_types import declared

    rows = []
    for name, option in declared(group).items():
        default = "required" if option.required else option.default_text
        cells = (f"`{name}`", option.kind.label, default, option.help.text)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return rows


def words_page() -> str:
    """docs/coming.md with its tables as they should be."""
    tables = "\n".join(_word_tables())
    between = re.compile(r"(<!-- words -->\n).*?(<!-- end -->)", re.DOTALL)
    return between.sub(lambda found: f"{found[1]}{tables}\n{found[2]}", WORDS_PAGE.read_text("utf-8"))


def _word_tables() -> list[str]:
    from tokenmill.option_calls import in_verbs
    from tokenmill.synonyms import table

    def option(name: str) -> str:
        return re.sub(r"^\w+|tm\.\w+", r"`\g<0>`", in_verbs(name))

    lines = ["| option | here |", "|---|---|"]
    for meaning, words, *places in table("options"):
        here = re.sub(r"\{(\w+)\}", lambda name: option(name[1]), meaning)
        if meaning.startswith("source|"):
            here = "the input, as the first argument without a name; in a recipe `sources`"
        elif places and meaning.isidentifier():
            here = f"`{meaning}`"
        elif " " not in meaning:
            here = ", ".join(filter(None, map(option, meaning.split("|")))) or meaning
        where = f" ({', '.join(PLACES.get(place, f'`{place}`') for place in places[0].split())})" if places else ""
        lines.append(f"| {_typed(words)}{where} | {here} |")
    lines += ["", "| value | here |", "|---|---|"]
    lines += [f"| {_typed(words)} | {_choice(meaning)} |" for meaning, words, *_ in table("values")]
    lines += ["", "| command | here |", "|---|---|"]
    return lines + [
        f"| {_typed(words)} | {_choice(meaning.rpartition('|')[2])} |" for meaning, words in table("commands")
    ]


def _typed(words: str) -> str:
    return ", ".join(f"`{word}`" for word in words.split())


def _choice(meaning: str) -> str:
    return " or ".join(each if len(each.split()) > 2 else f"`{each}`" for each in meaning.split("|"))


if __name__ == "__main__":
    WORDS_PAGE.write_text(words_page(), "utf-8")
    PAGE.write_text(page(), "utf-8")
