"""tokenmill build."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.cli.info import print_info
from tokenmill.errors import UsageError

if TYPE_CHECKING:
    from tokenmill.reading import Source

FAILED_FILES = 4


def add(commands: Any) -> None:
    command = commands.add_parser(
        "build",
        help="tokenize a corpus into a store; run again to resume",
        description="Tokenize a corpus into a store. Run it again: it resumes, or says that it is up to date.",
    )
    command.set_defaults(run=_build)
    add_what(command)
    command.add_argument("-o", "--out", help="folder of the store (in the cache, found by content)")
    add_reading(command)
    add_tokens(command)
    add_trial(command)
    running = command.add_argument_group("running")
    running.add_argument("--shard-bytes", metavar="SIZE", help="text per shard (32MB; 1MB for slow Python tokenizers)")
    running.add_argument(
        "--workers", type=int, metavar="N", help="worker processes; 0 works inside this one (one a core)"
    )
    running.add_argument("--memory", metavar="SIZE", help="for all workers together, as 4GB (half of what is free)")
    add_cache(running)
    running.add_argument("--json", action="store_true", help="print the result as JSON")
    loud = running.add_mutually_exclusive_group()
    loud.add_argument("-q", "--quiet", action="store_true", help="no progress")
    loud.add_argument("-v", "--verbose", action="store_true", help="a line for every shard")


def add_what(command: argparse.ArgumentParser) -> None:
    """The text and the tokenizer: what every command that tokenizes is given."""
    command.add_argument("source", nargs="+", help="files, globs, folders, @list.txt, or - for standard input")
    command.add_argument(
        "-t",
        "--tokenizer",
        required=True,
        help="a path or folder, a name on the Hugging Face Hub (org/model@revision), tiktoken:ENCODING, or bytes",
    )


def add_reading(command: argparse.ArgumentParser) -> None:
    """How the input is read: the flags of every command that takes a source; `source_of` turns them into one."""
    reading = command.add_argument_group("reading")
    reading.add_argument("--format", default="auto", help="text, lines, jsonl, parquet, arrow, csv, tsv (by suffix)")
    reading.add_argument(
        "--text-field", default="text", metavar="FIELD", help="field with the text, dotted if nested (text)"
    )
    reading.add_argument("--template", help="build the text from fields: '{title}\\n\\n{body}'")
    reading.add_argument("--separator", help="what stands between documents in plain text: '<|endoftext|>'")
    reading.add_argument("--on-error", default="quarantine", choices=("quarantine", "raise"), help="bad documents")


def add_trial(command: argparse.ArgumentParser) -> None:
    """Where a trial stops."""
    trial = command.add_argument_group("for a trial")
    trial.add_argument(
        "--max-rows", "--limit", type=int, metavar="N", help="only the first N rows of input, bad ones counted"
    )
    trial.add_argument("--max-documents", type=int, metavar="N", help="only the first N documents")
    trial.add_argument("--max-tokens", type=int, metavar="N", help="whole documents of at most N tokens")


def add_cache(command: Any) -> None:
    """What is believed of an earlier build, and where such builds are."""
    command.add_argument("--cache-dir", metavar="DIR", help="the cache (TOKENMILL_CACHE, or ~/.cache/tokenmill)")
    command.add_argument(
        "--rehash", action="store_true", help="compare every input file by content, whatever size and dates say"
    )
    command.add_argument("--force", action="store_true", help="make everything anew, whatever is there")


def add_tokens(command: argparse.ArgumentParser) -> None:
    """What becomes of the text: the flags of every command that tokenizes as `build` does."""
    tokens = command.add_argument_group("tokens")
    tokens.add_argument("--eos", default="auto", help="id put after each document: a token, an id, auto or none (auto)")
    tokens.add_argument(
        "--bos", default="none", help="id put before each document: a token, an id, auto or none (none)"
    )
    tokens.add_argument(
        "--special-tokens",
        choices=("parse", "text", "error"),
        help="names of special tokens in the text become their ids, stay ordinary text, or stop the build (parse)",
    )
    tokens.add_argument("--engine", help="auto, reference, or an engine by name (auto: the fastest that proves itself)")


def _build(options: argparse.Namespace) -> int:
    from tokenmill.building.api import build_in
    from tokenmill.building.cache.store_cache import build_cached
    from tokenmill.building.request import ask

    running = {"workers": options.workers, "memory": options.memory}
    asked = ask(source_of(options), options.tokenizer, {}, **asked_of(options), **running)
    progress = "quiet" if options.quiet else "verbose" if options.verbose else "auto"
    if options.out is None:
        store = build_cached(asked, options.cache_dir, progress, for_this_run=False)
    elif options.cache_dir is not None:
        raise UsageError("--out and --cache-dir exclude each other: a store is in a folder of yours, or in the cache")
    else:
        store = build_in(Path(options.out), asked, progress)
    print_info(str(options.out or store.path), options.json)
    return failed_files(len(store.failed))


def failed_files(count: int) -> int:
    """The exit code of a command that builds, and a line where input files failed."""
    if not count:
        return 0
    from tokenmill.formatting import some

    print(
        f"{some(count, 'input file')} failed; run the same command to try again, or go on with the others",
        file=sys.stderr,
    )
    return FAILED_FILES


def asked_of(options: argparse.Namespace) -> dict[str, Any]:
    """What the flags of `add_tokens`, `add_trial` and `add_cache` ask of a build."""
    names = (
        "eos",
        "bos",
        "special_tokens",
        "engine",
        "shard_bytes",
        "max_rows",
        "max_documents",
        "max_tokens",
        "force",
        "rehash",
    )
    return {name: getattr(options, name) for name in names}


def source_of(options: argparse.Namespace) -> Source:
    """The source that `source` and the flags of `add_reading` name."""
    from tokenmill.reading import read

    return read(
        *options.source,
        format=options.format,
        text_field=options.text_field,
        template=_unescaped(options.template),
        separator=_unescaped(options.separator),
        on_error=options.on_error,
    )


def _unescaped(text: str | None) -> str | None:
    r"""A template or separator as typed in a shell, where \n and \t are wanted as the characters they stand for."""
    return None if text is None else text.replace("\\n", "\n").replace("\\t", "\t")
