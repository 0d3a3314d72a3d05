"""The text that a store was built from: its source as the manifest describes it, and single rows of its files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenmill.building.destination import without_own_files
from tokenmill.errors import InputError, MissingInputError, StoreError, UsageError
from tokenmill.reading import Source, read
from tokenmill.reading.hub_names import Pin, pinned_input
from tokenmill.reading.raw_rows import RawRow, raw_row
from tokenmill.store.manifest import Manifest
from tokenmill.store.store import Store


def read_source(folder: Path, manifest: Manifest) -> Source:
    """The source of the store in `folder`, as it is now. Lists all of its inputs."""
    commits = {pin["input"]: pin["commit"] for pin in manifest.source.get("hub", ())}
    inputs = [pinned_input(name, commits[name]) if name in commits else name for name in manifest.source["inputs"]]
    source = read(
        *inputs,
        **_text_options(manifest),
        split=manifest.source.get("split"),
        config=manifest.source.get("config"),
        revision=manifest.source.get("revision"),
        on_error=manifest.source["on_error"],
    )
    pins = tuple(Pin(**pin) for pin in manifest.source.get("hub", ()))
    source = replace(source, inputs=tuple(manifest.source["inputs"]), _pins=pins)
    return without_own_files(source, folder, cache=folder.parent.parent)  # a store in the cache is two levels below it


def source_row(store: Store, file: str, row: int) -> RawRow:
    """What a row of an input file holds, before it is parsed; of a long row its first 4 KB. See `raw_row`.

    `file` and `row` are as `store.quarantine()` and `store.locate()` give them. The file is read as it is now, up to the row.
    UsageError for a file that the store was not built from, StoreError for text that was never in a file, InputError for a
    file or a row that is gone.
    """
    if "import" in store._manifest.source:
        raise StoreError(f"{store.name} was imported as tokens, and not built from text")
    if file not in store.input_files:
        raise UsageError(f"{store.name} was not built from a file {file!r}")
    if file.startswith("<"):
        raise StoreError(f"{store.name} was built from text that is not in files ({file}), and has not kept it")
    options = _text_options(store._manifest)
    try:
        listed = read(file, format=options["format"]).files
    except (MissingInputError, UsageError) as error:
        raise InputError(f"{file} is gone, and the text of its rows with it") from error
    source = Source(files=listed, inputs=(file,), **options)
    for each in listed:
        if each.path == file:  # what has taken its place, such as a folder of that name, is not read
            return raw_row(each, source, row)
    raise InputError(f"{file} is gone, and the text of its rows with it")


def _text_options(manifest: Manifest) -> dict[str, Any]:
    """The options that say how text is found in the files of a store."""
    options = manifest.options
    return {
        "format": options["format"],
        "text_field": options["text_field"] or "text",
        "template": options["template"],
        "separator": options["separator"],
        "separator_newlines": options.get("separator_newlines", "keep"),
        "delimiter": options.get("delimiter"),
    }
