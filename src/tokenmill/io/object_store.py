"""Objects in buckets and on web servers, by URL: list, read, write, write only if nothing changed, delete.

`obstore` makes the requests (docs/scale.md says why). It retries those that were throttled (429), failed on the server (5xx) or
lost their connection, with growing pauses. Credentials come from where the tools of each provider look for them. They never
appear in a message: errors are described by their kind and the status of the answer, and not quoted.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from tokenmill.child_process import Children
from tokenmill.errors import UnreachableError, UsageError

BUCKETS = ("s3", "gs", "az")  # can be listed and written to
SCHEMES = (*BUCKETS, "http", "https")
RETRY_SECONDS = 120  # for how long a request is tried again
MOST_RETRIES = 10_000  # the time decides
REQUEST_SECONDS = 60  # for one try of a request
CONNECT_SECONDS = 10
LIST_CHUNK = 1000
DOWNLOAD_CHUNK = 8 << 20
KEPT = "Try again; what a build has finished is kept"
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SECRET = re.compile(r"(?i)(signature|credential|security-token|^sig$|token|secret|password|api-?key|access-?key)")
_STATUS = re.compile(r"status code: (\d{3})(?: ([A-Z][A-Za-z ]+))?")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")

T = TypeVar("T")


class Object(NamedTuple):
    """An object: its URL, its size, and a tag that changes whenever its content may have changed."""

    url: str
    size: int
    tag: str


class ConditionError(OSError):
    """An object is not what a request said it must be: it was changed or made by another process."""


def is_url(path: str | os.PathLike[str]) -> bool:
    """Whether this is an URL of any scheme, and not a path."""
    return isinstance(path, str) and _URL.match(path) is not None


def is_bucket_url(path: str | os.PathLike[str]) -> bool:
    """Whether this is an URL of an object store, which can be listed and written to."""
    return is_url(path) and str(path).partition("://")[0] in BUCKETS


def join(url: str, *names: str) -> str:
    """The URL of something below another URL."""
    return "/".join([url.rstrip("/"), *names])


def check_url(url: str) -> None:
    """Raise UsageError for an URL that cannot be read, or that would put a secret into files and logs."""
    scheme = url.partition("://")[0]
    if scheme not in SCHEMES:
        raise UsageError(
            f"{shown_url(url)}: cannot read {scheme}:// URLs; use {', '.join(f'{s}://' for s in SCHEMES)} or hf://"
        )
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise UsageError(
            f"{shown_url(url)}: the URL has a user name or password in it, which would be written into the store; give"
            " credentials by the environment or the files of the provider's own tools"
        )
    if any(_SECRET.search(name) for name, _ in parse_qsl(parts.query, keep_blank_values=True)):
        raise UsageError(
            f"{shown_url(url)}: the URL is signed, and its signature would be written into the store; use the URL without it,"
            " with credentials from the environment, or download the file first"
        )
    if not parts.netloc:
        raise UsageError(f"{url}: a URL is {scheme}://{'HOST' if scheme.startswith('http') else 'BUCKET'}/PATH")


def shown_url(url: str) -> str:
    """An URL for messages: without user name, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


# What can be done with objects.


def stat(url: str) -> Object:
    """Raises FileNotFoundError if there is no such object."""
    with _explained(url):
        store, key = _client(url)
        meta = _obstore().head(store, key)
    return Object(url, int(meta["size"]), _tag(meta))


def listing(url: str) -> Iterator[Object]:
    """All objects below an URL: one request per thousand, in the order of their names."""
    base, prefix = _split(url)
    folder = prefix.rstrip("/")
    with _explained(url):
        store, _ = _client(url)
        for chunk in _obstore().list(store, folder or None, chunk_size=LIST_CHUNK):
            for meta in chunk:
                yield Object(f"{base}/{meta['path']}", int(meta["size"]), _tag(meta))


def read(url: str, start: int = 0, stop: int | None = None, tag: str | None = None) -> bytes:
    """The bytes of an object, or those from `start` to `stop`. With `tag`, raises ConditionError if the object changed."""
    if _is_forked():
        (data,) = _in_child("read", url, start, stop, tag)
        return bytes(data)
    options: dict[str, Any] = {}
    if stop is not None:
        options["range"] = (start, stop)
    elif start:
        options["range"] = {"offset": start}
    etag = _version(tag).get("e_tag") if tag is not None else None
    if etag is not None and not etag.startswith("W/"):  # a condition never holds for a weak one
        options["if_match"] = etag

    def fetch() -> bytes:
        store, key = _client(url)
        answer = _obstore().get(store, key, options=options)
        if etag is not None and answer.meta.get("e_tag") not in (etag, None):
            raise ConditionError(errno.EBUSY, "changed in the meantime", shown_url(url))
        first, last = answer.range
        with _cut_short():
            data: bytes = answer.bytes().to_bytes()
        if len(data) != last - first or (stop is not None and (first, last) != (start, stop)):
            raise _CutShort
        return data

    return _again_if_cut(url, fetch)


def write(url: str, data: bytes | memoryview) -> None:
    """Replace an object."""
    with _explained(url):
        store, key = _client(url)
        _obstore().put(store, key, data, use_multipart=False)


def write_if(url: str, data: bytes, tag: str | None) -> str:
    """Write an object only if it is still the one with this tag; or, without a tag, only if there is none. Returns the new tag.

    Raises ConditionError otherwise: of several writers exactly one succeeds.
    """
    writer = secrets.token_hex(8)
    mode: Any = "create" if tag is None else _version(tag)
    obstore = _obstore()
    with _explained(url):
        store, key = _client(url)
        try:
            answer = obstore.put(store, key, data, mode=mode, use_multipart=False, attributes={"writer": writer})
        except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
            # The first try may have succeeded while its answer was lost.
            found = obstore.get(store, key)
            if found.attributes.get("writer") != writer:
                raise
            return _tag(found.meta)
    return _tag(answer)


def upload(url: str, path: Path) -> None:
    """Write a file as an object. It appears under its name when it is complete."""
    with _explained(url), open(path, "rb") as file:
        store, key = _client(url)
        _obstore().put(store, key, file, chunk_size=8 << 20, max_concurrency=4)


def download(url: str, path: Path) -> None:
    """Write an object to a file."""
    if _is_forked():
        _in_child("download", url, str(path))
        return

    def fetch() -> None:
        store, key = _client(url)
        answer = _obstore().get(store, key)
        with open(path, "wb") as out:
            with _cut_short():
                for data in answer.stream(DOWNLOAD_CHUNK):
                    out.write(data)
            if out.tell() != answer.meta["size"]:
                raise _CutShort
            out.flush()
            os.fsync(out.fileno())

    _again_if_cut(url, fetch)


def delete(urls: Iterable[str]) -> None:
    """Remove objects, as far as they exist."""
    for url in urls:
        with _explained(url), suppress(_obstore().exceptions.NotFoundError):
            store, key = _client(url)
            _obstore().delete(store, key)


# Clients, one per bucket or host.


_used_by: int | None = None  # the process in which the library has started its threads


def _is_forked() -> bool:
    """Whether this process was forked from one that has used the library, whose threads do not survive that.

    A child process makes the requests then. So torch's loader workers can read a store in a bucket.
    """
    return _used_by is not None and _used_by != os.getpid()


_children = Children("tokenmill.io.request_process")


def _in_child(name: str, *arguments: Any) -> tuple[Any, ...]:
    """Have a child process make a request: call a function of this module there. Returns the bytes it answers with."""
    with _children.lend() as child:
        return child.call({"call": name, "arguments": list(arguments)}).data


def _obstore() -> Any:
    global _used_by
    if _used_by is None:
        _used_by = os.getpid()
    try:
        import obstore
    except ImportError:
        raise UsageError(
            "s3://, gs://, az:// and http(s):// URLs need obstore: pip install 'tokenmill[cloud]'"
        ) from None
    return obstore


def _split(url: str) -> tuple[str, str]:
    """The bucket or host of an URL, and the name of the object in it."""
    scheme, _, rest = url.partition("://")
    host, _, key = rest.partition("/")
    return f"{scheme}://{host}", key


def _client(url: str) -> tuple[Any, str]:
    base, key = _split(url)
    if base.startswith("http"):
        key = unquote(urlsplit(url).path.lstrip("/"))
        query = urlsplit(url).query
        if query:
            raise UsageError(f"{shown_url(url)}: URLs with a query cannot be read; give the URL of the file itself")
    return _store(base, os.getpid()), key


@lru_cache(maxsize=64)
def _store(base: str, pid: int) -> Any:
    """The client of a bucket or host. A process that was forked makes its own."""
    from obstore.store import AzureStore, GCSStore, HTTPStore, S3Store

    client: Any = {
        "timeout": timedelta(seconds=REQUEST_SECONDS),
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "user_agent": "tokenmill",
    }
    retry: Any = {
        "max_retries": MOST_RETRIES,
        "retry_timeout": timedelta(seconds=RETRY_SECONDS),
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=3),
            "base": 2,
        },
    }
    scheme, _, name = base.partition("://")
    match scheme:
        case "s3":
            from tokenmill.io.aws_settings import aws_settings

            settings: Any = aws_settings()
            if settings.get("endpoint", "").startswith("http://"):
                client["allow_http"] = True
            return S3Store(name, config=settings, client_options=client, retry_config=retry)
        case "gs":
            return GCSStore(name, client_options=client, retry_config=retry)
        case "az":
            return AzureStore(name, client_options=client, retry_config=retry)
        case _:
            client["allow_http"] = scheme == "http"
            return HTTPStore.from_url(base, client_options=client, retry_config=retry)


def _tag(meta: Any) -> str:
    """A tag that changes with the content: the ETag and the version, if the server has them; or the time of the last change."""
    known = [f"{kind}.{meta[name]}" for kind, name in (("etag", "e_tag"), ("version", "version")) if meta.get(name)]
    return " ".join(known) or f"modified.{meta['last_modified'].isoformat()}"


def _version(tag: str) -> dict[str, str]:
    """The ETag and the version that a tag is made of."""
    parts = dict(part.split(".", 1) for part in tag.split(" ") if part.startswith(("etag.", "version.")))
    return {name: parts[kind] for kind, name in (("etag", "e_tag"), ("version", "version")) if kind in parts}


# Errors.


class _CutShort(Exception):
    """An answer broke off."""


@contextmanager
def _cut_short() -> Iterator[None]:
    """While the body of an answer is read: the library has tried again, and given up."""
    try:
        yield
    except _obstore().exceptions.BaseError:
        raise _CutShort from None


def _again_if_cut(url: str, fetch: Callable[[], T]) -> T:
    """What `fetch` returns. Where an answer breaks off, the library does not begin anew: that is done here."""
    pause, end = 0.2, time.monotonic() + RETRY_SECONDS
    while True:
        try:
            with _explained(url):
                return fetch()
        except _CutShort:
            if time.monotonic() > end:
                raise UnreachableError(f"{shown_url(url)}: the connection was lost. {KEPT}") from None
            time.sleep(pause)
            pause = min(2 * pause, 3.0)


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """Turn errors of the library into errors that say what is wrong in our words, and nothing that may hold a secret."""
    exceptions = _obstore().exceptions
    name = shown_url(url)
    try:
        yield
    except (FileNotFoundError, exceptions.NotFoundError):
        raise FileNotFoundError(errno.ENOENT, "no such object", name) from None
    except (PermissionError, exceptions.PermissionDeniedError, exceptions.UnauthenticatedError):
        raise PermissionError(errno.EACCES, f"access denied; {_credentials_hint(url)}", name) from None
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError, exceptions.NotModifiedError):
        raise ConditionError(errno.EBUSY, "changed in the meantime", name) from None
    except (exceptions.BaseError, ConnectionError, TimeoutError) as error:
        text = str(error)
        status = _STATUS.search(text)
        if status is not None and status[1] == "404":
            raise FileNotFoundError(errno.ENOENT, "no such bucket or object", name) from None
        if status is not None and status[1] in ("400", "401", "403", "301"):
            code = _CODE.search(text)
            why = f"the server answered {status[1]}{f' ({code[1]})' if code else ''}; {_credentials_hint(url)}"
            raise PermissionError(errno.EACCES, why, name) from None
        raise UnreachableError(f"{name}: {_reason(text, status)}. {KEPT}") from None


def _reason(text: str, status: re.Match[str] | None) -> str:
    lower = text.lower().replace("retry_timeout", "")  # which every error quotes
    if status is not None:
        return f"the server still answered {status[1]}{f' {status[2]}' if status[2] else ''} after retries"
    if "credential" in lower or "169.254.169.254" in lower or "metadata" in lower:
        return "no credentials were found in the environment, in the files of the provider's tools or on this machine"
    if "range" in lower and ("support" in lower or "requested" in lower):
        return "the server does not support range requests; download the file first"
    for words, meaning in (
        (("redirect",), "the server redirects the request in a circle; check the URL"),
        (("refused",), "the connection was refused"),
        (("timed out", "timeout"), "the server did not answer in time"),
        (("dns", "resolve", "lookup"), "the name of the server is unknown"),
        (("certificate", "tls", "ssl"), "the certificate of the server is not accepted"),
        (("cut short", "reset", "closed", "incomplete", "body", "broken"), "the connection was lost"),
    ):
        if any(word in lower for word in words):
            return meaning
    return "the request failed"


def _credentials_hint(url: str) -> str:
    match url.partition("://")[0]:
        case "s3":
            return (
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, and AWS_REGION; for a public bucket"
                " AWS_SKIP_SIGNATURE=true"
            )
        case "gs":
            return "set GOOGLE_APPLICATION_CREDENTIALS, or log in with gcloud auth application-default login"
        case "az":
            return "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or another of the AZURE_ variables"
        case _:
            return "the server wants credentials, which URLs of files cannot give"
