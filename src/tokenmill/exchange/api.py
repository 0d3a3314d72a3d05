"""`tm.export`: a store, a view or splits as the files of another tool."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.errors import MismatchError, UsageError
from tokenmill.exchange.amount_done import Report
from tokenmill.exchange.formats.base import ExchangeFormat, Job, Part
from tokenmill.exchange.output import Output, OutputFile
from tokenmill.exchange.registry import FORMATS
from tokenmill.exchange.selection import Selection
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
from tokenmill.split_names import held_out
from tokenmill.store.store import Store, open_store

WHOLE = "train"  # the name of a part that is of no split
CALL_IT_VAL = ("nanogpt", "llmc", "mds", "litdata")  # formats whose tools give the split for validation this name
_PART = re.compile("[A-Za-z0-9][A-Za-z0-9_-]*")
FILES_OF_ROWS = ("rows_per_file", "max_chunks")
PACKING = (*declared(LayoutOptions), *declared(RowOptions), "dtype")


@dataclass(frozen=True, slots=True)
class Exported:
    """A finished export: its folder, format, the number of its files and bytes, and how many files were written this time."""

    path: Path  # the folder
    format: str  # its name
    files: int  # in the folder
    bytes: int  # of all files
    written: int  # files that were written this time
    parts: tuple[str, ...] = (WHOLE,)  # the names of its splits


@takes(ExportArguments, "a store, its path, a view, or a dict of them by split")
def export(data: Store | View | Mapping[str, Any] | str | os.PathLike[str], arguments: ExportArguments) -> Exported:
    """Write a store, a view, or a dict of them by split, in the format of another tool, into a folder.

    Documents are written from a store, rows from a view; a store with `seq_len` and the options of `tm.pack` gives rows, too.
    `shares` and `split` are for a store: `shares="train=0.99,val=0.01"` writes both parts, `split="train"` the documents from
    files of that name, `split="all"` everything as one. Without both, splits that files are named after are parts of their own.
    docs/formats.md says what each format keeps.

    Files are complete or not there; the same export again writes only what has changed, and an interrupted one is continued.

    Example:
        tm.export("corpus/", "nano/", format="nanogpt", shares="train=0.9,val=0.1")
        tm.export(tm.pack("corpus/", 128, fields=["input_ids"]), "rows/", format="parquet")
    """
    return export_files(data, arguments)


def export_files(data: Any, arguments: ExportArguments, report: Report | None = None) -> Exported:
    """The same; `report` is told how many bytes are written, of about how many."""
    if is_url(arguments.path):
        raise UsageError(f"{arguments.path}: exports are written to a folder; copy it to the bucket afterwards")
    format = FORMATS[arguments.format]
    parts = _parts(data, arguments)
    _check_kinds(format, parts, arguments)
    store = _one_tokenizer([part.store for part in parts.values()])
    job = Job(parts, arguments, store._manifest.tokenizer)
    files, indexes = format.files(job)
    files = [*files, *_tokenizer_files(store)]
    facts = {"format": format.name, **_facts(parts, store), "origins": _origins(parts)}
    folder = Path(arguments.path)
    with naming_files(), Output(folder, report) as output:
        before = format.name if output.receipt is None else output.receipt["facts"].get("format")
        if before != format.name:
            raise UsageError(f"{folder} holds an export in the format {before}: choose another folder, or remove it")
        if output.origins and not set(output.origins) & set(facts["origins"]):
            raise MismatchError(f"{folder} holds an export of another store: choose another folder, or remove it")
        written = 0 if output.is_current(facts, files, indexes) else output.write(facts, files, indexes)
        names = [*(file.name for file in files), *(index.name for index in indexes)]
        nbytes = sum(os.stat(folder / name).st_size for name in names)
    return Exported(folder, format.name, len(names), nbytes, written, tuple(parts))


def _check_kinds(format: ExchangeFormat, parts: dict[str, Part], arguments: ExportArguments) -> None:
    """Raise UsageError for documents in a format of rows, for rows in one of documents, and for options of rows alone."""
    kinds = {"documents" if isinstance(part, Selection) else "rows" for part in parts.values()}
    if wrong := [kind for kind in kinds if kind not in format.takes]:
        ways = {"documents": f"give {option_name('seq_len')}", "rows": "leave out seq_len, or export the store itself"}
        raise UsageError(
            f"the format {format.name} holds {' or '.join(format.takes)}, not {wrong[0]}: {ways[wrong[0]]}"
        )
    given = given_of(ExportArguments, arguments)
    for name in FILES_OF_ROWS + PACKING:
        if kinds == {"documents"} and given.get(name) is not None:
            raise UsageError(f"{option_name(name)} is for rows: give {option_name('seq_len')} too, or leave it out")


def _parts(data: Any, arguments: ExportArguments) -> dict[str, Part]:
    if isinstance(data, Mapping):
        if not data:
            raise UsageError("there is nothing to export: the dict is empty")
        for name in data:
            if not isinstance(name, str) or not _PART.fullmatch(name):
                raise UsageError(f"{name!r} cannot be the name of a part: use letters, digits, - and _")
        return {name: _part(each, arguments) for name, each in data.items()}
    if isinstance(data, View):
        name = data._splits[-1].name if data._splits else WHOLE
        return {name if _PART.fullmatch(name) else WHOLE: _part(data, arguments)}
    store = data if isinstance(data, Store) else open_store(data)
    if arguments.split is None and arguments.shares is None and held_out(store.splits):
        own = {"validation": "val"} if arguments.format in CALL_IT_VAL and "val" not in store.splits else {}
        parts = {own.get(name, name): ByFiles(tuple(files), name) for name, files in store.splits.items()}
        return {name: _of_store(store, (split,), arguments) for name, split in parts.items()}
    splits = chosen_splits(store, arguments.split)
    if arguments.shares is None:
        return {splits[-1].name if splits else WHOLE: _of_store(store, splits, arguments)}
    named = shares(_shares_in(arguments.shares), arguments.seed, splits)
    return {name: _of_store(store, (*splits, split), arguments) for name, split in named.items()}


def _part(data: Any, arguments: ExportArguments) -> Part:
    if isinstance(data, View):
        if arguments.seq_len is not None or arguments.split is not None or arguments.shares is not None:
            raise UsageError("a view has its rows already: give seq_len, split and shares with a store")
        if given := [name for name in PACKING if name in given_of(ExportArguments, arguments)]:
            raise UsageError(
                f"a view has its rows already: give {given[0]} to tm.pack, or export the store with seq_len"
            )
        return View(data.store._with_first_touch(), data._layout, data._row_format, data._splits)
    if arguments.shares is not None:
        raise UsageError("give shares with one store, or a dict of stores or views without shares")
    store = data if isinstance(data, Store) else open_store(data)
    return _of_store(store, chosen_splits(store, arguments.split), arguments)


def _of_store(store: Store, splits: tuple[Split, ...], arguments: ExportArguments) -> Part:
    store = store._with_first_touch()  # damaged ids would get checksums of their own
    if arguments.seq_len is None:
        return Selection(store, splits)
    options = {**values_of(LayoutOptions, arguments), **values_of(RowOptions, arguments), "dtype": arguments.dtype}
    return packed(store, PackOptions(arguments.seq_len, **options), splits)


def _shares_in(text: str) -> dict[str, float]:
    """ "train=0.99,val=0.01" as a dict."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, share = part.strip().partition("=")
        try:
            found[name] = float(share)
        except ValueError:
            equals = ""
        if not equals or not _PART.fullmatch(name) or text.count(f"{name}=") > 1:
            raise UsageError(f"shares={text!r}: write names and shares, such as train=0.99,val=0.01")
    return found


def _one_tokenizer(stores: list[Store]) -> Store:
    """The first of some stores. Raises MismatchError if their ids are of different tokenizers."""
    facts = [(store.tokenizer.fingerprint, store.tokenizer.vocab_size, store.dtype) for store in stores]
    for store, fact in zip(stores, facts, strict=True):
        if fact != facts[0]:
            raise MismatchError(f"{store.path} is of another tokenizer than {stores[0].path}: export them one by one")
    return stores[0]


def _origins(parts: dict[str, Part]) -> list[str]:
    """What data of one origin shares some of: where its stores are, what they hold, and shards, as they stay when it grows."""
    stores = {part.store.path: part.store for part in parts.values()}
    places = [digest((mirrored_url(path) or os.path.realpath(path)).encode())[:24] for path in stores]
    shards = [shard for store in stores.values() for shard in sorted(store._manifest.shard_ids)[:16]]
    return sorted({*places, *(store.fingerprint for store in stores.values()), *shards})


def _facts(parts: dict[str, Part], store: Store) -> dict[str, Any]:
    """What the receipt says about the data: with all documents of a store, enough to import it as it was."""
    manifest = store._manifest
    facts: dict[str, Any] = {
        "splits": {
            name: {"documents": part.documents, "tokens": part.tokens}
            if isinstance(part, Selection)
            else {"rows": len(part)}
            for name, part in parts.items()
        },
        "tokenizer": manifest.tokenizer,
        "bos": manifest.options["bos"],
        "eos": manifest.options["eos"],
        "dtype": manifest.dtype,
    }
    [*only] = parts.values()
    if len(only) == 1 and isinstance(only[0], Selection) and not only[0].splits:
        facts |= {"store": store.fingerprint, "shard_documents": manifest.shard_documents}
    return facts


def _tokenizer_files(store: Store) -> list[OutputFile]:
    """The files of the tokenizer, in the folder `tokenizer`."""
    folder = store.tokenizer.path
    names = [name for name in store._manifest.files if name.startswith("tokenizer/")] if folder.is_dir() else []

    def copy(name: str) -> Callable[[Any], None]:
        return lambda out: out.write(disk.read_bytes(store.path / name))

    return [OutputFile(name, [store._manifest.files[name]], copy(name)) for name in names]
