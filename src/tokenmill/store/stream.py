"""A store as one stream of tokens: positions run from 0 to `num_tokens` across all shards."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.errors import CorruptError, UsageError
from tokenmill.store.checksums import repair_hint
from tokenmill.store.columns import ENDS, IDS, column_path
from tokenmill.store.store import Store

DOCUMENTS_AT_ONCE = 1 << 20
SHARDS_AHEAD = 4  # of a store in a bucket, fetched before they are read
SHARDS_AT_ONCE = 256  # above this, opening the ends of all shards costs more than searching some of them
Places = npt.NDArray[np.int64]


class Documents(NamedTuple):
    """Consecutive documents of one shard: where each starts in the stream, and its number of tokens."""

    shard: int
    first: int  # the number of the first one in the shard
    starts: Places
    lengths: Places


def all_documents(store: Store, first_shard: int = 0) -> Iterator[Documents]:
    """All documents, or those from a shard on, up to a million at a time. Reads only ends; memory is 16 bytes per document."""
    for shard in range(first_shard, store.num_shards):
        tokens = store._manifest.shard_tokens[shard]
        ends = store._ends_of(shard)
        base = store._token_starts[shard]
        if (int(ends[-1]) if len(ends) else 0) != tokens:
            raise _damaged_ends(store, shard)
        previous = 0
        for first in range(0, len(ends), DOCUMENTS_AT_ONCE):
            part = ends[first : first + DOCUMENTS_AT_ONCE]
            lengths = np.diff(part, prepend=previous)
            if lengths.min() < 0:
                raise _damaged_ends(store, shard)
            yield Documents(shard, first, part - lengths + base, lengths)
            previous = int(part[-1])


def slices(
    store: Store, starts: list[int], lengths: Iterable[int], column: str = IDS
) -> list[npt.NDArray[np.unsignedinteger]]:
    """The values of a per-token column in non-empty ranges of the stream.

    A slice is a view, except where a range crosses into another shard, or where not all shards can be mapped at once.
    """
    if store._spec(column).per != "token":
        raise UsageError(f"column {column!r} of {store.name} has no value per token")
    if store.url is not None:
        return _slices_by_shard(store, starts, list(lengths), column)
    return _slices(store, starts, lengths, column)


def _slices_by_shard(store: Store, starts: list[int], lengths: list[int], column: str) -> list[npt.NDArray[Any]]:
    """The same of a store in a bucket: shard after shard, while the next ones are fetched."""
    order = sorted(range(len(starts)), key=starts.__getitem__)
    shards = [bisect_right(store._token_ends, starts[i]) for i in order]
    needed = sorted(set(shards))
    parts: list[npt.NDArray[Any]] = [np.empty(0)] * len(starts)
    ahead = iter(needed)
    last = None
    store._fetch_ahead(column, list(islice(ahead, SHARDS_AHEAD)))
    for i, shard in zip(order, shards, strict=True):
        if shard != last:
            last = shard
            store._fetch_ahead(column, list(islice(ahead, 1)))
        (parts[i],) = _slices(store, [starts[i]], [lengths[i]], column)
    return parts


def _slices(store: Store, starts: list[int], lengths: Iterable[int], column: str) -> list[npt.NDArray[Any]]:
    parts = []
    shard_starts, shard_ends, maps_all = store._token_starts, store._token_ends, store._maps_all
    mapped = store._mapped[column]
    touch = store._first_touch[column] if store._first_touch is not None else None
    for start, length in zip(starts, lengths, strict=False):
        shard = bisect_right(shard_ends, start)  # on a list: faster than numpy for one value
        local = start - shard_starts[shard]
        values = mapped.get(shard)
        values = store.column(column, shard) if values is None else values
        part = values[local : local + length]
        if touch is not None:
            touch.check(shard, local, local + len(part), values)
        if start + length > shard_ends[shard]:
            part = np.concatenate([part, *_following(store, column, shard + 1, length - len(part))])
        parts.append(part if maps_all else part.copy())
    return parts


def _following(store: Store, column: str, shard: int, length: int) -> Iterator[npt.NDArray[Any]]:
    """The next `length` values, from the start of a shard on."""
    while length:
        values = store.column(column, shard)
        part = values[:length]
        if store._first_touch is not None and len(part):
            store._first_touch[column].check(shard, 0, len(part), values)
        yield part
        shard, length = shard + 1, length - len(part)


def ends_within(store: Store, starts: Places, stops: Places) -> tuple[Places, Places]:
    """Where documents end in each range (start excluded, stop included): the number of ends, and all ends in order."""
    if len(store) <= DOCUMENTS_AT_ONCE and store.num_shards <= SHARDS_AT_ONCE:
        ends = store.stream_ends
        low, high = ends.searchsorted(starts, "right"), ends.searchsorted(stops, "right")
        counts = high - low
        return counts, ends[spread(low, counts)]
    parts = [_ends_within(store, start, stop) for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    return np.array([len(part) for part in parts], np.int64), np.concatenate(parts) if parts else np.empty(0, np.int64)


def spread(first: Places, counts: Places) -> Places:
    """The ranges `first[i] .. first[i] + counts[i]`, concatenated."""
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(first - ends + counts, counts)


def _ends_within(store: Store, start: int, stop: int) -> Places:
    parts = []
    shard = bisect_right(store._token_ends, start)
    while start < stop:
        ends = store._ends_of(shard)
        shard_end, base = store._token_ends[shard], store._token_starts[shard]
        low, high = ends.searchsorted((start - base, min(stop, shard_end) - base), "right")
        parts.append(ends[low:high] + base)
        start, shard = shard_end, shard + 1
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _damaged_ends(store: Store, shard: int) -> CorruptError:
    path = column_path(store.path / "shards", store._manifest.shard_ids[shard], ENDS)
    return CorruptError(f"{path} is damaged; {repair_hint(store.path)}")
