"""The options of a packing, resolved: which tokens go into which row, and which arrays a row has."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

from tokenmill.display import fields_in_one_line
from tokenmill.errors import UsageError
from tokenmill.option_types import values_of, whole_number
from tokenmill.options import FIELDS, LONGEST, Field, LabelMask, LayoutOptions, PackOptions, RowOptions

ONLY_FOR = {  # the options that not every strategy takes
    "stride": ("concat", "windows"),
    "overlap": ("concat", "windows"),
    "tail": ("concat",),
    "buckets": ("pad",),
}
WITHOUT_DOCUMENTS = {"input_ids", "labels", "attention_mask"}  # arrays that do not depend on where documents begin


@dataclass(frozen=True, kw_only=True)
class Layout(LayoutOptions):
    """Which tokens go into which row: everything a plan depends on besides the store. `overlap` is resolved into `stride`."""

    seq_len: int
    stride: int
    buckets: tuple[int, ...] = ()

    __repr__ = fields_in_one_line

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths a row may have, ascending."""
        return (*(width for width in self.buckets if width < self.seq_len), self.seq_len)

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "overlap"}


@dataclass(frozen=True, kw_only=True)
class RowFormat(RowOptions):
    """The arrays of a row. They do not change which tokens it holds."""

    pad_id: int
    mask_labels: tuple[LabelMask, ...]
    fields: tuple[Field, ...]
    dtype: Literal["int64", "int32"]

    __repr__ = fields_in_one_line

    @cached_property
    def plain_fields(self) -> tuple[Field, ...]:
        """The arrays with one number of the chosen dtype per position."""
        return tuple(name for name in self.fields if name in FIELDS)

    @cached_property
    def tells_documents(self) -> bool:
        """Whether arrays other than labels depend on where documents begin."""
        return not WITHOUT_DOCUMENTS.issuperset(self.fields)


def layout_of(options: PackOptions) -> Layout:
    """The layout that the options describe. Options that exclude each other raise UsageError."""
    _check_strategy(options)
    stride, seq_len = _stride(options), options.seq_len
    if options.row_start == "document":
        _check_row_start(options, stride)
    values = {**values_of(LayoutOptions, options), "overlap": None, "buckets": _buckets(options)}
    return Layout(**{**values, "seq_len": seq_len, "stride": stride})


def row_format_of(options: PackOptions, *, eos_id: int | None, vocab_size: int) -> RowFormat:
    """The row format that the options describe, for a tokenizer."""
    values = values_of(RowOptions, options)
    if not values["fields"]:
        raise UsageError("fields is empty: a row needs at least one array, such as input_ids")
    if options.pad_id is None:
        values["pad_id"] = eos_id or 0
    else:
        whole_number("pad_id", options.pad_id, 0, max(vocab_size, 1) - 1)
    if options.dtype == "int32" and vocab_size > LONGEST:
        raise UsageError(f"dtype='int32' cannot hold the ids of a vocabulary of {vocab_size:,}; use 'int64'")
    return RowFormat(**{**values, "mask_labels": values["mask_labels"] or (), "dtype": options.dtype})


def _check_strategy(options: PackOptions) -> None:
    """Refuse options that the strategy does not take."""
    for name, strategies in ONLY_FOR.items():
        value = getattr(options, name)
        if value not in (None, "keep") and options.strategy not in strategies:
            raise UsageError(
                f"{name}={value!r} is for strategy {' and '.join(map(repr, strategies))}, not for {options.strategy!r};"
                " leave it out"
            )


def _stride(options: PackOptions) -> int:
    if options.stride is not None and options.overlap is not None:
        raise UsageError("stride and overlap mean the same (stride = seq_len - overlap); give one of them")
    if options.overlap is not None:
        return options.seq_len - whole_number("overlap", options.overlap, 0, options.seq_len - 1)
    return options.seq_len if options.stride is None else whole_number("stride", options.stride, 1, options.seq_len)


def _check_row_start(options: PackOptions, stride: int) -> None:
    """Refuse what cannot be combined with rows that start at documents."""
    if options.strategy == "concat":
        if stride != options.seq_len:
            raise UsageError(
                "row_start='document' decides where each row starts, so stride and overlap have no effect; leave them out"
            )
    elif options.long_docs == "split":
        raise UsageError(
            f"row_start='document' with strategy {options.strategy!r} needs long_docs='truncate' or 'drop': the later"
            " parts of a split document cannot start at a document"
        )


def _buckets(options: PackOptions) -> tuple[int, ...]:
    if options.buckets is None:
        return ()
    widths = tuple(options.buckets)
    if not widths or widths[-1] > options.seq_len or any(a >= b for a, b in pairwise(widths)):
        raise UsageError(f"buckets={options.buckets!r} must be one or more widths, ascending, up to {options.seq_len}")
    return widths
