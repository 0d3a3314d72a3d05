"""Packing as plain Python, token by token over lists of documents: slow, and easy to believe.

Written from the contract, not from the package. A *cell* is (document, offset), one token of the corpus; a *piece* is
(document, start, stop); a row is a list of pieces. Everything is counted and looked up, nothing is computed by formula.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.documents import Tokens
from tokenmill.io.atomic import digest
from tokenmill.store.columns import columns_with
from tokenmill.store.manifest import Manifest, store_fingerprint
from tokenmill.store.shard import ShardWriter, content_digest
from tokenmill.store.sources import SOURCES, Sources

Document = list[int]
Cell = tuple[int, int]
Piece = tuple[int, int, int]
Row = list[Piece]
MASK_LABELS = -100
COUNTS = (
    "rows", "seq_len", "documents", "tokens", "positions", "padding", "truncated", "dropped", "repeated",
    "documents_split", "documents_truncated", "documents_dropped", "boundaries", "boundaries_per_row", "fill",
    "lengths",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of tm.pack that change a row, with the same defaults."""

    seq_len: int
    strategy: str = "concat"
    stride: int | None = None
    overlap: int | None = None
    tail: str = "keep"
    row_start: str = "anywhere"
    long_docs: str = "split"
    min_doc_tokens: int = 0
    buckets: tuple[int, ...] | None = None
    padding_side: str = "right"
    pad_id: int | None = None
    labels: str = "same"
    mask_labels: tuple[str, ...] = ("padding",)

    def arguments(self) -> dict[str, Any]:
        """For tm.pack: those that differ from the default, so that the defaults are under test as well."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}

    @property
    def step(self) -> int:
        if self.stride is not None:
            return self.stride
        return self.seq_len - (self.overlap or 0)


# Rows.


def existing(documents: Sequence[Document], o: Options) -> list[tuple[int, int]]:
    """(document, tokens of it that exist) of every document that passes the filter."""
    kept = []
    for number, document in enumerate(documents):
        n = len(document)
        if n < o.min_doc_tokens or (o.long_docs == "drop" and n > o.seq_len):
            continue
        if o.long_docs == "truncate" and n > o.seq_len:
            n = o.seq_len
        kept.append((number, n))
    return kept


def stream_of(documents: Sequence[Document], o: Options) -> list[Cell]:
    return [(number, offset) for number, n in existing(documents, o) for offset in range(n)]


def pieces_of(cells: Iterable[Cell]) -> Row:
    """Maximal stretches of one document."""
    row: Row = []
    for number, offset in cells:
        if row and row[-1][0] == number and row[-1][2] == offset:
            row[-1] = (number, row[-1][1], offset + 1)
        else:
            row.append((number, offset, offset + 1))
    return row


def cells_of(row: Row) -> list[Cell]:
    return [(number, offset) for number, start, stop in row for offset in range(start, stop)]


def rows_of(documents: Sequence[Document], o: Options) -> list[Row]:
    """The rows of concat, pad and windows, which are the only ones the contract allows."""
    length = o.seq_len
    rows: list[Row] = []
    if o.strategy == "concat":
        stream = stream_of(documents, o)
        at = 0
        while at < len(stream):
            cells = stream[at : at + length]
            if len(cells) < length and o.tail == "drop":
                break
            rows.append(pieces_of(cells))
            if o.row_start == "document":
                at += length
                while at < len(stream) and stream[at][1] > 0:
                    at += 1
            elif at + length >= len(stream):
                break
            else:
                at += o.step
    elif o.strategy == "pad":
        for number, n in existing(documents, o):
            rows += [[(number, start, min(start + length, n))] for start in range(0, n, length)]
        rows.sort(key=lambda row: width_of(row, o))
    elif o.strategy == "windows":
        for number, n in existing(documents, o):
            start = 0
            while start < n:
                rows.append([(number, start, min(start + length, n))])
                if start + length >= n:
                    break
                start += o.step
    else:
        raise ValueError(f"no single answer for {o.strategy}")
    return rows


def best_fit_rows(documents: Sequence[Document], o: Options) -> int:
    """How many rows best-fit decreasing makes; ties cannot change it, for rows with equal room are alike."""
    length = o.seq_len
    full = sum(n // length for _, n in existing(documents, o))
    rooms: list[int] = []
    for n in sorted((n % length for _, n in existing(documents, o) if n % length), reverse=True):
        fitting = [room for room in rooms if room >= n]
        if fitting:
            best = min(fitting)
            rooms[rooms.index(best)] = best - n
        else:
            rooms.append(length - n)
    return full + len(rooms)


def width_of(row: Row, o: Options) -> int:
    """How many positions a row takes by itself."""
    tokens = len(cells_of(row))
    return min(width for width in (*(o.buckets or ()), o.seq_len) if width >= tokens)


# Arrays.


def _followers(documents: Sequence[Document], o: Options, rows: Sequence[Row]) -> dict[Cell, Cell]:
    """For labels="shifted": the cell that follows a cell whatever row it is in, where there is one."""
    if o.strategy == "concat":
        stream = stream_of(documents, o)
        return dict(pairwise(stream))
    placed = {cell for row in rows for cell in cells_of(row)}
    return {(number, offset): (number, offset + 1) for number, offset in placed if (number, offset + 1) in placed}


def _label(o: Options, cells: list[Cell], at: int, followers: dict[Cell, Cell]) -> Cell | None:
    """The cell whose token is the label of cells[at]; None where the label is -100 in any case."""
    if o.labels == "same":
        return None if "first" in o.mask_labels and (at == 0 or cells[at - 1][0] != cells[at][0]) else cells[at]
    if o.strategy == "concat" and o.row_start == "document" and at == len(cells) - 1:
        return None
    follower = followers.get(cells[at])
    if follower is None and at + 1 < len(cells):
        follower = cells[at + 1]
    if "first" in o.mask_labels and follower is not None and follower[0] != cells[at][0]:
        return None
    return follower


def arrays_of(
    documents: Sequence[Document], o: Options, rows: Sequence[Row], wanted: Sequence[int], eos: int | None, masks: bool
) -> dict[str, Any]:
    """What view.rows(wanted) must give, as nested lists; block masks only if `masks`: they are slow to make."""
    followers = _followers(documents, o, rows)
    width = max((width_of(rows[i], o) for i in wanted), default=o.seq_len)
    pad = o.pad_id if o.pad_id is not None else (eos or 0)
    out: dict[str, Any] = {
        name: []
        for name in ("input_ids", "labels", "position_ids", "document_ids", "attention_mask", "document_mask",
                     "attention_mask_4d")
    }  # fmt: skip
    borders = [0]
    for i in wanted:
        cells = cells_of(rows[i])
        seen = _seen_before(o, rows, i)
        row = [_padding(o, pad) for _ in range(width)]
        shift = width - len(cells) if o.padding_side == "left" else 0
        piece, position = -1, 0
        for at, (number, offset) in enumerate(cells):
            if at and cells[at - 1][0] == number:
                position += 1
            else:
                piece, position = piece + 1, 0
            label = None if at < seen and "overlap" in o.mask_labels else _label(o, cells, at, followers)
            row[shift + at] = {
                "input_ids": documents[number][offset],
                "labels": MASK_LABELS if label is None else documents[label[0]][label[1]],
                "position_ids": position,
                "document_ids": piece,
                "attention_mask": 1,
            }
        for name in ("input_ids", "labels", "position_ids", "document_ids", "attention_mask"):
            out[name].append([cell[name] for cell in row])
        owners = out["document_ids"][-1]
        if masks:
            block = [[int(j <= i and owners[j] == owners[i] != -1) for j in range(width)] for i in range(width)]
            out["document_mask"].append(block)
            out["attention_mask_4d"].append([block])
        for at in range(1, width + 1):
            if at == width or owners[at] != owners[at - 1]:
                borders.append((len(out["input_ids"]) - 1) * width + at)
    out["cu_seqlens"] = borders
    out["max_seqlen"] = max((b - a for a, b in pairwise(borders)), default=0)
    return out


def _padding(o: Options, pad: int) -> dict[str, int]:
    label = MASK_LABELS if "padding" in o.mask_labels else pad
    return {"input_ids": pad, "labels": label, "position_ids": 0, "document_ids": -1, "attention_mask": 0}


def _seen_before(o: Options, rows: Sequence[Row], i: int) -> int:
    """How many of a row's first tokens the row before it held as well."""
    if i == 0 or o.strategy not in ("concat", "windows"):
        return 0
    before = set(cells_of(rows[i - 1]))
    return sum(cell in before for cell in cells_of(rows[i]))


# Figures.


def stats_of(documents: Sequence[Document], o: Options, rows: Sequence[Row]) -> dict[str, Any]:
    """Every figure of view.stats, counted from the rows."""
    times = Counter(cell for row in rows for cell in cells_of(row))
    exists = dict(existing(documents, o))
    truncated: Counter[int] = Counter()
    dropped: Counter[int] = Counter()
    placed: Counter[int] = Counter(number for number, _ in times)
    for number, document in enumerate(documents):
        if number not in exists:
            dropped[number] += len(document)
            continue
        truncated[number] += len(document) - exists[number]
        missing = exists[number] - placed[number]
        if o.row_start == "document" and placed[number]:
            truncated[number] += missing
        else:
            dropped[number] += missing
    whole = {
        number
        for row in rows
        for number in {piece[0] for piece in row}
        if sum(stop - start for document, start, stop in row if document == number) == placed[number]
    }
    positions = sum(width_of(row, o) for row in rows)
    padding = positions - times.total()
    boundaries = sum(len(row) - 1 for row in rows)
    return {
        "rows": len(rows),
        "seq_len": o.seq_len,
        "documents": len(documents),
        "tokens": sum(map(len, documents)),
        "positions": positions,
        "padding": padding,
        "truncated": truncated.total(),
        "dropped": dropped.total(),
        "repeated": sum(count - 1 for count in times.values()),
        "documents_split": sum(1 for number in placed if number not in whole),
        "documents_truncated": sum(1 for count in truncated.values() if count),
        "documents_dropped": len(documents) - len(exists) + sum(1 for d, n in exists.items() if n and not placed[d]),
        "boundaries": boundaries,
        "boundaries_per_row": boundaries / len(rows) if rows else 0.0,
        "fill": 1 - padding / positions if positions else 1.0,
        "lengths": histogram([len(document) for document in documents]),
    }


def histogram(lengths: Sequence[int]) -> list[tuple[int, int, int]]:
    """Documents per bin 0, 1, 2-3, 4-7, 8-15, ... up to the longest."""
    bins, low, high = [], 0, 0
    while lengths and low <= max(lengths):
        bins.append((low, high, sum(low <= n <= high for n in lengths)))
        low, high = high + 1, max(1, 2 * high + 1)
    return bins


# A store of documents that no tokenizer made.


def numbered(lengths: Iterable[int], first: int = 1) -> list[Document]:
    """Documents of these lengths in which no id comes twice, so that a token in the wrong place shows."""
    documents, at = [], first
    for n in lengths:
        documents.append(list(range(at, at + n)))
        at += n
    return documents


def write_store(
    folder: Path,
    shards: Sequence[Sequence[tuple[str, Sequence[Document]]]],
    dtype: str = "uint16",
    vocab_size: int | None = None,
    eos: int | None = 0,
) -> Path:
    """A store whose shards hold pieces of files: (file, documents), in the order given. A file may go on in the next."""
    receipts, row_starts = [], []
    rows: Counter[str] = Counter()
    for at, pieces in enumerate(shards):
        documents = [document for _, part in pieces for document in part]
        writer = ShardWriter(folder / "shards", f"{at:024x}", np.dtype(dtype))
        flat = np.array([i for document in documents for i in document], dtype)
        writer.append(Tokens(flat, np.cumsum([len(document) for document in documents], dtype=np.int64)))
        facts = [{"content": None, "rows": len(part), "documents": len(part)} for _, part in pieces]
        receipts.append(writer.commit(pieces=facts, text_bytes=0))
        row_starts.append(rows[pieces[0][0]] if pieces else 0)
        rows.update({file: len(part) for file, part in pieces})
    runs = [(file, len(list(run))) for file, run in groupby(file for pieces in shards for file, _ in pieces)]
    names = Sources([file for file, _ in runs], [count for _, count in runs], list(map(len, shards)))
    (folder / SOURCES).write_bytes(names.as_bytes())
    tokenizer = {"name": "none", "fingerprint": "f" * 32, "vocab_size": vocab_size or (1 << (16 if dtype == "uint16" else 18)),
                 "engine": "tokenizers", "engine_version": "0", "proof": "", "eos_id": eos, "bos_id": None}  # fmt: skip
    Manifest(
        options={"eos": eos, "bos": None},
        source={"inputs": [], "files": len(rows), "on_error": "quarantine"},
        tokenizer=tokenizer,
        columns=columns_with(dtype),
        complete=True,
        documents=sum(receipt["documents"] for receipt in receipts),
        tokens=sum(receipt["tokens"] for receipt in receipts),
        shard_ids=[receipt["id"] for receipt in receipts],
        shard_documents=[receipt["documents"] for receipt in receipts],
        shard_tokens=[receipt["tokens"] for receipt in receipts],
        row_starts=row_starts,
        receipts=[digest((folder / "shards" / f"{receipt['id']}.json").read_bytes()) for receipt in receipts],
        fingerprint=store_fingerprint("f" * 32, [None, eos], dtype, list(map(content_digest, receipts))),
    ).write(folder)
    return folder


def spread(documents: Sequence[Document], cuts: Sequence[int] = ()) -> list[list[tuple[str, list[Document]]]]:
    """Documents of one file, in shards that end at `cuts`."""
    borders = [0, *sorted(min(cut, len(documents)) for cut in cuts), len(documents)]
    return [[("corpus.txt", list(documents[a:b]))] for a, b in pairwise(borders)]
