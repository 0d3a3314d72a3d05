"""The keys of a recipe: the options of the verbs by section, and the few keys that only recipes have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tokenmill.loading.mixture import HEAVIEST
from tokenmill.option_kinds import Number, Text, Texts, Whole
from tokenmill.option_types import Help, Option, Options
from tokenmill.options import LONGEST, BuildOptions, Count, LoadOptions, PackOptions, Path, Positions, ReadOptions


@dataclass(frozen=True, kw_only=True)
class SourceKeys(ReadOptions):
    """One source: its files and how they are read, or a store."""

    path: Annotated[
        tuple[str, ...],
        Texts(Text()),
        Help(
            "files, globs, folders, @list.txt, URLs, datasets on the Hub; paths are relative to the folder of the recipe"
        ),
    ] = ()
    store: Annotated[str, Help("a finished store, instead of path")] = ""
    weight: Annotated[
        Annotated[float, Number(0, HEAVIEST)] | None,
        Help("share of the rows; weights need not sum to 1. For all sources or for none"),
    ] = None
    max_rows: Annotated[Count | None, Help("for a trial: only the first N rows of this source")] = None


@dataclass(frozen=True, kw_only=True)
class BuildKeys(BuildOptions):
    """Options of `tm.build`, for every source."""

    out: Annotated[Path | None, Help("folder of the stores; each source has a folder in it", "the cache")] = None


@dataclass(frozen=True, kw_only=True)
class TokenizerKeys(Options):
    """The tokenizer block of other tools, read as it is."""

    tokenizer_name: Annotated[str, Help("the tokenizer")] = ""
    context_length: Annotated[Positions, Help("pack.seq_len")]
    overlap: Annotated[
        Annotated[int, Whole(0, LONGEST)] | None, Help("pack.overlap; less than context_length", "0")
    ] = None
    batch_size: Annotated[
        Annotated[int, Whole(1, 10_000)] | None, Help("checked, but without effect: engines are fed by bytes")
    ] = None
    num_proc: Annotated[Annotated[int, Whole(1, 32)] | None, Help("build.workers", "automatic")] = None
    verbose_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"], Help("with show_progress: build.progress")
    ] = "INFO"
    show_progress: Annotated[bool, Help("with verbose_level: build.progress")] = True


SECTIONS: dict[str, type[Options]] = {"build": BuildKeys, "pack": PackOptions, "load": LoadOptions}
TOP = ("sources", "tokenizer", "build", "pack", "split", "load")

TOKENIZER = Option("tokenizer", Text(), Help("the tokenizer"))
# The values of named splits: shares of the documents, or, split by folder or by name, folders or names.
SHARE = Option("share", Number(0, 1, above=True), Help("share of the documents; the rest is train"))
FOLDER = Option("folder", Text(), Help("by folder: the documents of files below it; by name: those of this split"))
