"""tokenmill cache: what is kept, why something is not, and how to be rid of it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from tokenmill.cli.build import add_cache, add_reading, add_tokens, add_trial, add_what, asked_of, source_of
from tokenmill.formatting import printable


def add(commands: Any) -> None:
    command = commands.add_parser(
        "cache",
        help="stores that are kept: list, why, remove, prune, verify",
        description="Stores that were built without --out are kept in a cache, found by what they hold.",
    )
    verbs = command.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_why(verbs)
    _add_list(verbs)
    _add_remove(verbs)
    _add_prune(verbs)
    _add_verify(verbs)


def _add_why(verbs: Any) -> None:
    command = verbs.add_parser(
        "why",
        help="what a build would do, and why",
        description="Say whether the store of these inputs is in the cache, and if not, why not. Builds nothing.",
    )
    command.set_defaults(run=_why)
    add_what(command)
    add_reading(command)
    add_tokens(command)
    add_trial(command)
    command.add_argument("--shard-bytes", metavar="SIZE", help="text per shard (32MB; 1MB for slow Python tokenizers)")
    add_cache(command)
    command.add_argument("--json", action="store_true", help="as JSON")


def _why(options: argparse.Namespace) -> int:
    from tokenmill.building.cache.store_cache import why
    from tokenmill.building.request import ask

    asked = ask(source_of(options), options.tokenizer, {}, **asked_of(options))
    store, reasons = why(asked, options.cache_dir)
    if options.json:
        path = None if store is None else str(store.path)
        print(json.dumps({"up_to_date": store is not None, "store": path, "reasons": reasons}, indent=1))
    elif store is not None:
        print(printable(f"up to date: {len(store):,} documents, {store.num_tokens:,} tokens in {store.path}"))
    else:
        print(printable("\n".join(reasons)))
    return 0


def _add_list(verbs: Any) -> None:
    command = verbs.add_parser("list", help="what is kept", description="What is kept, the most lately used first.")
    command.set_defaults(run=_list)
    _add_where(command)


def _list(options: argparse.Namespace) -> int:
    from tokenmill.building.cache.inventory import shelf, total_bytes
    from tokenmill.building.cache.store_cache import root_of
    from tokenmill.formatting import human, some

    root = root_of(options.cache_dir)
    kept = shelf(root)
    total = total_bytes(root)
    if options.json:
        stores = [one.as_dict() for one in kept]
        print(json.dumps({"path": str(root), "bytes": total, "stores": stores}, indent=1))
        return 0
    lines = []
    for one in kept:
        facts = one.facts
        state = ("" if facts["complete"] else "   not complete") + ("   a trial" if facts.get("trial") else "")
        size = human(one.nbytes) + (f", {human(one.own_bytes)} its own" if one.own_bytes < one.nbytes else "")
        lines.append(f"{one.name}   {size}, used {_ago(one.used)}{state}")
        if "problem" in facts:
            lines.append(f"    {facts['problem']}")
        else:
            inputs = ", ".join(facts["inputs"][:2]) + (", ..." if len(facts["inputs"]) > 2 else "")
            counts = f"{some(facts['documents'], 'document')}, {some(facts['tokens'], 'token')}"
            lines.append(f"    {counts} by {facts['tokenizer']} from {inputs}")
    lines.append(f"{some(len(kept), 'store')}, {human(total)} in {root}")
    print(printable("\n".join(lines)))
    return 0


def _ago(when: float) -> str:
    seconds = max(0.0, time.time() - when)
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}s ago"
    return "just now"


def _add_remove(verbs: Any) -> None:
    command = verbs.add_parser(
        "remove",
        help="take stores out",
        description="Take stores out of the cache. One that a process uses stays. The next build makes it again.",
    )
    command.set_defaults(run=_remove)
    command.add_argument("name", nargs="*", help="names, as `tokenmill cache list` shows them")
    command.add_argument("--all", action="store_true", help="everything")
    _add_where(command)


def _remove(options: argparse.Namespace) -> int:
    from tokenmill.building.cache.inventory import remove, shelf
    from tokenmill.building.cache.store_cache import root_of
    from tokenmill.errors import UsageError
    from tokenmill.formatting import human, some

    if bool(options.name) == options.all:
        raise UsageError("name the stores to remove, or give --all; tokenmill cache list shows them")
    root = root_of(options.cache_dir)
    names = [one.name for one in shelf(root)] if options.all else options.name
    freed = remove(root, names)
    if options.json:
        print(json.dumps({"removed": names, "bytes": freed}, indent=1))
    else:
        print(f"removed {some(len(names), 'store')}, {human(freed)}")
    return 0


def _add_prune(verbs: Any) -> None:
    command = verbs.add_parser(
        "prune",
        help="remove what was not used for longest",
        description="Remove what was not used for longest until the rest fits. Stores that a process uses stay.",
    )
    command.set_defaults(run=_prune)
    command.add_argument("--max-size", required=True, metavar="SIZE", help="what may stay, as 50GB")
    _add_where(command)


def _prune(options: argparse.Namespace) -> int:
    from tokenmill.building.cache.inventory import prune, total_bytes
    from tokenmill.building.cache.store_cache import root_of
    from tokenmill.formatting import human, parse_size, some

    root, most = root_of(options.cache_dir), parse_size(options.max_size, "max_size")
    gone = prune(root, most)
    left = total_bytes(root)
    if options.json:
        print(json.dumps({"removed": [one.name for one in gone], "bytes": left}, indent=1))
    else:
        print(f"removed {some(len(gone), 'store')}; {human(left)} left")
    if left > most:
        print(f"more than {options.max_size} is in use by running processes", file=sys.stderr)
    return 0


def _add_verify(verbs: Any) -> None:
    command = verbs.add_parser(
        "verify",
        help="check every bit of what is kept",
        description="Read stores of the cache and compare them with their checksums. Exit code 3 if anything differs.",
    )
    command.set_defaults(run=_verify)
    command.add_argument("name", nargs="*", help="names, as `tokenmill cache list` shows them (all)")
    _add_where(command)


def _verify(options: argparse.Namespace) -> int:
    from tokenmill.building.cache.inventory import verify
    from tokenmill.building.cache.store_cache import root_of
    from tokenmill.formatting import some

    found = verify(root_of(options.cache_dir), options.name)
    damaged = {name: damages for name, damages in found.items() if damages}
    if options.json:
        told = {name: [str(damage) for damage in damages] for name, damages in found.items()}
        print(json.dumps({"ok": not damaged, "stores": told}, indent=1))
    else:
        for name, damages in damaged.items():
            for damage in damages:
                print(printable(f"damaged: {name}: {damage}"))
        if damaged:  # all at once: they may share what is damaged, and a build takes from those that are left
            it, names = "them" if len(damaged) > 1 else "it", " ".join(damaged)
            print(printable(f"be rid of {it} with: tokenmill cache remove {names} (the next build makes {it} again)"))
        if not damaged:
            print(f"{some(len(found), 'store')}: every bit is as it was written")
    return 3 if damaged else 0


def _add_where(command: argparse.ArgumentParser) -> None:
    command.add_argument("--cache-dir", metavar="DIR", help="the cache (TOKENMILL_CACHE, or ~/.cache/tokenmill)")
    command.add_argument("--json", action="store_true", help="as JSON")
