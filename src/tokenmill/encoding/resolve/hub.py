"""Tokenizers of models on the Hugging Face Hub: only the tokenizer's files, all from one commit.

`huggingface_hub` downloads them into its own cache, with its own settings: HF_HOME, HF_ENDPOINT, HF_TOKEN or the token of
`hf auth login`, HF_HUB_OFFLINE. Code and weights are never requested.

Cost: two requests per file at first, one or two in all if nothing changed, none for a cached full commit hash. If the Hub
does not answer, the cached files are used, however old they are, without retries.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from pathlib import Path

from tokenmill.errors import TokenizerError
from tokenmill.hub_errors import LOGIN, explain_answer, hub_host, one_line, quiet, quotes_token

# Requested from every repo, before the vocabulary: if a vocabulary is cached, these have been looked up.
_CONFIGS = ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
# Other files that describe a tokenizer without a tokenizer.json.
_EXTRAS = ("added_tokens.json", "config.json")
# What hosts that do not list the files of a repo are asked for.
_USUAL = {
    *_EXTRAS, "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "tiktoken.model", "qwen.tiktoken",
    "merges.txt", "vocab.json", "vocab.txt",
}  # fmt: skip
# A .model file is a vocabulary only if its name says so. Others may be weights.
_PIECES = re.compile(r"[\w.-]+\.tiktoken|[\w.-]*(token|piece|bpe|spm)[\w.-]*\.model", re.ASCII | re.IGNORECASE)
_PATHS = (".json", ".model", ".tiktoken")
_PART = r"\w(?:[\w.-]{0,94}\w)?"
_NAME = re.compile(rf"(?P<name>(?:{_PART}/)?{_PART})(?:@(?P<revision>\w[^\s~^:?*\[\x00-\x1f\x7f]*))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def hub_name(spec: str) -> tuple[str, str | None] | None:
    """Split `org/model@revision` or `model` into name and revision (or None). None if it cannot be a name on the Hub.

    Only the spelling is checked. A relative path may look like a name, so look for a file or folder first.
    """
    if "\\" in spec or ".." in spec or spec.endswith((*_PATHS, "/")):
        return None
    match = _NAME.fullmatch(spec)
    if match is None or "--" in match["name"] or match["name"].endswith((*_PATHS, ".git")):
        return None
    return match["name"], match["revision"]


def fetch(name: str, revision: str | None = None) -> Path:
    """Return the folder in huggingface_hub's cache with the tokenizer files of a model on the Hub.

    Missing files are downloaded. `revision` is a branch, a tag or a full commit hash; None means the branch main. If the
    Hub does not answer, or denies access, the cached files of that revision are used.
    """
    at = revision or "main"
    if hub_name(f"{name}@{at}") != (name, at):
        raise TokenizerError(f"{name}@{at} is not a name on the Hugging Face Hub: give org/model or org/model@revision")
    try:
        import huggingface_hub  # noqa: F401
    except ImportError as error:
        raise TokenizerError(f"{name}: names on the Hub need huggingface_hub: pip install huggingface_hub") from error
    try:
        return _fetch(name, at)
    except TokenizerError:
        raise
    except Exception as error:  # of the library, its HTTP client or the system
        # The HTTP client quotes a token that it cannot send, so its error must not appear in a traceback either.
        raise TokenizerError(_explain(error, name, at)) from (None if quotes_token(error) else error)


@quiet()
def _fetch(name: str, at: str) -> Path:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import RevisionNotFoundError

    cached = _cached(name, at)
    # The cache knows each configuration file of a commit, or knows that the commit has none.
    if cached and _COMMIT.fullmatch(at) and all(try_to_load_from_cache(name, file, revision=at) for file in _CONFIGS):
        return cached
    try:
        commit, has_json = _resolve(name, at)
    except Exception as error:
        if cached and not isinstance(error, RevisionNotFoundError):
            return cached
        raise
    listing = {"tokenizer.json"} if has_json else _listing(name, commit)
    wanted = [file for file in _EXTRAS if file in (listing or _USUAL)] + _vocabulary(listing or _USUAL)
    downloaded = {}
    for file in (*_CONFIGS, *wanted):
        known = try_to_load_from_cache(name, file, revision=commit)
        if known is None or isinstance(known, str):  # unknown, or a path; otherwise known not to be in this commit
            path = _download(name, file, commit)
            if path is not None:
                downloaded[file] = path
    vocabulary = _vocabulary(downloaded)
    if not vocabulary:
        more = f" and {len(listing) - 8} more" if len(listing) > 8 else ""
        holds = f"it has {', '.join(sorted(listing)[:8])}{more}" if listing else f"{hub_host()} does not list its files"
        raise TokenizerError(
            f"{name}@{at} has no tokenizer: no tokenizer.json, tokenizer.model, *.tiktoken, vocab.json with merges.txt,"
            f" or vocab.txt at its top level; {holds}. Give the name of the repo its tokenizer comes from"
        )
    # Only now is the branch or tag recorded as this commit, so that an interrupted download leaves it at the complete
    # snapshot it had. Requesting any file by that name records it. If the branch has moved in the meantime, it points to
    # a snapshot with that one file, which is not a vocabulary and so is never used as a tokenizer.
    if at != commit and (cached is None or cached.name != commit):
        _download(name, _CONFIGS[0], at)
    return downloaded[vocabulary[0]].parent


def _resolve(name: str, at: str) -> tuple[str, bool]:
    """The current commit of a revision, and whether it has a tokenizer.json: one request, not retried.

    `hf_hub_download` would try six times, for up to a minute each, before it reports that there is no connection.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import OfflineModeIsEnabled, RemoteEntryNotFoundError

    if constants.HF_HUB_OFFLINE:
        raise OfflineModeIsEnabled("HF_HUB_OFFLINE is set")
    try:
        commit, has_json = get_hf_file_metadata(hf_hub_url(name, "tokenizer.json", revision=at)).commit_hash, True
    except RemoteEntryNotFoundError as error:
        commit, has_json = error.response.headers.get("X-Repo-Commit"), False
    if commit is None or not _COMMIT.fullmatch(commit):
        raise TokenizerError(f"{name}@{at}: {hub_host()} does not answer like the Hub; check HF_ENDPOINT and the proxy")
    return commit, has_json


def _listing(name: str, commit: str) -> set[str]:
    """The names of all files of a commit; none if the host does not list them. (`list_repo_files` has no time limit.)"""
    from huggingface_hub import HfApi

    try:
        siblings = HfApi().model_info(name, revision=commit, timeout=10.0).siblings
    except Exception:  # a mirror may only serve files
        return set()
    return {entry.rfilename for entry in siblings or ()}


def _download(name: str, file: str, revision: str) -> Path | None:
    """Download one file into the cache, unless it is there. None if the repo has no such file."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import RemoteEntryNotFoundError

    try:
        return Path(hf_hub_download(name, file, revision=revision))
    except RemoteEntryNotFoundError:
        return None


def _cached(name: str, at: str) -> Path | None:
    """The cached snapshot of a revision, if it has a vocabulary and no file is known to be missing."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    expected = [*_CONFIGS, "tokenizer.json"]
    try:
        folder = Path(snapshot_download(name, revision=at, local_files_only=True, allow_patterns=expected))
    except LocalEntryNotFoundError:
        return None
    return folder if _vocabulary(entry.name for entry in folder.iterdir()) else None


def _vocabulary(files: Iterable[str]) -> list[str]:
    """Those files that contain the vocabulary. Without any there is no tokenizer."""
    names = set(files)
    if "tokenizer.json" in names:
        return ["tokenizer.json"]
    pairs = ["merges.txt", "vocab.json"] if {"merges.txt", "vocab.json"} <= names else []
    return sorted(file for file in names if _PIECES.fullmatch(file) or file == "vocab.txt") + pairs


_INSTEAD = (
    "or give a tokenizer that is on this machine (there is no file or folder of this name here): a tokenizer.json, a folder that"
    " holds one, bytes or demo"
)


def _explain(error: BaseException, name: str, at: str) -> str:
    """What went wrong, where, and the remedy. Not all errors are answers of the Hub: some are of settings, disk, connection."""
    from huggingface_hub import constants, errors

    while isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ is not None:
        error = error.__cause__
    what, cache = f"{name}@{at}", constants.HF_HUB_CACHE
    if isinstance(error, errors.HfHubHTTPError):
        return what + explain_answer(error, name, at, "model")
    if quotes_token(error):
        return f"{what}: the token has characters that cannot be sent; {LOGIN} again"
    if isinstance(error, errors.OfflineModeIsEnabled):
        return (
            f"{what} is not in the cache {cache}, and HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE) forbids fetching it;"
            f" unset it, run once with a connection, copy the cache of a machine that has one, {_INSTEAD}"
        )
    if isinstance(error, OSError) and error.errno in _FULL:
        return f"{what}: no space in the cache {cache} ({error.strerror}); free some, or set HF_HOME to another disk"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{what}: cannot use {error.filename} ({error.strerror}); fix it, or set HF_HOME to another folder"
    return (
        f"{what} could not be fetched from {hub_host()} ({one_line(f'{type(error).__name__}: {error}')}), and is not"
        f" complete in the cache {cache}; check the connection, the proxy and HF_ENDPOINT, and try again, {_INSTEAD}"
    )
