"""tokenmill verify."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from tokenmill.cli.types import count
from tokenmill.errors import LockedError, StoreError
from tokenmill.formatting import printable


def add(commands: Any) -> None:
    command = commands.add_parser(
        "verify",
        help="check every bit of a store; repair it from its source",
        description="Read a whole store and compare it with its checksums. Exit code 3 if anything differs.",
    )
    command.set_defaults(run=_verify)
    command.add_argument("store", help="folder of the store")
    command.add_argument(
        "--reencode",
        type=count,
        metavar="N",
        help="also read N documents from the source again and encode them with the reference",
    )
    command.add_argument("--repair", action="store_true", help="rebuild what is broken, and only that, from its source")
    command.add_argument("--json", action="store_true", help="as JSON")


def _verify(options: argparse.Namespace) -> int:
    from pathlib import Path

    from tokenmill.io.lock import lock_holder
    from tokenmill.store import read_manifest, verify_store

    holder = lock_holder(Path(options.store))
    if holder is not None:
        raise LockedError(f"{options.store} is being built by process {holder}; verify it when that is done")
    damages = verify_store(Path(options.store))
    reencoded = 0
    if options.reencode and not damages:
        from tokenmill.building.audit import reencode

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
        checked = {"reencoded": reencoded} if options.reencode else {}
        print(json.dumps({"ok": ok, "repaired": repaired, "damaged": found, **checked}, indent=1))
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
