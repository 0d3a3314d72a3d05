"""The command line: parse, call, show. Results go to standard output, everything else to standard error.

Exit codes: 0 done, 1 failed, 2 usage, 3 corrupt or mismatched store, 4 done but some input files failed, 130 interrupted.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from typing import Any

from tokenmill import __version__
from tokenmill.errors import LockedError, StoreError, TokenmillError
from tokenmill.events import printable

FAILED_FILES = 4
INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    options = parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a file name need not be text
            stream.reconfigure(errors="backslashreplace")
    try:
        return int(options.run(options))
    except TokenmillError as error:
        print(f"tokenmill: {printable(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("\nstopped. Every finished shard is kept: run the same command to go on", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 1


def parser() -> argparse.ArgumentParser:
    """Every command and flag."""
    top = argparse.ArgumentParser(
        prog="tokenmill", description="Raw text to a verified token store, once, at the speed of the fastest engine."
    )
    top.add_argument("--version", action="version", version=f"tokenmill {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _build_command(commands)
    _info_command(commands)
    _show_command(commands)
    _pack_command(commands)
    _verify_command(commands)
    _bench_command(commands)
    _demo_command(commands)
    return top


def _build_command(commands: Any) -> None:
    command = commands.add_parser(
        "build",
        help="tokenize a corpus into a store; run again to resume",
        description="Tokenize a corpus into a store. Run it again: it resumes, or says that it is up to date.",
    )
    command.set_defaults(run=_build)
    command.add_argument("source", nargs="+", help="files, globs, folders, @list.txt, or - for standard input")
    command.add_argument(
        "-t",
        "--tokenizer",
        required=True,
        help="a path or folder, a name on the Hugging Face Hub (org/model@revision), tiktoken:ENCODING, or bytes",
    )
    command.add_argument("-o", "--out", required=True, help="folder of the store")
    reading = command.add_argument_group("reading")
    reading.add_argument("--format", default="auto", help="text, lines, jsonl, parquet, arrow, csv, tsv (by suffix)")
    reading.add_argument("--text", default="text", metavar="FIELD", help="field with the text, dotted if nested (text)")
    reading.add_argument("--template", help="build the text from fields: '{title}\\n\\n{body}'")
    reading.add_argument("--separator", help="what stands between documents in plain text: '<|endoftext|>'")
    reading.add_argument("--limit", type=int, metavar="N", help="only the first N documents, for a trial")
    reading.add_argument("--on-error", default="quarantine", choices=("quarantine", "raise"), help="bad documents")
    tokens = command.add_argument_group("tokens")
    tokens.add_argument("--eos", default="auto", help="id put after each document: a token, an id, auto or none (auto)")
    tokens.add_argument(
        "--bos", default="none", help="id put before each document: a token, an id, auto or none (none)"
    )
    tokens.add_argument(
        "--specials",
        choices=("parse", "text", "error"),
        help="names of special tokens in the text become their ids, stay ordinary text, or stop the build (parse)",
    )
    tokens.add_argument("--engine", help="auto, reference, or an engine by name (auto: the fastest that proves itself)")
    running = command.add_argument_group("running")
    running.add_argument("--shard-bytes", metavar="SIZE", help="text per shard (32MB; 1MB for slow Python tokenizers)")
    running.add_argument(
        "--workers", type=int, metavar="N", help="worker processes; 0 works inside this one (one a core)"
    )
    running.add_argument("--memory", metavar="SIZE", help="for all workers together, as 4GB (half of what is free)")
    running.add_argument("--force", action="store_true", help="rebuild a store that was built in another way")
    running.add_argument("--json", action="store_true", help="print the result as JSON")
    loud = running.add_mutually_exclusive_group()
    loud.add_argument("-q", "--quiet", action="store_true", help="no progress")
    loud.add_argument("-v", "--verbose", action="store_true", help="a line for every shard")


def _build(options: argparse.Namespace) -> int:
    from tokenmill.building import build
    from tokenmill.reading import read

    source = read(
        *options.source,
        format=options.format,
        text=options.text,
        template=_unescaped(options.template),
        separator=_unescaped(options.separator),
        limit=options.limit,
        on_error=options.on_error,
    )
    store = build(
        source,
        options.tokenizer,
        options.out,
        eos=options.eos,
        bos=options.bos,
        shard_bytes=options.shard_bytes,
        workers=options.workers,
        memory=options.memory,
        engine=options.engine,
        specials=options.specials,
        force=options.force,
        progress="quiet" if options.quiet else "verbose" if options.verbose else "auto",
    )
    _print_info(options.out, options.json)
    if store.failed:
        count = f"{len(store.failed)} input {'file' if len(store.failed) == 1 else 'files'}"
        print(f"{count} failed; run the same command to try again, or go on with the others", file=sys.stderr)
        return FAILED_FILES
    return 0


def _info_command(commands: Any) -> None:
    command = commands.add_parser(
        "info", help="what a store holds", description="What a store holds, from its manifest."
    )
    command.set_defaults(run=lambda options: _print_info(options.store, options.json))
    command.add_argument("store", help="folder of the store")
    command.add_argument("--json", action="store_true", help="as JSON")


def _print_info(path: str, as_json: bool) -> int:
    from tokenmill.store.info import info, info_table

    facts = info(path)
    print(json.dumps(facts, indent=1) if as_json else printable(info_table(facts)))
    return 0


def _show_command(commands: Any) -> None:
    command = commands.add_parser(
        "show",
        help="documents as tokens, text and origin",
        description="Show documents: where each came from, its ids and its text.",
    )
    command.set_defaults(run=_show)
    command.add_argument("store", help="folder of the store")
    command.add_argument(
        "--doc", type=int, nargs="+", default=[0], metavar="N", help="documents, from 0; -1 is the last (0)"
    )
    command.add_argument(
        "--tokens",
        type=_token_range,
        default=slice(0, 200),
        metavar="N",
        help="so many ids of each, or a range of them, as 1000:1200 (200)",
    )
    command.add_argument("--json", action="store_true", help="as JSON, a line each")


def _show(options: argparse.Namespace) -> int:
    from tokenmill.encoding import load_tokenizer
    from tokenmill.store import open_store

    store = open_store(options.store)
    tokenizer = load_tokenizer(store.tokenizer.path)
    for number in options.doc:
        try:
            ids = store[number]
            file, row = store.locate(number)
        except IndexError as error:
            print(f"tokenmill: {error}", file=sys.stderr)
            return 2
        start, stop, _ = options.tokens.indices(len(ids))
        some = ids[start:stop].tolist()
        text = tokenizer.decode(ids, start, stop)
        if options.json:
            print(
                json.dumps(
                    {"document": number, "file": file, "row": row, "tokens": len(ids), "ids": some, "text": text}
                )
            )
            continue
        cut = len(ids) > stop
        more = f" ... and {len(ids) - stop:,} more" if cut else ""
        since = f" from {start:,}" if start else ""
        number %= len(store)
        print(
            printable(
                f"document {number}: {file}, row {row}; {len(ids):,} tokens{since}\n{some}{more}\n{text}{' ...' if cut else ''}\n"
            )
        )
    return 0


def _pack_command(commands: Any) -> None:
    command = commands.add_parser(
        "pack",
        help="what rows for training would cost: padding, tokens lost, documents split",
        description="Plan rows for training and show what they cost. No token is copied; the plan is kept for tm.pack.",
    )
    command.set_defaults(run=_pack)
    command.add_argument("store", help="folder of the store")
    command.add_argument("--seq-len", type=int, required=True, metavar="L", help="positions of a row")
    which = command.add_mutually_exclusive_group()
    which.add_argument("--strategy", metavar="NAME", help="concat, best_fit, pad or windows (concat)")
    which.add_argument("--compare", action="store_true", help="every strategy, side by side")
    rows = command.add_argument_group("rows")
    rows.add_argument("--stride", type=int, metavar="N", help="concat, windows: tokens from row to row (L)")
    rows.add_argument("--overlap", type=int, metavar="N", help="the same the other way: tokens that rows share (0)")
    rows.add_argument("--tail", metavar="WHAT", help="concat: keep or drop a last row that is not full (keep)")
    rows.add_argument(
        "--row-start", metavar="WHERE", help="anywhere, or document: cut off what crosses a row's end (anywhere)"
    )
    rows.add_argument("--buckets", type=_widths, metavar="N,N", help="pad: shorter widths for short rows, as 128,512")
    documents = command.add_argument_group("documents")
    documents.add_argument("--long-docs", metavar="WHAT", help="longer than a row: split, truncate or drop (split)")
    documents.add_argument("--min-doc-tokens", type=int, metavar="N", help="leave out documents with fewer tokens (0)")
    command.add_argument("--plot", metavar="FILE", help="also draw it, as .png or .svg (pip install 'tokenmill[plot]')")
    command.add_argument("--json", action="store_true", help="as JSON")


PACK_OPTIONS = ("stride", "overlap", "tail", "row_start", "buckets", "long_docs", "min_doc_tokens")


def _pack(options: argparse.Namespace) -> int:
    from tokenmill.packing.picture import check_picture, draw
    from tokenmill.packing.report import compare, comparison_table, measure, stats_table
    from tokenmill.store import open_store

    if options.plot is not None:
        check_picture(options.plot)
    store = open_store(options.store)
    given = {name: getattr(options, name) for name in PACK_OPTIONS if getattr(options, name) is not None}
    strategy = "concat" if options.strategy is None else options.strategy
    if options.compare:
        packed = compare(store, options.seq_len, given)
        facts: Any = [one.as_dict() for one in packed]
        table = comparison_table(packed)
    else:
        packed = [measure(store, options.seq_len, strategy, given)]
        facts, table = packed[0].stats.as_dict(), stats_table(packed[0].stats)
        keywords = "".join(f", {name}={value!r}" for name, value in {"strategy": strategy, **given}.items())
        table += f"\n\nin Python: view = tm.pack({options.store!r}, {options.seq_len}{keywords}); view[:8]['input_ids']"
    print(json.dumps(facts, indent=1) if options.json else printable(table))
    if options.plot is not None:
        draw(packed, options.plot)
        print(printable(f"drawn: {options.plot}"), file=sys.stderr)
    return 0


def _verify_command(commands: Any) -> None:
    command = commands.add_parser(
        "verify",
        help="check every bit of a store; repair it from its source",
        description="Read a whole store and compare it with its checksums. Exit code 3 if anything differs.",
    )
    command.set_defaults(run=_verify)
    command.add_argument("store", help="folder of the store")
    command.add_argument(
        "--reencode",
        type=_count,
        metavar="N",
        help="also read N documents from the source again and encode them with the reference",
    )
    command.add_argument("--repair", action="store_true", help="rebuild what is broken, and only that, from its source")
    command.add_argument("--json", action="store_true", help="as JSON")


def _verify(options: argparse.Namespace) -> int:
    from pathlib import Path

    from tokenmill.building.lock import lock_holder
    from tokenmill.store import read_manifest, verify_store

    holder = lock_holder(Path(options.store))
    if holder is not None:
        raise LockedError(f"{options.store} is being built by process {holder}; verify it when that is done")
    damages = verify_store(Path(options.store))
    reencoded = 0
    if options.reencode and not damages:
        from tokenmill.building.recheck import reencode

        reencoded, damages = reencode(Path(options.store), options.reencode)
        if damages and options.repair:
            raise StoreError(
                f"{options.store}: {len(damages)} of {reencoded:,} documents differ from the reference, and a repair would use"
                " the same engine; build it again with --force --engine reference"
            )
    repaired = False
    if damages and options.repair:
        from tokenmill.building.repair import repair

        repair(Path(options.store), damages)
        left = verify_store(Path(options.store))
        repaired, damages = not left, left or damages
    if options.json:
        found = [{"file": damage.file, "shard": damage.shard, "what": damage.what} for damage in damages]
        ok = not damages or repaired
        count = {"reencoded": reencoded} if options.reencode else {}
        print(json.dumps({"ok": ok, "repaired": repaired, "damaged": found, **count}, indent=1))
    else:
        for damage in damages:
            print(printable(f"repaired: {damage.file} (was: {damage.what})" if repaired else f"damaged: {damage}"))
        if not damages:
            again = f", and the reference gives the same ids for {reencoded:,} documents" if reencoded else ""
            print(f"{options.store}: every bit is as it was written{again}")
            failed = len(read_manifest(Path(options.store)).failed)
            if failed:
                print(f"but it is not complete: {failed} input files failed; build again to try them", file=sys.stderr)
    return 3 if damages and not repaired else 0


def _bench_command(commands: Any) -> None:
    command = commands.add_parser(
        "bench",
        help="measure this machine against the bars",
        description="Measure whole builds against one-shot tokenization, bare stages and the reference, in one run.",
    )
    command.set_defaults(run=_bench)
    command.add_argument(
        "--corpus", nargs="*", default=[], help="text files for the corpus (this Python's own sources)"
    )
    command.add_argument("-t", "--tokenizer", help="a tokenizer, named as for build (tokenmill's demo tokenizer)")
    command.add_argument(
        "--tokenizers",
        nargs="+",
        metavar="TOKENIZER",
        help="instead, race the engines for these tokenizers, beside the loops people write",
    )
    command.add_argument(
        "--packing", action="store_true", help="instead, measure packing: plans, and rows against numpy"
    )
    command.add_argument("--documents", type=_count, default=10_000_000, help="for --packing: to plan (10,000,000)")
    command.add_argument("--large", action="store_true", help="for --packing: 100 million documents too")
    command.add_argument("--peer", metavar="PYTHON", help="for --packing: a Python with TRL in it, to compare with")
    command.add_argument(
        "--loading", action="store_true", help="instead, measure loading: batches, resuming, verification"
    )
    command.add_argument("--mosaic", metavar="PYTHON", help="for --loading: a Python with mosaicml-streaming in it")
    command.add_argument("--litdata", metavar="PYTHON", help="for --loading: a Python with litdata in it")
    command.add_argument("--size", help="text to measure with (300MB; 40MB of each kind for --tokenizers)")
    command.add_argument("--rounds", type=int, default=3, help="repetitions; the best of each is compared (3)")
    command.add_argument("--work", help="folder for the corpus and stores (a temporary one)")
    command.add_argument("--json", action="store_true", help="as JSON")


def _bench(options: argparse.Namespace) -> int:
    from tokenmill.bench import bench

    return bench(options)


def _demo_command(commands: Any) -> None:
    command = commands.add_parser(
        "demo",
        help="the main job on this Python's own files, offline",
        description="Build a store from the .py, .rst and .txt files of this Python installation, with a small tokenizer.",
    )
    command.set_defaults(run=_demo)
    command.add_argument("-o", "--out", default="demo-corpus", help="folder of the store (demo-corpus)")


def _demo(options: argparse.Namespace) -> int:
    from tokenmill.demo import demo

    return demo(options.out)


def _token_range(text: str) -> slice:
    if ":" not in text:
        return slice(0, _count(text))
    try:
        low, high = (int(part) if part else None for part in text.split(":"))
    except ValueError as error:
        raise argparse.ArgumentTypeError("a number, or a range as 1000:1200") from error
    return slice(low, high)


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError("widths with commas between them, as 128,512") from error


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _unescaped(text: str | None) -> str | None:
    r"""A template or separator as typed in a shell, where \n and \t are wanted as the characters they stand for."""
    return None if text is None else text.replace("\\n", "\n").replace("\\t", "\t")


if __name__ == "__main__":
    sys.exit(main())
