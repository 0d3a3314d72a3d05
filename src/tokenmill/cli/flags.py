"""What the commands share: flags of declared options, the types of other flags, and how results are printed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection
from typing import Any

from tokenmill.formatting import printable
from tokenmill.known_datasets import KNOWN
from tokenmill.option_kinds import Flag, Kind, OneOf, Refused
from tokenmill.option_types import Options, declared
from tokenmill.options import ReadOptions, SampleOptions, TokenOptions, TrialOptions

GROUPS: dict[type[Options], str] = {
    ReadOptions: "reading",
    TokenOptions: "tokens",
    TrialOptions: "trial builds",
    SampleOptions: "sampling",
}


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    help: str,
    description: str,
    resumes: bool = False,
) -> argparse.ArgumentParser:
    """Add a command. `run` gets the parsed arguments and returns the exit code. `resumes`: it can be stopped and run again."""
    command: argparse.ArgumentParser = commands.add_parser(name, help=help, description=description)
    command.set_defaults(run=run, resumes=resumes)
    return command


def add_options(target: Any, group: type[Options], *, only: Collection[str] = (), skip: Collection[str] = ()) -> None:
    """Add a flag for each option of a group, or for `only` some of them, to a parser or an argument group.

    Flags have no default here: `given_options` returns those that were given, and the library fills in the rest.
    """
    for name, option in declared(group).items():
        if name in skip or (only and name not in only):
            continue
        names = [option.help.short] if option.help.short else []
        names.append(f"--{name.replace('_', '-')}")
        settings: dict[str, Any] = {"default": argparse.SUPPRESS, "help": option.help_line.replace("%", "%%")}
        if isinstance(option.kind, Flag):
            settings["action"] = argparse.BooleanOptionalAction if option.default else "store_true"
        else:
            settings |= {"type": value_type(option.kind), "metavar": option.help.metavar or name.upper()}
            settings |= {"required": option.required}
            if isinstance(option.kind, OneOf):
                settings["choices"] = option.kind.words  # for completion; the type has checked the value already
        target.add_argument(*names, **settings)


def add_groups(command: argparse.ArgumentParser, *groups: type[Options]) -> None:
    """Add groups of options under their titles."""
    for group in groups:
        add_options(command.add_argument_group(GROUPS[group]), group)


def given_options(namespace: argparse.Namespace, group: type[Options]) -> dict[str, Any]:
    """The options of a group that were given on the command line, as keywords."""
    return {name: getattr(namespace, name) for name in declared(group) if hasattr(namespace, name)}


def value_type(kind: Kind) -> Any:
    """The `type` of an argument for argparse. Words are checked here, everything else with the other options."""

    def parse(text: str) -> Any:
        try:
            value = kind.parse(text)
            return kind.check(value) if isinstance(kind, OneOf) else value
        except Refused as refused:
            raise argparse.ArgumentTypeError(f"{text!r} {refused}") from None

    return parse


def add_corpus(command: argparse.ArgumentParser) -> None:
    """Add the source and the tokenizer, for commands that tokenize."""
    command.add_argument(
        "source",
        nargs="+",
        help="files, globs, folders, @list.txt, URLs, - for standard input, or a dataset on the Hugging Face Hub:"
        f" org/name, hf://datasets/org/name@revision/path, or one of {', '.join(KNOWN)}",
    )
    command.add_argument(
        "-t",
        "--tokenizer",
        required=True,
        help="a path or folder, a name on the Hugging Face Hub (org/model@revision), tiktoken:ENCODING, bytes or demo",
    )


def add_json(command: Any) -> None:
    command.add_argument("--json", action="store_true", help="print JSON")


def print_result(facts: Any, text: str, *, as_json: bool) -> None:
    """Print the result of a command on standard output: the facts for programs, or the text for people."""
    print(json.dumps(facts, indent=1) if as_json else printable(text))


def count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def token_range(text: str) -> slice:
    """ "200" is the first 200 tokens, "1000:1200" a range."""
    if ":" not in text:
        return slice(0, count(text))
    try:
        low, high = (int(part) if part else None for part in text.split(":"))
    except ValueError as error:
        raise argparse.ArgumentTypeError("must be a number, or a range such as 1000:1200") from error
    return slice(low, high)
