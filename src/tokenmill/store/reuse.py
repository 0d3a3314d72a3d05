"""Reusing finished shards in another store: a whole shard as a hard link, or pieces of it as copies."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.documents import Tokens
from tokenmill.io.atomic import temporary_path
from tokenmill.store.columns import ENDS, IDS, ColumnSpec, column_path, open_column, shard_paths
from tokenmill.store.shard import check_shard, has_columns, read_receipt


def link_shard(source: Path, target: Path, shard_id: str, columns: Sequence[ColumnSpec]) -> None:
    """Link the files of a finished shard into another folder, the receipt last. Copies them where links do not work."""
    for path in shard_paths(source, shard_id, columns):
        link = target / path.name
        link.unlink(missing_ok=True)
        try:
            os.link(path, link)
        except OSError:
            temporary = temporary_path(link)
            shutil.copyfile(path, temporary)
            os.replace(temporary, link)


@dataclass(slots=True)
class PieceReader:
    """A finished shard to copy pieces from. `pieces` are the entries of its receipt."""

    pieces: list[dict[str, Any]]
    _columns: Sequence[ColumnSpec]
    _values: dict[str, npt.NDArray[Any]]
    _first_documents: list[int]
    _first_tokens: list[int]

    @classmethod
    def open(cls, shard: Path, columns: Sequence[ColumnSpec]) -> PieceReader | None:
        """Open the shard `folder/id` and compare it with its checksums, so that a copy does not hide damage.

        None if the shard is missing or damaged, or has other columns.
        """
        folder, shard_id = shard.parent, shard.name
        receipt = read_receipt(folder, shard_id)
        if receipt is None or not has_columns(receipt, columns) or check_shard(folder, receipt):
            return None
        pieces, entries = receipt["pieces"], receipt["columns"]
        values = {
            column.name: open_column(
                column_path(folder, shard_id, column.name), np.dtype(column.dtype), entries[column.name]["length"]
            )
            for column in columns
        }
        return cls(
            pieces,
            columns,
            values,
            [0, *accumulate(piece["documents"] for piece in pieces)],
            [0, *accumulate(piece["tokens"] for piece in pieces)],
        )

    def tokens(self, number: int) -> Tokens:
        """All columns of one piece, as views. The ends count from the start of the piece."""
        ranges = {
            "token": slice(*self._first_tokens[number : number + 2]),
            "document": slice(*self._first_documents[number : number + 2]),
        }
        parts = {column.name: self._values[column.name][ranges[column.per]] for column in self._columns}
        return Tokens(parts.pop(IDS), parts.pop(ENDS) - self._first_tokens[number], columns=parts)
