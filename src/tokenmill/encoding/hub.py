"""The tokenizer of a model on the Hugging Face Hub, by its name: only the tokenizer's files, all from one commit.

`huggingface_hub` does the work, and keeps the files in its own cache, under its own settings: HF_HOME, HF_ENDPOINT,
HF_TOKEN or the token of `hf auth login`, HF_HUB_OFFLINE. Code and weights are never asked for.

The price: two requests a file at first, one or two in all when nothing changed, none for a cached full commit hash.
When the Hub gives no answer, the cached files serve, as old as they are, and nothing is retried before that is known.
"""

from __future__ import annotations

import errno
import logging
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tokenmill.errors import TokenizerError

# Asked for in every repo, before the vocabulary: where a vocabulary is cached, these were settled.
_CONFIGS = ("tokenizer_config.json", "special_tokens_map.json")
# What else tells about a tokenizer that has no tokenizer.json.
_EXTRAS = ("added_tokens.json", "config.json")
# Where vocabularies usually are, for a repo that does not list its files.
_VOCABULARIES = (
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tiktoken.model",
    "qwen.tiktoken",
    "merges.txt",
    "vocab.json",
    "vocab.txt",
)
# A .model counts as a vocabulary only by such a name: any other may be weights.
_PIECES = re.compile(r"[\w.-]+\.tiktoken|[\w.-]*(token|piece|bpe|spm)[\w.-]*\.model", re.ASCII | re.IGNORECASE)
_PATHS = (".json", ".model", ".tiktoken")
_PART = r"\w(?:[\w.-]{0,94}\w)?"
_NAME = re.compile(rf"(?P<name>(?:{_PART}/)?{_PART})(?:@(?P<revision>\w[^\s~^:?*\[\x00-\x1f\x7f]*))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PATIENCE = 10.0  # seconds for the list of files


def hub_name(spec: str) -> tuple[str, str | None] | None:
    """`org/model@revision` or `model` as (name, revision or None); None where this cannot be a name on the Hub.

    Only the spelling is looked at, and a relative path may be spelled like a name: look for a file or folder first.
    """
    if "\\" in spec or ".." in spec or spec.endswith((*_PATHS, "/")):
        return None
    match = _NAME.fullmatch(spec)
    if match is None or "--" in match["name"] or match["name"].endswith((*_PATHS, ".git")):
        return None
    return match["name"], match["revision"]


def fetch(name: str, revision: str | None = None) -> Path:
    """The folder in huggingface_hub's cache that holds the tokenizer files of a model on the Hub.

    What is missing is downloaded. `revision` is a branch, a tag or a full commit hash; None is the branch main. When
    the Hub gives no answer, or none to us, what is cached of that revision serves.
    """
    at = revision or "main"
    if hub_name(f"{name}@{at}") != (name, at):
        raise TokenizerError(f"{name}@{at} is not a name on the Hugging Face Hub: give org/model or org/model@revision")
    try:
        import huggingface_hub  # noqa: F401
    except ImportError as error:
        raise TokenizerError(f"{name}: names on the Hub need huggingface_hub: pip install huggingface_hub") from error
    with _quiet():
        try:
            return _fetch(name, at)
        except TokenizerError:
            raise
        except Exception as error:  # the library's, its HTTP client's, the system's: none is for our callers to know
            # The HTTP client quotes a token that it cannot send, so that its error may not even be shown beneath ours.
            raise TokenizerError(_explain(error, name, at)) from (None if _quotes_token(error) else error)


def _fetch(name: str, at: str) -> Path:
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.errors import OfflineModeIsEnabled, RevisionNotFoundError

    cached = _cached(name, at)
    if cached and _COMMIT.fullmatch(at) and all(try_to_load_from_cache(name, file, revision=at) for file in _CONFIGS):
        return cached
    try:
        if constants.HF_HUB_OFFLINE:
            raise OfflineModeIsEnabled("HF_HUB_OFFLINE is set")
        commit, has_json = _resolve(name, at)
    except RevisionNotFoundError:
        raise
    except Exception:
        if cached:
            return cached
        raise
    listing = None if has_json else _listing(name, commit)
    if has_json:
        wanted = [*_CONFIGS, "tokenizer.json"]
    elif listing is None:
        wanted = [*_CONFIGS, *_EXTRAS, *_VOCABULARIES]
    else:
        wanted = [*_CONFIGS, *(file for file in _EXTRAS if file in listing), *_vocabulary(listing)]
    here: dict[str, Path] = {}
    for file in wanted:
        kept = try_to_load_from_cache(name, file, revision=commit)  # a path; None: unknown; else: not in this commit
        path = _download(name, file, commit) if kept is None or isinstance(kept, str) else None
        if path is not None:
            here[file] = path
    vocabulary = _vocabulary(here)
    if not vocabulary:
        holds = f"it holds {_some(listing)}" if listing is not None else f"{_host()} does not list its files"
        raise TokenizerError(
            f"{name}@{at} has no tokenizer: no tokenizer.json, tokenizer.model, *.tiktoken, vocab.json with merges.txt,"
            f" or vocab.txt at its top; {holds}. Give the name of the repo its tokenizer comes from"
        )
    # Only now is the branch or tag written down as this commit, so that a download cut short leaves it with the whole
    # snapshot it had. Asking for any file by that name does it. Should the branch have moved meanwhile, it then leads
    # to a snapshot with that one file, which is no vocabulary and so is never taken for a tokenizer.
    if at != commit and (cached is None or cached.name != commit):
        _download(name, _CONFIGS[0], at)
    return here[vocabulary[0]].parent


def _resolve(name: str, at: str) -> tuple[str, bool]:
    """The commit a revision is now, and whether it has a tokenizer.json: one request, not retried.

    `hf_hub_download` would ask six times, up to a minute each, before it says that there is no connection.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError

    has_json = True
    try:
        commit = get_hf_file_metadata(hf_hub_url(name, "tokenizer.json", revision=at)).commit_hash
    except EntryNotFoundError as error:
        response = getattr(error, "response", None)
        commit = response.headers.get("X-Repo-Commit") if response is not None else None
        has_json = False
    if commit is None or not _COMMIT.fullmatch(commit):
        raise TokenizerError(f"{name}@{at}: {_host()} does not answer as the Hub does; check HF_ENDPOINT and the proxy")
    return commit, has_json


def _listing(name: str, commit: str) -> set[str] | None:
    """The names of all files of a commit; None when they cannot be had. (`list_repo_files` knows no time limit.)"""
    from huggingface_hub import HfApi

    try:
        siblings = HfApi().model_info(name, revision=commit, timeout=_PATIENCE).siblings
    except Exception:  # mirrors may serve files alone; the usual names are tried instead
        return None
    return {entry.rfilename for entry in siblings} if siblings else None


def _download(name: str, file: str, revision: str) -> Path | None:
    """One file into the cache, unless it is there; None when the repo has no such file."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(name, file, revision=revision))
    except LocalEntryNotFoundError:  # an EntryNotFoundError that means: no connection
        raise
    except EntryNotFoundError:
        return None


def _cached(name: str, at: str) -> Path | None:
    """The cached snapshot of a revision, if it has a vocabulary and is not known to lack what belongs to it."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    expected = [*_CONFIGS, "tokenizer.json"]
    try:
        folder = Path(snapshot_download(name, revision=at, local_files_only=True, allow_patterns=expected))
    except LocalEntryNotFoundError:
        return None
    return folder if _vocabulary(entry.name for entry in folder.iterdir()) else None


def _vocabulary(files: Iterable[str]) -> list[str]:
    """Which of these files hold the vocabulary; none of them: no tokenizer."""
    names = set(files)
    if "tokenizer.json" in names:
        return ["tokenizer.json"]
    found = sorted(file for file in names if _PIECES.fullmatch(file))
    found += [file for file in ("merges.txt", "vocab.json") if {"merges.txt", "vocab.json"} <= names]
    return found + [file for file in ("vocab.txt",) if file in names]


def _some(files: set[str]) -> str:
    return ", ".join(sorted(files)[:8]) + (f" and {len(files) - 8} more" if len(files) > 8 else "")


def _host() -> str:
    from huggingface_hub import constants

    return urlsplit(constants.ENDPOINT).netloc.rpartition("@")[2] or constants.ENDPOINT


def _explain(error: BaseException, name: str, at: str) -> str:
    """What went wrong, where, and what to do about it."""
    from huggingface_hub import constants, errors

    while isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ is not None:
        error = error.__cause__
    what, host, cache = f"{name}@{at}", _host(), constants.HF_HUB_CACHE
    login = "log in with `hf auth login` or set HF_TOKEN"
    if _quotes_token(error) and not isinstance(error, errors.HfHubHTTPError):
        return f"{what}: the token has characters that cannot be sent; {login} anew"
    if isinstance(error, errors.GatedRepoError):
        return f"{what} is gated: ask for access on its page on {host}, then {login}, as the account that was let in"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"{what}: no such model on {host}, or it is private: check the name; for a private one {login}"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{what}: {name} has no branch, tag or commit {at!r}; check what follows the @, or leave it out for main"
    if isinstance(error, errors.OfflineModeIsEnabled):
        return (
            f"{what} is not in the cache {cache}, and HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE) forbids fetching it;"
            " unset it, run once with a connection, or copy the cache of a machine that has one"
        )
    if isinstance(error, errors.HfHubHTTPError):
        status, said = error.response.status_code, _line(error.server_message or "")
        answer = f"{host} answered {status} ({said if said and not _quotes_token(error) else 'no reason given'})"
        if status in (401, 403):
            return (
                f"{what}: {answer}; {login} anew, as an account that may read it, or unset HF_TOKEN for a public model"
            )
        if status == 429:
            return f"{what}: {answer}: too many requests; try again in some minutes, or {login} for a higher limit"
        if status >= 500:
            return f"{what}: {answer}: the trouble is on its side; try again in some minutes"
        return f"{what}: {answer}; check the name, HF_ENDPOINT and the proxy"
    if isinstance(error, OSError) and error.errno in _FULL:
        return f"{what}: no room in the cache {cache} ({error.strerror}); free some, or set HF_HOME to another disk"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{what}: cannot use {error.filename} ({error.strerror}); mend it, or set HF_HOME to another folder"
    said = _line(f"{type(error).__name__}: {error}")
    return (
        f"{what} could not be fetched from {host} ({said}), and is not complete in the cache {cache}; check the"
        " connection, the proxy and HF_ENDPOINT, and try again"
    )


def _quotes_token(error: BaseException) -> bool:
    """Whether an error, or one it came from, may show the authorization header, as HTTP clients do with a bad one."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, UnicodeEncodeError) or "Bearer" in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _line(text: str) -> str:
    return " ".join(text.split())[:200]


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library's warnings off the terminal: what matters in them is in the error. HF_HUB_VERBOSITY counts."""
    from huggingface_hub.utils import logging as library

    level = library.get_verbosity()
    if level == logging.WARNING:  # the default; anything else was asked for
        library.set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="huggingface_hub")
            yield
    finally:
        library.set_verbosity(level)
