"""A recipe as it is written -> what it means, or an error that names the line, the key and the range. Nothing is run."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from tokenmill.building.request import ask
from tokenmill.errors import UsageError
from tokenmill.packing import pack
from tokenmill.packing.layout import checked_layout, checked_row_format
from tokenmill.packing.splits import shares
from tokenmill.reading import Source
from tokenmill.reading.template import Template
from tokenmill.recipes.keys import BLOCK, FOLDER, READ, SECTIONS, SHARE, SOURCE, SPLIT, TOP, Keys
from tokenmill.recipes.yaml_lines import Written

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")  # also a folder, a keyword, and what --set and editors can spell
TRAIN = "train"
_LAYOUT = ("seq_len", "strategy", "stride", "overlap", "tail", "row_start", "long_docs", "min_doc_tokens", "buckets")
_LOOK = ("padding_side", "pad_id", "labels", "mask_labels", "fields", "extra", "dtype")


@dataclass(slots=True)
class Checked:
    """What a recipe says, in the words of the verbs; `places` has where each source and the tokenizer stand."""

    sources: dict[str, dict[str, Any]]
    tokenizer: str | None
    build: dict[str, Any]
    pack: dict[str, Any]
    split: dict[str, Any]
    load: dict[str, Any]
    places: dict[str, str] = field(default_factory=dict)


def checked(recipe: Written) -> Checked:
    """Every key and every value, alone and together."""
    top = _mapping(recipe, "a recipe", "sources: {web: 'data/*.jsonl'}")
    _known(top, TOP, "")
    if "sources" not in top:
        raise recipe.error("sources is missing: what to read, as in sources: {web: 'data/*.jsonl'}")
    given = {name: _mapping(top[name], name, f"{name}: {{...}}") for name in SECTIONS if name in top}
    values = {name: _section(given.get(name, {}), keys, name) for name, keys in SECTIONS.items()}
    found = Checked(
        _sources(top["sources"]), None, values["build"], values["pack"], _split(top.get("split")), values["load"]
    )
    found.places = {f"sources.{name}": _place(written) for name, written in top["sources"].value.items()}
    if "tokenizer" in top:
        _tokenizer(top["tokenizer"], found, given)
        found.places["tokenizer"] = top["tokenizer"].where
    _tokenizer_and_sources(recipe, top, found)
    _build(recipe, given.get("build", {}), found)
    _pack(recipe, given.get("pack", {}), found)
    both = [name for name in ("batch_size", "global_batch_size") if found.load.get(name) is not None]
    if len(both) == 2:
        raise given["load"][both[1]].error(
            f"load.batch_size (rows a rank) and load.global_batch_size (rows of all) are both given"
            f" ({given['load'][both[0]].where}); give one of them"
        )
    return found


def _place(source: Written) -> str:
    """Where a source says what it is."""
    inside = source.value if isinstance(source.value, dict) else {}
    return next((inside[name].where for name in ("path", "store") if name in inside), source.where)


def nearest(name: str, names: Collection[str]) -> str:
    """ "; did you mean ...?", where something is near."""
    near = difflib.get_close_matches(name.lower().replace("-", "_"), names, 1, 0.6)
    return f"; did you mean {near[0]}?" if near else ""


def _mapping(written: Written, name: str, example: str) -> dict[str, Written]:
    if written.value is None and written.typed == "":
        raise written.error(f"{name} has nothing below it; write {example}, or leave it out")
    if not isinstance(written.value, dict):
        raise written.error(f"{name} is keys and values, as {example}, not {written.shown}")
    return written.value


def _known(given: dict[str, Written], names: Collection[str], section: str) -> None:
    for name, written in given.items():
        if name not in names:
            what = f"{section}.{name}" if section else name
            near = nearest(name, names) or _elsewhere(name, section)
            raise written.error(f"{what} is no key of a recipe{near} ({section or 'top'}: {', '.join(names)})")


def _elsewhere(name: str, section: str) -> str:
    """Where a key that stands in the wrong place belongs."""
    homes = [home for home, keys in SECTIONS.items() if name in keys and home != section]
    homes += ["sources.NAME"] if name in SOURCE and not section.startswith("sources.") else []
    return f"; did you mean {' or '.join(f'{home}.{name}' for home in homes)}?" if homes else ""


def _section(given: dict[str, Written], keys: Keys, section: str) -> dict[str, Any]:
    _known(given, keys, section)
    return {name: keys[name].take(written, f"{section}.{name}") for name, written in given.items()}


def _name(written: Written, name: str, what: str) -> None:
    if not NAME.fullmatch(name):
        raise written.error(f"{name!r} is not the name of a {what}: plain letters, digits, _ and -")


def _sources(written: Written) -> dict[str, dict[str, Any]]:
    example = "sources: {web: 'data/*.jsonl'}"
    sources = _mapping(written, "sources", example)
    if not sources:
        raise written.error(f"sources is empty; write {example}")
    found: dict[str, dict[str, Any]] = {}
    for name, source in sources.items():
        _name(source, name, "source")
        section = f"sources.{name}"
        if isinstance(source.value, str | list):
            source = Written({"path": source}, source.where)
        given = _mapping(source, section, f"{name}: {{path: 'data/*.jsonl'}}")
        found[name] = _source(source, given, section)
    _weights(sources, found)
    return found


def _source(source: Written, given: dict[str, Written], section: str) -> dict[str, Any]:
    values = _section(given, SOURCE, section)
    if "path" not in given and "store" not in given:
        raise source.error(f"{section} has no path: name the files, or a store that is built already")
    if "store" in given:
        for name in ("path", *READ):
            if name in given:
                raise given[name].error(
                    f"{section}.{name}: a store is not read again; leave it out, or leave out store"
                )
    if "-" in values.get("path", ()):
        raise given["path"].error(f"{section}.path: standard input can be read once, and a recipe is run many times")
    if values.get("template") is not None:
        try:
            Template(values["template"])
        except UsageError as error:
            raise given["template"].error(f"{section}.template: {error}") from error
    return values


def _weights(sources: dict[str, Written], found: dict[str, dict[str, Any]]) -> None:
    with_weight = [name for name, values in found.items() if values.get("weight") is not None]
    without = [name for name in found if name not in with_weight]
    if with_weight and without:
        raise sources[without[0]].error(
            f"sources.{without[0]} has no weight, and {with_weight[0]} has one; give each a weight, or none of them"
        )
    if with_weight and not any(values["weight"] for values in found.values()):
        raise sources[with_weight[0]].error(f"sources.{with_weight[0]}.weight: every weight is 0")


def _split(written: Written | None) -> dict[str, Any]:
    """`by`, `seed` and the named parts. What is left of shares is train, behind the others: a part that grows takes from it."""
    if written is None:
        return {}
    given = _mapping(written, "split", "split: {eval: 0.01}")
    options = _section({name: each for name, each in given.items() if name in SPLIT}, SPLIT, "split")
    by_folder = options.get("by") == "folder"
    named = {name: each for name, each in given.items() if name not in SPLIT}
    for name, each in named.items():
        _name(each, name, "split")
        if name == "self":
            raise each.error("split.self: a split cannot have this name")
    parts = {name: (FOLDER if by_folder else SHARE).take(each, f"split.{name}") for name, each in named.items()}
    if by_folder:
        if "seed" in given:
            raise given["seed"].error("split.seed draws documents; by: folder draws none. Leave it out")
        return {**options, **parts}
    if not parts:
        raise written.error("split names no part; write split: {eval: 0.01}, or leave it out")
    if TRAIN not in parts:
        left = 1 - sum(parts.values())
        if left <= 1e-9:
            raise written.error(f"split: the shares sum to {1 - left:g}, which leaves nothing for train")
        parts[TRAIN] = left
    try:
        shares(parts, options.get("seed", 0), ())
    except UsageError as error:
        raise written.error(f"split: {error}") from error
    return {**options, **parts}


def _tokenizer(written: Written, found: Checked, given: dict[str, dict[str, Written]]) -> None:
    """A name or a path; or the block of other tools, whose keys become those of the verbs."""
    if not isinstance(written.value, dict):
        found.tokenizer = BLOCK["tokenizer_name"].take(written, "tokenizer")
        return
    block = _section(written.value, BLOCK, "tokenizer")
    found.tokenizer = block.get("tokenizer_name")
    if "context_length" not in block:
        raise written.error("tokenizer.context_length is missing: the length of a row")
    length, overlap = block["context_length"], block.get("overlap") or 0
    if overlap >= length:
        raise written.value["overlap"].error(
            f"tokenizer.overlap: {overlap} is not a whole number from 0 to {length - 1}, below context_length"
        )
    meant: list[tuple[str, str, str, Any]] = [("context_length", "pack", "seq_len", length)]
    if overlap or ("overlap" in block and "overlap" in found.pack):  # 0 is no overlap, whatever the strategy
        meant.append(("overlap", "pack", "overlap", overlap))
    if block.get("num_proc") is not None:
        meant.append(("num_proc", "build", "workers", block["num_proc"]))
    if "verbose_level" in block or "show_progress" in block:
        named = "verbose_level" if "verbose_level" in block else "show_progress"
        meant.append((named, "build", "progress", _progress(block.get("verbose_level"), block.get("show_progress"))))
    for old, section, new, value in meant:
        other = given.get(section, {}).get(new)
        values = getattr(found, section)
        if other is not None and values[new] != value:
            place = written.value[old].where
            raise other.error(
                f"{section}.{new} is {values[new]!r}, and {value!r} by tokenizer.{old} ({place}); give one of them"
            )
        values[new] = value
        given.setdefault(section, {})[new] = written.value[old]
    found.pack.setdefault("strategy", "windows")  # what the block means: each document alone, in windows, padded


def _progress(level: str | None, bar: bool | None) -> str:
    if level == "DEBUG":
        return "verbose"
    if level in ("WARNING", "ERROR"):
        return "bar" if bar else "quiet"
    return "plain" if bar is False else "auto"


def _tokenizer_and_sources(recipe: Written, top: dict[str, Written], found: Checked) -> None:
    raw = [name for name, source in found.sources.items() if "path" in source]
    if raw and found.tokenizer is None:
        block = "tokenizer" in top
        what = "tokenizer.tokenizer_name" if block else "tokenizer"
        where = top["tokenizer"] if block else recipe
        raise where.error(f"{what} is missing: {raw[0]} is text, and needs one to become tokens")
    if not raw and found.tokenizer is not None:
        raise top["tokenizer"].error("tokenizer: every source is a store, which has its own; leave it out")


def _build(recipe: Written, given: dict[str, Written], found: Checked) -> None:
    """The same for tm.build, before there is anything to read."""
    options = {name: value for name, value in found.build.items() if name not in ("out", "cache_dir", "progress")}
    try:
        for source in found.sources.values():
            ask(Source(files=(), inputs=(), limit=source.get("limit")), found.tokenizer, {}, **options)
    except UsageError as error:
        raise _with_place("build", error, given, recipe) from error
    if found.build.get("out") is not None and found.build.get("cache_dir") is not None:
        raise given["cache_dir"].error("build.cache_dir: with build.out no store is in the cache; give one of them")


def _with_place(section: str, error: UsageError, given: dict[str, Written], recipe: Written) -> UsageError:
    """What a verb says, at the key that it names first."""
    first = re.match(r"\w*", str(error))
    place = given.get(first[0] if first else "") or next(iter(given.values()), recipe)
    return place.error(f"{section}: {error}")


def _pack(recipe: Written, given: dict[str, Written], found: Checked) -> None:
    """What the verb itself would say to these options, before there is anything to pack."""
    if "seq_len" not in found.pack:
        raise recipe.error("pack.seq_len is missing: the length of a row, as in pack: {seq_len: 4096}")
    asked = {**(pack.__kwdefaults__ or {}), **found.pack}
    try:
        checked_layout(*(asked[name] for name in _LAYOUT))
        checked_row_format(*(asked[name] for name in _LOOK), eos_id=None, vocab_size=2**31 - 1)
    except UsageError as error:
        raise _with_place("pack", error, given, recipe) from error
    if found.pack.get("buckets") and len(found.sources) > 1:
        raise given["buckets"].error("pack.buckets gives rows of several widths, which cannot be mixed; leave it out")
