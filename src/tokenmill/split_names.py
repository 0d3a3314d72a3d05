"""The splits of a corpus by the names of its files and folders, as Hugging Face `datasets` reads them.

    train.jsonl  valid-02.txt  test/a.parquet                  words in names: train, validation, test
    validation/train.txt                                       the first such word of the path: folders count before files
    data/train_sft-00000-of-00003.parquet                      a dataset on the Hub: the name before the numbers
    saved/train_sft/data-00000-of-00001.arrow                  a DatasetDict saved to disk: the folder

Folders count below the one that all files have in common; the name of that one only if nothing below it names a split.
In a store where such words name splits, the files that have none are for training.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from typing import Any

from tokenmill.errors import UsageError

TRAIN, ALL = "train", "all"  # `split="all"` is no split: it takes the documents of all
WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
_PERHAPS = re.compile("train|val|dev|test|-of-|^<dataset ", re.IGNORECASE)  # in all names that the rest may find
_BETWEEN_WORDS = re.compile(r"[-_. 0-9]+")
_NAME = r"\w+(?:\.\w+)*"  # what datasets takes for the name of a split
_SAVED = re.compile(rf"(?:.*/)?({_NAME})/data-\d+-of-\d+\.arrow")
_ON_HUB = re.compile(rf"(?:.*/)?data/({_NAME})-\d{{5}}-of-\d{{5}}\b[^/]*")
_STREAM = re.compile(rf"<dataset ({_NAME})(?::\d+)?>")  # the name of a DatasetDict's part that was passed as an object


def files_by_split(files: Iterable[str], rest: str | None = None) -> dict[str, list[str]]:
    """The files of each split. Where words name splits, files that have none are in `rest`, else in none."""
    names = {name: _as_path(name) for name in files}
    paths = [name for name, path in names.items() if os.path.isabs(path)]
    folders = [os.path.dirname(names[name]) + "/" for name in paths]
    root = os.path.commonpath([min(folders), max(folders)]) if paths else ""
    found = {name: _split_of(path, root) for name, path in names.items()}
    rest = rest if any(map(_word_in, filter(None, set(found.values())))) else None
    splits: dict[str, list[str]] = {}
    for name in names:
        split = found[name] or rest
        if split is not None:
            splits.setdefault(split, []).append(name)
    split = _word_in(os.path.basename(root))
    return {split: paths} if split is not None and not splits else splits


def _as_path(name: str) -> str:
    """An URL as an absolute path, so that the name of a bucket or a dataset is not taken for that of a split."""
    return "/" + name.replace("://", "/", 1) if "://" in name and not os.path.isabs(name) else name


def held_out(splits: Collection[str]) -> list[str]:
    """The splits that are not for training, but for evaluation, by their names; none if there is only one split."""
    return [split for split in splits if _word_in(split) not in (None, TRAIN) and len(splits) > 1]


def matching_splits(split: Any, splits: Collection[str], where: str) -> list[str]:
    """The splits that a name stands for: the one of this name, or those that mean the same, such as validation for "val".

    UsageError, with the names that there are, if there is none.
    """
    if not isinstance(split, str):
        raise UsageError(f"split={split!r} is not the name of a split")
    same = [name for name in splits if name == split] or [name for name in splits if _meaning(name) == _meaning(split)]
    if not same:
        named = "no file or folder has a name such as train or validation; leave split out to read all; view.split cuts parts"
        there = f"it has {', '.join(splits)}" if splits else named
        there += "; its first rows are max_rows=1000" if "[" in split else ""
        raise UsageError(f"{where} has no split {split!r}; {there}")
    return same


def _meaning(split: str) -> str:
    return WORDS.get(split.lower(), split)


def _split_of(file: str, root: str) -> str | None:
    if not _PERHAPS.search(file):  # most files; names of a million take a second
        return None
    if stream := _STREAM.fullmatch(file):
        return stream[1]
    saved, on_hub = _SAVED.fullmatch(file), _ON_HUB.fullmatch(file)
    if saved and os.path.dirname(file) != root:
        return saved[1]
    if on_hub:
        return _meaning(on_hub[1])
    return named_split(file[len(root) :])


def named_split(path: str) -> str | None:
    """The split that the first such word in the folders and the name of a path stands for."""
    return next(filter(None, map(_word_in, path.split("/"))), None)


def _word_in(name: str) -> str | None:
    """The split of the first word that names one."""
    return next((WORDS[word] for word in _BETWEEN_WORDS.split(name.lower()) if word in WORDS), None)
