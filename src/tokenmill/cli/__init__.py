"""The command line: parse, call, show. Results go to standard output, everything else to standard error.

Exit codes: 0 done, 1 failed, 2 usage, 3 corrupt or mismatched store, 4 done but some input files failed, 130 interrupted,
143 terminated.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tokenmill import __version__
from tokenmill.child_process import claim_process
from tokenmill.cli import (
    bench,
    build,
    cache,
    completion,
    dash,
    demo,
    estimate,
    export,
    import_tokens,
    info,
    pack,
    run,
    show,
    verify,
)
from tokenmill.cli.command_parser import CommandParser
from tokenmill.errors import TokenmillError
from tokenmill.formatting import printable

INTERRUPTED, TERMINATED = 130, 143


class Terminated(BaseException):
    """SIGTERM arrived: schedulers send it before they kill."""


@contextmanager
def _orderly_end() -> Iterator[None]:
    """SIGTERM ends the command as Ctrl-C does: the cursor is shown again, and the log says that the build was stopped.

    A signal that arrives in a `__del__`, where Python drops exceptions, is sent again.
    """

    def stop(number: int, frame: Any) -> None:
        raise Terminated

    def send_again(dropped: Any) -> None:
        number = {KeyboardInterrupt: signal.SIGINT, Terminated: signal.SIGTERM}.get(dropped.exc_type)
        if number is None:
            sys.__unraisablehook__(dropped)
        else:
            threading.Timer(0.01, signal.pthread_kill, [threading.main_thread().ident, number]).start()

    if threading.current_thread() is not threading.main_thread():  # others cannot set handlers
        yield
        return
    before, sys.unraisablehook = (signal.signal(signal.SIGTERM, stop), sys.unraisablehook), send_again
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before[0])
        sys.unraisablehook = before[1]


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    if arguments is None:
        claim_process()
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # numpy would start a thread per core, for what is not used here
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["help"]:
        given = [*given[1:], "--help"]
    if given[:1] == ["pack"]:  # as the verb of Python is called
        given = ["stats", *given[1:]]
    options = parser().parse_args(given)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # file names may not be valid text
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = lambda text, *_: print(f"warning: {printable(str(text))}", file=sys.stderr)
    if getattr(options, "quiet", False):
        warnings.showwarning = lambda *_: None
    try:
        with _orderly_end():
            return int(options.run(options))
    except TokenmillError as error:
        print_error(f"tokenmill: {printable(str(error))}")
        return error.exit_code
    except (KeyboardInterrupt, Terminated) as error:
        hint = ". Finished shards are kept: run the command again to resume" if options.resumes else ""
        print(f"\nstopped{hint}", file=sys.stderr)
        return TERMINATED if isinstance(error, Terminated) else INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 1


def print_error(text: str) -> None:
    """Print a line on standard error, in red where there is a terminal and NO_COLOR is not set."""
    is_red = sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    print(f"\x1b[31m{text}\x1b[0m" if is_red else text, file=sys.stderr)


def parser() -> CommandParser:
    """The parser with every command and flag."""
    top = CommandParser(
        prog="tokenmill",
        description="Turn raw text into a verified token store, once, at the speed of the fastest tokenizer engine.",
    )
    top.add_argument("-V", "--version", action="version", version=f"tokenmill {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in (build, estimate, run, info, show, pack, verify, export, import_tokens, dash, cache, bench, demo):
        command.add(commands)
    completion.add(commands, top)
    return top
