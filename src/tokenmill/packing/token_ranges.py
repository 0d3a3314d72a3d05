"""Many ranges of a store's tokens at once, for rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.packing.best_fit import Numbers
from tokenmill.store.columns import IDS
from tokenmill.store.store import Store
from tokenmill.store.stream import slices


class TokenRanges:
    """Reads ranges of the stream of all tokens. The shards of all ranges are found in one search."""

    def __init__(self, store: Store) -> None:
        self.store = store
        shards = store.num_shards if store._maps_all else 0  # otherwise these two are not needed
        self._shard_starts = np.array(store._token_starts[:shards], np.int64)
        self._shard_ends = np.array(store._token_ends[:shards], np.int64)

    def slices(self, starts: Numbers, lengths: Numbers) -> list[npt.NDArray[Any]]:
        """The tokens of each of these ranges, none of which is empty: a view of the mapped shard where that is possible."""
        store, stops = self.store, starts + lengths
        if not store._maps_all or store.url is not None:
            return slices(store, starts.tolist(), lengths.tolist())
        shards = self._shard_ends.searchsorted(starts, "right")
        before, ends = self._shard_starts[shards], self._shard_ends[shards]
        numbers, lows, highs = shards.tolist(), (starts - before).tolist(), (np.minimum(stops, ends) - before).tolist()
        mapped = store._mapped[IDS]
        for shard in set(numbers).difference(mapped):
            store.column(IDS, shard)
        if store._first_touch is not None:
            store._first_touch[IDS].check_ranges(numbers, lows, highs, mapped)
        parts = [mapped[shard][low:high] for shard, low, high in zip(numbers, lows, highs, strict=True)]
        for i in np.flatnonzero(stops > ends).tolist():  # these cross into another shard
            parts[i] = slices(store, [int(starts[i])], [int(lengths[i])])[0]
        return parts
