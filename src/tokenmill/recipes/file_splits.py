"""Splits of a recipe by folder or by name: which of them each source has. A source may lack some of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenmill.errors import UsageError
from tokenmill.formatting import first_names
from tokenmill.packing.splits import file_names, folders, names, store_name
from tokenmill.reading import Source
from tokenmill.split_names import TRAIN, files_by_split
from tokenmill.store.store import Store


def splits_of_sources(
    by: str, named: Mapping[str, Any], sources: Mapping[str, Source | Store]
) -> dict[str, dict[str, Any]]:
    """The keywords of `view.split` for each source; without names, its own splits.

    UsageError if a source has none of the splits, or if no source has one of them.
    """
    found: dict[str, dict[str, Any]] = {}
    missing: dict[str, UsageError] = {}  # of each split: the error of the first source without it
    for name, source in sources.items():
        own, errors = _own_splits(by, named, source, f"split of {name}")
        if errors and not own:
            raise next(iter(errors.values()))
        found[name] = own
        missing = errors | missing
    for split, error in missing.items():
        if not any(split in own for own in found.values()):
            raise error
    return found


def _own_splits(
    by: str, named: Mapping[str, Any], source: Source | Store, where: str
) -> tuple[dict[str, Any], dict[str, UsageError]]:
    """The splits that a source has, and the errors for those that it lacks."""
    own: dict[str, Any] = {}
    errors: dict[str, UsageError] = {}
    for wanted in [{split: value} for split, value in named.items()] or [{}]:
        try:
            splits = _splits(by, source, wanted)
        except UsageError as error:
            errors |= dict.fromkeys(wanted or [""], UsageError(f"{where}: {error}"))
        else:
            own |= wanted or {split: split for split in splits}
    return own, errors


def _splits(by: str, source: Source | Store, named: Mapping[str, Any]) -> Mapping[str, Any]:
    if by == "folder":
        return folders(_files(source), named)
    if isinstance(source, Store):
        return names(source.splits, named, store_name(source))
    files = _files(source)
    splits = files_by_split(files, TRAIN) if source.split is None else {source.split: files}
    return names(splits, named, first_names(source.inputs, 2))


def _files(source: Source | Store) -> list[str]:
    return file_names(source) if isinstance(source, Store) else [file.shown for file in source.files]
