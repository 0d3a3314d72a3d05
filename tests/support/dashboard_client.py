"""A dashboard that is served by a thread of the test, and a client that asks it."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode

from build_helpers import wait_until

from tokenmill.building.dashboard_process import listening_socket
from tokenmill.dashboard.server import Dashboard, server_of
from tokenmill.dashboard.watched import Library

EVIL = "<script>alert('x')</script>"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


class Client:
    """Asks a server, with exactly the headers that are given."""

    def __init__(self, port: int, dashboard: Dashboard | None = None, server: Any = None) -> None:
        self.port, self.dashboard, self.server = port, dashboard, server

    def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.putrequest(method, path, skip_host=True)
            given = {
                "Host": f"127.0.0.1:{self.port}",
                **{name.replace("_", "-"): value for name, value in headers.items()},
            }
            for name, value in given.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read().decode())
        finally:
            connection.close()

    def part(self, name: str, **query: str | int) -> str:
        answer = self.get(f"/part/{name}?{urlencode(query)}")
        assert answer.status == 200, answer
        return answer.text

    def first_event(self, **query: str) -> str:
        """The first message of the stream of a build."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", f"/live?{urlencode(query)}")
            lines = connection.getresponse()
            return next(line.decode() for line in lines if line.startswith(b"data: "))
        finally:
            connection.close()


@contextmanager
def serving(library: Library, token: str | None = None) -> Iterator[Client]:
    dashboard = Dashboard(library)
    with listening_socket(port=0) as sock:
        server = server_of(dashboard, "127.0.0.1", token)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        assert wait_until(lambda: server.started, 30)
        yield Client(sock.getsockname()[1], dashboard, server)
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
