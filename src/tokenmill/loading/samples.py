"""Sample g of a run: which row of which view. A pure function of its number."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import xxhash

from tokenmill.loading.mixture import Mixture
from tokenmill.loading.order import Numbers, Order, mixed
from tokenmill.packing import View
from tokenmill.packing.layout import RowFormat
from tokenmill.packing.rows import Arrays


class Samples(Protocol):
    """An endless sequence of rows."""

    data: View | Mixture
    fingerprint: str
    seq_len: int
    look: RowFormat
    buckets: bool  # whether rows have several widths

    def __len__(self) -> int:
        """Samples of an epoch."""
        ...

    def places(self, start: int, stop: int) -> Numbers:
        """Where samples `start` to `stop` are: numbers along the last axis."""
        ...

    def take(self, places: Numbers) -> Arrays:
        """The rows at these places, stacked."""
        ...

    def epochs(self, samples: int) -> dict[str, float]:
        """How often each source was gone through, after so many samples."""
        ...


class OneView:
    """One view, epoch after epoch."""

    def __init__(self, view: View, seed: int, shuffle: bool) -> None:
        self.data: View | Mixture = view
        self.view = view
        self.fingerprint, self.seq_len, self.look = view.fingerprint, view.seq_len, view.look
        self.buckets = bool(view.layout.buckets)
        self.order = Order(len(view), seed, shuffle)

    def __len__(self) -> int:
        return len(self.view)

    def places(self, start: int, stop: int) -> Numbers:
        return self.order.rows(start, stop)

    def take(self, places: Numbers) -> Arrays:
        return self.view.rows(places)

    def epochs(self, samples: int) -> dict[str, float]:
        return {"all": samples / len(self.view)}


class Mixed:
    """A mixture: each source goes through epochs of its own."""

    def __init__(self, mixture: Mixture, seed: int, shuffle: bool) -> None:
        self.data: View | Mixture = mixture
        self.mixture, self.views = mixture, list(mixture.views.values())
        self.fingerprint, self.seq_len, self.look = mixture.fingerprint, self.views[0].seq_len, self.views[0].look
        self.buckets = False
        self.orders = [
            Order(len(view), mixed(seed & (1 << 64) - 1 ^ xxhash.xxh3_64_intdigest(name.encode())), shuffle)
            for name, view in mixture.views.items()
        ]

    def __len__(self) -> int:
        return len(self.mixture)

    def epochs(self, samples: int) -> dict[str, float]:
        counts = self.mixture.counts(samples)
        return {name: counts[name] / len(view) if len(view) else 0.0 for name, view in self.mixture.views.items()}

    def places(self, start: int, stop: int) -> Numbers:
        sources, rows = self.mixture.sources(start, stop), np.empty(stop - start, np.int64)
        for source, first in enumerate(self.mixture.before(start).tolist()):
            mine = np.flatnonzero(sources == source)
            rows[mine] = self.orders[source].rows(first, first + len(mine))
        return np.stack((sources, rows))

    def take(self, places: Numbers) -> Arrays:
        sources, rows = places
        parts: list[tuple[Any, Arrays]] = []
        for source in np.unique(sources).tolist():
            mine = np.flatnonzero(sources == source)
            parts.append((mine, self.views[source].rows(rows[mine])))
        if len(parts) <= 1:
            return parts[0][1] if parts else self.views[0].rows([])
        return {name: _joined(name, parts, len(rows), self.seq_len) for name in parts[0][1]}


def _joined(name: str, parts: list[tuple[Any, Arrays]], count: int, width: int) -> Any:
    """The rows of several sources, each in its place."""
    if name == "max_seqlen":
        return max(arrays[name] for _, arrays in parts)
    if name == "cu_seqlens":
        borders = [rows[arrays[name][:-1] // width] * width + arrays[name][:-1] % width for rows, arrays in parts]
        return np.append(np.sort(np.concatenate(borders)), count * width).astype(np.int32)
    first = parts[0][1][name]
    joined = np.empty((count, *first.shape[1:]), first.dtype)
    for rows, arrays in parts:
        joined[rows] = arrays[name]
    return joined
