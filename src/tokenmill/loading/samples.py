"""The sequence of samples of a run. The view and row of a sample are a pure function of its number."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash

from tokenmill.io.atomic import canonical, digest
from tokenmill.loading.mixture import Mixture
from tokenmill.loading.order import Numbers, Order
from tokenmill.packing import View
from tokenmill.packing.hashing import splitmix64
from tokenmill.packing.rows import Arrays, PreparedRows

if TYPE_CHECKING:
    import torch

    # What it is where torch is installed, but for the number max_seqlen beside cu_seqlens.
    Batch = dict[str, torch.Tensor]
else:
    Batch = Arrays


class Span(NamedTuple):
    """The samples of a global batch, and the number of samples seen after it, which includes a dropped rest of the pass."""

    start: int
    stop: int
    seen: int


def data_facts(views: list[View], stages: Any = None) -> dict[str, Any]:
    """What decides the rows, part by part: a state that does not fit can say which part differs. Digests are shortened."""
    layouts, formats = [view._layout for view in views], [view._row_format for view in views]
    others = [
        {**layout.as_dict(), "stride": layout.seq_len - layout.stride, "seq_len": None, "strategy": None}
        for layout in layouts
    ]
    values = [[each.padding_side, each.pad_id, each.labels, each.mask_labels] for each in formats]
    return {
        "store": _short([view.store.fingerprint for view in views]),
        "seq_len": layouts[0].seq_len,
        "strategy": layouts[0].strategy,
        "packing": _short([others, values]),
        "split": _short([[split.key(view.store) for split in view._splits] for view in views]),
        "mixture": _short(stages),
    }


def _short(value: Any) -> str:
    return digest(canonical(value))[:8]


class ViewSamples:
    """The rows of one view, epoch after epoch."""

    def __init__(self, view: View, seed: int, *, shuffle: bool) -> None:
        self.data = self.view = view
        self.fingerprint, self.seq_len, self.row_format = view.fingerprint, view.seq_len, view._row_format
        self.order = Order(len(view), seed, shuffle=shuffle)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What decides the rows, part by part."""
        return data_facts([self.view])

    def __len__(self) -> int:
        """Samples per epoch."""
        return len(self.view)

    def places(self, start: int, stop: int) -> Numbers:
        """The places of samples `start` to `stop`, along the last axis."""
        return self.order.rows(start, stop)

    def prepared(self, places: Numbers) -> PreparedRows:
        """The rows at these places."""
        return self.view._prepared(places)

    def epochs(self, samples: int) -> dict[str, float]:
        """The epochs of each source after this many samples."""
        return {"all": samples / len(self.view)}


class MixtureSamples:
    """The rows of a mixture, with the methods of ViewSamples. Each source has epochs of its own."""

    def __init__(self, mixture: Mixture, seed: int, *, shuffle: bool) -> None:
        self.data = self.mixture = mixture
        self.views = list(mixture.views.values())
        first = self.views[0]
        self.fingerprint, self.seq_len, self.row_format = mixture.fingerprint, first.seq_len, first._row_format
        self.orders = [
            Order(len(view), _source_seed(seed, name), shuffle=shuffle) for name, view in mixture.views.items()
        ]

    @cached_property
    def facts(self) -> dict[str, Any]:
        return data_facts(self.views, [list(self.mixture.views), self.mixture.stages])

    def __len__(self) -> int:
        return len(self.mixture)

    def epochs(self, samples: int) -> dict[str, float]:
        counts = self.mixture.counts(samples)
        return {name: counts[name] / len(view) if len(view) else 0.0 for name, view in self.mixture.views.items()}

    def places(self, start: int, stop: int) -> Numbers:
        sources, rows = self.mixture._sources(start, stop), np.empty(stop - start, np.int64)
        for source, first in enumerate(self.mixture._before(start).tolist()):
            mine = np.flatnonzero(sources == source)
            rows[mine] = self.orders[source].rows(first, first + len(mine))
        return np.stack((sources, rows))

    def prepared(self, places: Numbers) -> PreparedMixture:
        return PreparedMixture(self.views, *places)


class PreparedMixture:
    """Rows of several views, with the methods of PreparedRows."""

    def __init__(self, views: list[View], sources: Numbers, rows: Numbers) -> None:
        self.width = views[0].seq_len
        self.parts = []  # the places of the rows of each view, and these rows
        for source in np.unique(sources).tolist() or [0]:
            mine = np.flatnonzero(sources == source)
            self.parts.append((mine, views[source]._prepared(rows[mine])))

    def arrays(self, low: int, high: int) -> Arrays:
        made: list[tuple[Numbers, Arrays]] = []
        for mine, rows in self.parts:
            first, last = mine.searchsorted((low, high)).tolist()
            if last > first:
                made.append((mine[first:last] - low, rows.arrays(first, last)))
        if len(made) <= 1:
            return made[0][1] if made else self.parts[0][1].arrays(0, 0)
        return {name: _joined(name, made, high - low, self.width) for name in made[0][1]}


Samples = ViewSamples | MixtureSamples
PreparedSamples = PreparedRows | PreparedMixture


def _source_seed(seed: int, name: str) -> int:
    """A seed for each source. Frozen: resumed runs depend on it."""
    name_hash: int = xxhash.xxh3_64_intdigest(name.encode())
    return splitmix64(seed & (1 << 64) - 1 ^ name_hash)


def _joined(name: str, parts: list[tuple[Any, Arrays]], count: int, width: int) -> Any:
    """One array from the rows of several sources, in the order of the batch."""
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
