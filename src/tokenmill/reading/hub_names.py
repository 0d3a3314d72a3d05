"""Names of datasets on the Hugging Face Hub: short ones, ORG/NAME, and hf://datasets/ORG/NAME@REVISION/PATH."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

from tokenmill.errors import UsageError
from tokenmill.io.object_store import is_url
from tokenmill.known_datasets import KNOWN, KnownDataset, known_dataset
from tokenmill.synonyms import nearest

SCHEME = "hf://"
PREFIX = "hf://datasets/"
MAIN = "main"
_PART = r"\w(?:[\w.-]{0,94}\w)?"
_REPO = re.compile(rf"(?:{_PART}/)?{_PART}", re.ASCII)
_ONE_PART = re.compile(_PART, re.ASCII)
_REVISION = re.compile(r"\w[^\s~^:?*\[\x00-\x1f\x7f]*", re.ASCII)
_REF = re.compile(r"refs/(?:convert|pr)/[^/]+")  # the only revisions with slashes that need no %2F
_PINNED = re.compile(r"hf://datasets/([^@]+)@([0-9a-f]{40})/(.+)", re.DOTALL)
# A name that ends like a file is a path, and not a dataset.
_FILE = re.compile(
    r"(?i)\.(txt|text|md|json|jsonl|ndjson|parquet|pq|arrow|feather|ipc|csv|tsv|gz|zst|bz2|xz|lz4|py|html?|tar|zip)$"
)


@dataclass(frozen=True, slots=True)
class HubInput:
    """An input on the Hub. `revision` None is the one of the options, or main; `path` "" is all data of the dataset."""

    spelling: str
    repo: str
    revision: str | None = None
    path: str = ""
    known: KnownDataset | None = None


class Pin(NamedTuple):
    """An input on the Hub, and the commit that its revision stood for when it was listed."""

    input: str
    dataset: str
    revision: str
    commit: str


def hub_input(item: str) -> HubInput | None:
    """What an input names on the Hub; None for what is a path, a glob, a list of files or another URL."""
    if item.startswith(SCHEME):
        return _from_url(item)
    if is_url(item) or item.startswith("@") or os.path.lexists(item) or glob.has_magic(item):
        return None
    name, _, revision = item.partition("@")
    if "@" in item and not _REVISION.fullmatch(revision):
        return None
    known = known_dataset(name)
    if known is not None:
        return HubInput(item, known.repo, revision or None, known.files or "", known)
    if _is_repo(name) and "/" in name and not _FILE.search(name):
        spelling = f"{PREFIX}{name}{f'@{revision}' if revision else ''}"
        return HubInput(spelling, name, revision or None)
    return None


def unknown_name(item: str) -> str:
    """What to add to "no such file or folder" for something that may have been meant as a short name."""
    if not _ONE_PART.fullmatch(item) or _FILE.search(item):
        return ""
    return f"{nearest(item, KNOWN)} (datasets with a short name: {', '.join(KNOWN)})"


def pinned_input(item: str, commit: str) -> str:
    """The spelling of an input with a commit for its revision."""
    found = hub_input(item)
    if found is None:
        return item
    if found.known is not None:
        return f"{item.partition('@')[0]}@{commit}"
    return f"{PREFIX}{found.repo}@{commit}{f'/{found.path}' if found.path else ''}"


def pinned_path(repo: str, commit: str, path: str) -> str:
    """The path of a source file on the Hub."""
    return f"{PREFIX}{repo}@{commit}/{path}"


def parts_of(path: str) -> tuple[str, str, str]:
    """Repository, commit and path in it, of what `pinned_path` returned."""
    match = _PINNED.fullmatch(path)
    if match is None:
        raise UsageError(f"{path} is not the path of a file at a commit on the Hub")
    return match[1], match[2], match[3]


def without_commit(path: str) -> str:
    """The path of a source file without the commit: the same for all versions of a file."""
    match = _PINNED.fullmatch(path) if path.startswith(PREFIX) else None
    return path if match is None else f"{PREFIX}{match[1]}/{match[3]}"


def _from_url(url: str) -> HubInput:
    wrong = UsageError(f"{url}: a dataset on the Hub is hf://datasets/ORG/NAME, with @REVISION and /PATH if needed")
    if not url.startswith(PREFIX):
        raise wrong
    rest = url.removeprefix(PREFIX).strip("/")
    parts = rest.split("/")
    count = 1 if "@" in parts[0] or len(parts) == 1 else 2
    repo, _, revision = "/".join(parts[:count]).partition("@")
    path = "/".join(parts[count:])
    if revision and (ref := _REF.match(f"{revision}/{path}")):
        revision, path = ref[0], f"{revision}/{path}"[len(ref[0]) :].strip("/")
    revision = unquote(revision)
    has_revision = "@" in "/".join(parts[:count])
    if not _is_repo(repo) or (has_revision and not _REVISION.fullmatch(revision)) or ".." in path.split("/"):
        raise wrong
    return HubInput(url.rstrip("/"), repo, revision or None, path)


def _is_repo(name: str) -> bool:
    return _REPO.fullmatch(name) is not None and "--" not in name and ".." not in name and not name.endswith(".git")
