"""`dashboard=True`: a process of its own shows the build on a web page, from its log, so that the build is not slowed down.

The process is told where the build is, and notices when it ends. Then it serves on as long as a page is open, so that what was
built can be looked at.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import secrets
import selectors
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from urllib.parse import quote

from tokenmill import events
from tokenmill.errors import UsageError
from tokenmill.events import Event, Listener
from tokenmill.formatting import some

LOOPBACK = "127.0.0.1"
PORT = 8321
PORTS_TRIED = 50
LEAST_TOKEN = 16  # characters, where other machines could guess it
MODULE = "tokenmill.dashboard.following"
TOKEN_VARIABLE = "TOKENMILL_DASH_TOKEN"  # asked for, if it is set


class DashboardPage:
    """The page of one build. It is told where the build is, and in the end where the store is.

    The process starts when somebody opens the page, or when the build is over: a page that nobody looks at costs nothing.
    """

    def __init__(self) -> None:
        check_installed()
        self._socket = listening_socket()
        self.url = url_of(self._socket, chosen_token())
        self._process: subprocess.Popen[str] | None = None
        self._place = ""
        self._lock = threading.Lock()
        self._is_over, self._end = socket.socketpair()
        self._waiting = threading.Thread(target=self._wait_for_page, daemon=True)
        self._waiting.start()
        print(f"dashboard: {self.url}", file=sys.stderr, flush=True)

    def _wait_for_page(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._is_over, selectors.EVENT_READ)
            selector.select()
        with suppress(OSError), self._socket:  # no process can be started: nothing depends on it
            self._start()

    def _start(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE, str(self._socket.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[self._socket.fileno()],
            start_new_session=True,  # Ctrl-C is for the build
            text=True,
        )
        with self._lock:
            self._process = process
            if self._place:
                _tell(process, self._place)

    def tell(self, place: str) -> None:
        """Where to look from now on: a folder, or the URL of a store."""
        with self._lock:
            self._place = place
            if self._process is not None:
                _tell(self._process, place)

    def listener(self, listener: Listener) -> Listener:
        """Passes events on, and tells the page where the build is."""

        def tell_and_pass_on(event: Event) -> None:
            if isinstance(event, events.Begun):
                self.tell(event.folder)
            listener(event)

        return tell_and_pass_on

    def close(self) -> None:
        """The build is over."""
        self._end.close()
        self._waiting.join()
        self._is_over.close()
        if self._process is not None:
            assert self._process.stdin is not None
            with suppress(OSError):
                self._process.stdin.close()
            _left.append(self._process)
            threading.Thread(target=_wait_for_end, args=[self._process], daemon=True).start()


def _tell(process: subprocess.Popen[str], place: str) -> None:
    assert process.stdin is not None
    with suppress(OSError):  # the process has gone: nothing depends on it
        process.stdin.write(json.dumps(place) + "\n")  # ASCII: a path may have any bytes
        process.stdin.flush()


_left: list[subprocess.Popen[str]] = []  # processes that may serve on


def _wait_for_end(process: subprocess.Popen[str]) -> None:
    """A process that has ended stays in the list of the system until somebody waits for it."""
    process.wait()
    _left.remove(process)


@atexit.register
def _let_go() -> None:
    """They outlive this process on purpose; Python would warn of it."""
    for process in _left:
        process.returncode = 0


def check_installed() -> None:
    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"the dashboard needs {' and '.join(missing)}: pip install 'tokenmill[dash]'")


def chosen_token(*, is_local: bool = True) -> str | None:
    """The token that the user has set; for other machines, a new one if none is. An empty one counts as none."""
    token = os.environ.get(TOKEN_VARIABLE) or (None if is_local else secrets.token_urlsafe(24))
    if token is not None and len(token) < LEAST_TOKEN and not is_local:
        raise UsageError(
            f"{TOKEN_VARIABLE} has {some(len(token), 'character')}: other machines could guess it; set"
            f" {LEAST_TOKEN} or more, or unset it, and a token is made"
        )
    return token


def listening_socket(host: str = LOOPBACK, port: int | None = None) -> socket.socket:
    """A socket at the port, or without one at the first that is free from 8321 on, or at any."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in [port] if port is not None else [*range(PORT, PORT + PORTS_TRIED), 0]:
        sock = socket.socket(family)
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, number))
            sock.listen(128)
            return sock
        except (OSError, OverflowError) as error:
            sock.close()
            failure = error.strerror if isinstance(error, OSError) else "ports end at 65535"
    if port is None:
        raise UsageError(f"no server can listen at {host}: {failure}")
    raise UsageError(f"no server can listen at {host}, port {port}: {failure}; choose another with --port")


def url_of(sock: socket.socket, token: str | None = None) -> str:
    """The address of a server with this socket, for a browser on this machine, with the token if it needs one."""
    host, port = sock.getsockname()[:2]
    name = LOOPBACK if host in ("0.0.0.0", "::") else host
    query = "" if token is None else f"?token={quote(token)}"
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/{query}"
