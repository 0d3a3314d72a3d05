"""Reusing finished shards in another store: a whole shard as a hard link, or pieces of it as copies."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.documents import Tokens
from tokenmill.io import disk
from tokenmill.io.atomic import replacing
from tokenmill.store.columns import ENDS, IDS, ColumnSpec, column_path, open_column, shard_paths
from tokenmill.store.shard import Receipt, check_shard, has_columns, read_receipt


def link_shard(source: Path, target: Path, shard_id: str, columns: Sequence[ColumnSpec]) -> None:
    """Link the files of a finished shard into another folder, the receipt last. Copies them where links do not work."""
    for path in shard_paths(source, shard_id, columns):
        link = target / path.name
        disk.unlink(link)
        try:
            disk.link(path, link)
        except OSError:
            with disk.open_to_read(path) as original, replacing(link) as copy:
                shutil.copyfileobj(original, copy, 1 << 20)


class PieceReader:
    """A finished shard to copy pieces from. `pieces` are the entries of its receipt."""

    def __init__(self, folder: Path, receipt: Receipt, columns: Sequence[ColumnSpec]) -> None:
        self.pieces: list[dict[str, Any]] = receipt["pieces"]
        self._columns = columns
        self._values = {
            column.name: open_column(
                column_path(folder, receipt["id"], column.name),
                np.dtype(column.dtype),
                receipt["columns"][column.name]["length"],
            )
            for column in columns
        }
        self._first_documents = [0, *accumulate(piece["documents"] for piece in self.pieces)]
        self._first_tokens = [0, *accumulate(piece["tokens"] for piece in self.pieces)]

    @classmethod
    def open(cls, shard: Path, columns: Sequence[ColumnSpec]) -> PieceReader | None:
        """Open the shard `folder/id` and compare it with its checksums, so that a copy does not hide damage.

        None if the shard is missing or damaged, or has other columns.
        """
        receipt = read_receipt(shard.parent, shard.name)
        if receipt is None or not has_columns(receipt, columns) or check_shard(shard.parent, receipt):
            return None
        return cls(shard.parent, receipt, columns)

    def tokens(self, number: int) -> Tokens:
        """All columns of one piece, as views. The ends count from the start of the piece."""
        ranges = {
            "token": slice(*self._first_tokens[number : number + 2]),
            "document": slice(*self._first_documents[number : number + 2]),
        }
        parts = {column.name: self._values[column.name][ranges[column.per]] for column in self._columns}
        return Tokens(parts.pop(IDS), parts.pop(ENDS) - self._first_tokens[number], columns=parts)
