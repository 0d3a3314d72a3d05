"""Requests to the Hugging Face Hub about datasets: commits, lists of files, ranges of bytes, whole files.

`huggingface_hub` makes them, with its own settings: HF_ENDPOINT, HF_TOKEN or the token of `hf auth login`, HF_HUB_OFFLINE.
Throttled requests (429, after the pause that the Hub asks for), errors of the server (5xx) and lost connections are tried
again. A token is sent to the Hub only, never to the hosts that it redirects to, and is in no message.
"""

from __future__ import annotations

import errno
import inspect
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urljoin, urlsplit

from tokenmill.errors import InputError, TokenmillError, UnreachableError, UsageError
from tokenmill.hub_errors import LOGIN, explain_answer, hub_address, hub_host, one_line, quiet, quotes_token
from tokenmill.option_types import option_name
from tokenmill.reading.hub_names import parts_of

RETRY_SECONDS = 120.0  # for how long a request is tried again
FIRST_SECONDS = 2.0  # the same without a connection, for a name that may be a path that is not there
LONGEST_PAUSE = 10.0  # between two tries
LONGEST_WAIT = 330.0  # that the Hub may ask for: its limits are per five minutes
REQUEST_SECONDS = 60.0
MOST_REDIRECTS = 5
SIGNED_KEPT = 10_000  # addresses of files that the Hub redirected to
_EXPIRED = (400, 401, 403, 404, 410)
_AGAIN = (408, 429, 500, 502, 503, 504)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Result = TypeVar("Result")


class HubFile(NamedTuple):
    """A file of a repository. `id` is the sha256 of a file in LFS, and the git id of another one."""

    path: str
    size: int
    id: str


def commit_of(repo: str, revision: str, *, is_guess: bool = False) -> str:
    """The commit that a branch, a tag or the beginning of a commit stands for now: one request.

    `is_guess`: whether there may be no such repository, so that without a connection the answer is not waited for.
    """

    def ask() -> str:
        info = _api().dataset_info(repo, revision=revision, expand=["sha"], timeout=REQUEST_SECONDS)
        return str(info.sha)

    return _answer(repo, revision, ask, patience=FIRST_SECONDS if is_guess else None)


def files_below(repo: str, commit: str, folder: str, *, recursive: bool) -> list[HubFile]:
    """The files in a folder, and with `recursive` below it: one request per thousand. None of them if it does not exist."""

    def ask() -> list[HubFile]:
        from huggingface_hub.errors import EntryNotFoundError

        try:
            inside = {"recursive": recursive, "revision": commit, "repo_type": "dataset"}
            entries = _api().list_repo_tree(repo, folder or None, **inside)
            return [_hub_file(entry) for entry in entries if hasattr(entry, "blob_id")]
        except EntryNotFoundError:
            return []

    return _answer(repo, commit, ask)


def file_at(repo: str, commit: str, path: str) -> HubFile | None:
    """A file, if the path names one and not a folder or nothing: one request."""

    def ask() -> HubFile | None:
        entries = _api().get_paths_info(repo, [path], revision=commit, repo_type="dataset")
        return next((_hub_file(entry) for entry in entries if hasattr(entry, "blob_id")), None)

    return _answer(repo, commit, ask)


def _hub_file(entry: Any) -> HubFile:
    lfs = entry.lfs
    return HubFile(entry.path, int(entry.size), str(lfs.sha256 if lfs is not None else entry.blob_id))


def read_range(url: str, start: int = 0, stop: int | None = None, tag: str | None = None) -> bytes:
    """The bytes of a source file from `start` to `stop`, or to its end. A file of a commit never changes: `tag` is not used."""
    if stop is not None and stop <= start:
        return b""
    repo, commit, path = parts_of(url)
    return _answer(repo, commit, lambda: _read_range(url, _resolve_url(repo, commit, path), start, stop), path)


def download(url: str, folder: Path, note: Callable[[int], None]) -> Path:
    """Download a source file into a cache of `huggingface_hub` in a folder. Returns its path there.

    `note` is called with the number of bytes of each chunk, and ends the download by raising an exception.
    """
    repo, commit, path = parts_of(url)

    def ask() -> Path:
        from huggingface_hub import hf_hub_download

        options: dict[str, Any] = {"revision": commit, "cache_dir": folder, "endpoint": hub_address()}
        if "tqdm_class" in inspect.signature(hf_hub_download).parameters:  # earlier versions show their own progress
            options["tqdm_class"] = _noting(note)
        return Path(hf_hub_download(repo, path, repo_type="dataset", **options))

    return _answer(repo, commit, ask, path)


def is_offline() -> bool:
    """Whether HF_HUB_OFFLINE forbids requests."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def not_cached(name: str) -> UnreachableError:
    """The error for what is needed and may not be fetched."""
    return UnreachableError(
        f"{name} is not in the cache, and HF_HUB_OFFLINE forbids fetching it; unset it, or run once with a connection"
    )


def _api() -> Any:
    from huggingface_hub import HfApi

    return HfApi(endpoint=hub_address())


def _utilities() -> Any:
    import huggingface_hub.utils

    return huggingface_hub.utils


def _noting(note: Callable[[int], None]) -> Any:
    """A progress bar that shows nothing."""
    bar: Any = _utilities().tqdm

    class Silent(bar):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            note(int(n or 0))
            return None

    return Silent


# Ranges of bytes. The Hub redirects to a signed address on another host, which is used until it has expired.

_signed: OrderedDict[str, str] = OrderedDict()
_signed_lock = threading.Lock()


def _resolve_url(repo: str, commit: str, path: str) -> str:
    return f"{hub_address()}/datasets/{repo}/resolve/{commit}/{quote(path)}"


def _read_range(url: str, address: str, start: int, stop: int | None) -> bytes:
    with _signed_lock:
        signed = _signed.get(url)
    if signed is not None:
        data = _get_range(signed, {}, start, stop, expires=True)
        if isinstance(data, bytes):
            return data
    for _ in range(MOST_REDIRECTS):
        data = _get_range(address, _utilities().build_hf_headers(), start, stop)
        if isinstance(data, bytes):
            return data
        target = urljoin(address, data or "")
        if _origin(target) == _origin(address):
            address = target
            continue
        with _signed_lock:
            _signed[url] = target
            while len(_signed) > SIGNED_KEPT:
                _signed.popitem(last=False)
        data = _get_range(target, {}, start, stop)
        if isinstance(data, bytes):
            return data
        break
    raise UnreachableError(f"{url}: {hub_host()} redirects the request in a circle; check HF_ENDPOINT and the proxy")


def _get_range(
    address: str, headers: dict[str, str], start: int, stop: int | None, *, expires: bool = False
) -> bytes | str | None:
    """The bytes; or where the answer redirects to; or None if the address has expired. Redirects are not followed."""
    asked = f"bytes={start}-{'' if stop is None else stop - 1}"
    headers = {**headers, "Range": asked, "Accept-Encoding": "identity"}
    ask = _utilities().get_session().stream
    with ask("GET", address, headers=headers, follow_redirects=False, timeout=REQUEST_SECONDS) as response:
        if expires and response.status_code in _EXPIRED:
            return None
        if response.is_redirect:
            return str(response.headers.get("Location", ""))
        if response.status_code >= 400:
            response.read()
            _utilities().hf_raise_for_status(response)
        sent = int(response.headers.get("Content-Length", -1))
        if response.status_code == 200 and stop is not None and sent > 4 * max(stop, 1 << 20):
            why = f"the server does not support range requests; drop {option_name('streaming', True)}"
            raise OSError(errno.EOPNOTSUPP, why)
        data: bytes = response.read()
        if response.status_code == 200:
            data = data[start:stop]
    if stop is not None and len(data) != stop - start:
        raise ConnectionError(errno.ECONNRESET, "the answer was cut short", urlsplit(address).netloc)
    return data


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


# Tries and errors.


def _answer(repo: str, at: str, ask: Callable[[], Result], path: str = "", patience: float | None = None) -> Result:
    """What `ask` returns. Tries again where that may help; else raises what is wrong, in words."""
    began, pause, patience = time.monotonic(), 0.5, patience or RETRY_SECONDS
    while True:
        try:
            with quiet():
                return ask()
        except TokenmillError:
            raise
        except Exception as error:  # of the library, its HTTP client or the system
            wait = _pause_before_next(error, pause)
            is_lost = _is_lost_connection(_cause(error))
            if wait is None or time.monotonic() - began >= (patience if is_lost else RETRY_SECONDS):
                # Errors of the HTTP client may quote the token and signed addresses, so they are in no traceback.
                raise _explained(error, repo, at, path) from None
            time.sleep(wait)
            pause = min(LONGEST_PAUSE, 2 * pause)


def _pause_before_next(error: BaseException, pause: float) -> float | None:
    """How long to wait before a request is tried again; None if that does not help."""
    from huggingface_hub import errors

    error = _cause(error)
    if isinstance(error, errors.HfHubHTTPError):
        if error.response.status_code not in _AGAIN:
            return None
        asked = _retry_after(error.response.headers)
        return pause if asked is None else min(asked, LONGEST_WAIT)
    return pause if _is_lost_connection(error) else None


def _cause(error: BaseException) -> BaseException:
    from huggingface_hub import errors

    while isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_lost_connection(error: BaseException) -> bool:
    """Whether the connection was lost, or an answer broke off."""
    names = {each.__name__ for each in type(error).__mro__}
    if "TransportError" in names or isinstance(error, (ConnectionError, TimeoutError)):
        return True
    return isinstance(error, OSError) and str(error).startswith("Consistency check failed")


def _retry_after(headers: Any) -> float | None:
    """The seconds that an answer asks to wait, by Retry-After or the Hub's RateLimit ("api";r=0;t=56)."""
    for text in (headers.get("Retry-After", ""), headers.get("RateLimit", "").rpartition("t=")[2]):
        if text.strip().isdigit():
            return float(text)
    return None


def _explained(error: BaseException, repo: str, at: str, path: str) -> TokenmillError:
    """The error to raise for one of the library, its HTTP client or the system."""
    from huggingface_hub import errors

    error = _cause(error)
    name = f"{repo}@{at[:12] if len(at) == 40 else at}{f'/{path}' if path else ''}"
    if isinstance(error, errors.OfflineModeIsEnabled):
        return not_cached(name)
    if isinstance(error, errors.HfHubHTTPError):
        if isinstance(error, errors.EntryNotFoundError):
            return InputError(f"{name}: no such file on {hub_host()}")
        text = f"{name}{explain_answer(error, repo, at, 'dataset')}"
        again = error.response.status_code in _AGAIN
        return UnreachableError(f"{text}. What is finished is kept") if again else UsageError(text)
    if quotes_token(error):
        return UsageError(f"{name}: the token has characters that cannot be sent; {LOGIN} again")
    if isinstance(error, OSError) and error.errno in _FULL:
        return UnreachableError(
            f"{name}: no space for the copy ({os.strerror(error.errno)}); free some, or use"
            f" {option_name('streaming', True)}"
        )
    return UnreachableError(
        f"{name} could not be fetched from {hub_host()} ({one_line(f'{type(error).__name__}: {error}')}); check the"
        " connection, the proxy and HF_ENDPOINT, and run the command again: what is finished is kept"
    )
