"""The process that shows one build: `python -m tokenmill.dashboard.following SOCKET`. See `building.dashboard_process`.

Each line of standard input says where the build is, as a JSON string. When it ends, so does the process, once no page is open.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tokenmill.building.dashboard_process import chosen_token
from tokenmill.child_process import claim_process
from tokenmill.dashboard.server import Dashboard, server_of
from tokenmill.dashboard.watched import OneStore, Watched, place_of
from tokenmill.io.object_store import is_url

PATIENCE_SECONDS = 5.0  # after the last page was closed, and for one to be opened when the build has ended
NICENESS = 5  # the build goes first


class Followed:
    """Where the build is at the moment."""

    def __init__(self) -> None:
        self._place: Callable[[], Path] = lambda: Path(os.devnull) / "no-build-yet"

    def place(self) -> Path:
        return self._place()

    def listen(self, watched: Watched) -> None:
        """Take in where the build is, and name the page after it."""
        for line in sys.stdin:
            path = json.loads(line)
            self._place = place_of(path)
            watched.title = _title(path)


def _title(place: str) -> str:
    """The name of the folder of a build; in the cache, that of the folder around it."""
    path = Path(place)
    name = path.parent.name if path.name == "store" and path.parent.parent.name == "builds" else path.name
    return place if is_url(place) else name.encode("utf-8", "replace").decode()


def main() -> None:
    claim_process()
    with suppress(OSError):
        os.nice(NICENESS)
    sock = socket.socket(fileno=int(sys.argv[1]))
    followed = Followed()
    dashboard = Dashboard(OneStore("build", followed.place))
    watched = dashboard.library.get("")
    server = server_of(dashboard, sock.getsockname()[0], chosen_token())

    def end_when_left() -> None:
        followed.listen(watched)
        watched.nothing = "The build ended before it began: the terminal says why."
        over_at = time.monotonic()
        while not server.should_exit:
            time.sleep(0.2)
            alone_since = max(over_at, dashboard.viewed_at)
            if not dashboard.viewers and time.monotonic() - alone_since > PATIENCE_SECONDS:
                server.should_exit = True

    threading.Thread(target=end_when_left, daemon=True).start()
    server.run(sockets=[sock])


if __name__ == "__main__":
    main()
