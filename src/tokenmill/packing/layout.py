"""What may be asked of a packing, checked before anything is done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from tokenmill.errors import UsageError
from tokenmill.formatting import whole_number

STRATEGIES = ("concat", "best_fit", "pad", "windows")
FIELDS = ("input_ids", "labels", "position_ids", "document_ids")
EXTRA = ("attention_mask", "block_mask", "block_mask_4d", "cu_seqlens")
MASK_LABELS = ("padding", "first", "overlap")
LONGEST = 2**31 - 1
ONLY_FOR = {  # the options that not every strategy takes
    "stride": ("concat", "windows"),
    "overlap": ("concat", "windows"),
    "tail": ("concat",),
    "buckets": ("pad",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which tokens go into which row: all that a plan depends on beside the store."""

    seq_len: int
    strategy: str
    stride: int
    tail: str
    row_start: str
    long_docs: str
    min_doc_tokens: int
    buckets: tuple[int, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths a row may have, ascending."""
        return (*(width for width in self.buckets if width < self.seq_len), self.seq_len)

    @property
    def keeps_all(self) -> bool:
        """Whether no document is left out or cut short, as far as these options go."""
        return self.min_doc_tokens <= 1 and self.long_docs == "split"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFormat:
    """How a row is shown: what changes its arrays, but not which tokens it holds."""

    padding_side: str
    pad_id: int
    labels: str
    mask_labels: tuple[str, ...]
    fields: tuple[str, ...]
    extra: tuple[str, ...]
    dtype: str

    tells_documents: bool  # whether arrays other than labels depend on where documents begin


def checked_layout(
    seq_len: Any,
    strategy: Any,
    stride: Any,
    overlap: Any,
    tail: Any,
    row_start: Any,
    long_docs: Any,
    min_doc_tokens: Any,
    buckets: Any,
) -> Layout:
    """The layout these arguments mean; what they cannot mean is a UsageError."""
    seq_len = whole_number("seq_len", seq_len, 1, LONGEST)
    strategy = _one_of("strategy", strategy, STRATEGIES)
    given = {"stride": stride, "overlap": overlap, "tail": None if tail == "keep" else tail, "buckets": buckets}
    for name, where in ONLY_FOR.items():
        if given[name] is not None and strategy not in where:
            raise UsageError(
                f"{name}={given[name]!r} is for strategy {' and '.join(map(repr, where))}, not for {strategy!r};"
                " leave it out"
            )
    tail = _one_of("tail", tail, ("keep", "drop"))
    row_start = _one_of("row_start", row_start, ("anywhere", "document"))
    long_docs = _one_of("long_docs", long_docs, ("split", "truncate", "drop"))
    if stride is not None and overlap is not None:
        raise UsageError("stride and overlap say the same thing (stride = seq_len - overlap); give one of them")
    if overlap is not None:
        stride = seq_len - whole_number("overlap", overlap, 0, seq_len - 1)
    stride = seq_len if stride is None else whole_number("stride", stride, 1, seq_len)
    if row_start == "document" and strategy == "concat" and stride != seq_len:
        raise UsageError(
            "row_start='document' chooses where each row starts, so it goes without stride and overlap; leave one out"
        )
    if row_start == "document" and strategy != "concat" and long_docs == "split":
        raise UsageError(
            f"row_start='document' with strategy {strategy!r} needs long_docs='truncate' or 'drop': the later parts of a"
            " document that is split cannot start at a document"
        )
    return Layout(
        seq_len=seq_len,
        strategy=strategy,
        stride=stride,
        tail=tail,
        row_start=row_start,
        long_docs=long_docs,
        min_doc_tokens=whole_number("min_doc_tokens", min_doc_tokens, 0, LONGEST),
        buckets=_checked_buckets(buckets, seq_len),
    )


def checked_row_format(
    padding_side: Any,
    pad_id: Any,
    labels: Any,
    mask_labels: Any,
    fields: Any,
    extra: Any,
    dtype: Any,
    *,
    eos_id: int | None,
    vocab_size: int,
) -> RowFormat:
    """How rows are to be shown; what these arguments cannot mean is a UsageError."""
    fields, extra = _some_of("fields", fields, FIELDS), _some_of("extra", extra, EXTRA)
    look = RowFormat(
        padding_side=_one_of("padding_side", padding_side, ("right", "left")),
        pad_id=(eos_id or 0) if pad_id is None else whole_number("pad_id", pad_id, 0, max(vocab_size, 1) - 1),
        labels=_one_of("labels", labels, ("same", "shifted")),
        mask_labels=_some_of("mask_labels", mask_labels, MASK_LABELS),
        fields=fields,
        extra=extra,
        dtype=_one_of("dtype", getattr(dtype, "__name__", None) or getattr(dtype, "name", dtype), ("int64", "int32")),
        tells_documents=not {"input_ids", "labels", "attention_mask"}.issuperset((*fields, *extra)),
    )
    if look.dtype == "int32" and vocab_size > LONGEST:
        raise UsageError(f"dtype='int32' cannot hold the ids of a vocabulary of {vocab_size:,}; use 'int64'")
    if not look.fields and not look.extra:
        raise UsageError(f"fields is empty: a row needs one of {', '.join((*FIELDS, *EXTRA))}")
    return look


def _checked_buckets(buckets: Any, seq_len: int) -> tuple[int, ...]:
    if buckets is None:
        return ()
    if isinstance(buckets, str) or not isinstance(buckets, Iterable):
        raise UsageError(f"buckets={buckets!r} is not a list of widths; write it like (128, 512)")
    widths = tuple(whole_number("buckets", width, 1, seq_len) for width in buckets)
    if not widths or any(a >= b for a, b in pairwise(widths)):
        raise UsageError(f"buckets={buckets!r}: one width or more, ascending, from 1 to seq_len={seq_len}")
    return widths


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise UsageError(f"{name}={value!r} is not one of {', '.join(map(repr, allowed))}")
    return str(value)


def _some_of(name: str, values: Any, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """A name, or several; in the order of `allowed`, each once."""
    if values is None:
        values = ()
    names = (values,) if isinstance(values, str) or not isinstance(values, Iterable) else tuple(values)
    for value in names:
        if value not in allowed:
            raise UsageError(f"{name} has {value!r}, which is not one of {', '.join(map(repr, allowed))}")
    return tuple(each for each in allowed if each in names)
