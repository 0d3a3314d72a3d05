"""Writes docs/options.md, the reference of every option, from the declarations in tokenmill.options.

python scripts/option_page.py            # rewrite the page; a test fails while it is out of date
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "options.md"
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


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
