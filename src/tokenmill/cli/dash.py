"""tokenmill dash."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from typing import Any

from tokenmill.cli.flags import add_command, count
from tokenmill.formatting import printable


def add(commands: Any) -> None:
    command = add_command(
        commands,
        "dash",
        _dash,
        help="show a store, a build or the cache on a web page",
        description="Show a store, a build that is running, or the cache, on a web page of this machine."
        " Needs pip install 'tokenmill[dash]'.",
    )
    command.add_argument(
        "store",
        nargs="?",
        metavar="STORE_OR_CACHE",
        help="folder of a store or of a cache, or the URL of a store (the cache)",
    )
    command.add_argument("--port", type=count, metavar="N", help="port to listen at (the first free one from 8321 on)")
    command.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen at (127.0.0.1: this machine only). Others need a token, which is printed with the address;"
        " TOKENMILL_DASH_TOKEN sets it",
    )


def _dash(options: argparse.Namespace) -> int:
    from tokenmill.building.dashboard_process import check_installed, chosen_token, listening_socket, url_of

    check_installed()
    from tokenmill.building.cache.store_cache import cache_root
    from tokenmill.dashboard.request_checks import is_loopback
    from tokenmill.dashboard.server import Dashboard, serve
    from tokenmill.dashboard.watched import Cache, library_at

    library = library_at(options.store) if options.store else Cache(cache_root(None))
    token = chosen_token(is_local=is_loopback(options.host))
    with listening_socket(options.host, options.port) as sock, suppress(KeyboardInterrupt):
        address = url_of(sock, token)
        print(printable(f"dashboard: {address}   (Ctrl-C ends it)"), file=sys.stderr, flush=True)
        if options.host in ("0.0.0.0", "::"):
            print("from other machines: the same with the name or address of this one", file=sys.stderr, flush=True)
        serve(Dashboard(library), sock, token)
    return 0
