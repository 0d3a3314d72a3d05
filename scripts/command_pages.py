"""Writes docs/commands.md from the command line itself, so that no command or flag goes undocumented.

python scripts/command_pages.py            # rewrite the page; a test fails while it is out of date
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"


def page() -> str:
    """The help of every command, as it stands."""
    os.environ["COLUMNS"] = "100"
    from tokenmill.cli import parser

    top = parser()
    commands = next(action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    parts = ["# Commands", "", "Written by `scripts/command_pages.py` from the commands themselves.", ""]
    for name, command in {"": top, **commands.choices}.items():
        parts += [f"## tokenmill {name}".rstrip(), "", "```", command.format_help().rstrip(), "```", ""]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
