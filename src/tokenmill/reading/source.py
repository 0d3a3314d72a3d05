"""`read`: paths, globs, folders, lists, tables and iterables as a Source."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import isgeneratorfunction
from pathlib import Path
from typing import Any, Literal

from tokenmill.callers import warn
from tokenmill.errors import MissingInputError, UsageError, WrongTypeError
from tokenmill.formatting import first_names, in_words, some
from tokenmill.habits import answer
from tokenmill.io.object_store import is_url
from tokenmill.option_calls import suggests
from tokenmill.option_types import declared, option_name, values_of
from tokenmill.options import Format, ReadOptions
from tokenmill.reading.discover import Listing, files_of, looks_like_path
from tokenmill.reading.files import STDIN, Ignored, Source, SourceFile, Stream, by_reason
from tokenmill.reading.formats import REGISTERED, get_format
from tokenmill.reading.hub_copies import is_on_hub, with_copies_in
from tokenmill.reading.hub_files import HubChoice
from tokenmill.reading.hub_names import hub_input
from tokenmill.reading.resuming import is_dataset
from tokenmill.reading.template import Template
from tokenmill.split_names import files_by_split, matching_splits
from tokenmill.user_cache import cache_folder


@suggests
def read(
    *inputs: Any,
    format: Format = "auto",
    text_field: str = "text",
    template: str | None = None,
    separator: str | None = None,
    separator_newlines: Literal["strip", "keep"] = "strip",
    delimiter: str | None = None,
    split: str | None = None,
    config: str | None = None,
    revision: str | None = None,
    streaming: bool = False,
    on_error: Literal["quarantine", "raise"] = "quarantine",
) -> Source:
    """Describe a corpus. Costs one stat per file; nothing is read yet.

    Each input is a path, a glob, a folder (searched recursively), "@list.txt" (one input per line), "-" (standard input),
    a dataset on the Hugging Face Hub ("finewebedu", "ORG/NAME", "hf://datasets/ORG/NAME@REVISION/PATH"), an URL, an Arrow
    table or dataset, a `datasets` dataset or column, a frame or Series of pandas or polars, a dict of columns, or strings or
    dicts in any container or stream. Files are read in sorted order, once each.

    A tuple is several inputs, as is a list of paths. Strings in anything else are documents. If they look like paths, globs
    or URLs, they are refused, unless `template="{text}"` says that they are text.

    Example:
        source = tm.read("data/*.jsonl", text_field="text")
        len(source.files), source.num_bytes
    """
    options = ReadOptions(
        format=format,
        text_field=text_field,
        template=template,
        separator=separator,
        separator_newlines=separator_newlines,
        delimiter=delimiter,
        split=split,
        config=config,
        revision=revision,
        streaming=streaming,
        on_error=on_error,
    )
    _check(options)
    looked_at = time.time_ns()
    if not inputs:
        raise UsageError("nothing to read: give at least one file, glob or folder")
    found: dict[str, SourceFile] = {}
    streams: list[Stream] = []
    spellings: list[str] = []
    listing = Listing(hub=HubChoice(config=config, split=split, revision=revision))
    for item in _flatten(inputs, template):
        if isinstance(item, (str, os.PathLike)) and os.fspath(item) != "-":
            path = os.fspath(item)
            spellings.append(_spelling(path))
            ignored_before = len(listing.ignored)
            found |= (here := {file.path: file for file in files_of(path, format, listing)})
            if not here:
                reasons = by_reason(listing.ignored[ignored_before:])
                raise UsageError(
                    f"no file to read in {spellings[-1]}{f' (ignored: {in_words(reasons)})' if reasons else ''};"
                    f" pass {option_name('format')} to ignore suffixes"
                )
        else:
            for stream in _streams(item):
                streams.append(stream)
                spellings.append("-" if stream.name == STDIN else stream.name)
    if repeated := [name for name, count in Counter(spellings).items() if count > 1 and not name.startswith("<")]:
        warn(f"given more than once, and read once: {first_names(repeated)}")
    if split is not None:
        found, streams = _of_split(split, found, streams, ", ".join(dict.fromkeys(spellings)), listing)
    options = _with_known_field(options, listing)
    ignored = listing.ignored
    files = tuple(found[path] for path in sorted(found, key=lambda path: listing.sorts_as.get(path, path)))
    _check_fit(options, files, streams)
    source = Source(
        files=files,
        inputs=tuple(dict.fromkeys(spellings)),
        _streams=_distinct(streams),
        ignored=tuple(sorted({each for each in ignored if each.path not in found})),
        _looked_at=looked_at,
        _pins=tuple(dict.fromkeys(listing.pins)),
        **values_of(ReadOptions, options),
    )
    return with_copies_in(source, cache_folder().absolute())


def _of_split(
    split: str, found: dict[str, SourceFile], streams: list[Stream], inputs: str, listing: Listing
) -> tuple[dict[str, SourceFile], list[Stream]]:
    """The files and streams of a split. The other files are noted as ignored. Of datasets on the Hub, it was chosen before."""
    others = [path for path, file in sorted(found.items()) if not is_on_hub(file)]
    kept = found.keys() - set(others)
    if others or streams:
        splits = files_by_split([*others, *(stream.name for stream in streams)])
        kept |= {name for each in matching_splits(split, splits, inputs) for name in splits[each]}
    listing.ignored += [Ignored(path, "another split") for path in found if path not in kept]
    files = {path: file for path, file in found.items() if path in kept}
    return files, [stream for stream in streams if stream.name in kept]


def _check(options: ReadOptions) -> None:
    """Refuse a delimiter or a template that cannot be used."""
    if (mark := options.delimiter) is not None and (len(mark) > 1 or not mark.isascii() or mark in '\r\n"\0'):
        raise UsageError(f"delimiter={options.delimiter!r} is not one character that can be between fields")
    if options.template is not None:
        Template(options.template)


def _with_known_field(options: ReadOptions, listing: Listing) -> ReadOptions:
    """The options with the text field of a dataset that is known by its short name, unless another one was chosen."""
    if not listing.pins:
        given = [name for name in ("config", "revision", "streaming") if getattr(options, name)]
        if given:
            raise UsageError(f"{option_name(given[0])} is for datasets on the Hugging Face Hub, and no input is one")
        return options
    default = declared(ReadOptions)["text_field"].default
    known = {each.known.text_field: each.spelling for each in listing.hub_inputs if each.known is not None}
    if options.text_field != default or options.template is not None or set(known) <= {default}:
        return options
    if len(known) > 1:
        fields = ", ".join(f"{field!r} of {name}" for field, name in known.items())
        raise UsageError(f"the text is in different fields ({fields}): make them sources of one recipe")
    return replace(options, text_field=next(iter(known)))


def _check_fit(options: ReadOptions, files: Sequence[SourceFile], streams: Sequence[Stream]) -> None:
    """Refuse options that do not fit what was found."""
    read_as = {file.format: file.path for file in files} or {options.format: "the input"}
    for name, kind, fitting in (("separator", "plain text", "text"), ("delimiter", "csv", "csv")):
        others = [each for each in read_as if each != "auto" and REGISTERED[each].option != name]
        if others and getattr(options, name) is not None:
            raise UsageError(
                f"{name} applies to {kind}, but {read_as[others[0]]} is read as {others[0]};"
                f" pass {option_name('format', fitting)}"
            )
    chooses_field = options.text_field != declared(ReadOptions)["text_field"].default or options.template is not None
    if chooses_field and not streams:
        _check_has_fields(files, "text_field" if options.template is None else "template")
    for stream in streams:
        if is_dataset(stream.data) and getattr(stream.data, "format", {}).get("type") == "custom":
            raise UsageError(
                f"{stream.name} has a transform (with_transform, set_transform), which a build does not apply: pass"
                " (row['text'] for row in dataset) for its result, or dataset.with_format(None) for the text before it"
            )
    if options.format == "auto" and any(stream.is_standard_input for stream in streams):
        raise UsageError(
            "standard input has no file name that shows its format:"
            f" pass {option_name('format')}: jsonl, lines, text or csv"
        )


def _check_has_fields(files: Sequence[SourceFile], option: str) -> None:
    """A field is chosen: there must be a file with fields. Others may be among them."""
    if files and not any(get_format(name).has_fields for name in {file.format for file in files}):
        raise UsageError(
            f"{option_name(option)} is for files with fields, such as jsonl, but {files[0].path} is read as"
            f" {files[0].format}, and so are all others; leave it out, or pass {option_name('format')}"
        )


def _distinct(streams: list[Stream]) -> tuple[Stream, ...]:
    """The streams with numbered names, if two have the same name."""
    if len({stream.name for stream in streams}) == len(streams):
        return tuple(streams)
    return tuple(replace(stream, name=f"{stream.name[:-1]}:{i}>") for i, stream in enumerate(streams))


def _flatten(inputs: Iterable[Any], template: str | None) -> Iterator[Any]:
    """A tuple is several inputs, and so is a list of paths; a list of anything else is data."""
    for item in inputs:
        if isinstance(item, (list, tuple)) and not item:
            raise UsageError(f"nothing to read: an empty {type(item).__name__} (glob.glob gives one if no file fits)")
        if isinstance(item, tuple):
            yield from _flatten(item, template)
        elif isinstance(item, list) and all(_is_path(each, template) for each in item):
            if any(isinstance(path, str) for path in item):
                warn(
                    f"a list of strings that look like paths is read as {some(len(item), 'path')}: pass tm.read(*paths)"
                    f" to say so, or {option_name('template', '{text}')} if they are documents"
                )
            yield from item
        elif _gives_paths(item):
            paths = list(item)
            if not paths:
                raise MissingInputError("no file matches: the glob gave no path")
            yield from paths
        else:
            yield item


def _gives_paths(item: Any) -> bool:
    """Whether an iterator is one of pathlib or glob: of Path.glob, which is a map since Python 3.13, iglob, map(Path, ...)."""
    function = item.__reduce__()[1][0] if isinstance(item, map) else None
    made_in = getattr(getattr(item, "gi_frame", None), "f_globals", {}).get("__name__", "").partition(".")[0]
    return function is Path or isinstance(getattr(function, "__self__", None), Path) or made_in in ("pathlib", "glob")


def _is_path(item: Any, template: str | None) -> bool:
    """Whether an item of a list is a path. What only looks like an URL or a dataset is not asked for over the network."""
    if isinstance(item, str) and template != "{text}":
        return looks_like_path(item) and not is_url(item) and hub_input(item) is None
    return isinstance(item, os.PathLike)


def _streams(item: Any) -> Iterator[Stream]:
    if (name := type(item).__name__) in ("Source", "Store", "View", "Loader"):
        raise WrongTypeError(f"read() takes paths and data, not a {name}{answer('given', name)}")
    kind = type(item).__module__.partition(".")[0]
    if isinstance(item, (str, os.PathLike)):
        yield Stream(STDIN, sys.stdin.buffer)
    elif callable(getattr(item, "read", None)):
        raise WrongTypeError(
            f"an open file is not read: pass the path ({getattr(item, 'name', '...')}), or [file.read()]; '-' is standard input"
        )
    elif kind == "pyarrow" or hasattr(item, "__arrow_c_stream__") or hasattr(item, "collect_schema"):
        yield Stream("<table>", item)
    elif isinstance(item, Mapping) and item and all(map(is_dataset, item.values())):
        for split, dataset in item.items():
            yield Stream(f"<dataset {split}>", dataset)
    elif kind == "pandas" and hasattr(item, "columns"):
        raise WrongTypeError("this pandas is too old to be read: pass pyarrow.Table.from_pandas(frame), or upgrade it")
    elif is_dataset(item):
        yield Stream("<dataset>", item)
    elif isinstance(item, (set, frozenset)):
        raise WrongTypeError("a set has no order: pass sorted(texts); for files pass tm.read(*paths)")
    elif isinstance(item, Mapping):
        yield Stream("<table>", item)
    elif isgeneratorfunction(item) or (isinstance(item, Iterable) and not isinstance(item, bytes)):
        yield Stream("<iterable>", item)
    else:
        instead = "what it returns" if callable(item) else "paths, a table, dataset or an iterable of strings or dicts"
        raise WrongTypeError(f"cannot read a {type(item).__name__}: pass {instead}")


def _spelling(item: str) -> str:
    """An input as an absolute path, so that ./data and data are the same. An URL and a short name stay as they are."""
    on_hub = hub_input(item)
    if on_hub is not None:
        return on_hub.spelling
    if is_url(item):
        return item
    if item.startswith("@"):
        return "@" + os.path.abspath(os.path.expanduser(item[1:]))
    return os.path.abspath(os.path.expanduser(item))
