"""tokenmill cache: list the stores and datasets in the cache, explain what a build would do, remove and verify."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tokenmill.cli.flags import add_command, add_corpus, add_groups, add_json, add_options, given_options, print_result
from tokenmill.errors import UsageError
from tokenmill.formatting import first_names, fitted, human, parse_size, printable, some
from tokenmill.options import BuildArguments, ReadOptions, RunOptions, TokenOptions, TrialOptions


def add(commands: Any) -> None:
    cache = commands.add_parser(
        "cache",
        help="manage stores in the cache: list, why, remove, prune, verify",
        description="Manage the stores that were built without --out, which are kept in a cache and found by content, and the"
        " copies of datasets on the Hugging Face Hub.",
    )
    verbs = cache.add_subparsers(title="commands", required=True, metavar="COMMAND")
    why = add_command(
        verbs,
        "why",
        _why,
        help="explain what a build would do",
        description="Show whether the store of these inputs is in the cache, and if not, why. Builds nothing.",
    )
    add_corpus(why)
    add_groups(why, ReadOptions, TokenOptions, TrialOptions)
    add_options(why, RunOptions, skip=["workers", "memory", "progress", "dashboard"])
    listing = add_command(
        verbs,
        "list",
        _list,
        help="list stores and datasets",
        description="List stores and copies of datasets, the most recently used first.",
    )
    remove = add_command(
        verbs,
        "remove",
        _remove,
        help="remove stores and datasets",
        description="Remove stores and copies of datasets. Those in use by a process are kept. The next build makes them again.",
    )
    remove.add_argument("name", nargs="*", help="names from `tokenmill cache list`, or how they begin")
    remove.add_argument("--all", action="store_true", help="remove all stores and datasets")
    prune = add_command(
        verbs,
        "prune",
        _prune,
        help="remove the least recently used stores, datasets and mirrors; or old shards from a bucket",
        description="Remove the least recently used stores, copies of datasets and mirrors of stores in buckets until the rest"
        " fits; those in use by a process are kept. Or remove the shards of earlier versions of a store from its bucket.",
    )
    prune.add_argument("--max-size", metavar="SIZE", help="size to keep, such as 50GB")
    prune.add_argument(
        "--bucket", metavar="URL", help="remove from this store in a bucket the shards that it no longer has"
    )
    verify = add_command(
        verbs,
        "verify",
        _verify,
        help="verify the checksums of stores",
        description="Read stores and compare them with their checksums. The exit code is 3 if anything differs.",
    )
    verify.add_argument("name", nargs="*", help="names of stores, from `tokenmill cache list`, or how they begin (all)")
    for command in (remove, prune):
        command.add_argument("--dry-run", action="store_true", help="show what would be removed; remove nothing")
    for command in (listing, remove, prune, verify):
        add_options(command, RunOptions, only=["cache_dir"])
    for command in (why, listing, remove, prune, verify):
        add_json(command)


def _why(options: argparse.Namespace) -> int:
    from tokenmill.building.cache.store_cache import explain
    from tokenmill.building.request import request_for

    root, arguments = _root(options), BuildArguments(options.tokenizer, **given_options(options, BuildArguments))
    store, reasons = explain(request_for(tuple(options.source), arguments), root)
    path = None if store is None else str(store.path)
    text = "\n".join(reasons)
    if store is not None:
        text = f"up to date: {some(len(store), 'document')}, {some(store.num_tokens, 'token')} in {path}"
    facts = {"up_to_date": store is not None, "store": path, "reasons": reasons}
    print_result(facts, fitted(text, sys.stdout), as_json=options.json)
    return 0


def _list(options: argparse.Namespace) -> int:
    from tokenmill.building.cache.maintenance import list_stores, total_bytes
    from tokenmill.io.mirror import MIRRORS, mirrored_bytes

    root = _root(options)
    stores, total = list_stores(root), total_bytes(root)
    datasets = [one for one in stores if one.is_dataset]
    facts = {
        "path": str(root),
        "bytes": total,
        "stores": [one.as_dict() for one in stores if not one.is_dataset],
        "datasets": [one.as_dict() for one in datasets],
    }
    lines = [line for one in stores for line in _described(one)]
    if mirrors := mirrored_bytes(root / MIRRORS):
        facts["mirrors"] = mirrors
        lines += [f"mirrors   {human(mirrors)}", "    shards of stores in buckets; TOKENMILL_SHARD_CACHE limits them"]
    text = "\n".join([*lines, f"{_counted(stores)}, {human(total)} in {root}"])
    print_result(facts, text, as_json=options.json)
    return 0


def _described(store: Any) -> list[str]:
    """Two lines about a store of the cache: its name, size and state; and what it was built from."""

    facts = store.facts
    if store.kind in ("dataset", "mirror"):
        head = f"{store.name}   {human(store.nbytes)}, used {_ago(store.used)}"
        what = "dataset on the Hugging Face Hub" if store.is_dataset else "store in a bucket, copied here"
        return [head, f"    {some(facts['files'], 'file')} of the {what}"]
    state = ("" if facts["complete"] else "   not complete") + ("   a trial" if facts.get("trial") else "")
    shared = f", {human(store.own_bytes)} not shared" if store.own_bytes < store.nbytes else ""
    head = f"{store.name}   {human(store.nbytes)}{shared}, used {_ago(store.used)}{state}"
    if "problem" in facts:
        return [head, f"    {facts['problem']}"]
    inputs = first_names(facts["inputs"], 2)
    counts = f"{some(facts['documents'], 'document')}, {some(facts['tokens'], 'token')}"
    return [head, f"    {counts} by {facts['tokenizer']} from {inputs}"]


def _counted(stores: Any) -> str:
    """How many stores, datasets and mirrors there are, in words."""
    counts = Counter(one.kind.replace("build", "store") for one in stores)
    return ", ".join([some(counts.pop("store", 0), "store"), *(some(counts[kind], kind) for kind in sorted(counts))])


def _ago(when: float) -> str:
    seconds = max(0.0, time.time() - when)
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}s ago"
    return "just now"


def _remove(options: argparse.Namespace) -> int:
    from tokenmill.building.cache.maintenance import list_stores, remove

    if bool(options.name) == options.all:
        raise UsageError("name the stores to remove, or give --all; `tokenmill cache list` shows them")
    root = _root(options)
    names = [one.name for one in list_stores(root)] if options.all else list(dict.fromkeys(options.name))
    removal = remove(root, names, dry_run=options.dry_run)
    facts = _removal_facts(removal, options) | {"bytes": removal.freed}
    print_result(facts, "\n".join(_removal_lines(removal, options)), as_json=options.json)
    return 1 if removal.in_use else 0


def _prune(options: argparse.Namespace) -> int:
    from tokenmill.building.cache.maintenance import prune, prune_bucket, total_bytes

    if (options.max_size is None) == (options.bucket is None):
        raise UsageError("give --max-size SIZE for the cache, or --bucket URL for a store in a bucket")
    if options.bucket is not None:
        shards, freed = prune_bucket(options.bucket, dry_run=options.dry_run)
        text = f"{'would remove' if options.dry_run else 'removed'} {some(len(shards), 'shard')}, {human(freed)}"
        facts = {"dry_run": options.dry_run, "removed": shards, "freed": freed}
        print_result(facts, f"{text}, that {options.bucket} no longer has", as_json=options.json)
        return 0
    root, most = _root(options), parse_size(options.max_size, "max_size")
    removal = prune(root, most, dry_run=options.dry_run)
    left = total_bytes(root) - (removal.freed if options.dry_run else 0)
    *stores, summary = _removal_lines(removal, options)
    facts = _removal_facts(removal, options) | {"freed": removal.freed, "bytes": left}
    text = "\n".join([*stores, f"{summary}; {human(left)} {'would be ' if options.dry_run else ''}left"])
    print_result(facts, text, as_json=options.json)
    if left > most and not removal.in_use:
        print(
            f"no store is left to remove; {human(left)} are lists of input files and temporary files, which are removed"
            " when they are a day old",
            file=sys.stderr,
        )
    return 0


def _removal_facts(removal: Any, options: argparse.Namespace) -> dict[str, Any]:
    removed, in_use = ([one.name for one in stores] for stores in (removal.removed, removal.in_use))
    return {"dry_run": options.dry_run, "removed": removed, "in_use": in_use}


def _removal_lines(removal: Any, options: argparse.Namespace) -> list[str]:
    """What was removed, or in a dry run what would be. Names stores in use on standard error."""
    for store in removal.in_use:
        print(printable(f"{store.name} is in use by another process and is kept"), file=sys.stderr)
    would, stores = ("would remove", removal.removed) if options.dry_run else ("removed", [])
    lines = [line for store in stores for line in _described(store)]
    return [*lines, f"{would} {_counted(removal.removed)}, {human(removal.freed)}"]


def _verify(options: argparse.Namespace) -> int:
    from tokenmill.building.cache.maintenance import verify

    found = verify(_root(options), options.name)
    stores = {name: [str(damage) for damage in damages] for name, damages in found.items()}
    damaged = [name for name, damages in stores.items() if damages]
    text = f"{some(len(stores), 'store')}: all checksums match"
    # Damaged stores are removed together: they may share the damaged shard, and a build copies from stores that are left.
    if damaged:
        lines = [f"damaged: {name}: {damage}" for name in damaged for damage in stores[name]]
        remedy = f"remove with: tokenmill cache remove {' '.join(damaged)} (the next build creates them again)"
        text = "\n".join([*lines, remedy])
    print_result({"ok": not damaged, "stores": stores}, text, as_json=options.json)
    return 3 if damaged else 0


def _root(options: argparse.Namespace) -> Path:
    from tokenmill.building.cache.store_cache import cache_root, check_cache_folder

    root = cache_root(getattr(options, "cache_dir", None))
    check_cache_folder(root)
    return root
