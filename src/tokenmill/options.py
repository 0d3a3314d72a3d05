"""Every option of tokenmill, declared once: name, type, default, range or choices, and one line of help.

Signatures, command-line flags, recipe keys, the JSON Schema, docs/options.md and the value checks come from here. To add an
option, add a field to a group, use it where the group is used, and run `scripts/option_page.py`, `scripts/command_pages.py`
and `scripts/recipe_schema.py`. Rules that involve several options are checked where they are used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Literal, Protocol, TypeAlias, get_args

from tokenmill.option_kinds import Device, DTypeName, Number, OneOf, Place, Size, SomeOf, Text, Token, Whole, Wholes
from tokenmill.option_types import Help, Options

IN_TRAINING = "all but those for evaluation"
LONGEST = 2**31 - 1  # tokens in a row
MANY = 2**31
LEAST_MEMORY = 336 << 20  # bytes: of the calling process (80 MiB) and one worker (256 MiB), as in building/machine.py

Path: TypeAlias = Annotated[str | os.PathLike[str], Place()]
TokenName: TypeAlias = Annotated[str | int, Token()]
Count: TypeAlias = Annotated[int, Whole(1, 2**62, is_amount=True)]
Positions: TypeAlias = Annotated[int, Whole(1, LONGEST)]
Rows: TypeAlias = Annotated[int, Whole(1, MANY)]

Format = Literal["auto", "text", "lines", "jsonl", "parquet", "arrow", "csv", "tsv"]
Engine = Literal[
    "auto",
    "reference",
    "gigatoken",
    "tokenizers",
    "tiktoken",
    "sentencepiece",
    "python",
    "bytes",
    "gpu",
]
Backend = Literal["local", "ray"]
Strategy = Literal["concat", "best_fit", "pad", "windows"]
LabelMask = Literal["padding", "first", "overlap"]
Field = Literal[
    "input_ids",
    "labels",
    "position_ids",
    "document_ids",
    "attention_mask",
    "document_mask",
    "attention_mask_4d",
    "cu_seqlens",
]
FIELDS: tuple[Field, ...] = ("input_ids", "labels", "position_ids", "document_ids")  # the default


class NumpyDType(Protocol):
    """An instance of numpy.dtype."""

    @property
    def name(self) -> str: ...


class TorchDType(Protocol):
    """A torch.dtype, recognized without importing torch."""

    @property
    def is_floating_point(self) -> bool: ...


DType: TypeAlias = Annotated[
    Literal["int64", "int32"] | type[Any] | NumpyDType | TorchDType, DTypeName(("int64", "int32"))
]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReadOptions(Options):
    """How documents are found in files."""

    format: Annotated[Format, Help("file format", "auto: by suffix", "FORMAT")] = "auto"
    text_field: Annotated[str, Help("field or column with the text, dotted if nested", metavar="FIELD")] = "text"
    template: Annotated[
        Annotated[str, Text(escapes=True)] | None,
        Help("text made from several fields, such as '{title}\\n\\n{body}'", metavar="TEMPLATE"),
    ] = None
    separator: Annotated[
        Annotated[str, Text(escapes=True)] | None,
        Help("text between documents in plain text files, such as '<|endoftext|>'", metavar="TEXT"),
    ] = None
    separator_newlines: Annotated[
        Literal["strip", "keep"],
        Help("the line break before and after a separator: part of it, or of the documents", metavar="ACTION"),
    ] = "strip"
    delimiter: Annotated[
        Annotated[str, Text(escapes=True)] | None,
        Help("character between the fields of csv, such as ';' or '\\t'", "by the header", "CHARACTER"),
    ] = None
    split: Annotated[
        str | None, Help("only the files of this split, by their names and folders", "all files", "NAME")
    ] = None
    config: Annotated[
        str | None, Help("configuration of a dataset on the Hugging Face Hub", "its default, or only one", "NAME")
    ] = None
    revision: Annotated[
        str | None, Help("branch, tag or commit of a dataset on the Hugging Face Hub", "main", "NAME")
    ] = None
    streaming: Annotated[bool, Help("read datasets of the Hugging Face Hub by ranges of bytes; keep no copy")] = False
    on_error: Annotated[Literal["quarantine", "raise"], Help("bad documents", metavar="ACTION")] = "quarantine"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TokenOptions(Options):
    """How text becomes tokens."""

    eos: Annotated[TokenName | None, Help("added after each document: a token, an id, auto or none")] = "auto"
    bos: Annotated[TokenName | None, Help("added before each document: a token, an id, auto or none", "none")] = None
    special_tokens: Annotated[
        Literal["parse", "text", "error"] | None,
        Help("special-token names in the text become their ids, stay plain text, or stop the build", "parse", "ACTION"),
    ] = None
    engine: Annotated[Engine | None, Help("tokenizer engine", "auto: the fastest that is proved exact", "ENGINE")] = (
        None
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrialOptions(Options):
    """Limits for a trial build."""

    max_rows: Annotated[Count | None, Help("only the first N rows of input, bad ones included", metavar="N")] = None
    max_documents: Annotated[Count | None, Help("only the first N good documents", metavar="N")] = None
    max_tokens: Annotated[Count | None, Help("whole documents, up to N tokens in total", metavar="N")] = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RunOptions(Options):
    """How a build runs."""

    shard_bytes: Annotated[
        Annotated[str | int, Size(1 << 10)] | None,
        Help("text per shard", "32MB; 1MB for slow Python tokenizers", "SIZE"),
    ] = None
    workers: Annotated[
        Annotated[
            int | str,
            Whole(
                0,
                4096,
                or_text=r"(100|[1-9][0-9]?)%",
                such_as="a share of the cores such as 80%; leave it out for one per core",
            ),
        ]
        | None,
        Help("worker processes, or a share such as 80%; 0 runs in this process", "one per physical core", "N"),
    ] = None
    memory: Annotated[
        Annotated[str | int, Size(LEAST_MEMORY)] | None,
        Help(
            "memory of this process and all workers, such as 4GB; at least 336MiB, more for large vocabularies",
            "half of what is free",
            "SIZE",
        ),
    ] = None
    backend: Annotated[
        Backend, Help("where workers run: on this machine, or on the nodes of a Ray cluster", metavar="NAME")
    ] = "local"
    address: Annotated[
        str | None,
        Help("of the Ray cluster: HOST:PORT, ray://HOST:PORT or auto", "RAY_ADDRESS, or found by Ray", "ADDRESS"),
    ] = None
    cache_dir: Annotated[Path | None, Help("folder of the cache", "TOKENMILL_CACHE, or ~/.cache/tokenmill", "DIR")] = (
        None
    )
    slice: Annotated[
        str | None,
        Help(
            "make only part K of N of the shards (K from 0 to N-1), into one store, with other processes", metavar="K/N"
        ),
    ] = None
    rehash: Annotated[bool, Help("compare input files by content, not by size and dates")] = False
    force: Annotated[bool, Help("rebuild everything")] = False
    dashboard: Annotated[bool, Help("show the build on a web page of this machine (pip install 'tokenmill[dash]')")] = (
        False
    )
    progress: Annotated[
        Literal["auto", "bar", "plain", "quiet", "verbose"] | bool | Callable[[Any], None] | None,
        Help("what is shown while a build runs; False is quiet", "auto"),
    ] = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BuildOptions(RunOptions, TrialOptions, TokenOptions):
    """Options of `tm.build`."""


@dataclass(frozen=True, eq=False, repr=False)
class BuildArguments(BuildOptions, ReadOptions):
    """Everything `tm.build` takes after the source. Reading options are for a source that is not a `tm.read(...)`."""

    tokenizer: Any
    out: Annotated[
        Path | None, Help("folder of the store, or its URL in a bucket", "in the cache, found by content", "DIR", "-o")
    ] = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WholeBuild(BuildArguments):
    """The same without `slice`, for type checkers: the result is a store."""

    slice: None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SampleOptions(Options):
    """How much of the text an estimate looks at."""

    sample: Annotated[
        Annotated[str | int, Size(64 << 10)], Help("text to encode, from all over the input", metavar="SIZE")
    ] = "32MB"
    seconds: Annotated[
        Annotated[float, Number(0, 1e9, above=True)], Help("time for reading and encoding it", "5", "S")
    ] = 5.0


@dataclass(frozen=True, eq=False, repr=False)
class EstimateArguments(SampleOptions, TokenOptions, ReadOptions):
    """Everything `tm.estimate` takes after the source."""

    tokenizer: Any


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LayoutOptions(Options):
    """Which tokens go into which row."""

    strategy: Annotated[Strategy, Help("how rows are filled", metavar="NAME")] = "concat"
    stride: Annotated[
        Positions | None, Help("concat, windows: tokens from the start of one row to the next", "seq_len", "N")
    ] = None
    overlap: Annotated[
        Annotated[int, Whole(0, LONGEST)] | None,
        Help("concat, windows: tokens that neighbouring rows share; seq_len - stride", "0", "N"),
    ] = None
    tail: Annotated[Literal["keep", "drop"], Help("concat: a last row that is not full", metavar="ACTION")] = "keep"
    row_start: Annotated[
        Literal["anywhere", "document"],
        Help("where rows start; document cuts off what crosses the end of a row", metavar="WHERE"),
    ] = "anywhere"
    long_docs: Annotated[
        Literal["split", "truncate", "drop"], Help("documents longer than a row", metavar="ACTION")
    ] = "split"
    min_doc_tokens: Annotated[
        Annotated[int, Whole(0, LONGEST)], Help("leave out documents with fewer tokens", metavar="N")
    ] = 0
    buckets: Annotated[
        Annotated[Iterable[int], Wholes(Whole(1, LONGEST))] | None,
        Help("pad: narrower widths for short rows, ascending, such as 128,512", metavar="N,N"),
    ] = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowOptions(Options):
    """The arrays of a row."""

    padding_side: Annotated[Literal["right", "left"], Help("where padding goes")] = "right"
    pad_id: Annotated[Annotated[int, Whole(0, LONGEST)] | None, Help("id of padding", "eos, or 0")] = None
    labels: Annotated[Literal["same", "shifted"], Help("the ids (transformers shifts them) or the next ids")] = "same"
    mask_labels: Annotated[
        Annotated[LabelMask | Iterable[LabelMask], SomeOf(OneOf(get_args(LabelMask)))] | None,
        Help("what gets label -100"),
    ] = ("padding",)
    fields: Annotated[Annotated[Field | Iterable[Field], SomeOf(OneOf(get_args(Field)))], Help("arrays of a row")] = (
        FIELDS
    )


@dataclass(frozen=True, eq=False, repr=False)
class PackOptions(RowOptions, LayoutOptions):
    """Options of `tm.pack`."""

    seq_len: Annotated[Positions, Help("positions in a row", metavar="L")]
    _: KW_ONLY
    split: Annotated[str | None, Help("only documents of this split; or all", IN_TRAINING, "NAME")] = None
    dtype: Annotated[DType, Help("of the arrays")] = "int64"


ExportFormat = Literal[
    "nanogpt",
    "llmc",
    "megatron",
    "hf",
    "parquet",
    "arrow",
    "pt",
    "safetensors",
    "mds",
    "litdata",
    "olmo",
    "datatrove",
]
ImportFormat = Literal["auto", ExportFormat]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExportOptions(Options):
    """What is exported, and into which files."""

    format: Annotated[ExportFormat | None, Help("format to write", "by the suffix of a file", "NAME")] = None
    split: Annotated[str | None, Help("only documents of this split; or all", "each by itself", "NAME")] = None
    shares: Annotated[
        Annotated[str, Text(pairs=True)] | None,
        Help("splits by shares of the documents, such as train=0.99,val=0.01", "no splits", "NAME=SHARE"),
    ] = None
    seed: Annotated[Annotated[int, Whole(-(2**63), 2**64 - 1)], Help("shares: another seed draws other documents")] = 0
    tokens_per_file: Annotated[
        Count | None, Help("documents: tokens per file, at least; in whole shards", "as usual for the format", "N")
    ] = None
    rows_per_file: Annotated[Rows | None, Help("rows: rows per file", "as usual for the format", "N")] = None
    max_chunks: Annotated[Rows | None, Help("rows: maximum number of files", metavar="N")] = None


@dataclass(frozen=True, eq=False, repr=False)
class ExportArguments(ExportOptions, RowOptions, LayoutOptions):
    """Everything `tm.export` takes after the data. The options of packing are for rows of a store: they need `seq_len`."""

    out: Annotated[Path, Help("folder of the export; or its only file, such as train.bin", metavar="PATH", short="-o")]
    _: KW_ONLY
    tokenizer: Any = None
    text_field: Annotated[str, Help("text: field or column with it, dotted if nested", metavar="FIELD")] = "text"
    seq_len: Annotated[Positions | None, Help("write packed rows of this length", metavar="L")] = None
    fields: Annotated[Annotated[Field | Iterable[Field], SomeOf(OneOf(get_args(Field)))], Help("arrays of a row")] = (
        "input_ids",
    )
    dtype: Annotated[DType, Help("rows: of the arrays")] = "int32"


@dataclass(frozen=True, eq=False, repr=False)
class ImportArguments(Options):
    """Everything `tm.import_tokens` takes after the source."""

    out: Annotated[Path, Help("folder of the store", metavar="DIR", short="-o")]
    _: KW_ONLY
    format: Annotated[ImportFormat, Help("format of the source", "recognised by its files", "NAME")] = "auto"
    tokenizer: Any = None
    eos: Annotated[
        TokenName | None, Help("token that ends documents, for formats without borders", "the tokenizer's", "TOKEN")
    ] = None
    dtype: Annotated[
        Literal["uint16", "uint32", "int32", "int64"] | type[Any] | NumpyDType | None,
        DTypeName(("uint16", "uint32", "int32", "int64")),
        Help("of the ids in flat files that do not say it", "by tokenizer or eos", "NAME"),
    ] = None
    shard_tokens: Annotated[Count, Help("tokens per shard", metavar="N")] = 10_000_000


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SplitOptions(Options):
    """Options of `view.split`, beside the named parts."""

    by: Annotated[Literal["document", "folder", "name"], Help("what decides the split of a document")] = "document"
    seed: Annotated[Annotated[int, Whole(-(2**63), 2**64 - 1)], Help("another seed draws other documents")] = 0


@dataclass(frozen=True, eq=False, repr=False)
class LoadOptions(Options):
    """Options of `tm.load`."""

    batch_size: Annotated[Rows | None, Help("rows per rank")] = None
    _: KW_ONLY
    global_batch_size: Annotated[Rows | None, Help("rows of all ranks together")] = None
    seed: Annotated[Annotated[int, Whole(0, 2**63 - 1)], Help("seed of the order of rows")] = 0
    shuffle: Annotated[bool, Help("a different order of rows in each epoch")] = True
    epochs: Annotated[
        Annotated[int | Literal["endless"], Whole(1, MANY, or_text="endless", such_as="endless")],
        Help("passes over the rows in one loop; the next loop goes on with the next epoch"),
    ] = 1
    drop_last: Annotated[bool, Help("leave out a last batch that is not full")] = True
    prefetch: Annotated[Annotated[int, Whole(0, 1000)], Help("batches prepared ahead, on a thread")] = 2
    pin_memory: Annotated[bool | None, Help("tensors in pinned memory", "if they go to a GPU")] = None
    device: Annotated[Annotated[Any, Device()] | None, Help("where tensors go, such as cuda", "the CPU")] = None
    dtype: Annotated[DType | None, Help("of the tensors", "as packed")] = None
    verify: Annotated[
        Literal["first-touch"] | None, Help("compare each block of a shard with its checksum when it is first read")
    ] = None


@dataclass(frozen=True, eq=False, repr=False)
class LoadArguments(LoadOptions, RowOptions, LayoutOptions):
    """Everything `tm.load` takes after the data. The options of packing are for data that is not a view."""

    _: KW_ONLY
    rank: Annotated[Annotated[int, Whole(0, MANY)] | None, Help("number of this process", "of torch.distributed")] = (
        None
    )
    world_size: Annotated[Rows | None, Help("number of processes", "of torch.distributed")] = None
    tokenizer: Any = None
    seq_len: Annotated[Positions | None, Help("positions in a row, for data that is not a view")] = None
    split: Annotated[str | None, Help("only documents of this split; or all", IN_TRAINING)] = None
