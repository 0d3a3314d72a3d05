"""The verb `recipe`, and what it gives: stores, views and loaders, made by the same verbs as in Python."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenmill.building import build
from tokenmill.encoding import load_tokenizer
from tokenmill.errors import TokenmillError, UsageError
from tokenmill.loading import Loader, Mixture, load, mix
from tokenmill.packing import View, pack
from tokenmill.reading import Source, read
from tokenmill.recipes.checking import TRAIN, Checked, checked, nearest
from tokenmill.recipes.keys import LEFT_OUT, LOAD, READ, SPLIT
from tokenmill.recipes.yaml_lines import from_file, from_python, with_set
from tokenmill.store import Store, open_store

_SIZES = ("batch_size", "global_batch_size")


def recipe(
    recipe: str | os.PathLike[str] | Mapping[str, Any], *, set: Mapping[str, Any] | Iterable[str] | None = None
) -> Recipe:
    """A recipe from a YAML file, or from the same as a dict: sources, tokenizer, build, pack, split and load.

    `set` changes keys of it: {"pack.seq_len": 8192}, or texts as on the command line, ["pack.seq_len=8192"]. Every key and
    value is checked here, and nothing is read or built but the recipe: `stores`, `view` and `loader` do that. Paths are
    relative to the folder of the file; of a dict, to the folder the program is in now.
    """
    if isinstance(recipe, Mapping):
        written, folder, name = from_python(recipe, "recipe"), Path.cwd(), "recipe"
    elif isinstance(recipe, str | os.PathLike):
        written, name = from_file(recipe), os.fsdecode(recipe)
        folder = Path(recipe).absolute().parent
    else:
        raise UsageError(f"a recipe is the path of a YAML file, or a dict; not a {type(recipe).__name__}")
    return Recipe(checked(with_set(written, set)), folder, name)


class Recipe:
    """A checked recipe. What it names is built or found when it is asked for, once."""

    def __init__(self, says: Checked, folder: Path, name: str) -> None:
        self.says, self.folder, self.name = says, folder, name

    def __repr__(self) -> str:
        sources, splits = ", ".join(self.says.sources), ", ".join(self._named_splits or ("by folder",))
        return f"Recipe({self.name!r}, sources: {sources}; splits: {splits})"

    @cached_property
    def inputs(self) -> dict[str, Source | Store]:
        """What each source names: files that were found, or a store. Costs one stat per file; nothing is read."""
        found: dict[str, Source | Store] = {}
        for name, source in self.says.sources.items():
            with self.naming(name):
                if "store" in source:
                    found[name] = open_store(self._path(source["store"]))
                else:
                    options = {key: source[key] for key in READ if key in source}
                    found[name] = read(*map(self._input, source["path"]), **options)
        return found

    @contextmanager
    def naming(self, name: str) -> Iterator[None]:
        """Whatever is wrong with a source is told with its name and its line."""
        try:
            yield
        except TokenmillError as error:
            raise type(error)(f"{self.says.places[f'sources.{name}']}: sources.{name}: {error}") from error

    def stores(self) -> dict[str, Store]:
        """The store of each source: the one that is there, brought up to date, or a new one."""
        return dict(self._stores)

    @cached_property
    def _stores(self) -> dict[str, Store]:
        inputs = self.inputs  # all of them, before anything is built
        options = dict(self.says.build)
        out = options.pop("out", None)
        if options.get("cache_dir") is not None:
            options["cache_dir"] = self._path(options["cache_dir"])
        tokenizer: Any = None
        found: dict[str, Store] = {}
        for name, given in inputs.items():
            if isinstance(given, Store):
                found[name] = given
                continue
            if tokenizer is None:
                tokenizer = load_tokenizer(self.tokenizer, options.get("engine"), options.get("special_tokens"))
            with self.naming(name):
                found[name] = build(given, tokenizer, None if out is None else self._path(out) / name, **options)
        return found

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits. By folder and without names, they are those of the folders, and the stores are needed."""
        if self._named_splits:
            return self._named_splits
        return tuple(dict.fromkeys(name for parts in self._parts.values() for name in parts))

    def views(self, split: str = TRAIN) -> dict[str, View]:
        """The view of each source: its part of this split."""
        if split not in self.splits:
            raise UsageError(f"{self.name} has no split {split!r}; it has {', '.join(self.splits)}")
        return {name: parts[split] for name, parts in self._parts.items() if split in parts}

    def view(self, split: str = TRAIN) -> View | Mixture:
        """The view of the one source; of several, a mixture by their weights. Without weights each counts by its rows, so
        that all come to their end together."""
        views = self.views(split)
        if len(self.says.sources) == 1:
            return next(iter(views.values()))
        weights = {name: self.says.sources[name].get("weight") for name in views}
        try:
            return mix(
                {name: (view, len(view) if weights[name] is None else weights[name]) for name, view in views.items()}
            )
        except UsageError as error:
            raise UsageError(f"{self.name}, split {split}: {error}") from error

    def loader(self, split: str = TRAIN, **overrides: Any) -> Loader:
        """`tm.load` of a split, with what the recipe says under load. `overrides` go before: rank, world_size, epochs, ..."""
        names = [*LOAD, *(name for name in LEFT_OUT["load"] if name in ("rank", "world_size"))]
        for name in overrides:
            if name not in names:
                raise UsageError(f"{name} is no option of a loader{nearest(name, names)} ({', '.join(names)})")
        options = dict(self.says.load)
        if any(overrides.get(name) is not None for name in _SIZES):  # one size in the place of the other
            options = {name: value for name, value in options.items() if name not in _SIZES}
        options |= overrides
        if all(options.get(name) is None for name in _SIZES):
            raise UsageError(f"{self.name}: load.batch_size or load.global_batch_size is missing: the rows of a batch")
        return load(self.view(split), **options)

    @property
    def tokenizer(self) -> str | None:
        """The tokenizer's name, or its path, which is relative to the recipe's folder like every other."""
        name = self.says.tokenizer
        if name is None or name == "bytes" or name.startswith("tiktoken:"):
            return name
        path = self._path(name)
        if path.exists():
            return str(path)
        from tokenmill.encoding.resolve.hub import hub_name

        here = Path(name).absolute()
        if here.exists():
            raise UsageError(
                f"{self.says.places['tokenizer']}: tokenizer: {name} is in the folder you are in, and not in the recipe's,"
                f" {self.folder}, which paths are relative to; write {os.path.relpath(here, self.folder)}"
            )
        if hub_name(name) is None:
            raise UsageError(f"{self.says.places['tokenizer']}: tokenizer: there is no {path}")
        return name

    @property
    def _named_splits(self) -> tuple[str, ...]:
        """The splits the recipe names; none where folders do."""
        if not self.says.split:
            return (TRAIN,)
        return tuple(sorted((name for name in self.says.split if name not in SPLIT), key=lambda name: name != TRAIN))

    @cached_property
    def _parts(self) -> dict[str, dict[str, View]]:
        packed = {name: pack(store, **self.says.pack) for name, store in self._stores.items()}
        if not self.says.split:
            return {name: {TRAIN: view} for name, view in packed.items()}
        found = {}
        for name, view in packed.items():
            try:
                found[name] = view.split(**self.says.split)
            except UsageError as error:
                raise UsageError(f"{self.name}: split of {name}: {error}") from error
        return found

    def _path(self, path: str) -> Path:
        return self.folder / os.path.expanduser(path)

    def _input(self, item: str) -> str:
        """An input of tm.read. A folder's own name is no pattern, whatever it looks like."""
        if item.startswith("@") and not self._path(item).exists():
            return f"@{self._path(item[1:])}"
        path = str(self._path(item))
        if not glob.has_magic(item) or os.path.exists(path):
            return path
        return str(Path(glob.escape(str(self.folder))) / os.path.expanduser(item))
