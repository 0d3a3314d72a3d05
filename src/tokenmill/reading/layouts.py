"""Folders that Hugging Face `datasets` writes, recognised by what their JSON files say, not by names alone.

saved/      dataset_info.json, state.json, data-00000-of-00002.arrow, ...    Dataset.save_to_disk
saved/      dataset_dict.json, and such a folder for each split              DatasetDict.save_to_disk
hub/        README.md, dataset_infos.json, data/train-00000-of-00002.parquet, ...
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection
from fnmatch import fnmatchcase
from typing import Any

from tokenmill.errors import InputError

DESCRIPTION = "description of a dataset"
CACHE = "cache file of a dataset"
NOT_LISTED = "not listed in the state.json of the dataset"
STATE = "state.json"
SPLITS = "dataset_dict.json"
FORMAT = "arrow"  # of the files that save_to_disk writes
BESIDE = ("README.md", "LICENSE")
MOST_BYTES = 16 << 20  # of a description; the features of most take a few KB


class DatasetFolder:
    """What the descriptions in a folder say. Costs nothing for a folder without such names."""

    def __init__(self, folder: str, names: Collection[str]) -> None:
        found = {name: _json_object(os.path.join(folder, name)) for name in names if name in _DESCRIBES}
        self._descriptions = {name: each for name, each in found.items() if each is not None and _DESCRIBES[name](each)}
        state = self._descriptions.get(STATE)
        self.listed = None if state is None else _listed(folder, state)  # the data files in order, if listed
        self._listed = frozenset(self.listed or ())
        present = set(names)
        splits = self._descriptions.get(SPLITS, {}).get("splits", ())
        self.missing = [name for name in self.listed or () if name not in present]  # files listed but not there
        self.missing += [os.path.join(split, STATE) for split in splits if split not in present]

    def reason(self, name: str) -> str | None:
        """Why a file of the folder is not data. None if the folder does not say so."""
        if name in self._descriptions:
            return DESCRIPTION
        if not self._descriptions:
            return None
        if fnmatchcase(name, "cache-*.arrow"):
            return CACHE
        if self.listed is None or name in self._listed:
            return None
        return DESCRIPTION if name in BESIDE else NOT_LISTED


def _listed(folder: str, state: dict[str, Any]) -> list[str]:
    if state.get("_indices_files") or state.get("_indices_data_files"):
        raise InputError(
            f"{folder} was saved by an old version of datasets, with the order of its rows in files of its own; load it with"
            " load_from_disk and save it again with save_to_disk"
        )
    return [entry["filename"] for entry in state["_data_files"]]


def _json_object(path: str) -> dict[str, Any] | None:
    """The JSON object that a file consists of; None if it is anything else."""
    try:
        with open(path, "rb") as file:
            content = json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _is_state(content: dict[str, Any]) -> bool:
    files = content.get("_data_files")
    return (
        "_fingerprint" in content
        and isinstance(files, list)
        and all(isinstance(entry, dict) and isinstance(entry.get("filename"), str) for entry in files)
    )


def _is_info(content: Any) -> bool:
    return isinstance(content, dict) and "features" in content and "description" in content


def _is_infos(content: dict[str, Any]) -> bool:
    """One description for each configuration, as older datasets on the Hub have it."""
    return bool(content) and all(map(_is_info, content.values()))


def _is_dict(content: dict[str, Any]) -> bool:
    splits = content.get("splits")
    return content.keys() == {"splits"} and isinstance(splits, list) and all(isinstance(name, str) for name in splits)


_DESCRIBES: dict[str, Callable[[dict[str, Any]], bool]] = {
    STATE: _is_state,
    SPLITS: _is_dict,
    "dataset_info.json": _is_info,
    "dataset_infos.json": _is_infos,
}
