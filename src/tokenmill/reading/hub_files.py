"""Which files of a dataset on the Hugging Face Hub are read: those of its configuration and split, at one commit.

The configurations are those in the YAML header of README.md, as Hugging Face `datasets` reads it. Without any, the names of
files and folders show the splits, as in local folders; where there are several formats of the data, parquet is read.
What is known about a commit is kept in the user's cache: a commit does not change.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tokenmill.errors import InputError, MissingInputError, UsageError
from tokenmill.formatting import first_names
from tokenmill.io.atomic import digest
from tokenmill.option_types import option_name
from tokenmill.reading.globs import fixed_part, glob_expression
from tokenmill.reading.hub_client import HubFile, commit_of, file_at, files_below, is_offline, not_cached, read_range
from tokenmill.reading.hub_names import MAIN, HubInput, Pin, pinned_path
from tokenmill.split_names import files_by_split, matching_splits
from tokenmill.user_cache import cache_folder, read_cached, write_cached

HUB = "hub."  # prefix of the tag of a file on the Hub
FOLDER = "hub-listings"  # in the user's cache
README = "README.md"
MOST_README = 4 << 20  # bytes
VERSION = 1
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_HEADER = re.compile(r"\A\s*---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubChoice:
    """The options that choose among the files of datasets on the Hub."""

    config: str | None = None
    split: str | None = None
    revision: str | None = None


def pin(found: HubInput, choice: HubChoice, *, is_guess: bool) -> Pin:
    """The commit of an input now; without a connection (HF_HUB_OFFLINE), the last one that was seen. See `commit_of`."""
    revision = found.revision or choice.revision or MAIN
    if _COMMIT.fullmatch(revision):
        return Pin(found.spelling, found.repo, revision, revision)
    path = _folder(found.repo) / "revisions.json"
    seen: dict[str, str] = (read_cached(path) or {}).get("revisions", {})
    if is_offline():
        if revision not in seen:
            raise not_cached(f"{found.repo}@{revision}")
        return Pin(found.spelling, found.repo, revision, seen[revision])
    commit = commit_of(found.repo, revision, is_guess=is_guess)
    if not _COMMIT.fullmatch(commit):
        raise UsageError(f"{found.repo}@{revision}: the server does not answer like the Hub; check HF_ENDPOINT")
    if seen.get(revision) != commit:
        write_cached(path, {"revisions": {**seen, revision: commit}})
    return Pin(found.spelling, found.repo, revision, commit)


class DataFiles:
    """Which files are data, by their names; and in `ignored` why others are not read.

    `format_of` gives the format of a data file by its name, and None for other files.
    """

    def __init__(self, format_of: Callable[[str], str | None]) -> None:
        self._format_of = format_of
        self.ignored: list[tuple[HubFile, str]] = []

    def among(self, files: list[HubFile]) -> list[HubFile]:
        return [file for file in files if self._is_kept(file, self._reason(file))]

    def in_one_format(self, files: list[HubFile]) -> list[HubFile]:
        """The data files in the best format that there is: the others are the same data again, or notes beside it."""
        data = self.among(files)
        formats = {self._format_of(file.path) for file in data}
        best = next((each for each in ("parquet", "arrow", "jsonl", "csv", "tsv") if each in formats), None)
        if best is None:
            return data
        reason = f"not in the format that is read ({best})"
        return [file for file in data if self._is_kept(file, None if self._format_of(file.path) == best else reason)]

    def of_split(self, files: list[HubFile], split: str | None, where: str) -> list[HubFile]:
        """The files of a split by their names."""
        if split is None:
            return files
        splits = files_by_split(f"/{file.path}" for file in files)
        wanted = {path for each in matching_splits(split, splits, where) for path in splits[each]}
        return [file for file in files if self._is_kept(file, None if f"/{file.path}" in wanted else "another split")]

    def _reason(self, file: HubFile) -> str | None:
        if any(part.startswith(".") for part in file.path.split("/")):
            return "hidden"
        if self._format_of(file.path) is None:
            return f"not a data file ({os.path.splitext(file.path)[1] or 'no suffix'})"
        return None

    def _is_kept(self, file: HubFile, reason: str | None) -> bool:
        if reason is not None:
            self.ignored.append((file, reason))
        return reason is None


def chosen_files(found: HubInput, pinned: Pin, choice: HubChoice, data: DataFiles) -> Iterator[HubFile]:
    """The files of an input."""
    repo = _Repository(pinned)
    split = choice.split or (found.known.split if found.known is not None else None)
    config = choice.config
    if found.path and (found.known is None or config is None):
        if config is not None:
            raise UsageError(
                f"{found.spelling}: give a path or {option_name('config')}, not both: each says which files are read"
            )
        yield from data.of_split(data.among(repo.at(found.path)), split, found.spelling)
        return
    config = config or (found.known.config if found.known is not None else None)
    configs = repo.configs()
    if configs:
        yield from _of_config(repo, configs, config, split, data)
    elif config is not None:
        raise UsageError(
            f"{pinned.dataset} has no configurations; choose files with hf://datasets/{pinned.dataset}/PATH instead of"
            f" {option_name('config', config)}"
        )
    else:
        yield from data.of_split(data.in_one_format(repo.below("", recursive=True)), split, pinned.dataset)


class _Config(NamedTuple):
    """A configuration: the globs of each split; or, with split None, all data files below a folder."""

    splits: list[tuple[str | None, list[str]]]
    is_default: bool


class _Repository:
    """A dataset at a commit. What was asked once is read from the cache."""

    def __init__(self, pinned: Pin) -> None:
        self.name, self.commit = pinned.dataset, pinned.commit
        self._cache = _folder(self.name) / self.commit

    def below(self, folder: str, *, recursive: bool) -> list[HubFile]:
        """The files in or below a folder."""
        path = self._cache / f"{digest(f'{folder} {recursive}'.encode())[:16]}.json"
        saved = read_cached(path)
        if saved is None or saved.get("version") != VERSION:
            files = _checked(self.name, files_below(self.name, self.commit, folder, recursive=recursive))
            write_cached(path, {"version": VERSION, "files": files})
            return files
        return [HubFile(*file) for file in saved["files"]]

    def at(self, path: str) -> list[HubFile]:
        """The file of this path, the files below it, or those that it matches as a glob."""
        if glob.has_magic(path):
            return self.matching(path)
        saved = read_cached(where := self._cache / f"{digest(path.encode())[:16]}.file.json")
        if saved is None:
            saved = {"file": file_at(self.name, self.commit, path)}
            write_cached(where, saved)
        files = [HubFile(*saved["file"])] if saved["file"] is not None else self.below(path, recursive=True)
        if not files:
            raise MissingInputError(f"{self.name} has no file or folder {path} at commit {self.commit[:7]}")
        return _checked(self.name, files)

    def matching(self, pattern: str) -> list[HubFile]:
        """The files that match a glob, or are of this name or below this folder."""
        if not glob.has_magic(pattern):
            return self.at(pattern)
        fixed = fixed_part(pattern)
        rest = pattern[len(fixed) :].lstrip("/")
        expression = re.compile(glob_expression(pattern))
        files = self.below(fixed, recursive="/" in rest or "**" in rest)
        found = [file for file in files if expression.fullmatch(file.path)]
        if not found:
            raise MissingInputError(f"{self.name} has no file that matches {pattern} at commit {self.commit[:7]}")
        return found

    def configs(self) -> dict[str, _Config]:
        """The configurations in the header of README.md; none if it has none."""
        path = self._cache / "readme.json"
        saved = read_cached(path)
        if saved is None:
            saved = {"header": self._header()}
            write_cached(path, saved)
        return _parsed_configs(self.name, saved["header"])

    def _header(self) -> str:
        try:
            file = file_at(self.name, self.commit, README)
            path = pinned_path(self.name, self.commit, README)
            text = read_range(path, 0, min(file.size, MOST_README)) if file else b""
        except InputError:
            text = b""
        header = _HEADER.match(text.decode("utf-8", "replace").removeprefix("\ufeff"))
        return header[1] if header else ""


def _folder(repo: str) -> Path:
    return cache_folder() / FOLDER / repo.replace("/", "--")


def _checked(name: str, files: list[HubFile]) -> list[HubFile]:
    """The files, if their ids and paths are such that files may be named by them."""
    for file in files:
        if not _ID.fullmatch(file.id) or not {"", ".", ".."}.isdisjoint(file.path.split("/")):
            raise UsageError(f"{name}: the server does not answer like the Hub; check HF_ENDPOINT")
    return files


def _parsed_configs(name: str, header: str) -> dict[str, _Config]:
    import yaml

    try:
        body = yaml.safe_load(header) if header else None
        found = (body or {}).get("configs") or []
        return {str(each["config_name"]): _parsed_config(each) for each in found}
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:100]
        raise UsageError(
            f"the configurations in the README.md of {name} cannot be read ({type(error).__name__}: {reason}); choose files"
            f" with hf://datasets/{name}/PATH"
        ) from error


def _parsed_config(body: dict[str, Any]) -> _Config:
    """`data_files` is a glob, a list of globs, a list of {split, path} or a mapping from split to globs."""
    folder = str(body.get("data_dir") or "").strip("/")
    given = body.get("data_files")
    splits: list[tuple[str | None, list[str]]] = []
    if given is None:
        splits = [(None, [folder])]
    elif isinstance(given, dict):
        splits = [(str(split), _globs(paths, folder)) for split, paths in given.items()]
    elif isinstance(given, list) and given and isinstance(given[0], dict):
        splits = [(str(each["split"]), _globs(each["path"], folder)) for each in given]
    else:
        splits = [("train", _globs(given, folder))]
    return _Config(splits, bool(body.get("default")))


def _globs(paths: Any, folder: str) -> list[str]:
    globs = [str(path) for path in (paths if isinstance(paths, list) else [paths])]
    if any("://" in path or ".." in path.split("/") for path in globs):
        raise ValueError(f"{globs[0]} is not in the repository")
    return [f"{folder}/{path}".strip("/") for path in (path.removeprefix("./") for path in globs)]


def _of_config(
    repo: _Repository, configs: dict[str, _Config], name: str | None, split: str | None, data: DataFiles
) -> Iterator[HubFile]:
    """The files of a configuration, and of one of its splits."""
    name = name or _default_config(repo.name, configs)
    if name not in configs:
        raise UsageError(f"{repo.name} has no configuration {name!r}; it has {_listed(configs)}")
    splits = configs[name].splits
    if splits[0][0] is None:
        files = data.in_one_format(repo.below(splits[0][1][0], recursive=True))
        yield from data.of_split(files, split, f"{repo.name}, {name}")
        return
    names = [each for each, _ in splits if each is not None]
    wanted = names if split is None else matching_splits(split, names, f"{repo.name}, {name},")
    for each, globs in splits:
        if each in wanted:
            for pattern in globs:
                yield from data.among(repo.matching(pattern))


def _default_config(repo: str, configs: dict[str, _Config]) -> str:
    marked = [name for name, config in configs.items() if config.is_default]
    names = marked or [name for name in configs if name == "default"] or list(configs)
    if len(names) > 1:
        raise UsageError(
            f"{repo} has {len(configs)} configurations; choose one with {option_name('config')}: {_listed(configs)}"
        )
    return names[0]


def _listed(configs: Iterable[str]) -> str:
    return first_names(configs, 40)
