"""The web server: a page, its parts as HTML, the panel of a build as a stream of events, and figures for Prometheus."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib.resources import files
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from tokenmill.dashboard.metrics import metrics
from tokenmill.dashboard.request_checks import RequestChecks
from tokenmill.dashboard.watched import Cache, Library, Watched
from tokenmill.errors import StoreError, TokenmillError
from tokenmill.formatting import printable
from tokenmill.watching.markup import tag
from tokenmill.watching.panel import style

POLL_SECONDS = 0.5  # between two looks at the log
ALIVE_SECONDS = 10.0  # between two signs of life to a page
CLOSING_SECONDS = 3  # for pages that are connected when the server ends
HEADER_SECONDS = 10.0  # for a request to be complete
MOST_CONNECTIONS = 100  # at a time; then those that wait the longest for a request are ended
BACKLOG = 32  # connections that are taken in at once: together well below the 256 files that some systems allow
MOST_SAID = 10  # problems of the server, each once
STATIC = {"page.js": "text/javascript", "page.css": "text/css", "panel.css": "text/css", "icon.svg": "image/svg+xml"}


class Dashboard:
    """The application. `viewers` is the number of pages that are connected."""

    def __init__(self, library: Library) -> None:
        self.library, self.viewers = library, 0
        self.is_ending = False  # streams end then
        self.viewed_at = time.monotonic()  # when the last page was connected
        routes = [
            Route("/", self._page),
            Route("/live", self._live),
            Route("/part/{part}", self._part),
            Route("/metrics", self._metrics),
            Route("/{name}", self._file),
        ]
        self.app = Starlette(routes=routes)

    async def _page(self, request: Request) -> Response:
        kind = "cache" if isinstance(self.library, Cache) else "store"
        return HTMLResponse(_resource("page.html").replace("{{kind}}", kind))

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            return PlainTextResponse("There is no such page.", 404)
        return Response(_resource(name), media_type=STATIC[name])

    async def _metrics(self, request: Request) -> Response:
        text = await run_in_threadpool(self._metrics_text)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    def _metrics_text(self) -> str:
        library, runs = self.library, {}
        names = [each.name for each in library.list() if not each.is_dataset] if isinstance(library, Cache) else [""]
        for name in names:
            with suppress(StoreError):  # removed in the meantime
                watched = self.library.get(name)
                runs[watched.name] = watched.last_run(), watched.is_alive
        return metrics(runs)

    async def _part(self, request: Request) -> Response:
        query = dict(request.query_params)
        try:
            return HTMLResponse(await run_in_threadpool(self._part_html, request.path_params["part"], query))
        except StoreError as error:
            return HTMLResponse(tag("p", str(error), class_="error"), 404)
        except (TokenmillError, OSError) as error:
            return HTMLResponse(tag("p", str(error), class_="error"), 422)

    def _part_html(self, part: str, query: dict[str, str]) -> str:
        from tokenmill.dashboard.parts import PARTS, cache_part  # loads all that reads stores: not while a build runs

        if part == "cache":
            if not isinstance(self.library, Cache):
                raise StoreError("this page shows one store, not a cache")
            return cache_part(self.library)
        if part not in PARTS:
            raise StoreError("there is no such part of the page")
        return PARTS[part](self.library.get(query.get("store", "")), query)

    async def _live(self, request: Request) -> Response:
        try:
            watched = self.library.get(request.query_params.get("store", ""))
        except StoreError as error:
            return PlainTextResponse(str(error), 404)
        if request.method == "HEAD":  # the answer has an end
            return Response(media_type="text/event-stream")
        return StreamingResponse(self._events(watched), media_type="text/event-stream")

    async def _events(self, watched: Watched) -> AsyncIterator[str]:
        """The parts of the panel that have changed, as often as the log is looked at."""
        self.viewers += 1
        sent: dict[str, str] = {}
        sent_at = time.monotonic()
        try:
            yield "retry: 1000\n\n"
            while not self.is_ending:
                now = await run_in_threadpool(_panel, watched)
                changed = {name: html for name, html in now.items() if sent.get(name) != html}
                if changed:
                    sent, sent_at = now, time.monotonic()
                    yield f"data: {json.dumps(changed)}\n\n"
                elif time.monotonic() - sent_at > ALIVE_SECONDS:
                    sent_at = time.monotonic()
                    yield ": nothing new\n\n"
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self.viewers -= 1
            self.viewed_at = time.monotonic()


def _panel(watched: Watched) -> dict[str, str]:
    """What a page shows of a build, and which version of the store there is."""
    return {**watched.panel(), "version": watched.version(), "name": printable(watched.title)}


def _resource(name: str) -> str:
    return style() if name == "panel.css" else (files("tokenmill.dashboard") / "page" / name).read_text("utf-8")


class _Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Takes the place of another one if there are too many."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.waiting_since = time.monotonic()
        _end_waiting(self.connections)


def _end_waiting(connections: set[Any]) -> None:
    """End connections without a complete request: those that have waited too long, and more while there are too many."""
    now, opened = time.monotonic(), [each for each in connections if not each.transport.is_closing()]
    waiting = [each for each in opened if each.cycle is None or each.cycle.response_complete]
    for each in set(opened).difference(waiting):
        each.waiting_since = now
    for number, each in enumerate(sorted(waiting, key=lambda each: each.waiting_since)):
        if number < len(opened) - MOST_CONNECTIONS or now - each.waiting_since > HEADER_SECONDS:
            each.transport.abort()


class _Server(uvicorn.Server):
    """Lets the streams of pages end before it waits for their connections to be closed. Says each problem once."""

    def __init__(self, config: uvicorn.Config, dashboard: Dashboard) -> None:
        super().__init__(config)
        self._dashboard, self._said = dashboard, set[str]()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._say_once)
        await super().startup(sockets)

    def _say_once(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        problem = f"{context['message']}: {context.get('exception')}"
        if problem not in self._said and len(self._said) < MOST_SAID:
            self._said.add(problem)
            print(printable(f"dashboard: {problem}"), file=sys.stderr, flush=True)

    async def on_tick(self, counter: int) -> bool:
        _end_waiting(self.server_state.connections)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._dashboard.is_ending = True
        await super().shutdown(sockets)


def server_of(dashboard: Dashboard, host: str, token: str | None = None) -> uvicorn.Server:
    """A server that is not running yet."""
    checked: Any = RequestChecks(dashboard.app, host, token)
    config = uvicorn.Config(
        checked,
        http=_Connection,
        backlog=BACKLOG,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=CLOSING_SECONDS,
    )
    return _Server(config, dashboard)


def serve(dashboard: Dashboard, sock: socket.socket, token: str | None = None) -> None:
    """Serve until the process is told to end."""
    server_of(dashboard, sock.getsockname()[0], token).run(sockets=[sock])
