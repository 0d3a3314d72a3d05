"""The bash and Python blocks of a page, run as they stand: what a document shows must work."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType
from unittest import mock

from tokenmill.cli import main


def load_script(path: Path) -> ModuleType:
    """A script of the project as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Ran(dict[str, str]):
    """What each command of a page printed, by its arguments: standard output, and in `errors` standard error.

    `said` has both, a text for each command in the order of the page.
    """

    def __init__(self) -> None:
        self.errors: dict[str, str] = {}
        self.said: list[str] = []


def run_page(page: str, folder: Path, more: str = "") -> Ran:
    """Run a page's commands in order, then its Python as one script, with `more` behind it; any failure is an AssertionError.

    The cache is `folder / "cache"`. The script runs in a process of its own.
    """
    python = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert python
    told = run_commands(page, folder)
    run_script("\n".join([*python, more]), folder)
    return told


def run_commands(page: str, folder: Path) -> Ran:
    """Run a page's commands in order, in this process, which saves the start of many."""
    blocks = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    assert blocks
    cache = {"TOKENMILL_CACHE": str(folder / "cache")}
    told = Ran()
    for block in blocks:
        for line in block.replace("\\\n", "").splitlines():
            program, *arguments = shlex.split(line, comments=True)
            assert program == "tokenmill"
            out, err = StringIO(), StringIO()
            with chdir(folder), mock.patch.dict(os.environ, cache), redirect_stdout(out), redirect_stderr(err):
                code = main(arguments)
            assert code == 0, f"{arguments}: {err.getvalue()}"
            name = " ".join(arguments)
            told[name] = told.get(name, "") + out.getvalue()
            told.errors[name] = told.errors.get(name, "") + err.getvalue()
            told.said.append(out.getvalue() + err.getvalue())
    return told


def run_here(script: str, folder: Path) -> None:
    """Run some Python of a page in this process: it has imported torch already, which takes longer than most scripts."""
    cache = {"TOKENMILL_CACHE": str(folder / "cache")}
    with chdir(folder), mock.patch.dict(os.environ, cache), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        exec(compile(script, "page", "exec"), {"__name__": "__main__"})


def run_script(script: str, folder: Path) -> None:
    """Run some Python of a page in a folder, with a cache there."""
    environment = {**os.environ, "TOKENMILL_CACHE": str(folder / "cache")}
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, cwd=folder, env=environment, timeout=60, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
