"""What answers of the Hugging Face Hub mean, in words that never quote a token; for tokenizers and datasets."""

from __future__ import annotations

import logging
import os
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError

LOGIN = "log in with `hf auth login` or set HF_TOKEN"


def hub_address() -> str:
    """The address of the Hub: HF_ENDPOINT, or its own."""
    from huggingface_hub import constants

    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


def hub_host() -> str:
    """The name of the Hub for messages."""
    address = hub_address()
    return urlsplit(address).netloc.rpartition("@")[2] or address


def explain_answer(error: HfHubHTTPError, name: str, at: str, kind: str) -> str:
    """What an answer of the Hub about `name@at` means, to be put behind the name. `kind` is "model" or "dataset"."""
    from huggingface_hub import errors

    host = hub_host()
    if isinstance(error, errors.GatedRepoError):
        return f" is gated: request access on its page on {host}, then {LOGIN}, as the account that was granted access"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f": no such {kind} on {host}, or it is private: check the name; for a private one {LOGIN}"
    if isinstance(error, errors.RevisionNotFoundError):
        return f": {name} has no branch, tag or commit {at!r}; check what follows the @, or leave it out for main"
    status, message = error.response.status_code, one_line(error.server_message or "")
    answer = f"{host} answered {status} ({message if message and not quotes_token(error) else 'no reason given'})"
    if status in (401, 403):
        return f": {answer}; {LOGIN} again, as an account that may read it, or unset HF_TOKEN for a public {kind}"
    if status == 429:
        return f": {answer}: too many requests; try again in a few minutes, or {LOGIN} for a higher limit"
    if status >= 500:
        return f": {answer}: a problem of the server; try again in a few minutes"
    return f": {answer}; check the name, HF_ENDPOINT and the proxy"


def quotes_token(error: BaseException) -> bool:
    """Whether an error, or one of its causes, may contain the authorization header. HTTP clients quote a bad one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UnicodeEncodeError) or "Bearer" in str(cause):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def one_line(text: str) -> str:
    """The beginning of a text in one line, without the queries of URLs: they may be signed."""
    return re.sub(r"(://[^\s?]*)\?[^\s'\")]*", r"\1", " ".join(text.split()))[:200]


@contextmanager
def quiet() -> Iterator[None]:
    """Hide the library's warnings, in all threads: what matters is in the error. A level set by HF_HUB_VERBOSITY is kept."""
    global _silenced
    with _lock:
        if not _silenced:
            _loud.enter_context(_silence())
        _silenced += 1
    try:
        yield
    finally:
        with _lock:
            _silenced -= 1
            if not _silenced:
                _loud.close()


_lock = threading.Lock()
_silenced = 0  # how many threads are within `quiet`
_loud = ExitStack()  # closed by the last of them


@contextmanager
def _silence() -> Iterator[None]:
    from huggingface_hub.utils import logging as library

    level = library.get_verbosity()
    if level == logging.WARNING:  # the default; any other level was set by the user
        library.set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="huggingface_hub")
            yield
    finally:
        library.set_verbosity(level)
