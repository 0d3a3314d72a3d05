"""tokenmill cache: list the stores in the cache, explain what a build would do, remove and verify."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from tokenmill.cli.flags import add_corpus, add_json, add_options, given_options
from tokenmill.formatting import printable
from tokenmill.options import BuildArguments, ReadOptions, RunOptions, TokenOptions, TrialOptions


def add(commands: Any) -> None:
    command = commands.add_parser(
        "cache",
        help="manage stores in the cache: list, why, remove, prune, verify",
        description="Manage the stores that were built without --out. They are kept in a cache and found by content.",
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
        help="explain what a build would do",
        description="Show whether the store of these inputs is in the cache, and if not, why. Builds nothing.",
    )
    command.set_defaults(run=_why)
    add_corpus(command)
    add_options(command.add_argument_group("reading"), ReadOptions)
    add_options(command.add_argument_group("tokens"), TokenOptions)
    add_options(command.add_argument_group("trial builds"), TrialOptions)
    add_options(command, RunOptions, skip=["workers", "memory", "progress"])
    add_json(command)


def _why(options: argparse.Namespace) -> int:
    from tokenmill.building.cache.store_cache import cache_root, explain
    from tokenmill.building.request import request_for

    arguments = BuildArguments(options.tokenizer, **given_options(options, BuildArguments))
    store, reasons = explain(request_for(tuple(options.source), arguments), cache_root(arguments.cache_dir))
    if options.json:
        path = None if store is None else str(store.path)
        print(json.dumps({"up_to_date": store is not None, "store": path, "reasons": reasons}, indent=1))
    elif store is not None:
        print(printable(f"up to date: {len(store):,} documents, {store.num_tokens:,} tokens in {store.path}"))
    else:
        print(printable("\n".join(reasons)))
    return 0


def _add_list(verbs: Any) -> None:
    command = verbs.add_parser("list", help="list stores", description="List stores, the most recently used first.")
    command.set_defaults(run=_list)
    _add_where(command)


def _list(options: argparse.Namespace) -> int:
    from tokenmill.building.cache.inventory import list_stores, total_bytes
    from tokenmill.formatting import human, some

    root = _root(options)
    stores = list_stores(root)
    total = total_bytes(root)
    if options.json:
        facts = {"path": str(root), "bytes": total, "stores": [one.as_dict() for one in stores]}
        print(json.dumps(facts, indent=1))
        return 0
    lines = [line for one in stores for line in _described(one)]
    lines.append(f"{some(len(stores), 'store')}, {human(total)} in {root}")
    print(printable("\n".join(lines)))
    return 0


def _described(store: Any) -> list[str]:
    """Two lines about a store of the cache: its name, size and state; and what it was built from."""
    from tokenmill.formatting import human, some

    facts = store.facts
    state = ("" if facts["complete"] else "   not complete") + ("   a trial" if facts.get("trial") else "")
    shared = f", {human(store.own_bytes)} not shared" if store.own_bytes < store.nbytes else ""
    head = f"{store.name}   {human(store.nbytes)}{shared}, used {_ago(store.used)}{state}"
    if "problem" in facts:
        return [head, f"    {facts['problem']}"]
    inputs = ", ".join(facts["inputs"][:2]) + (", ..." if len(facts["inputs"]) > 2 else "")
    counts = f"{some(facts['documents'], 'document')}, {some(facts['tokens'], 'token')}"
    return [head, f"    {counts} by {facts['tokenizer']} from {inputs}"]


def _ago(when: float) -> str:
    seconds = max(0.0, time.time() - when)
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}s ago"
    return "just now"


def _add_remove(verbs: Any) -> None:
    command = verbs.add_parser(
        "remove",
        help="remove stores",
        description="Remove stores. Stores in use by a process are kept. The next build creates them again.",
    )
    command.set_defaults(run=_remove)
    command.add_argument("name", nargs="*", help="names of stores, from `tokenmill cache list`")
    command.add_argument("--all", action="store_true", help="remove all stores")
    _add_where(command)


def _remove(options: argparse.Namespace) -> int:
    from tokenmill.building.cache.inventory import list_stores, remove
    from tokenmill.errors import UsageError
    from tokenmill.formatting import human, some

    if bool(options.name) == options.all:
        raise UsageError("name the stores to remove, or give --all; `tokenmill cache list` shows them")
    root = _root(options)
    names = [one.name for one in list_stores(root)] if options.all else options.name
    freed = remove(root, names)
    if options.json:
        print(json.dumps({"removed": names, "bytes": freed}, indent=1))
    else:
        print(f"removed {some(len(names), 'store')}, {human(freed)}")
    return 0


def _add_prune(verbs: Any) -> None:
    command = verbs.add_parser(
        "prune",
        help="remove the least recently used stores",
        description="Remove the least recently used stores until the rest fits. Stores in use by a process are kept.",
    )
    command.set_defaults(run=_prune)
    command.add_argument("--max-size", required=True, metavar="SIZE", help="size to keep, such as 50GB")
    _add_where(command)


def _prune(options: argparse.Namespace) -> int:
    from tokenmill.building.cache.inventory import prune, total_bytes
    from tokenmill.formatting import human, parse_size, some

    root, most = _root(options), parse_size(options.max_size, "max_size")
    gone = prune(root, most)
    left = total_bytes(root)
    if options.json:
        print(json.dumps({"removed": [one.name for one in gone], "bytes": left}, indent=1))
    else:
        print(f"removed {some(len(gone), 'store')}; {human(left)} left")
    if left > most:
        print(f"more than {options.max_size} is left: running processes use these stores", file=sys.stderr)
    return 0


def _add_verify(verbs: Any) -> None:
    command = verbs.add_parser(
        "verify",
        help="verify the checksums of stores",
        description="Read stores and compare them with their checksums. The exit code is 3 if anything differs.",
    )
    command.set_defaults(run=_verify)
    command.add_argument("name", nargs="*", help="names of stores, from `tokenmill cache list` (all)")
    _add_where(command)


def _verify(options: argparse.Namespace) -> int:
    from tokenmill.building.cache.inventory import verify
    from tokenmill.formatting import some

    found = verify(_root(options), options.name)
    damaged = {name: damages for name, damages in found.items() if damages}
    if options.json:
        stores = {name: [str(damage) for damage in damages] for name, damages in found.items()}
        print(json.dumps({"ok": not damaged, "stores": stores}, indent=1))
    else:
        for name, damages in damaged.items():
            for damage in damages:
                print(printable(f"damaged: {name}: {damage}"))
        if damaged:  # all at once: they may share the damaged shard, and a build copies from stores that are left
            print(
                printable(
                    f"remove with: tokenmill cache remove {' '.join(damaged)} (the next build creates them again)"
                )
            )
        if not damaged:
            print(f"{some(len(found), 'store')}: all checksums match")
    return 3 if damaged else 0


def _root(options: argparse.Namespace) -> Path:
    from tokenmill.building.cache.store_cache import cache_root

    return cache_root(getattr(options, "cache_dir", None))


def _add_where(command: argparse.ArgumentParser) -> None:
    add_options(command, RunOptions, only=["cache_dir"])
    add_json(command)
