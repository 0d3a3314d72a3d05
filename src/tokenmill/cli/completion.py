"""tokenmill completion: scripts that complete commands, flags, choices and files in bash, zsh and fish."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tokenmill.cli.command_parser import CommandParser
from tokenmill.cli.flags import add_command, value_type
from tokenmill.option_kinds import OneOf

PATHS = ("source", "store", "recipe", "tokenizer")  # arguments that name a path; flags do with DIR or FILE


def add(commands: Any, top: CommandParser) -> None:
    command = add_command(
        commands,
        "completion",
        lambda options: _print(SCRIPTS[options.shell], top),
        help="print the script that completes commands and flags in a shell",
        description='Print a completion script. Add to ~/.bashrc: eval "$(tokenmill completion bash)"; to ~/.zshrc, after'
        ' compinit: eval "$(tokenmill completion zsh)"; to ~/.config/fish/config.fish: tokenmill completion fish | source',
    )
    shells = OneOf(tuple(SCRIPTS))
    command.add_argument("shell", type=value_type(shells), choices=SCRIPTS, metavar="SHELL", help=shells.label)


def _print(script: Callable[[CommandParser], str], top: CommandParser) -> int:
    print(script(top))
    return 0


@dataclass(frozen=True, slots=True)
class Value:
    """What can follow a flag, or stand for an argument: one of some words, a path, or anything."""

    words: tuple[str, ...] = ()
    is_path: bool = False


def value_of(action: argparse.Action) -> Value:
    is_path = action.metavar in ("DIR", "FILE") or action.dest in PATHS
    return Value(tuple(action.choices or ()), is_path)


def flags_of(command: CommandParser) -> list[argparse.Action]:
    return list(dict.fromkeys(command.flags.values()))


def arguments_of(command: CommandParser) -> list[argparse.Action]:
    """What a command takes besides flags; none for a command of commands."""
    actions = [] if command.commands else command._get_positional_actions()
    return list(actions)


def all_commands(top: CommandParser) -> Iterator[tuple[str, CommandParser]]:
    """Every command with the words it is called with, such as "cache list"; "" for tokenmill itself."""
    yield "", top
    for name, command in top.commands.items():
        for below, inner in all_commands(command):
            yield f"{name} {below}".strip(), inner


def bash(top: CommandParser) -> str:
    """A case per command, for what may come next, and a case per flag that takes a value."""
    known = [f'"{name}"' for name, _ in all_commands(top) if name]
    nexts, values = [], []
    for name, command in all_commands(top):
        words = [*command.commands, *command.flags]
        paths = "yes" if any(value_of(each).is_path for each in arguments_of(command)) else ""
        words += [word for each in arguments_of(command) for word in value_of(each).words]
        nexts.append(f'        "{name}") words="{" ".join(words)}" paths={paths} ;;')
        for action in flags_of(command):
            if action.nargs != 0:
                value = value_of(action)
                patterns = " | ".join(f'"{name} {flag}"' for flag in action.option_strings)
                values.append(f'        {patterns}) words="{" ".join(value.words)}" paths={"yes" * value.is_path} ;;')
    return _BASH.format(known=" | ".join(known), nexts="\n".join(nexts), values="\n".join(values))


_BASH = """\
_tokenmill() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} command="" words="" paths="" i
    COMPREPLY=()
    if [[ $current == "=" ]]; then current=""; elif [[ $previous == "=" ]]; then previous=${{COMP_WORDS[COMP_CWORD - 2]}}; fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "${{command:+$command }}${{COMP_WORDS[i]}}" in
            {known}) command="${{command:+$command }}${{COMP_WORDS[i]}}" ;;
        esac
    done
    case "$command" in
{nexts}
    esac
    case "$command $previous" in
{values}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [[ $paths && $current != -* ]]; then
        local IFS=$'\\n'
        COMPREPLY+=($(compgen -f -- "$current"))
        compopt -o filenames 2>/dev/null
    fi
}}
complete -F _tokenmill tokenmill"""


def zsh(top: CommandParser) -> str:
    """A function per command that lists its flags and arguments for _arguments."""
    functions = [_zsh_function(name, command) for name, command in all_commands(top)]
    return "\n".join(["#compdef tokenmill", *functions, "compdef _tokenmill tokenmill"])


def _zsh_function(name: str, command: CommandParser) -> str:
    specs = []
    for action in flags_of(command):
        for flag in action.option_strings:
            specs.append(f"{flag}[{_zsh_text(_help(action))}]" + ("" if action.nargs == 0 else _zsh_value(action)))
    if not command.commands:
        specs += [f"*{_zsh_value(action)}" for action in arguments_of(command)[-1:]]
        return _ZSH_COMMAND.format(name=_zsh_name(name), specs=_zsh_lines(specs))
    specs += ["1: :->command", "*:: :->rest"]
    entries = [f"{below}:{_summary(inner)}" for below, inner in command.commands.items()]
    cases = [f"        {below}) {_zsh_name(f'{name} {below}'.strip())} ;;" for below in command.commands]
    return _ZSH_COMMANDS.format(
        name=_zsh_name(name), specs=_zsh_lines(specs), entries=_zsh_lines(entries), cases="\n".join(cases)
    )


_ZSH_COMMAND = """\
{name}() {{
    _arguments \\
{specs}
}}"""

_ZSH_COMMANDS = """\
{name}() {{
    local curcontext="$curcontext" state line
    typeset -A opt_args
    _arguments -C \\
{specs}
    if [[ $state == command ]]; then
        local -a commands=( \\
{entries}
        )
        _describe command commands
    elif [[ $state == rest ]]; then
        case $line[1] in
{cases}
        esac
    fi
}}"""


def _zsh_lines(words: list[str]) -> str:
    return " \\\n".join(f"        {shlex.quote(word)}" for word in words)


def _zsh_name(name: str) -> str:
    return "_" + "_".join(["tokenmill", *name.split()])


def _zsh_value(action: argparse.Action) -> str:
    value = value_of(action)
    complete = f"({' '.join(value.words)})" if value.words else "_files" if value.is_path else " "
    return f":{action.dest}:{complete}"


def _zsh_text(text: str) -> str:
    """Text with a backslash before the characters that mean something to _arguments."""
    return "".join(f"\\{c}" if c in "\\[]:`$" else c for c in text)


def fish(top: CommandParser) -> str:
    """A line per command, flag and argument, each with the condition under which it applies."""
    lines = ["complete -c tokenmill -f"]
    for name, command in all_commands(top):
        where = f"-n {shlex.quote(_fish_condition(name, command, top))}"
        for below, inner in command.commands.items():
            lines.append(f"complete -c tokenmill {where} -a {below} -d {_fish_text(_summary(inner))}")
        for action in flags_of(command):
            flags = " ".join(
                f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in action.option_strings
            )
            value = "" if action.nargs == 0 else _fish_value(action, " -x")
            lines.append(f"complete -c tokenmill {where} {flags}{value} -d {_fish_text(_help(action))}")
        for action in arguments_of(command):
            if value := _fish_value(action, ""):
                lines.append(f"complete -c tokenmill {where}{value}")
    return "\n".join(lines)


def _fish_condition(name: str, command: CommandParser, top: CommandParser) -> str:
    """The words of the command were typed, and no other command: "verify" is also the end of "cache verify"."""
    seen = [f"__fish_seen_subcommand_from {word}" for word in name.split()]
    others = [*command.commands, *(each for each, inner in top.commands.items() if name in inner.commands)]
    return "; and ".join([*seen, *([f"not __fish_seen_subcommand_from {' '.join(others)}"] if others else [])])


def _fish_value(action: argparse.Action, anything: str) -> str:
    value = value_of(action)
    if value.words:
        return f" -x -a {shlex.quote(' '.join(value.words))}"
    return " -r -F" if value.is_path else anything


def _fish_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _summary(command: CommandParser) -> str:
    """The first sentence of a command's description."""
    return (command.description or "").split(". ")[0].rstrip(".")


def _help(action: argparse.Action) -> str:
    return (action.help or "").replace("%%", "%")


SCRIPTS: dict[str, Callable[[CommandParser], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
