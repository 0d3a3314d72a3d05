"""Completion scripts: what bash offers with ours loaded, and that no command or flag is missing in any shell."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tokenmill.cli import main, parser
from tokenmill.cli.completion import SCRIPTS, all_commands

# Each line of standard input is a command line; the last word is the one to complete.
ASK = """
while IFS= read -r line; do
    IFS='|' read -ra COMP_WORDS <<<"$line"
    [[ $line == *'|' ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _tokenmill
    echo "${COMPREPLY[*]}"
done
"""


@pytest.fixture(scope="module")
def offers(tmp_path_factory):
    """What bash offers for each of several lines, in a folder with two files; words are split by |."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    folder = tmp_path_factory.mktemp("files")
    (folder / "corpus one.jsonl").touch()
    (folder / "corpus-two.jsonl").touch()

    def offers(*lines: str) -> list[str]:
        script = f"{SCRIPTS['bash'](parser())}\n{ASK}"
        ran = subprocess.run(
            ["bash", "--norc", "-c", script], input="\n".join(lines) + "\n", cwd=folder, capture_output=True, text=True
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        return ran.stdout.splitlines()

    return offers


def test_bash_completes_commands_flags_choices_and_files(offers):
    assert offers(
        "tokenmill|b",
        "tokenmill|cache|",
        "tokenmill|cache|prune|--max",
        "tokenmill|build|x|--tok",
        "tokenmill|build|x|--format|j",
        "tokenmill|build|x|--format|=|js",
        "tokenmill|stats|s|--strategy|",
        "tokenmill|build|corpus o",
        "tokenmill|build|x|-t|corpus-",
        "tokenmill|build|x|--workers|",
        "tokenmill|completion|f",
    ) == [
        "build bench",
        "why list remove prune verify -h --help",
        "--max-size",
        "--tokenizer",
        "jsonl",
        "jsonl",
        "concat best_fit pad windows",
        "corpus one.jsonl",
        "corpus-two.jsonl",
        "",
        "fish",
    ]


@pytest.mark.parametrize("shell", SCRIPTS)
def test_every_command_and_flag_is_in_the_script(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for name, command in all_commands(parser()):
        assert name.split(" ")[-1] in script
        for flag in command.flags:
            assert (
                flag if shell != "fish" else f" -l {flag[2:]} " if flag.startswith("--") else f" -s {flag[1:]} "
            ) in script
    assert "jsonl parquet" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)
