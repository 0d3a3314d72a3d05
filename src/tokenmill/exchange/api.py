"""`tm.export`: a store, a view or splits as the files of another tool."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from tokenmill.building.api import build
from tokenmill.building.destination import without_own_files
from tokenmill.display import one_line, shown
from tokenmill.errors import MismatchError, UsageError, WrongTypeError
from tokenmill.exchange.amount_done import Report
from tokenmill.exchange.formats.base import ExchangeFormat, Job, Part, flat_dtype
from tokenmill.exchange.output import Output, OutputFile, refuse_others
from tokenmill.exchange.registry import FORMATS
from tokenmill.exchange.selection import Selection
from tokenmill.formatting import first_names, human, some
from tokenmill.habits import Answering, answer
from tokenmill.io import disk
from tokenmill.io.atomic import digest, naming_files
from tokenmill.io.mirror import mirrored_url
from tokenmill.io.object_store import is_url
from tokenmill.option_calls import takes
from tokenmill.option_types import declared, given_of, option_name, values_of
from tokenmill.options import ExportArguments, LayoutOptions, PackOptions, RowOptions
from tokenmill.packing.api import packed
from tokenmill.packing.splits import ByFiles, Split, chosen_splits, shares
from tokenmill.packing.view import View
from tokenmill.reading import Source, read
from tokenmill.split_names import held_out
from tokenmill.store.store import Store, store_unless_text

WHOLE = "train"  # the name of a part that is of no split
CALL_IT_VAL = ("nanogpt", "llmc", "mds", "litdata")  # formats whose tools give the split for validation this name
_PART = re.compile("[A-Za-z0-9][A-Za-z0-9_-]*")
FILES_OF_ROWS = ("rows_per_file", "max_chunks")
PACKING = (*declared(LayoutOptions), *declared(RowOptions), "dtype")


@dataclass(frozen=True, slots=True, repr=False)
class Exported(Answering):
    """A finished export: where it is, what is in it, and a line of Python that reads it back. `print` shows all of it."""

    path: Path  # the folder, or the only file
    format: str  # its name
    files: int  # of the export
    bytes: int  # of all files
    written: int  # files that were written this time
    parts: tuple[str, ...]  # the names of its splits
    splits: Mapping[str, Mapping[str, int]]  # of each: documents, or rows and positions; and tokens
    left_out: tuple[str, ...]  # what of the stores is not in it, in words
    failed: int  # input files that could not be read when the stores were built
    read: str  # Python that reads it, or the first of its files, as `data`

    def __repr__(self) -> str:
        return one_line("Exported", shown(str(self.path)), self.format, *self._contents())

    def __str__(self) -> str:
        state = "up to date" if not self.written else f"{some(self.written, 'file')} written"
        rows: list[tuple[str, Iterable[Any]]] = [("export", [self.path]), ("format", [self.format])]
        rows += [("parts", self._contents()), ("left out", self.left_out)]
        rows += [("files", [f"{self.files:,}, {human(self.bytes)}: {state}"]), ("read it", [self.read])]
        return "\n".join(f"{name * (not i):<12}{line}" for name, lines in rows for i, line in enumerate(lines))

    def _contents(self) -> list[str]:
        counts = {name: [some(n, what[:-1]) for what, n in part.items()] for name, part in self.splits.items()}
        return [f"{name}: {', '.join(each)}" for name, each in counts.items()]


@takes(ExportArguments, "a store, its path, a view, text for tm.build, or a dict of them by split")
def export(data: Any, arguments: ExportArguments) -> Exported:
    """Write a store, a view, text, or a dict of them by split, in the format of another tool.

    Documents are written from a store, rows from a view; a store with `seq_len` and the options of `tm.pack` gives rows, too.
    Text is what `tm.build` takes: with a `tokenizer` it is built into the cache first, where it is found again.
    `shares` and `split` are for one store: `shares="train=0.99,val=0.01"` writes both parts, `split="train"` the documents from
    files of that name, `split="all"` everything as one. Without both, splits that files are named after are parts of their own.
    docs/formats.md says what each format keeps.

    `out` is a folder; or a file, if its suffix is that of the format and the export has one part: `train.bin`, `rows.parquet`.
    Files are complete or not there; the same export again writes only what has changed, and an interrupted one is continued.

    Example:
        tm.export("corpus/", "nano/", format="nanogpt", shares="train=0.9,val=0.1")
        tm.export("data/*.jsonl", "train.bin", format="nanogpt", tokenizer="path/to/tokenizer.json")
        tm.export(tm.pack("corpus/", 128, fields=["input_ids"]), "rows/", format="parquet")
    """
    return export_files(data, arguments)


def export_files(data: Any, arguments: ExportArguments, report: Report | None = None, progress: Any = None) -> Exported:
    """The same; `report` is told how many bytes are written, of about how many. `progress` is that of `tm.build`."""
    if is_url(arguments.out):
        raise UsageError(f"{arguments.out}: exports are written to a folder; copy it to the bucket afterwards")
    if arguments.tokenizer is not None and isinstance(data, Mapping) and arguments.text_field in data:
        data = (data,)  # columns of text, as for tm.build, and not splits
    format, file = _format_and_file(arguments)
    out = Path(arguments.out)
    folder = out.parent if file else out
    if hint := answer("exported", type(data).__name__):
        raise WrongTypeError(f"a {type(data).__name__} is not exported{hint}")
    _check_kinds(format, data.values() if isinstance(data, Mapping) else [data], arguments)
    refuse_others(folder, file)  # before text is built
    parts = _parts(data, arguments, format, progress)
    stores = [*{part.store.path: part.store for part in parts.values()}.values()]
    store = _one_tokenizer(stores)
    options = replace(arguments, tokens_per_file=1 << 62) if file and not arguments.tokens_per_file else arguments
    job = Job(parts, options, store._manifest.tokenizer)
    files, indexes = format.files(job)
    if file:
        is_named = len(parts) > 1 and arguments.shares is None and not isinstance(data, Mapping)
        files, indexes = [_only(files, out, is_named=is_named)], []
    else:
        files = [*files, *_tokenizer_files(store)]
    facts = {"format": format.name, **_facts(job, store), "origins": _origins(stores, arguments)}
    with naming_files(), Output(folder, report, file=file) as output:
        before = format.name if output.receipt is None else output.receipt["facts"].get("format")
        if before != format.name:
            raise UsageError(f"{out} holds an export in the format {before}: choose another folder, or remove it")
        if output.origins and not set(output.origins) & set(facts["origins"]):
            raise MismatchError(f"{out} holds an export of another store: choose another folder, or remove it")
        written = 0 if output.is_current(facts, files, indexes) else output.write(facts, files, indexes)
        names = [*(each.name for each in files), *(each.name for each in indexes)]
        nbytes = sum(os.stat(folder / name).st_size for name in names)
    read_it = _reading(job, format, out, folder / names[0])
    return Exported(out, format.name, len(names), nbytes, written, tuple(parts), *_amounts(job, stores), read_it)


def _only(files: list[OutputFile], out: Path, *, is_named: bool) -> OutputFile:
    """The file of an export to one file; UsageError if there are several. `is_named`: they are splits of a store."""
    if len(files) > 1:
        several = f"{len(files)} files ({first_names(each.name for each in files)})"
        choose = f", or {option_name('split', 'all')}" if is_named else ""
        raise UsageError(f"{out} cannot be {several}: give a folder, such as {out.with_suffix('')}{choose}")
    return replace(files[0], name=out.name)


def _reading(job: Job, format: ExchangeFormat, out: Path, first: Path) -> str:
    """Python that reads the export, or the first of its files, as `data`."""
    places = {"out": out, "file": first, "folder": first.parent, "prefix": first.with_suffix("")}
    dtype = flat_dtype(job.vocab_size).name
    return format.reads.format(**{name: str(place) for name, place in places.items()}, dtype=dtype)


def _amounts(job: Job, stores: list[Store]) -> tuple[dict[str, dict[str, int]], tuple[str, ...], int]:
    """The numbers of each part, what of the stores is in none, in words, and how many input files could not be read."""
    documents, failed = sum(map(len, stores)), sum(len(store.failed) for store in stores)
    splits: dict[str, dict[str, int]] = {}
    left_out: list[tuple[int, str, str]] = []
    for name, part in job.parts.items():
        if isinstance(part, Selection):
            splits[name] = {"documents": part.documents, "tokens": part.tokens}
            documents -= part.documents
            continue
        stats, rows = part.stats, job.ends[part]
        splits[name] = {"rows": rows, "positions": rows * part.seq_len}
        if rows == len(part):
            splits[name]["tokens"] = stats.positions - stats.padding
        documents -= stats.documents
        left_out += [
            (len(part) - rows, "row", f"of {name}, by {option_name('max_chunks')}"),
            (stats.dropped + stats.truncated, "token", f"of {name}, by the options of packing"),
            (stats.documents_dropped, "whole document", f"of {name}"),
        ]
    left_out += [(documents, "document", "of other splits or shares"), (failed, "input file", "that could not be read")]
    return splits, tuple(f"{some(count, what)} {why}" for count, what, why in left_out if count > 0), failed


def _format_and_file(arguments: ExportArguments) -> tuple[ExchangeFormat, str]:
    """The format, which the suffix of the only file may say; and the name of this file, or nothing for a folder."""
    out, name = Path(arguments.out), arguments.format
    fitting = [each.name for each in FORMATS.values() if each.suffix and each.suffix == out.suffix]
    if name is None and len(fitting) != 1:
        raise UsageError(
            f"{out} does not say its format: give {option_name('format')}, {' or '.join(fitting or FORMATS)}"
        )
    format = FORMATS[name or fitting[0]]
    if not fitting or out.is_dir() or os.fspath(arguments.out).endswith(os.sep):
        return format, ""
    if format.name not in fitting:
        files = f" or a file that ends in {format.suffix}" if format.suffix else ""
        raise UsageError(f"{out}: the format {format.name} has a folder{files}: give {out.with_suffix(format.suffix)}")
    return format, out.name


def _check_kinds(format: ExchangeFormat, data: Iterable[Any], arguments: ExportArguments) -> None:
    """Raise UsageError for documents in a format of rows, for rows in one of documents, and for options of rows alone."""
    kinds = {"rows" if isinstance(each, View) or arguments.seq_len is not None else "documents" for each in data}
    if wrong := [kind for kind in kinds if kind not in format.takes]:
        packed_first = f"give {option_name('seq_len')}, or a view (tm.pack)"
        ways = {"documents": packed_first, "rows": "leave out seq_len, or export the store itself"}
        raise UsageError(
            f"the format {format.name} holds {' or '.join(format.takes)}, not {wrong[0]}: {ways[wrong[0]]}"
        )
    given = given_of(ExportArguments, arguments)
    for name in FILES_OF_ROWS + PACKING:
        if kinds == {"documents"} and given.get(name) is not None:
            raise UsageError(f"{option_name(name)} is for rows: give {option_name('seq_len')} too, or leave it out")
    if arguments.tokenizer is None and "text_field" in given:
        raise UsageError(f"{option_name('text_field')} is for text: give its -t (tokenizer=...) too, or leave it out")


def _parts(data: Any, arguments: ExportArguments, format: ExchangeFormat, progress: Any) -> dict[str, Part]:
    """What is written, by the names of its parts."""
    if isinstance(data, Mapping):
        if not data:
            raise UsageError("there is nothing to export: the dict is empty")
        for name in data:
            if not isinstance(name, str) or not _PART.fullmatch(name):
                raise UsageError(f"{name!r} cannot be the name of a part: use letters, digits, - and _")
        parts = {name: _part(_loaded(each, arguments, progress), arguments) for name, each in data.items()}
    elif isinstance(one := _loaded(data, arguments, progress), View):
        parts = {_name_of(one._splits): _part(one, arguments)}
    else:
        parts = {name: _of_store(one, splits, arguments) for name, splits in _splits(one, arguments).items()}
    if format.name in CALL_IT_VAL and "val" not in parts:
        parts = {"val" if name == "validation" else name: part for name, part in parts.items()}
    return parts


def _loaded(data: Any, arguments: ExportArguments, progress: Any) -> Store | View:
    """A view or a store as it is, the store at a path, or that of text, which is built into the cache."""
    if isinstance(data, View):
        return data
    if (store := store_unless_text(data, arguments.tokenizer)) is not None:
        return store
    if isinstance(data, Source) and "text_field" in given_of(ExportArguments, arguments):
        raise UsageError("pass text_field to tm.read, which made this source")
    try:
        source = data if isinstance(data, Source) else read(data, text_field=arguments.text_field)
    except UsageError as error:
        first = "; how text is read is told to tokenmill build (tm.read) alone: build first"
        raise UsageError(f"{error}{first if option_name('format') in str(error) else ''}") from None
    return build(without_own_files(source, Path(arguments.out)), arguments.tokenizer, progress=progress)


def _splits(store: Store, arguments: ExportArguments) -> dict[str, tuple[Split, ...]]:
    """The parts of a store by name: its own splits, the one that is asked for, or shares."""
    if arguments.split is None and arguments.shares is None and held_out(store.splits):
        return {name: (ByFiles(tuple(files), name),) for name, files in store.splits.items()}
    splits = chosen_splits(store, arguments.split)
    if arguments.shares is None:
        return {_name_of(splits): splits}
    named = shares(_shares_in(arguments.shares), arguments.seed, splits)
    return {name: (*splits, split) for name, split in named.items()}


def _name_of(splits: tuple[Split, ...]) -> str:
    """The name of the only part."""
    return splits[-1].name if splits and _PART.fullmatch(splits[-1].name) else WHOLE


def _part(data: Store | View, arguments: ExportArguments) -> Part:
    if isinstance(data, Store):
        if arguments.shares is not None:
            raise UsageError("give shares with one store, or a dict of stores or views without shares")
        return _of_store(data, chosen_splits(data, arguments.split), arguments)
    if any(getattr(arguments, name) is not None for name in ("seq_len", "split", "shares", "tokenizer")):
        raise UsageError(
            "a view has its rows already: give seq_len, split and shares with a store, tokenizer with text"
        )
    if given := [name for name in PACKING if name in given_of(ExportArguments, arguments)]:
        raise UsageError(f"a view has its rows already: give {given[0]} to tm.pack, or export the store with seq_len")
    return View(data.store._with_first_touch(), data._layout, data._row_format, data._splits)


def _of_store(store: Store, splits: tuple[Split, ...], arguments: ExportArguments) -> Part:
    store = store._with_first_touch()  # damaged ids would get checksums of their own
    if arguments.seq_len is None:
        return Selection(store, splits)
    options = {**values_of(LayoutOptions, arguments), **values_of(RowOptions, arguments), "dtype": arguments.dtype}
    return packed(store, PackOptions(arguments.seq_len, **options), splits)


def _shares_in(text: str) -> dict[str, float]:
    """ "train=0.99,val=0.01" as a dict."""
    pairs = [part.strip().partition("=")[::2] for part in text.split(",")]
    with suppress(ValueError):
        found = {name: float(share) for name, share in pairs}
        if len(found) == len(pairs) and all(map(_PART.fullmatch, found)):
            return found
    raise UsageError(f"shares={text!r}: write names and shares, such as train=0.99,val=0.01")


def _one_tokenizer(stores: list[Store]) -> Store:
    """The first of some stores. Raises MismatchError if their ids are of different tokenizers."""
    facts = [(store.tokenizer.fingerprint, store.tokenizer.vocab_size, store.dtype) for store in stores]
    for store, fact in zip(stores, facts, strict=True):
        if fact != facts[0]:
            raise MismatchError(f"{store.path} is of another tokenizer than {stores[0].path}: export them one by one")
    return stores[0]


def _origins(stores: list[Store], arguments: ExportArguments) -> list[str]:
    """What data of one origin shares some of: where it is, or its text, what is in it, and shards, as they stay when it grows."""
    places = [mirrored_url(store.path) or os.path.realpath(store.path) for store in stores]
    if arguments.tokenizer is not None:
        texts = [name for store in stores for name in store._manifest.source["inputs"] if not name.startswith("<")]
        places += [os.path.abspath(os.path.expanduser(name)) for name in texts]
    shards = [shard for store in stores for shard in sorted(store._manifest.shard_ids)[:16]]
    digests = [digest(place.encode())[:24] for place in places]
    return sorted({*digests, *(store.fingerprint for store in stores), *shards})


def _facts(job: Job, store: Store) -> dict[str, Any]:
    """What the receipt says about the data: with all documents of a store, enough to import it as it was."""
    manifest = store._manifest
    facts: dict[str, Any] = {
        "splits": {
            name: {"documents": part.documents, "tokens": part.tokens}
            if isinstance(part, Selection)
            else {"rows": job.ends[part]}
            for name, part in job.parts.items()
        },
        "tokenizer": manifest.tokenizer,
        "bos": manifest.options["bos"],
        "eos": manifest.options["eos"],
        "dtype": manifest.dtype,
    }
    only = list(job.parts.values())
    if len(only) == 1 and isinstance(only[0], Selection) and not only[0].splits:
        facts |= {"store": store.fingerprint, "shard_documents": manifest.shard_documents}
    return facts


def _tokenizer_files(store: Store) -> list[OutputFile]:
    """The files of the tokenizer, in the folder `tokenizer`."""
    folder = store.tokenizer.path
    names = [name for name in store._manifest.files if name.startswith("tokenizer/")] if folder.is_dir() else []
    return [OutputFile(name, [store._manifest.files[name]], partial(_copy, store.path / name)) for name in names]


def _copy(path: Path, out: BinaryIO) -> None:
    out.write(disk.read_bytes(path))
