"""The bash and Python blocks of a page, run as they stand: what a document shows must work."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path


class Ran(dict[str, str]):
    """What each command of a page printed, by its arguments: standard output, and in `errors` standard error."""

    def __init__(self) -> None:
        self.errors: dict[str, str] = {}


def run_page(page: str, folder: Path, more: str = "") -> Ran:
    """Run a page's commands in order, then its Python as one script, with `more` behind it; any failure is an AssertionError."""
    blocks = re.findall(r"```(bash|python)\n(.*?)```", page, re.DOTALL)
    assert {kind for kind, _ in blocks} == {"bash", "python"}
    environment = {**os.environ, "TOKENMILL_CACHE": str(folder / "cache")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        ran = subprocess.run(command, cwd=folder, env=environment, timeout=60, capture_output=True, text=True)
        assert ran.returncode == 0, f"{arguments}: {ran.stderr}"
        return ran

    told = Ran()
    for block in (block for kind, block in blocks if kind == "bash"):
        for line in block.splitlines():
            program, *arguments = shlex.split(line, comments=True)
            assert program == "tokenmill"
            ran = run("-m", "tokenmill.cli", *arguments)
            name = " ".join(arguments)
            told[name], told.errors[name] = told.get(name, "") + ran.stdout, told.errors.get(name, "") + ran.stderr
    run("-c", "\n".join([*(block for kind, block in blocks if kind == "python"), more]))
    return told
