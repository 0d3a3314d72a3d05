"""What a packing costs, counted exactly: positions - padding = tokens - truncated - dropped + repeated."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What becomes of the tokens of a view. Attributes, or `stats["fill"]`; `print(stats)` is a table.

    `tokens` and `documents` are those of the view before anything was left out. `positions` are the cells of all rows.
    `truncated` tokens were cut off documents that are there; `dropped` ones belong to documents that are not, or to the tail of
    the stream; `repeated` ones are there once more by overlap. A document is split when no single row holds all that was
    placed of it. A boundary is a place inside a row where one document ends and another begins. `lengths` is a histogram:
    (low, high, documents).
    """

    seq_len: int
    rows: int
    positions: int
    documents: int
    tokens: int
    padding: int
    truncated: int
    dropped: int
    repeated: int
    documents_split: int
    documents_truncated: int
    documents_dropped: int
    boundaries: int
    lengths: list[tuple[int, int, int]]

    @property
    def fill(self) -> float:
        """The share of positions that hold a token."""
        return 1 - self.padding / self.positions if self.positions else 1.0

    @property
    def boundaries_per_row(self) -> float:
        return self.boundaries / self.rows if self.rows else 0.0

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(name) from None

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {**asdict(self), "fill": self.fill, "boundaries_per_row": self.boundaries_per_row}

    def __str__(self) -> str:
        from tokenmill.packing.report import stats_table

        return stats_table(self)


@dataclass(slots=True)
class Tally:
    """The same, while it is being counted."""

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
    stream: int = 0  # tokens end to end, where rows are cut from a stream
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
