"""Commands that cannot be understood: one line that names the mistake, the nearest name and where to look."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import tokenmill as tm
from tokenmill.cli import main


def refused(arguments: list[str], capsys) -> str:
    """The one line that a command is refused with."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    return line


def test_the_package_runs_as_a_module():
    ran = subprocess.run([sys.executable, "-m", "tokenmill", "--version"], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, f"tokenmill {tm.__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["biuld", "x"], "tokenmill: no command 'biuld'; did you mean build? (see: tokenmill --help)"),
        (["cache", "lst"], "tokenmill cache: no command 'lst'; did you mean list? (see: tokenmill cache --help)"),
        (["build", "x", "--tokenizr", "y"], "no option '--tokenizr'; did you mean --tokenizer?"),  # not: -t is missing
        (["build", "x", "--max_rows=3"], "no option '--max_rows=3'; did you mean --max-rows?"),
        (["build", "x", "-t", "y", "--tok", "z"], "no option '--tok'; did you mean --tokenizer?"),
        (["build", "x", "-t", "y", "--sep", "z"], "no option '--sep'; did you mean --separator?"),
        (["build", "x", "-t", "y", "--max-docs", "3"], "no option '--max-docs'; did you mean --max-documents?"),
        (["cache", "rm", "x"], "tokenmill cache: no command 'rm'; did you mean remove?"),
        (["help", "biuld"], "tokenmill: no command 'biuld'; did you mean build?"),
        (["build", "-x"], "tokenmill build: no option '-x' (see: tokenmill build --help)"),
        (
            ["build", "--machine"],
            "no option '--machine'; is it --backend or --dashboard? (see: tokenmill build --help)",
        ),
        (["blorp"], "no command 'blorp'; there are build, estimate, run, "),
        (["--verison"], "tokenmill: no option '--verison'; did you mean --version?"),
        (["build", "x", "-t", "y", "--separator", "---"], "if it is the value of --separator, write --separator=---"),
        (["build", "x", "-t", "y", "--format", "jsn"], "--format: 'jsn' is not one of auto, text, lines, jsonl,"),
        (["build", "x", "-t", "y", "--format", "jsn"], "did you mean jsonl? (see: tokenmill build --help)"),
        (["pack", "x", "--seq-len", "8", "--strategy", "bestfit"], "did you mean best_fit?"),
        (["completion", "zhs"], "did you mean zsh?"),
        (["info", "a", "b"], "tokenmill info: unexpected argument 'b' (see: tokenmill info --help)"),
        (["show", "x", "0:3"], "unexpected argument '0:3'; write --doc 0"),
        (["run", "x", "--set", "pack.seq_len", "32"], "unexpected argument '32'; write --set KEY=VALUE"),
        (["run", "x", "pack.seq_len=32"], "write --set pack.seq_len=32"),
        (["run", "x", "--batch-size", "4"], "no option '--batch-size'; keys of the recipe are set by --set"),
        (["export", "x", "-f", "hf", "-o", "y"], "no option '-f'; did you mean --format?"),
        (["info", "a\nb", "c\nd"], r"unexpected argument 'c\nd'"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(arguments, says, capsys):
    assert says in refused(arguments, capsys)


@pytest.mark.parametrize("command", [[], ["build"], ["cache", "list"]])
def test_help_is_a_command_too(command, capsys):
    for arguments in (["help", *command], [*command, "--help"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 0
    out = capsys.readouterr().out
    assert out[: len(out) // 2] == out[len(out) // 2 :]
    assert out.startswith(f"usage: {' '.join(['tokenmill', *command])} ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["build"],
        ["build", "x"],
        ["info"],
        ["show"],
        ["build", "x", "-t", "y", "-o", "z", "--max-rows", "a"],
    ],
)
def test_a_command_that_lacks_something(arguments, capsys):
    """Still one line, with the command to look at."""
    command = " ".join(["tokenmill", *arguments[:1]])
    line = refused(arguments, capsys)
    assert line.startswith(f"{command}: ")
    assert line.endswith(f"(see: {command} --help)")


def test_what_looks_like_a_flag_and_is_none(tmp_path, capsys):
    """Negative numbers, text with spaces, a single dash, attached values and everything after -- are passed on."""
    missing = str(tmp_path / "none")
    assert main(["show", missing, "--doc", "-1", "2"]) == 3
    assert main(["build", missing, f"-t{missing}", "--separator", "- - -", "-q"]) == 2
    assert main(["info", "--", "--tokenizr"]) == 3
    assert "--tokenizr" in capsys.readouterr().err
    assert main(["bench", "-", "-t", os.devnull]) == 2


def test_files_after_the_mark_that_ends_flags_are_inputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "-b.txt"):
        (tmp_path / name).write_text("text")
    assert main(["build", "a.txt", "-t", "bytes", "-o", "store", "-q", "--", "-b.txt"]) == 0
    assert len(tm.open("store")) == 2


def test_a_command_of_commands_alone_shows_its_help(capsys):
    for command in ([], ["cache"]):
        with pytest.raises(SystemExit) as caught:
            main(command)
        out, err = capsys.readouterr()
        assert (caught.value.code, err) == (0, "")
        assert out.startswith(f"usage: {' '.join(['tokenmill', *command])} ")
