"""tokenmill build."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext, redirect_stdout, suppress
from dataclasses import fields
from typing import Any

from tokenmill.cli.flags import add_command, add_corpus, add_groups, add_json, add_options, given_options
from tokenmill.cli.info import print_info
from tokenmill.formatting import some
from tokenmill.options import BuildArguments, ReadOptions, RunOptions, TokenOptions, TrialOptions


def add(commands: Any) -> None:
    command = add_command(
        commands,
        "build",
        _build,
        help="tokenize a corpus into a store; run again to resume",
        description="Tokenize a corpus into a store. Run it again to resume, or to see that it is up to date.",
        resumes=True,
    )
    add_corpus(command)
    add_options(command, BuildArguments, only=["out"])
    add_groups(command, ReadOptions, TokenOptions, TrialOptions)
    running = command.add_argument_group("running")
    add_options(running, RunOptions, skip=["progress"])
    add_json(running)
    verbosity = running.add_mutually_exclusive_group()
    verbosity.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    verbosity.add_argument(
        "-v", "--verbose", action="store_true", help="show the plan, the proof of the engine and every shard"
    )


def _build(options: argparse.Namespace) -> int:
    given = given_options(options, BuildArguments)
    if options.quiet or options.verbose:
        given["progress"] = "quiet" if options.quiet else "verbose"
    arguments = BuildArguments(options.tokenizer, **given)
    _start_early(options.source, arguments)
    from tokenmill.building.api import build_store

    # Ray prints messages about its nodes on standard output, which is for the result.
    with nullcontext() if arguments.backend == "local" else redirect_stdout(sys.stderr):
        store = build_store(tuple(options.source), arguments, allow_temporary=False)
    if store is None:  # a slice, and others are not done yet
        return 0
    if options.json or not options.quiet:
        print_info(str(arguments.out or store.path), as_json=options.json, brief=not options.verbose)
    return failed_files(len(store.failed))


def _start_early(source: list[str], arguments: BuildArguments) -> None:
    """If the build will surely have workers, start what they are forked from: it loads while this process loads.

    This is decided by what can be seen at once.
    """
    is_trial = any(getattr(arguments, each.name) is not None for each in fields(TrialOptions))
    is_alone = arguments.workers in (0, 1)
    if is_trial or is_alone or arguments.backend != "local" or arguments.out is None or os.path.lexists(arguments.out):
        return
    from tokenmill.building.executors.worker_process import SMALL_BYTES, prepare_template
    from tokenmill.building.machine import usable_cores

    if usable_cores() > 1 and _holds(source, SMALL_BYTES):
        prepare_template()


def _holds(source: list[str], nbytes: int) -> bool:
    """Whether files and folders hold so many bytes."""
    found = 0
    for path in source:
        for folder, _, names in os.walk(path) if os.path.isdir(path) else [("", [], [path])]:
            for name in names:
                with suppress(OSError):
                    found += os.path.getsize(os.path.join(folder, name))
                if found >= nbytes:
                    return True
    return False


def failed_files(number: int) -> int:
    """The exit code of a command that builds. Prints a line if input files failed."""
    if not number:
        return 0
    print(
        f"{some(number, 'input file')} failed; run the command again to retry, or use the store as it is",
        file=sys.stderr,
    )
    return 4
