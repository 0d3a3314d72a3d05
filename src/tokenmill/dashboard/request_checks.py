"""Who may ask: requests that a page of another site could make are refused, and other machines need a token.

The server reads, and changes nothing; but what it reads may be private. A page of another site can make a browser send requests
to this machine, by its name, or by a name of its own that resolves to this machine. So the `Host` of every request must be a
name of this machine, an `Origin` must be that of the page itself, and no answer may be used by another site.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, quote, unquote

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "tokenmill-dash"  # followed by the port: a browser sends cookies to all ports of a machine
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class RequestChecks:
    """Around the application: refuses requests, and adds headers to every answer.

    `host` is the address that the server listens at. `token`, if there is one, has to be in the URL of the first request, which
    sets a cookie, or in the header `Authorization: Bearer`.
    """

    def __init__(self, app: App, host: str, token: str | None = None) -> None:
        self.app, self.host, self.token = app, host, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # nothing here is a web socket

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *added]
            await send(message)

        headers = _headers(scope)
        problem = self._problem(headers)
        if problem is not None:
            await _answer(send_with_headers, *problem)
            return
        if self.token is not None:
            cookie = _cookie_name(headers["host"][0])
            if self._is_in_url(scope):
                await self._move_to_cookie(cookie, send_with_headers)
                return
            if not self._has_token(headers, cookie):
                text = "Open the address that the server has printed: it holds a token."
                await _answer(send_with_headers, 401, text)
                return
        await self.app(scope, receive, send_with_headers)

    def _problem(self, headers: dict[str, list[str]]) -> tuple[int, str] | None:
        hosts, origins = headers.get("host", []), headers.get("origin", [])
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            return 421, "This server answers only to the names of its own machine (header Host)."
        if any(origin != f"http://{hosts[0]}" for origin in origins):
            return 403, "Requests from other sites are refused (header Origin)."
        is_link = headers.get("sec-fetch-mode") == ["navigate"]  # somebody follows a link to this page
        if not is_link and any(site not in ("same-origin", "none") for site in headers.get("sec-fetch-site", [])):
            return 403, "Requests from other sites are refused (header Sec-Fetch-Site)."
        return None

    def _is_own(self, host: str) -> bool:
        """Whether a `Host` names this machine. A name that somebody else can give to this machine must not pass."""
        name = _without_port(host).lower()
        if name in ("localhost", self.host.lower()):
            return True
        try:
            address = ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return self.token is not None and name in {socket.gethostname().lower(), socket.getfqdn().lower()}
        return address.is_loopback or self.token is not None  # nobody else can name a machine by its number

    def _has_token(self, headers: dict[str, list[str]], name: str) -> bool:
        given = [value.removeprefix("Bearer ").encode("latin-1") for value in headers.get("authorization", [])]
        for value in headers.get("cookie", []):
            try:
                cookie = SimpleCookie(value).get(name)
            except CookieError:
                continue
            given += [unquote(cookie.value).encode()] if cookie is not None else []
        return any(self._is_token(each) for each in given)

    def _is_token(self, given: bytes) -> bool:
        return self.token is not None and hmac.compare_digest(given, self.token.encode())

    def _is_in_url(self, scope: Scope) -> bool:
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        return any(self._is_token(text.encode()) for text in query.get("token", []))

    async def _move_to_cookie(self, name: str, send: Send) -> None:
        """Turn a token in the URL into a cookie, so that it does not stay in the address bar."""
        cookie = f"{name}={quote(self.token or '', safe='')}; HttpOnly; SameSite=Lax; Path=/"
        await _answer(send, 303, "", {"location": "/", "set-cookie": cookie})


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def _cookie_name(host: str) -> str:
    """localhost:8321 -> tokenmill-dash-8321"""
    return f"{COOKIE}-{host.rpartition(':')[2] if host != _without_port(host) else 80}"


def _without_port(host: str) -> str:
    """localhost:8321 -> localhost; [::1]:8321 -> [::1]"""
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.partition(":")[0]


async def _answer(send: Send, status: int, text: str, headers: dict[str, str] | None = None) -> None:
    given = {"content-type": "text/plain; charset=utf-8", **(headers or {})}
    encoded = [(name.encode(), value.encode()) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": text.encode()})
