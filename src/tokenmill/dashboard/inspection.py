"""What is in a store: lengths, tokens, files, packings, documents. Counted when first asked for, and within limits.

A store may be of any size and a page must not wait long, so lengths and frequencies of large stores come from a part of the
shards, spread evenly, and the result says how much was looked at.
"""

from __future__ import annotations

import json
import os
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import accumulate, islice
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.documents import BLANK
from tokenmill.io import disk
from tokenmill.packing.comparison import Packed, compare_counts
from tokenmill.packing.stats import Tally
from tokenmill.packing.strategies import WINDOW
from tokenmill.store.facts import info
from tokenmill.store.side_files import QUARANTINE, side_file
from tokenmill.store.store import Store
from tokenmill.store.stream import Documents

MOST_SHARDS = 500  # whose lengths are looked at
MOST_TOKENS = 50_000_000  # that are counted
SLICE = 1 << 18  # tokens counted together
QUICK_DOCUMENTS = 20_000  # that are packed while a slider moves
SEARCH_SECONDS = 2.0
SEARCH_TOKENS = 1 << 20  # decoded together
SNIPPET = 120  # characters on each side of what was found
SORTED_BY = ("tokens", "bytes_per_token", "documents", "quarantined", "file")  # of FileCounts


class FileCounts(NamedTuple):
    """What an input file became."""

    file: str
    first: int  # number of its first document
    documents: int
    tokens: int
    text_bytes: int
    quarantined: int
    has_failed: bool = False  # what of it could not be read is not in the store

    @property
    def bytes_per_token(self) -> float:
        return self.text_bytes / self.tokens if self.tokens else 0.0


class Lengths(NamedTuple):
    """How many documents have how many tokens: (low, high, documents), and how many documents were looked at."""

    bins: list[tuple[int, int, int]]
    looked_at: int
    mean: float


class Frequencies(NamedTuple):
    """The most frequent tokens: (id, count), and how many tokens were looked at."""

    counts: list[tuple[int, int]]
    looked_at: int
    distinct: int


class Found(NamedTuple):
    """A document in which something was found, with the text around it."""

    document: int
    before: str
    match: str
    after: str


class Inspection:
    """A finished store, looked at from several threads."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lock = RLock()
        self._packed = lru_cache(256)(self._pack)
        self._documents = lru_cache(4)(self._documents_of)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What `tokenmill info` shows."""
        return info(self.store.path)

    def token_text(self, token: int) -> str:
        """The text of a token within a document: at the start of one, some tokenizers leave out a space."""
        text = self.store.tokenizer.decode_bytes(np.array([token, token]), 1, 2)
        return text.decode("utf-8", "replace")

    def lengths(self) -> Lengths:
        with self._lock:
            return self._lengths

    @cached_property
    def _lengths(self) -> Lengths:
        tally = Tally()
        for shard in spread(self.store.num_shards, MOST_SHARDS):
            tally.add_documents(np.diff(self.store._ends_of(shard), prepend=0))
        return Lengths(tally.stats(1).lengths, tally.documents, tally.tokens / max(tally.documents, 1))

    def frequencies(self, most: int) -> Frequencies:
        with self._lock:
            counts = self._counts
        chosen = np.argsort(-counts, kind="stable")[:most]
        pairs = [(int(token), int(counts[token])) for token in chosen if counts[token]]
        return Frequencies(pairs, int(counts.sum()), int((counts > 0).sum()))

    @cached_property
    def _counts(self) -> npt.NDArray[np.int64]:
        store = self.store
        counts = np.zeros(max(store._manifest.tokenizer["vocab_size"], 1), np.int64)
        slices = -(-store.num_tokens // SLICE)
        for number in spread(slices, MOST_TOKENS // SLICE):
            for ids in _token_slice(store, number * SLICE, min((number + 1) * SLICE, store.num_tokens)):
                counts += np.bincount(ids[ids < len(counts)], minlength=len(counts))
        return counts

    @cached_property
    def folder(self) -> str:
        """The folder of all input files, with a slash at its end; empty if they have none in common."""
        names = self.store.input_files
        common = os.path.commonprefix([min(names), max(names)]) if names else ""  # noqa: RUF071
        return common[: common.rfind("/") + 1]

    def short_name(self, file: str) -> str:
        """The name of an input file within the folder of all of them."""
        return file.removeprefix(self.folder) or file

    def files(self, sort: str, search: str, first: int, count: int) -> tuple[list[FileCounts], int]:
        """Input files whose names hold a text, case ignored, in one of the orders of SORTED_BY; and how many there are."""
        with self._lock:
            files, names, order = self._files, self._file_names, self._file_orders[sort]
        if search:
            holds = pc.match_substring(names, search, ignore_case=True)
            order = order[holds.to_numpy(zero_copy_only=False)[order]]
        return [files[number] for number in order[first : first + count]], len(order)

    @cached_property
    def _file_names(self) -> Any:
        """As one array: a hundred thousand are searched in some milliseconds."""
        return pa.array([each.file.encode("utf-8", "replace").decode() for each in self._files], pa.string())

    @cached_property
    def _file_orders(self) -> dict[str, npt.NDArray[np.int64]]:
        """The numbers of all files in every order."""
        files = self._files
        orders = {
            key: np.argsort([-getattr(each, key) for each in files], kind="stable")
            for key in SORTED_BY
            if key != "file"
        }
        return orders | {"file": np.array(sorted(range(len(files)), key=lambda number: files[number].file), np.int64)}

    @cached_property
    def _files(self) -> list[FileCounts]:
        """From the receipts: some milliseconds for a hundred of them."""
        store, found, document = self.store, dict[str, FileCounts](), 0
        for shard in range(store.num_shards):
            for piece in store._pieces(shard):
                skipped = sum(count for _, count, reason, _ in piece.get("skips", ()) if reason != BLANK)
                name = piece["file"]
                before = found.get(name) or FileCounts(name, document, 0, 0, 0, 0)
                found[name] = before._replace(
                    documents=before.documents + piece["documents"],
                    tokens=before.tokens + piece["tokens"],
                    text_bytes=before.text_bytes + piece["text_bytes"],
                    quarantined=before.quarantined + skipped,
                )
                document += piece["documents"]
        for name in (each["file"] for each in store.failed):
            found[name] = found.get(name, FileCounts(name, 0, 0, 0, 0, 0))._replace(has_failed=True)
        return list(found.values())

    def packed(self, seq_len: int, *, quick: bool) -> tuple[list[Packed], int]:
        """Every strategy at this length, and how many documents that was counted from."""
        with self._lock:
            countable = self._countable(seq_len)
            return self._packed(seq_len, min(QUICK_DOCUMENTS, countable) if quick else countable)

    def _countable(self, seq_len: int) -> int:
        """All documents if their pieces are packed together; or how many, in a power of two, so that few parts are kept."""
        documents = len(self.store)
        pieces = documents + self.store.num_tokens // max(seq_len // 2, 1)
        return documents if pieces < WINDOW else 1 << max((documents * WINDOW // pieces).bit_length() - 1, 0)

    def _pack(self, seq_len: int, documents: int) -> tuple[list[Packed], int]:
        part = self._documents(documents)
        return compare_counts(part, seq_len), len(part.lengths)

    def _documents_of(self, most: int) -> Documents:
        """All documents, or if there are more than `most`, those of some shards, spread evenly, end to end."""
        store = self.store
        fewer = max(1, most * store.num_shards // max(len(store), 1))
        shards = spread(store.num_shards, store.num_shards if len(store) <= most else fewer)
        parts = [np.diff(store._ends_of(shard), prepend=0) for shard in shards]
        lengths = np.concatenate(parts) if parts else np.empty(0, np.int64)
        return Documents(0, 0, np.cumsum(lengths) - lengths, lengths)

    def quarantined(self, reason: str, first: int, count: int) -> list[tuple[int, dict[str, Any]]]:
        """Quarantined documents with their numbers, of one reason or of all."""
        entries = enumerate(self._quarantine())
        chosen = (entry for entry in entries if not reason or entry[1]["reason"] == reason)
        return list(islice(chosen, first, first + count))

    def quarantined_entry(self, number: int) -> dict[str, Any] | None:
        return next(islice(self._quarantine(), number, None), None) if number >= 0 else None

    def _quarantine(self) -> Iterator[dict[str, Any]]:
        path = side_file(self.store.path, self.store._manifest, QUARANTINE)
        if not path.exists():
            return
        with disk.open_to_read(path) as lines:
            for line in lines:
                yield json.loads(line)

    def search(self, text: str, first: int, most: int) -> tuple[list[Found], int]:
        """Documents from `first` on that hold a text, case ignored; and where to go on. Takes about two seconds."""
        deadline, found, wanted = time.monotonic() + SEARCH_SECONDS, list[Found](), text.lower()
        document = first
        for start, stop in self._stretches(first):
            found += islice(self._search_in(start, stop, wanted), most + 1 - len(found))
            document = stop
            if len(found) >= most or time.monotonic() > deadline:
                break
        if len(found) > most:
            document = found[most].document
        return found[:most], document

    def _stretches(self, first: int) -> Iterator[tuple[int, int]]:
        """Ranges of documents of one shard, each of about as many tokens."""
        before = 0
        for shard in range(self.store.num_shards):
            count = self.store._manifest.shard_documents[shard]
            local = max(first - before, 0)
            while local < count:
                ends = self.store._ends_of(shard)
                begin = int(ends[local - 1]) if local else 0
                stop = max(local + 1, int(ends.searchsorted(begin + SEARCH_TOKENS, "right")))
                yield before + local, before + min(stop, count)
                local = stop
            before += count

    def _search_in(self, start: int, stop: int, wanted: str) -> Iterator[Found]:
        """Decodes all documents of a range at once, and only if the text is in there, the halves of the range."""
        ids = self.store[start:stop]
        if not ids or wanted not in self.store.tokenizer.decode(np.concatenate(ids)).lower():
            return
        if stop - start > 1:
            middle = (start + stop) // 2
            yield from self._search_in(start, middle, wanted)
            yield from self._search_in(middle, stop, wanted)
            return
        text = self.store.text(start)
        at, end = find_lower(text, wanted)
        if at >= 0:
            yield Found(start, text[max(0, at - SNIPPET) : at], text[at:end], text[end : end + SNIPPET])


def spread(count: int, most: int) -> list[int]:
    """At most so many numbers below `count`, evenly spread."""
    return list(range(count)) if count <= most else [number * count // most for number in range(most)]


def find_lower(text: str, wanted: str) -> tuple[int, int]:
    """Where a text in lower case is, case ignored: its start and its end; -1 if it is not there."""
    lower = text.lower()
    at = lower.find(wanted)
    end = at + len(wanted)
    if at < 0 or len(lower) == len(text):
        return at, end
    ends = list(accumulate(len(character.lower()) for character in text))  # some become two, as İ
    return bisect_right(ends, at), bisect_left(ends, end) + 1


def _token_slice(store: Store, start: int, stop: int) -> Iterator[npt.NDArray[Any]]:
    """The tokens of a range of the stream."""
    while start < stop:
        shard = int(np.searchsorted(store._token_ends, start, "right"))
        end = min(stop, store._token_ends[shard])
        yield store._ids_of(shard)[start - store._token_starts[shard] : end - store._token_starts[shard]]
        start = end
