"""The parser of commands and flags. A mistake gets one line: what is wrong, the nearest name, and where to look."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from tokenmill.formatting import printable
from tokenmill.option_calls import by_help, in_verbs
from tokenmill.synonyms import choice_remedy, remedy

_NEGATIVE_NUMBER = re.compile(r"-\.?\d")


class CommandParser(argparse.ArgumentParser):
    """argparse with short error messages. Unknown commands and flags are reported before missing arguments."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)  # an abbreviation would change its meaning with a new flag
        self.commands: dict[str, CommandParser] = {}
        self.top = self  # of all commands
        self.given: list[str] = []

    def add_subparsers(self, **settings: Any) -> Any:
        added = super().add_subparsers(**settings)
        self.commands = added.choices  # filled as commands are added
        return added

    @property
    def flags(self) -> dict[str, argparse.Action]:
        """The flags of this command, long and short."""
        return self._option_string_actions

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        self.given = given = list(sys.argv[1:] if args is None else args)
        if self.commands and not given:
            given = ["--help"]
        self._refuse_unknown(given)
        found, extra = super().parse_known_args(given, namespace)
        many = next((each.dest for each in self._get_positional_actions() if each.nargs == "+"), None)
        if extra and many:  # argparse takes only those before the first flag, and leaves the mark for those after it
            setattr(found, many, [*getattr(found, many), *(word for word in extra if word != "--")])
            return found, []
        if extra and not self.commands:
            number, value = re.match(r"\d*", extra[0])[0], extra[0] if "=" in extra[0] else "KEY=VALUE"  # type: ignore[index]
            written = {"--set": value} | ({"--doc": number} if number else {})
            hint = next((f"; write {flag} {written[flag]}" for flag in written if flag in self.flags), "")
            self.error(f"unexpected argument {extra[0]!r}{hint}")
        return found, extra

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ")
        first = self.given[0] if self.given else ""
        if message.endswith("required: -t/--tokenizer") and os.path.exists(os.path.join(first, "manifest.json")):
            message = f"{first} is a token store already: tokenmill info, stats and export take it as it is"
        if "required" in message and (recipes := [word for word in self.given if word.endswith((".yaml", ".yml"))]):
            message = f"{recipes[0]} is a recipe: tokenmill run {recipes[0]}"
        self.exit(2, printable(f"{self.prog}: {message} (see: {self.prog} --help)").replace("\n", " ") + "\n")

    def _refuse_unknown(self, given: list[str]) -> None:
        """Report the first command or flag that does not exist."""
        before = None
        for word in given:
            if word == "--":
                return
            if not is_flag(word):
                if self.commands:
                    if word not in self.commands:
                        self.error(f"no command {word!r}{self._no_command(word)}")
                    self.commands[word].top = self.top
                    return  # the rest is for that command
            elif not self._knows(word):
                self.error(self._no_option(word, before))
            before = self.flags.get(word)

    def _knows(self, word: str) -> bool:
        name = word.partition("=")[0] if word.startswith("--") else word[:2]  # -tPATH is -t PATH
        return name in self.flags

    def _no_command(self, word: str) -> str:
        if word.endswith((".yaml", ".yml")):
            return f"; tokenmill run {word} runs a recipe"
        return choice_remedy("commands", word, self.commands)

    def _no_option(self, word: str, before: argparse.Action | None) -> str:
        if "." in word and "--set" in self.flags:
            return f"no option {word!r}; write --set {word.strip('-')}=VALUE"
        known = {flag[2:].replace("-", "_"): flag for flag in self.flags if flag.startswith("--")}
        known |= {each.dest: f"{each.dest}, by position" for each in self._get_positional_actions()}
        near = remedy(word.partition("=")[0], self.prog.split()[-1], known, self._elsewhere)
        if not near and before is not None and before.nargs is None:
            near = f"; if it is the value of {before.option_strings[-1]}, write {before.option_strings[-1]}={word}"
        return f"no option {word!r}{near or by_help(word, known)}"

    def _elsewhere(self, option: str) -> str:
        """ "--seq-len of tokenmill stats and tokenmill export", an option of Python, or nothing."""
        flag = f"--{option.replace('_', '-')}"
        commands = [f"tokenmill {name}" for name, command in self.top.commands.items() if flag in command.flags]
        return f"{flag} of {' and '.join(commands)}" if commands else in_verbs(option)


def is_flag(word: str) -> bool:
    """Whether argparse takes a word for a flag. A single -, a negative number and text with spaces are values."""
    return len(word) > 1 and word.startswith("-") and " " not in word and not _NEGATIVE_NUMBER.match(word)
