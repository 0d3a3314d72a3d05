"""A view: rows over a store, made when they are requested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any, Literal, Never

import numpy as np
import numpy.typing as npt

from tokenmill.callers import warn_of_shifting_twice
from tokenmill.display import html_table, one_line, shown
from tokenmill.errors import WrongTypeError
from tokenmill.formatting import some
from tokenmill.habits import Identified, answer_at
from tokenmill.io.atomic import canonical, digest
from tokenmill.options import SplitOptions
from tokenmill.packing.best_fit import Numbers
from tokenmill.packing.layout import Layout, RowFormat
from tokenmill.packing.plan_file import VERSION, Making, load_or_write_plan
from tokenmill.packing.row_index import PieceRows, RowIndex, StreamRows
from tokenmill.packing.rows import PreparedRows, Rows
from tokenmill.packing.splits import Split, chosen_by, file_names, folders, names, shares, store_name
from tokenmill.packing.stats import Stats, Tally
from tokenmill.packing.strategies import columns_of, included_documents, plan_rows, stream_tally
from tokenmill.packing.token_ranges import TokenRanges
from tokenmill.store.store import Several, Store, numbers_of


class View(Identified):
    """Rows of a store. `view[i]` is row i, `view.rows(indices)` is many rows at once, as dicts of arrays.

    Made by `tm.pack`: milliseconds once its plan is stored. Views can be pickled and sent to other processes; no token is copied.
    """

    store: Store  # whose tokens the rows hold

    def __init__(self, store: Store, layout: Layout, row_format: RowFormat, splits: tuple[Split, ...] = ()) -> None:
        self.store, self._layout, self._row_format, self._splits = store, layout, row_format, splits
        self._plan = load_or_write_plan(store.path, self._key, self._making) if self._needs_plan() else None
        self._row_index: RowIndex = (
            StreamRows(store, layout, self._plan)
            if layout.strategy == "concat" or self._plan is None
            else PieceRows(store, layout, self._plan)
        )
        self._tokens = TokenRanges(store)
        self._told = False

    def __len__(self) -> int:
        return len(self._row_index)

    def __getitem__(self, index: int | np.integer | Several) -> Rows:
        several = numbers_of(index, len(self))
        if several is not None:
            return self.rows(several)
        arrays = self.rows([index])  # type: ignore[list-item]
        return {name: value if name in ("cu_seqlens", "max_seqlen") else value[0] for name, value in arrays.items()}

    def __getitems__(self, indices: list[int]) -> list[Rows]:
        """Several rows as a list, made together. torch's DataLoader calls this for a batch."""
        self._told = self._told or warn_of_shifting_twice(self._row_format.labels)
        if "cu_seqlens" in self._row_format.fields or self._layout.buckets:
            return [self[index] for index in indices]
        arrays = self.rows(indices)
        return [{name: value[i] for name, value in arrays.items()} for i in range(len(indices))]

    def __iter__(self) -> Iterator[Rows]:
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:  # noqa: FBT001
        """`np.asarray(view)`: the input_ids of all rows, which are made for it."""
        return np.asarray(self.rows(range(len(self)))["input_ids"], dtype)

    def __eq__(self, other: object) -> bool:
        """Whether the rows are the same, and have the same fields."""
        if not isinstance(other, View):
            return NotImplemented
        return self.fingerprint == other.fingerprint and self._row_format == other._row_format

    __hash__ = Identified.__hash__

    def __reduce__(self) -> tuple[type[View], tuple[Any, ...]]:
        return View, (self.store, self._layout, self._row_format, self._splits)

    def __repr__(self) -> str:
        size = f"rows={len(self):,}", f"seq_len={self.seq_len:,}"
        return one_line("View", shown(self.store.name), self._layout.strategy, *size)

    def _repr_html_(self) -> str:
        rows = [
            ("store", self.store.name),
            ("strategy", self.strategy),
            ("rows", f"{len(self):,} of {self.seq_len:,} positions"),
            ("arrays", f"{', '.join(self._row_format.fields)} as {self._row_format.dtype}"),
            ("splits", f"{len(self._splits):,}" if self._splits else ""),
        ]
        return html_table("view", rows)

    @property
    def seq_len(self) -> int:
        """The positions in a row."""
        return self._layout.seq_len

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and positions in a row."""
        return len(self), self.seq_len

    @property
    def strategy(self) -> str:
        """How rows are filled."""
        return self._layout.strategy

    @property
    def buckets(self) -> list[tuple[int, int, int]]:
        """The widths of rows: a list of (width, first row, rows)."""
        widths = (self._plan and self._plan.facts["widths"]) or [(self.seq_len, len(self))]
        firsts = np.cumsum([0, *(rows for _, rows in widths)]).tolist()
        return [(width, first, rows) for (width, rows), first in zip(widths, firsts, strict=False)]

    def rows(self, indices: Sequence[int] | npt.NDArray[np.integer]) -> Rows:
        """The rows of these numbers, stacked: a dict of arrays of shape (len(indices), seq_len)."""
        prepared = self._prepared(indices)
        return prepared.arrays(0, len(prepared.index))

    def _prepared(self, indices: Any) -> PreparedRows:
        """The rows of these numbers, found but not yet made into arrays: `prepared.arrays(low, high)` makes some of them."""
        return PreparedRows(self._tokens, self._row_index, self._row_format, self._checked(indices))

    def documents(self, index: int) -> list[tuple[int, int, int]]:
        """The parts of documents in a row: (document, start, stop), so that `store[document][start:stop]` are its tokens."""
        stretches = self._row_index.stretches(self._checked([index]))
        parts = []
        for start, length in zip(stretches.starts.tolist(), stretches.lengths.tolist(), strict=True):
            while length:
                document, offset = self.store.document_at(start)
                here = min(length, len(self.store[document]) - offset)
                parts.append((document, offset, offset + here))
                start, length = start + here, length - here
        return parts

    @cached_property
    def stats(self) -> Stats:
        """The statistics of this packing. Stored with the plan; for `concat`, counted from the documents' ends at first use."""
        if self._plan is not None:
            facts = self._plan.facts["stats"]
            return Stats(**{**facts, "lengths": [tuple(each) for each in facts["lengths"]]})
        tally = Tally()
        included = included_documents(self.store, self._layout, None, tally)
        stream_tally(included, self._layout, tally, self.store.num_tokens)
        return tally.stats(self.seq_len)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the store's tokens and of every option that changes a row."""
        row_format = self._row_format
        values = row_format.padding_side, row_format.pad_id, row_format.labels, row_format.mask_labels
        return digest(canonical([self._key, *values]))

    def split(
        self, *unnamed: Never, by: Literal["document", "folder", "name"] = "document", seed: int = 0, **named: Any
    ) -> dict[str, View]:
        """Views of disjoint subsets of the documents.

        `view.split(train=0.99, eval=0.01)` splits by shares of the documents. A document stays in its split when others are
        appended and when files are added, moved or renamed. `view.split(by="folder", train="train", eval="validation")` splits
        by the folders of the input files; without names, there is a view for each folder. `view.split(by="name")` has a view
        for each of `store.splits`, which files and folders with names such as train and validation make; for those that
        `tm.pack` without `split` leaves out, too.
        """
        if unnamed:
            raise WrongTypeError(f"split takes named shares, not {unnamed[0]!r}: view.split(train=0.9, eval=0.1)")
        SplitOptions(by=by, seed=seed)  # checks them
        before = tuple(each for each in self._splits if by == "document" or each.name)
        if by == "document":
            splits = shares(named, seed, self._splits)
        elif by == "folder":
            splits = folders(file_names(self.store), named)
        else:
            splits = names(self.store.splits, named, store_name(self.store))
        return {
            name: View(self.store, self._layout, self._row_format, (*before, split)) for name, split in splits.items()
        }

    def _checked(self, indices: Any) -> Numbers:
        try:
            index = np.asarray(indices)
            values = index.tolist()
        except ValueError:  # a ragged list
            index = np.empty((0, 0))
        # The second test is for numbers that are too large for numpy.
        whole = index.dtype.kind in "iu" or all(type(value) is int for value in index.flat)
        if index.ndim != 1 or not whole:
            raise WrongTypeError(
                f"row numbers must be a list of whole numbers, not {type(indices).__name__} {indices!r:.60}"
                + answer_at(View, indices[0] if isinstance(indices, list) and len(indices) == 1 else indices)
            )
        count = len(self)
        low, high = (min(values), max(values)) if values else (0, -1)  # for a batch, faster than numpy
        if low < 0 or high >= count:
            wrong = [value for value in values if not -count <= value < count]
            if wrong:
                raise IndexError(f"row {wrong[0]} is out of range: the view has {some(count, 'row')}")
            return np.array([value % count for value in values], np.int64)
        return index.astype(np.int64, copy=False)

    def _needs_plan(self) -> bool:
        """Whether rows depend on more than arithmetic, as they do unless they are a stream of the whole store."""
        layout = self._layout
        plain = layout.strategy == "concat" and layout.row_start == "anywhere"
        keeps_all = layout.min_doc_tokens <= 1 and layout.long_docs == "split" and not self._splits
        return not (plain and keeps_all)

    @cached_property
    def _key(self) -> str:
        splits = [split.key(self.store) for split in self._splits]
        return digest(canonical([VERSION, self.store.fingerprint, self._layout.as_dict(), splits]))[:24]

    def _making(self) -> Making:
        tally = Tally()
        parts = plan_rows(self.store, self._layout, chosen_by(self.store, self._splits), tally)

        def facts() -> dict[str, Any]:
            stats = asdict(tally.stats(self.seq_len))
            return {"store": self.store.fingerprint, "stream": tally.stream, "widths": tally.widths, "stats": stats}

        return columns_of(self._layout), parts, facts
