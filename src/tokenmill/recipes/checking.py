"""Checks a recipe as a whole. Errors name the line, the key and what it takes. Nothing is read or built."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tokenmill.display import fields_in_one_line
from tokenmill.errors import UsageError
from tokenmill.option_calls import by_help, in_verbs
from tokenmill.option_kinds import Many, Text
from tokenmill.option_types import Option, Options, declared
from tokenmill.options import PackOptions, ReadOptions, SplitOptions
from tokenmill.packing.layout import layout_of, row_format_of
from tokenmill.packing.splits import shares
from tokenmill.reading.template import Template
from tokenmill.recipes.keys import FOLDER, SECTIONS, SHARE, TOKENIZER, TOP, SourceKeys, TokenizerKeys
from tokenmill.recipes.yaml_lines import YamlValue
from tokenmill.synonyms import remedy

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")  # also valid as a folder, as a keyword and in --set
TRAIN = "train"
EXAMPLE = "sources: {web: 'data/*.jsonl'}"
Keys = dict[str, YamlValue]


@dataclass(slots=True)
class RecipeConfig:
    """A checked recipe as keywords of the verbs. `places` has the line of each source and of the tokenizer."""

    sources: dict[str, dict[str, Any]]
    tokenizer: str | None
    build: dict[str, Any]
    pack: dict[str, Any]
    split: dict[str, Any]
    load: dict[str, Any]
    places: dict[str, str]

    __repr__ = fields_in_one_line


def check_recipe(recipe: YamlValue) -> RecipeConfig:
    """Check every key and value, alone and together."""
    top = _mapping(recipe, "a recipe", EXAMPLE)
    _refuse_unknown(top, TOP, "")
    if "sources" not in top:
        raise recipe.error(f"sources is missing: what to read, as in {EXAMPLE}")
    keys = {name: _mapping(top[name], name, f"{name}: {{...}}") for name in SECTIONS if name in top}
    values = {name: _section(keys.get(name, {}), group, name) for name, group in SECTIONS.items()}
    sources = _sources(top["sources"])
    places = {f"sources.{name}": _place(source) for name, source in top["sources"].value.items()}
    config = RecipeConfig(sources, None, **values, split=_split(top.get("split")), places=places)
    if "tokenizer" in top:
        _tokenizer(top["tokenizer"], config, keys)
        config.places["tokenizer"] = top["tokenizer"].where
    _check_tokenizer(recipe, top, config)
    _check_build(top["sources"].value, keys.get("build", {}), config)
    _check_pack(recipe, keys.get("pack", {}), config)
    _check_load(keys.get("load", {}), config)
    return config


def _place(source: YamlValue) -> str:
    """Where a source names its files or its store."""
    keys = source.value if isinstance(source.value, dict) else {}
    return next((keys[name].where for name in ("path", "store") if name in keys), source.where)


# Keys and values


def _mapping(written: YamlValue, name: str, example: str) -> Keys:
    if written.value is None and written.typed == "":
        raise written.error(f"{name} has nothing below it; write {example}, or leave it out")
    if not isinstance(written.value, dict):
        raise written.error(f"{name} must be keys and values, as in {example}, not {written.shown}")
    return written.value


def _refuse_unknown(keys: Keys, known: Collection[str], section: str) -> None:
    for name, written in keys.items():
        if name not in known:
            key = f"{section}.{name}" if section else name
            where = "rows" if section == "pack" else section.partition(".")[0] or "top"  # not as in tm.pack
            here = {each: each for each in known}
            near = remedy(name, where, here, _elsewhere) or by_help(name, here)
            raise written.error(f"{key} is not a key of a recipe{near} ({section or 'top'}: {', '.join(known)})")


def _elsewhere(name: str) -> str:
    """The sections that have a key, as in "pack.seq_len or load.seq_len", an option that only Python has, or nothing."""
    homes = [f"{home}.{name}" for home, group in SECTIONS.items() if name in declared(group)]
    homes += [f"sources.NAME.{name}"] if name in declared(SourceKeys) else [name] if name in TOP else []
    return " or ".join(homes) or in_verbs(name)


def _section(keys: Keys, group: type[Options], section: str) -> dict[str, Any]:
    options = declared(group)
    _refuse_unknown(keys, options, section)
    return {name: _value(options[name], written, f"{section}.{name}") for name, written in keys.items()}


def _value(option: Option, written: YamlValue, name: str) -> Any:
    """The value of a key as the verb takes it."""
    kind = option.kind
    if isinstance(kind, Many) and isinstance(written.value, list):
        for number, item in enumerate(written.value):
            item.checked(kind.item, f"{name}[{number}]")
    elif isinstance(kind, Text) and kind.escapes and not written.escapes and re.search(r"\\[nt]", str(written.value)):
        raise written.wrong(name, r"has \n or \t as two characters; write it in double quotes")
    if written.value is None and option.optional and written.typed != "":
        return None
    return written.checked(kind, name)


def _check_name(written: YamlValue, name: str, what: str) -> None:
    if not NAME.fullmatch(name):
        raise written.error(f"{name!r} cannot be the name of a {what}; use plain letters, digits, _ and -")


# Sources and splits


def _sources(written: YamlValue) -> dict[str, dict[str, Any]]:
    sources = _mapping(written, "sources", EXAMPLE)
    if not sources:
        raise written.error(f"sources is empty; write {EXAMPLE}")
    values: dict[str, dict[str, Any]] = {}
    for name, source in sources.items():
        _check_name(source, name, "source")
        section = f"sources.{name}"
        if isinstance(source.value, str | list):
            source = YamlValue({"path": source}, source.where)
        keys = _mapping(source, section, f"{name}: {{path: 'data/*.jsonl'}}")
        values[name] = _section(keys, SourceKeys, section)
        _check_source(source, keys, values[name], section)
    _check_weights(sources, values)
    return values


def _check_source(source: YamlValue, keys: Keys, values: dict[str, Any], section: str) -> None:
    if "path" not in keys and "store" not in keys:
        raise source.error(f"{section} has no path: name its files, or a finished store")
    if "store" in keys:
        for name in ("path", "max_rows", *declared(ReadOptions)):
            if name in keys:
                raise keys[name].error(f"{section}.{name}: a store is not read again; leave it out, or leave out store")
    if "-" in values.get("path", ()):
        raise keys["path"].error(f"{section}.path: standard input can be read once, but a recipe is run many times")
    if values.get("template") is not None:
        try:
            Template(values["template"])
        except UsageError as error:
            raise keys["template"].error(f"{section}.template: {error}") from error


def _check_weights(sources: Keys, values: dict[str, dict[str, Any]]) -> None:
    weighted = [name for name, source in values.items() if source.get("weight") is not None]
    others = [name for name in values if name not in weighted]
    if weighted and others:
        raise sources[others[0]].error(
            f"sources.{others[0]} has no weight, but {weighted[0]} has one; give each a weight, or none of them"
        )
    if weighted and not any(source["weight"] for source in values.values()):
        raise sources[weighted[0]].error(f"sources.{weighted[0]}.weight: every weight is 0")


def _split(written: YamlValue | None) -> dict[str, Any]:
    """Keywords of `view.split`. The rest of the documents is train, last, so that a part that grows takes from it."""
    if written is None:
        return {}
    keys = _mapping(written, "split", "split: {eval: 0.01}")
    options = declared(SplitOptions)
    values = _section({name: each for name, each in keys.items() if name in options}, SplitOptions, "split")
    by_folder = values.get("by", "document") != "document"
    named = {name: each for name, each in keys.items() if name not in options}
    for name, each in named.items():
        _check_name(each, name, "split")
        if name == "self":
            raise each.error("split.self: a split cannot have this name")
    parts = {name: _value(FOLDER if by_folder else SHARE, each, f"split.{name}") for name, each in named.items()}
    if by_folder and "seed" in keys:
        raise keys["seed"].error(f"split.seed has no effect with by: {values['by']}; leave it out")
    return {**values, **(parts if by_folder else _shares(written, parts, values.get("seed", 0)))}


def _shares(written: YamlValue, parts: dict[str, Any], seed: int) -> dict[str, float]:
    if not parts:
        raise written.error("split has no named part; write split: {eval: 0.01}, or leave it out")
    if TRAIN not in parts:
        rest = 1 - sum(parts.values())
        if rest <= 1e-9:
            raise written.error(f"split: the shares sum to {1 - rest:g}, which leaves nothing for train")
        parts = {**parts, TRAIN: rest}
    try:
        shares(parts, seed, ())
    except UsageError as error:
        raise written.error(f"split: {error}") from error
    return parts


# The tokenizer, and the tokenizer block of other tools


def _tokenizer(written: YamlValue, config: RecipeConfig, keys: dict[str, Keys]) -> None:
    """A name or a path; or the block of other tools, whose keys become options of the verbs."""
    if not isinstance(written.value, dict):
        config.tokenizer = _value(TOKENIZER, written, "tokenizer")
        return
    block = _section(written.value, TokenizerKeys, "tokenizer")
    config.tokenizer = block.get("tokenizer_name")
    for name, section, option, value in _block_options(written, block, config):
        other = keys.get(section, {}).get(option)
        values = getattr(config, section)
        if other is not None and values[option] != value:
            raise other.error(
                f"{section}.{option} is {values[option]!r}, but tokenizer.{name} ({written.value[name].where}) means"
                f" {value!r}; give one of them"
            )
        values[option] = value
        keys.setdefault(section, {})[option] = written.value[name]
    config.pack.setdefault("strategy", "windows")  # the block means one document per row, in windows, padded


def _block_options(
    written: YamlValue, block: dict[str, Any], config: RecipeConfig
) -> list[tuple[str, str, str, int | str]]:
    """What the block means: (key of the block, section, option, value)."""
    if "context_length" not in block:
        raise written.error("tokenizer.context_length is missing: the length of a row")
    length, overlap = block["context_length"], block.get("overlap") or 0
    if overlap >= length:
        raise written.value["overlap"].error(
            f"tokenizer.overlap: {overlap} is not a whole number from 0 to {length - 1}, below context_length"
        )
    options: list[tuple[str, str, str, int | str]] = [("context_length", "pack", "seq_len", length)]
    if overlap or ("overlap" in block and "overlap" in config.pack):  # 0 is allowed with every strategy
        options.append(("overlap", "pack", "overlap", overlap))
    if block.get("num_proc") is not None:
        options.append(("num_proc", "build", "workers", block["num_proc"]))
    if "verbose_level" in block or "show_progress" in block:
        name = "verbose_level" if "verbose_level" in block else "show_progress"
        options.append(
            (name, "build", "progress", _progress(block.get("verbose_level"), bar=block.get("show_progress")))
        )
    return options


def _progress(level: str | None, *, bar: bool | None) -> str:
    if level == "DEBUG":
        return "verbose"
    if level in ("WARNING", "ERROR"):
        return "bar" if bar else "quiet"
    return "plain" if bar is False else "auto"


def _check_tokenizer(recipe: YamlValue, top: Keys, config: RecipeConfig) -> None:
    raw = [name for name, source in config.sources.items() if "path" in source]
    if raw and config.tokenizer is None:
        in_block = "tokenizer" in top
        key = "tokenizer.tokenizer_name" if in_block else "tokenizer"
        place = top["tokenizer"] if in_block else recipe
        raise place.error(f"{key} is missing: {raw[0]} is text, and needs one to become tokens")
    if not raw and config.tokenizer is not None:
        raise top["tokenizer"].error("tokenizer: every source is a store, which has its own; leave it out")


# What the verbs would refuse


def _check_build(sources: Keys, keys: Keys, config: RecipeConfig) -> None:
    if config.build.get("out") is not None and config.build.get("cache_dir") is not None:
        raise keys["cache_dir"].error("build.cache_dir: with build.out no store is in the cache; give one of them")
    for name, source in config.sources.items():
        if source.get("max_rows") is not None and config.build.get("max_rows") is not None:
            raise keys["max_rows"].error(
                f"build.max_rows: sources.{name} has its own max_rows ({sources[name].where}); give one of them"
            )


def _check_pack(recipe: YamlValue, keys: Keys, config: RecipeConfig) -> None:
    if "seq_len" not in config.pack:
        raise recipe.error("pack.seq_len is missing: the length of a row, as in pack: {seq_len: 4096}")
    options = PackOptions(**config.pack)
    try:
        layout_of(options)
        row_format_of(options, eos_id=None, vocab_size=2**31 - 1)
    except UsageError as error:
        key = re.match(r"\w*", str(error))  # the error begins with the option it is about
        place = keys.get(key[0] if key else "") or next(iter(keys.values()), recipe)
        raise place.error(f"pack: {error}") from error
    if options.buckets and len(config.sources) > 1:
        raise keys["buckets"].error("pack.buckets gives rows of several widths, which cannot be mixed; leave it out")


def _check_load(keys: Keys, config: RecipeConfig) -> None:
    sizes = [name for name in ("batch_size", "global_batch_size") if config.load.get(name) is not None]
    if len(sizes) == 2:
        raise keys[sizes[1]].error(
            f"load.batch_size (rows per rank) and load.global_batch_size (rows of all ranks) are both given"
            f" ({keys[sizes[0]].where}); give one of them"
        )
