"""`tm.recipe`: stores, views and loaders from one YAML file, made by the same functions as in Python."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenmill.building.api import build
from tokenmill.display import one_line, shown
from tokenmill.encoding.api import load_tokenizer
from tokenmill.encoding.resolve import BUILT_IN
from tokenmill.errors import MissingTokenizerError, TokenmillError, UsageError, WrongTypeError
from tokenmill.habits import Answering
from tokenmill.io.object_store import is_url
from tokenmill.loading import Loader, Mixture, load, mix
from tokenmill.option_calls import refuse_unknown, suggests
from tokenmill.option_types import declared
from tokenmill.options import LoadOptions, ReadOptions, SplitOptions
from tokenmill.packing import View, pack
from tokenmill.reading import Source, read
from tokenmill.reading.hub_names import hub_input
from tokenmill.recipes.checking import TRAIN, RecipeConfig, check_recipe
from tokenmill.recipes.file_splits import splits_of_sources
from tokenmill.recipes.yaml_lines import from_file, from_python, with_set
from tokenmill.split_names import ALL
from tokenmill.store.store import Store, open_store

_SIZES = ("batch_size", "global_batch_size")


@suggests
def recipe(
    recipe: str | os.PathLike[str] | Mapping[str, Any], *, set: Mapping[str, Any] | Iterable[str] | None = None
) -> Recipe:
    """A recipe from a YAML file or from an equal dict: sources, tokenizer, build, pack, split and load.

    `set` changes keys: {"pack.seq_len": 8192}, or texts as on the command line, ["pack.seq_len=8192"]. Every key and value is
    checked here. Nothing is read or built before `stores`, `view` or `loader` is called. Paths are relative to the folder
    of the file, or for a dict to the current folder.

    Example:
        recipe = tm.recipe({
            "sources": {"web": "data/*.jsonl"},
            "tokenizer": "path/to/tokenizer.json",
            "pack": {"seq_len": 128},
            "load": {"batch_size": 4},
        })
        loader = recipe.loader()
    """
    if isinstance(recipe, Mapping):
        values, folder, name = from_python(recipe, "recipe"), Path.cwd(), "recipe"
    elif isinstance(recipe, str | os.PathLike):
        recipe = os.path.expanduser(os.fsdecode(recipe))
        values, name = from_file(recipe), recipe
        folder = Path(recipe).absolute().parent
    else:
        raise WrongTypeError(f"a recipe must be the path of a YAML file or a dict, not {type(recipe).__name__}")
    return Recipe(check_recipe(with_set(values, set)), folder, name)


class Recipe(Answering):
    """A checked recipe. Its stores and views are built or found at first use."""

    def __init__(self, config: RecipeConfig, folder: Path, name: str) -> None:
        self.config, self.folder, self.name = config, folder, name

    def __repr__(self) -> str:
        sources = list(self.config.sources)
        splits = list(self._named_splits or (f"by {self.config.split['by']}",))
        return one_line("Recipe", shown(self.name), f"sources={shown(sources)}", f"splits={shown(splits)}")

    @cached_property
    def inputs(self) -> dict[str, Source | Store]:
        """The files or the store of each source. Costs one stat per file; no file is read."""
        found: dict[str, Source | Store] = {}
        for name, source in self.config.sources.items():
            with self._naming(name):
                if "store" in source:
                    found[name] = open_store(self._path(source["store"]))
                else:
                    options = {key: source[key] for key in declared(ReadOptions) if key in source}
                    found[name] = read(*map(self._input, source["path"]), **options)
        return found

    @contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """Add the name and the line of a source to errors about it."""
        try:
            yield
        except TokenmillError as error:
            raise type(error)(f"{self.config.places[f'sources.{name}']}: sources.{name}: {error}") from error

    def stores(self) -> dict[str, Store]:
        """The store of each source, built or brought up to date at first use."""
        return dict(self._stores)

    @cached_property
    def _stores(self) -> dict[str, Store]:
        inputs = self.inputs  # all are found before the first is built
        options = dict(self.config.build)
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
            with self._naming(name):
                folder = None if out is None else self._path(out) / name
                limit = {"max_rows": self.config.sources[name].get("max_rows") or options.get("max_rows")}
                found[name] = build(given, tokenizer, folder, **{**options, **limit})
        return found

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits. By folder or by name, but without names, they are those of the stores."""
        if self._named_splits:
            return self._named_splits
        return tuple(dict.fromkeys(name for parts in self._parts.values() for name in parts))

    def _splits_of(self, sources: Mapping[str, Source | Store]) -> dict[str, dict[str, Any]]:
        """The splits that each source has, with their shares, folders or names. All have the same unless by folder or name."""
        options = self._split_options
        named = {name: value for name, value in self.config.split.items() if name not in options}
        if options.get("by", "document") == "document":
            return dict.fromkeys(sources, named or {TRAIN: 1.0})
        try:
            return splits_of_sources(options["by"], named, sources)
        except UsageError as error:
            raise UsageError(f"{self.name}: {error}") from error

    def views(self, split: str = TRAIN) -> dict[str, View]:
        """The view of each source: its part of a split."""
        if split not in self.splits:
            raise UsageError(f"{self.name} has no split {split!r}; it has {', '.join(self.splits)}")
        return {name: parts[split] for name, parts in self._parts.items() if split in parts}

    def view(self, split: str = TRAIN) -> View | Mixture:
        """The view of the only source, or a mixture of several by their weights.

        Without weights each source counts by its rows, so that all end together.
        """
        views = self.views(split)
        if len(self.config.sources) == 1:
            return next(iter(views.values()))
        weights = {name: self.config.sources[name].get("weight") for name in views}
        try:
            return mix(
                {name: (view, len(view) if weights[name] is None else weights[name]) for name, view in views.items()}
            )
        except UsageError as error:
            raise UsageError(f"{self.name}, split {split}: {error}") from error

    def loader(self, split: str = TRAIN, **overrides: Any) -> Loader:
        """`tm.load` of a split with the options under load. `overrides` replace them: rank, world_size, epochs, ..."""
        refuse_unknown("loader", overrides, [*declared(LoadOptions), "rank", "world_size"])
        options = dict(self.config.load)
        if any(overrides.get(name) is not None for name in _SIZES):  # one size replaces the other
            options = {name: value for name, value in options.items() if name not in _SIZES}
        options |= overrides
        if all(options.get(name) is None for name in _SIZES):
            raise UsageError(f"{self.name}: load.batch_size or load.global_batch_size is missing: the rows in a batch")
        return load(self.view(split), **options)

    @property
    def tokenizer(self) -> str | None:
        """The name of the tokenizer, or its absolute path."""
        name = self.config.tokenizer
        if name is None or name.startswith("tiktoken:"):
            return name
        path = self._path(name)
        if path.exists():
            return str(path)
        if name in BUILT_IN:
            return name
        from tokenmill.encoding.resolve.hub import hub_name

        here = Path(name).absolute()
        if here.exists():
            raise UsageError(
                f"{self.config.places['tokenizer']}: tokenizer: {name} is in the current folder, but paths are relative to the"
                f" folder of the recipe, {self.folder}; write {os.path.relpath(here, self.folder)}"
            )
        if hub_name(name) is None:
            raise MissingTokenizerError(f"{self.config.places['tokenizer']}: tokenizer: {path} does not exist")
        return name

    @property
    def _named_splits(self) -> tuple[str, ...]:
        """The splits that the recipe names; none if folders name them."""
        if not self.config.split:
            return (TRAIN,)
        named = [name for name in self.config.split if name not in declared(SplitOptions)]
        return tuple(sorted(named, key=lambda name: name != TRAIN))

    @cached_property
    def _parts(self) -> dict[str, dict[str, View]]:
        by_file = self._split_options.get("by", "document") != "document"
        options = {**({"split": ALL} if by_file else {}), **self.config.pack}
        packed = {name: pack(store, **options) for name, store in self._stores.items()}
        if not self.config.split:
            return {name: {TRAIN: view} for name, view in packed.items()}
        named = self._splits_of(self._stores)
        found = {}
        for name, view in packed.items():
            try:
                found[name] = view.split(**self._split_options, **named[name])
            except UsageError as error:
                raise UsageError(f"{self.name}: split of {name}: {error}") from error
        return found

    @property
    def _split_options(self) -> dict[str, Any]:
        return {name: value for name, value in self.config.split.items() if name in declared(SplitOptions)}

    def _path(self, path: str) -> Path:
        return self.folder / os.path.expanduser(path)

    def _input(self, item: str) -> str:
        """An input of tm.read. The folder of the recipe is never a pattern, whatever characters its name has."""
        if is_url(item) or (hub_input(item) is not None and not self._path(item).exists()):
            return item
        if item.startswith("@") and not self._path(item).exists():
            return f"@{self._path(item[1:])}"
        path = str(self._path(item))
        if not glob.has_magic(item) or os.path.exists(path):
            return path
        return str(Path(glob.escape(str(self.folder))) / os.path.expanduser(item))
