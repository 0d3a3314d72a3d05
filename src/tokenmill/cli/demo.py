"""tokenmill demo."""

from __future__ import annotations

import argparse
from typing import Any

from tokenmill.cli.flags import add_command


def add(commands: Any) -> None:
    command = add_command(
        commands,
        "demo",
        _demo,
        help="try it on Python's own source files, offline",
        description="Build a store from the .py, .rst and .txt files of this Python installation, with a small demo tokenizer.",
        resumes=True,
    )
    command.add_argument("-o", "--out", default="demo-corpus", metavar="DIR", help="folder of the store (demo-corpus)")


def _demo(options: argparse.Namespace) -> int:
    from tokenmill.demo_data import demo

    return demo(options.out)
