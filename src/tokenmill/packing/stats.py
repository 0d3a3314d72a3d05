"""Exact statistics of a packing: positions - padding = tokens - truncated - dropped + repeated."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.display import html_table, one_line
from tokenmill.formatting import percent, some
from tokenmill.habits import Answering

BAR = 40  # characters of the longest bar of a histogram


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats(Answering):
    """What becomes of the tokens of a view: attributes, or `stats["fill"]`; `print(stats)` prints a table.

    `tokens` and `documents` count the view before anything is left out. `positions` are the cells of all rows. `truncated`
    tokens are cut off documents that are in rows; `dropped` tokens belong to documents that are in no row, or to the tail of the
    stream; `repeated` tokens are there again because of overlap. A document is split when no single row holds all of its placed
    tokens. A boundary is a place inside a row where one document ends and another begins. `lengths` is a histogram: (low, high,
    documents).
    """

    seq_len: int  # positions in a row
    rows: int  # of the view
    positions: int  # cells of all rows
    documents: int  # of the view, before any is left out
    tokens: int  # of the view, before any is left out
    padding: int  # positions that hold no token
    truncated: int  # tokens cut off documents that are in rows
    dropped: int  # tokens of documents that are in no row, and of the tail
    repeated: int  # tokens that are there again because of overlap
    documents_split: int  # that no single row holds
    documents_truncated: int  # that lost tokens
    documents_dropped: int  # that are in no row
    boundaries: int  # between documents inside rows
    lengths: list[tuple[int, int, int]]  # a histogram of documents: low, high, documents

    @property
    def fill(self) -> float:
        """The share of positions that hold a token, from 0 to 1."""
        return 1 - self.padding / self.positions if self.positions else 1.0

    @property
    def boundaries_per_row(self) -> float:
        """Boundaries between documents, per row."""
        return self.boundaries / self.rows if self.rows else 0.0

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError as error:
            raise KeyError(str(error)) from None

    def as_dict(self) -> dict[str, Any]:
        """All figures as JSON values."""
        return {**asdict(self), "fill": self.fill, "boundaries_per_row": self.boundaries_per_row}

    def __str__(self) -> str:
        return stats_table(self)

    def __repr__(self) -> str:
        counts = (
            f"{name}={self[name]:,}" for name in ("seq_len", "rows", "documents", "tokens", "padding", "truncated")
        )
        return one_line("Stats", *counts, f"fill={self.fill:.4f}")

    def _repr_html_(self) -> str:
        return html_table("packing", stats_rows(self))


@dataclass(slots=True)
class Tally:
    """The counters behind `Stats`, while a plan is made."""

    documents: int = 0
    tokens: int = 0
    rows: int = 0
    positions: int = 0
    padding: int = 0
    truncated: int = 0
    dropped: int = 0
    repeated: int = 0
    documents_split: int = 0
    documents_truncated: int = 0
    documents_dropped: int = 0
    boundaries: int = 0
    stream: int = 0  # tokens of the stream, for rows that are cut from one
    widths: list[tuple[int, int]] = field(default_factory=list)  # width, rows
    by_bits: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(65, np.int64))

    def add_documents(self, lengths: npt.NDArray[np.int64]) -> None:
        self.documents += len(lengths)
        self.tokens += int(lengths.sum())
        self.by_bits += np.bincount(np.frexp(lengths.astype(np.float64))[1], minlength=65)[:65]

    def stats(self, seq_len: int) -> Stats:
        bins = int(np.flatnonzero(self.by_bits)[-1]) + 1 if self.by_bits.any() else 0
        lengths = [(1 << bits >> 1, max((1 << bits) - 1, 0), int(self.by_bits[bits])) for bits in range(bins)]
        counts = {name: getattr(self, name) for name in Stats.__slots__ if name not in ("seq_len", "lengths")}
        return Stats(seq_len=seq_len, lengths=lengths, **counts)


def stats_table(stats: Stats) -> str:
    """The statistics of one packing as text, with a histogram of document lengths."""
    return "\n".join([*(f"{name:<12}{value}" for name, value in stats_rows(stats)), "", *_histogram(stats)])


def stats_rows(stats: Stats) -> list[tuple[str, str]]:
    """The statistics in words, each with its name."""
    even = stats.positions == stats.rows * stats.seq_len
    width = max(len(f"{number:,}") for number in (stats.padding, stats.truncated, stats.dropped, stats.repeated))

    def of(part: int, whole: int, what: str, more: str = "") -> str:
        return f"{part:>{width},}   {percent(part, whole)} of the {what}{more}" if part else f"{0:>{width}}"

    truncated = f", from {some(stats.documents_truncated, 'document')}"
    dropped = f", {some(stats.documents_dropped, 'document')} whole" if stats.documents_dropped else ""
    split = f" ({percent(stats.documents_split, stats.documents)}) that no single row holds"
    return [
        ("rows", f"{stats.rows:,}, of {'' if even else 'up to '}{stats.seq_len:,} positions each"),
        ("documents", f"{stats.documents:,} with {some(stats.tokens, 'token')}"),
        ("fill", percent(stats.positions - stats.padding, stats.positions) if stats.positions else "no rows"),
        ("padding", of(stats.padding, stats.positions, "positions")),
        ("truncated", of(stats.truncated, stats.tokens, "tokens", truncated)),
        ("dropped", of(stats.dropped, stats.tokens, "tokens", dropped)),
        ("repeated", of(stats.repeated, stats.tokens, "tokens")),
        ("split", some(stats.documents_split, "document") + (split if stats.documents_split else "")),
        ("boundaries", f"{stats.boundaries:,} between documents inside rows, {stats.boundaries_per_row:.2f} per row"),
    ]


def _histogram(stats: Stats) -> list[str]:
    """The document lengths, one line per bin, from the first bin that is not empty."""
    if not stats.lengths:
        return ["no documents"]
    bins = stats.lengths[next((i for i, (_, _, count) in enumerate(stats.lengths) if count), 0) :]
    most = max(count for _, _, count in bins)
    names = [f"{low:,}" if low == high else f"{low:,} - {high:,}" for low, high, _ in bins]
    left = max(6, *map(len, names))
    right = max(9, len(f"{most:,}"))
    lines = [f"{'tokens':>{left}}  {'documents':>{right}}"]
    for name, (low, high, count) in zip(names, bins, strict=True):
        bar = "#" * -(-count * BAR // most) if most else ""  # rounded up, so that a single document shows
        mark = "< seq_len" if low <= stats.seq_len <= high else ""
        lines.append(f"{name:>{left}}  {count:>{right},}  {' '.join(part for part in (bar, mark) if part)}".rstrip())
    return lines
