"""Writes docs/options.md, the reference of every option, from the declarations in tokenmill.options.

python scripts/option_page.py            # rewrite the page; a test fails while it is out of date
"""

from __future__ import annotations

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
    from tokenmill import options

    parts = [
        HEAD,
        *_part(
            "Reading", "`tm.read`; also `tm.build` and `tm.estimate`, if they are given paths.", options.ReadOptions
        ),
        *_part("Tokens", "`tm.build` and `tm.estimate`.", options.TokenOptions),
        *_part("Building", "`tm.build`.", options.RunOptions),
        *_part("Trial builds", "`tm.build`. A trial is never taken for the whole.", options.TrialOptions),
        *_part("Estimating", "`tm.estimate`.", options.SampleOptions),
        *_part("Packing", "`tm.pack`; also `tm.load`, if it is given a store or raw text.", options.PackOptions),
        *_part("Splitting", "`view.split`, beside the named parts.", options.SplitOptions),
        *_part("Loading", "`tm.load`.", options.LoadOptions),
    ]
    return "\n".join(parts)


def _part(title: str, where: str, group: type) -> list[str]:
    from tokenmill.option_types import declared

    rows = ["| option | values | default | |", "|---|---|---|---|"]
    for name, option in declared(group).items():
        default = "required" if option.required else option.default_text
        cells = (f"`{name}`", option.kind.label, default, option.help.text)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return [f"## {title}", "", where, "", *rows, ""]


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
