"""A store as one stream: every token has a place, from 0 to `num_tokens`, whatever shard it lies in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.errors import CorruptError
from tokenmill.store.store import Store

DOCUMENTS_AT_ONCE = 1 << 20
SHARDS_AT_ONCE = 256  # opening a file costs more than searching one
Places = npt.NDArray[np.int64]


class Documents(NamedTuple):
    """Some documents of one shard, in order: where each starts in the stream and its tokens."""

    shard: int
    first: int  # the first of them, counted in the shard
    starts: Places
    lengths: Places


def all_documents(store: Store) -> Iterator[Documents]:
    """All documents, some at a time: 16 bytes each, and only the shards' ends are read."""
    for shard, tokens in enumerate(store.manifest.shard_tokens):
        ends = store.ends_of(shard)
        base = store.token_starts[shard]
        if (int(ends[-1]) if len(ends) else 0) != tokens:
            raise _damaged(store, shard)
        previous = 0
        for first in range(0, len(ends), DOCUMENTS_AT_ONCE):
            some = ends[first : first + DOCUMENTS_AT_ONCE]
            lengths = np.diff(some, prepend=previous)
            if lengths.min() < 0:
                raise _damaged(store, shard)
            yield Documents(shard, first, some - lengths + base, lengths)
            previous = int(some[-1])


def slices(store: Store, starts: list[int], lengths: Iterable[int]) -> list[npt.NDArray[np.unsignedinteger]]:
    """Stretches of the stream, none of them empty. Not copied, but where one goes on in the next shard, and where there are
    more shards than may be open at once."""
    found = []
    touch = store.first_touch
    shard_starts, shard_ends, mapped, keeps_open = (
        store.token_starts,
        store.token_ends,
        store.mapped_ids,
        store.maps_all,
    )
    for start, length in zip(starts, lengths, strict=False):
        shard = bisect_right(shard_ends, start)  # over a list: for one value quicker than numpy's search
        local = start - shard_starts[shard]
        ids = mapped.get(shard)
        ids = store.ids_of(shard) if ids is None else ids
        part = ids[local : local + length]
        if touch is not None:
            touch.ids(shard, local, local + len(part), ids)
        if start + length > shard_ends[shard]:
            part = np.concatenate([part, *_following(store, shard + 1, length - len(part))])
        found.append(part if keeps_open else part.copy())
    return found


def _following(store: Store, shard: int, length: int) -> Iterator[npt.NDArray[np.unsignedinteger]]:
    while length:
        part = store.ids_of(shard)[:length]
        if store.first_touch is not None and len(part):
            store.first_touch.ids(shard, 0, len(part), store.ids_of(shard))
        yield part
        shard, length = shard + 1, length - len(part)


def ends_within(store: Store, starts: Places, stops: Places) -> tuple[Places, Places]:
    """Where documents end in each stretch, its own end included: how many ends in each, and all of them in order."""
    if len(store) <= DOCUMENTS_AT_ONCE and store.num_shards <= SHARDS_AT_ONCE:
        ends = store.stream_ends
        low, high = ends.searchsorted(starts, "right"), ends.searchsorted(stops, "right")
        counts = high - low
        return counts, ends[spread(low, counts)]
    found = [_ends_within(store, start, stop) for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    return np.array([len(part) for part in found], np.int64), np.concatenate(found) if found else np.empty(0, np.int64)


def spread(first: Places, counts: Places) -> Places:
    """The integers from each `first` on, as many as its count, one after the other."""
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(first - ends + counts, counts)


def _ends_within(store: Store, start: int, stop: int) -> Places:
    parts = []
    shard = bisect_right(store.token_ends, start)
    while start < stop:
        ends = store.ends_of(shard)
        shard_end, base = store.token_ends[shard], store.token_starts[shard]
        low, high = ends.searchsorted((start - base, min(stop, shard_end) - base), "right")
        parts.append(ends[low:high] + base)
        start, shard = shard_end, shard + 1
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _damaged(store: Store, shard: int) -> CorruptError:
    name = f"{store.manifest.shard_ids[shard]}.ends.npy"
    return CorruptError(f"{store.path}: shards/{name} is damaged; run: tokenmill verify {store.path} --repair")
