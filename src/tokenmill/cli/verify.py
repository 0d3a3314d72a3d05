"""tokenmill verify."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tokenmill.cli.flags import add_command, add_json, count
from tokenmill.errors import LockedError, StoreError
from tokenmill.formatting import printable, some


def add(commands: Any) -> None:
    command = add_command(
        commands,
        "verify",
        _verify,
        help="verify the checksums of a store; repair it from its source",
        description="Read a whole store and compare it with its checksums. The exit code is 3 if anything differs.",
    )
    command.add_argument("store", help="folder of the store, or its URL")
    command.add_argument(
        "--reencode",
        type=count,
        metavar="N",
        help="also read N documents from the source again and encode them with the reference",
    )
    command.add_argument(
        "--repair", action="store_true", help="rebuild damaged shards, and only those, from the source"
    )
    add_json(command)


def _verify(options: argparse.Namespace) -> int:
    from tokenmill.io.lock import lock_holder
    from tokenmill.io.object_store import is_url
    from tokenmill.store.bucket import open_mirror
    from tokenmill.store.integrity import verify_store

    folder = open_mirror(options.store) if is_url(options.store) else Path(options.store)
    holder = lock_holder(folder)
    if holder is not None:
        raise LockedError(f"{options.store} is being built by process {holder}; verify it when that is done")
    damages, reencoded = verify_store(folder), 0
    if options.reencode and not damages:
        reencoded, damages = _reencode(options, folder)
    remaining = _remaining(options.store, folder, damages) if damages and options.repair else damages
    repaired, damages = bool(damages) and not remaining, remaining or damages
    if options.json:
        damaged = [{"file": damage.file, "shard": damage.shard, "what": damage.what} for damage in damages]
        counts = {"reencoded": reencoded} if options.reencode else {}
        print(json.dumps({"ok": not damages or repaired, "repaired": repaired, "damaged": damaged, **counts}, indent=1))
    else:
        _print_report(options.store, folder, damages, repaired=repaired, reencoded=reencoded)
    return 3 if damages and not repaired else 0


def _remaining(store: str, folder: Path, damages: list[Any]) -> list[Any]:
    """What is damaged after a repair. A store in a bucket is repaired by its next build, which is told what to make."""
    from tokenmill.io.object_store import is_url

    if is_url(store):
        from tokenmill.store.bucket import StoreBucket

        StoreBucket(store, folder).discard_receipts({each.shard for each in damages if each.shard is not None})
        print("the receipts of damaged shards were removed; rerun the build of the store to recreate them")
        return damages
    from tokenmill.building.repair import repair
    from tokenmill.store.integrity import verify_store

    repair(folder, damages)
    return verify_store(folder)


def _reencode(options: argparse.Namespace, folder: Path) -> tuple[int, list[Any]]:
    """The number of documents that were compared with the reference, and what differs."""
    from tokenmill.building.audit import reencode, reference_of
    from tokenmill.store.manifest import read_manifest

    reencoded, damages = reencode(folder, options.reencode)
    if damages and options.repair:
        reference = reference_of(read_manifest(folder))
        raise StoreError(
            f"{options.store}: {reference} gives other ids for {len(damages):,} of {some(reencoded, 'document')},"
            " and a repair would use the same engine; build it again with --force --engine reference"
        )
    return reencoded, damages


def _print_report(store: str, folder: Path, damages: list[Any], *, repaired: bool, reencoded: int) -> None:
    from tokenmill.building.audit import reference_of
    from tokenmill.store.manifest import read_manifest

    for damage in damages:
        print(printable(f"repaired: {damage.file} (was: {damage.what})" if repaired else f"damaged: {damage}"))
    if damages:
        if not repaired:
            print(f"tokenmill verify {store} --repair builds damaged shards again from their source", file=sys.stderr)
        return
    manifest = read_manifest(folder)
    again = f", and {reference_of(manifest)} gives the same ids for {some(reencoded, 'document')}" if reencoded else ""
    print(printable(f"{store}: all checksums match{again}"))
    failed = len(manifest.failed)
    if failed:
        print(f"not complete: {some(failed, 'input file')} failed; build again to retry", file=sys.stderr)
