"""Writes docs/commands.md from the command line itself, so that no command or flag goes undocumented.

python scripts/command_pages.py            # rewrite the page; a test fails while it is out of date
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"


def page() -> str:
    """The page, from the help of every command."""
    os.environ["COLUMNS"] = "100"
    from tokenmill.cli import parser

    parts = ["# Commands", "", "Written by `scripts/command_pages.py` from the commands themselves.", ""]
    for name, command in commands("tokenmill", parser()).items():
        parts += [f"## {name}", "", "```", command.format_help().rstrip(), "```", ""]
    return "\n".join(parts)


def commands(name: str, command: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """A command and its subcommands, by name."""
    found = {name: command}
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below, within in action.choices.items():
                found |= commands(f"{name} {below}", within)
    return found


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
