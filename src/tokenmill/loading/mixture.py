"""Mixtures of several views: at every sample of a stage, each source has had its share, to within one row.

Weights become whole numbers that sum to a period, and each place of the period goes to the source whose next row is due first.
The source of a sample follows from its number alone. With stages the weights change after a number of samples, and each source
continues where it was.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm
from numbers import Real
from typing import Any

import numpy as np

from tokenmill.display import one_line
from tokenmill.errors import UsageError, WrongTypeError
from tokenmill.formatting import some
from tokenmill.habits import Answering
from tokenmill.io.atomic import canonical, digest
from tokenmill.loading.order import Numbers
from tokenmill.option_calls import suggests
from tokenmill.option_types import whole_number
from tokenmill.packing import View

LONGEST_PERIOD = 1 << 16
HEAVIEST = sys.float_info.max
Weights = dict[str, float]
Stage = tuple[int | None, Weights]  # rows, None for the last stage


@suggests
def mix(sources: Mapping[str, Any], *, stages: Sequence[Any] | None = None) -> Mixture:
    """A mixture of several views: `tm.mix({"web": (web, 0.7), "code": (code, 0.3)})`.

    With `stages` the weights change during the run: `tm.mix({"web": web, "code": code}, stages=[(100_000, {"web": 0.9, "code":
    0.1}), (None, {"web": 0.5, "code": 0.5})])` takes 100,000 rows with the first weights and all others with the second; the last
    stage never ends, whatever its rows. Weights count rows, and need not sum to 1. At every sample of a stage each source has had
    its share of the stage to within one row. (If no whole numbers up to 2**16 have these proportions, the share is rounded to one
    part in 2**16.) A source that runs out starts again, in a different order. One pass of `tm.load` takes as many rows as all
    sources have together; a run in stages is rather `epochs="endless"`.

    Example:
        web, code = tm.pack("corpus/", 128), tm.pack("imported/", 128, split="train")
        mixture = tm.mix({"web": (web, 0.7), "code": (code, 0.3)})
        loader = tm.load(mixture, 4)
    """
    views, weights = _checked_sources(sources, staged=stages is not None)
    _check_alike(views)
    if stages is None:
        return Mixture(views, [(None, _checked_weights(weights, views, "weights"))])
    return Mixture(views, _checked_stages(stages, views))


def _checked_sources(sources: Any, *, staged: bool) -> tuple[dict[str, View], dict[str, Any]]:
    """The views and their weights by name; the weights are None if they are given in stages."""
    if not isinstance(sources, Mapping) or not sources:
        kind = UsageError if isinstance(sources, Mapping) else WrongTypeError
        raise kind("mix needs named sources: {'web': (view, 0.7), 'code': (view, 0.3)}")
    views: dict[str, View] = {}
    weights: dict[str, Any] = {}
    for name, source in sources.items():
        if not isinstance(name, str):
            raise WrongTypeError(f"{name!r} is not the name of a source: names are strings")
        view, weight = source if isinstance(source, tuple) and len(source) == 2 else (source, None)
        if not isinstance(view, View):
            raise WrongTypeError(
                f"{name}: a source of a mixture is a view (tm.pack) or (view, weight), not {source!r:.60}"
            )
        if (weight is None) != staged:
            raise UsageError(f"{name}: give weights either beside the views, as (view, 0.7), or in stages")
        views[name], weights[name] = view, weight
    return views, weights


def _checked_stages(stages: Any, views: dict[str, View]) -> list[Stage]:
    if not isinstance(stages, Sequence) or isinstance(stages, str):
        raise WrongTypeError(f"stages={stages!r:.60} is not a list of (rows, weights)")
    checked: list[Stage] = []
    for number, stage in enumerate(stages):
        where = f"stages[{number}]"
        if not isinstance(stage, Sequence) or len(stage) != 2:
            raise UsageError(f"{where}={stage!r:.60} is not (rows, weights)")
        rows, last = stage[0], number == len(stages) - 1
        if rows is None and not last:
            raise UsageError(
                f"{where}: rows is None; only the last stage may have None, others a number of rows from 1"
            )
        rows = None if rows is None else whole_number(f"{where}: rows", rows, 1, 2**62)
        checked.append((None if last else rows, _checked_weights(stage[1], views, where)))
    if not checked:
        raise UsageError("stages is empty; give (rows, weights) for each stage")
    return checked


class Mixture(Answering):
    """Several views with weights, for `tm.load`. `mixture.counts(n)` returns the rows of each among the first n samples."""

    def __init__(self, views: dict[str, View], stages: list[Stage]) -> None:
        self.views, self.stages = views, stages
        self._periods = [_Period([weights.get(name, 0) for name in views]) for _, weights in stages]
        self._starts = [0]
        self._at_starts = [np.zeros(len(views), np.int64)]
        for (rows, _), period in zip(stages[:-1], self._periods, strict=False):
            self._starts.append(self._starts[-1] + (rows or 0))
            self._at_starts.append(self._at_starts[-1] + period.counts(rows or 0))

    def __len__(self) -> int:
        """The rows of all sources together, which count as one epoch. A mixture itself never ends."""
        return sum(len(view) for view in self.views.values())

    def __repr__(self) -> str:
        shares = ", ".join(f"{name!r}: {some(len(view), 'row')}" for name, view in list(self.views.items())[:3])
        more = ", ..." if len(self.views) > 3 else ""
        return one_line("Mixture", f"{{{shares}{more}}}", f"stages={len(self.stages)}")

    @property
    def fingerprint(self) -> str:
        """A digest of the views, their names, weights and order."""
        return digest(canonical([[[name, view.fingerprint] for name, view in self.views.items()], self.stages]))

    def counts(self, samples: int) -> dict[str, int]:
        """The rows of each source among the first `samples` samples."""
        return dict(zip(self.views, self._before(samples).tolist(), strict=True))

    def _before(self, sample: int) -> Numbers:
        """The rows of each source before a sample, as an array in the order of the sources."""
        stage = bisect_right(self._starts, sample) - 1
        counts: Numbers = self._at_starts[stage] + self._periods[stage].counts(sample - self._starts[stage])
        return counts

    def _sources(self, start: int, stop: int) -> Numbers:
        """The number of the source of each sample from `start` to `stop`."""
        parts = [np.empty(0, np.int64)]
        while start < stop:
            stage = bisect_right(self._starts, start) - 1
            end = min(stop, *self._starts[stage + 1 : stage + 2], stop)
            offset = self._starts[stage]
            parts.append(self._periods[stage].sources(start - offset, end - offset))
            start = end
        return np.concatenate(parts)


class _Period:
    """Weights as a repeating sequence of sources."""

    def __init__(self, weights: list[float]) -> None:
        shares = _whole(weights)
        self.order = _due_first(shares)
        self.upto = np.zeros((len(self.order) + 1, len(shares)), np.int64)
        for source in range(len(shares)):
            np.cumsum(self.order == source, out=self.upto[1:, source])

    def counts(self, samples: int) -> Numbers:
        whole, rest = divmod(samples, len(self.order))
        counts: Numbers = whole * self.upto[-1] + self.upto[rest]
        return counts

    def sources(self, start: int, stop: int) -> Numbers:
        return self.order[np.arange(start, stop) % len(self.order)]


def _whole(weights: list[float]) -> list[int]:
    """Whole numbers in these proportions: exact if they sum to at most 2**16, else rounded to one part in 2**16."""
    exact = [Fraction(str(weight)) for weight in weights]
    shares = [weight / sum(exact) for weight in exact]
    period = lcm(*(share.denominator for share in shares))
    if period <= LONGEST_PERIOD:
        return [int(share * period) for share in shares]
    rounded = [max(1, int(share * LONGEST_PERIOD)) if share else 0 for share in shares]
    weighted = [i for i, share in enumerate(shares) if share]
    # Add to the source furthest below its share, or take from the one furthest above.
    while sum(rounded) != LONGEST_PERIOD:
        step = 1 if sum(rounded) < LONGEST_PERIOD else -1
        worst = max(weighted, key=lambda i: (step * (shares[i] * LONGEST_PERIOD - rounded[i]), -i))
        rounded[worst] += step
    return rounded


def _due_first(shares: list[int]) -> Numbers:
    """Give each place to the source, of those below their share, whose next row is due first: none is ever a row off."""
    period = sum(shares)
    counts = [0] * len(shares)
    order = np.empty(period, np.int64)
    for place in range(period):
        behind = [i for i, share in enumerate(shares) if counts[i] * period < (place + 1) * share]
        order[place] = source = min(behind, key=lambda i: (-(-(counts[i] + 1) * period // shares[i]), i))
        counts[source] += 1
    return order


def _checked_weights(weights: Any, views: dict[str, View], where: str) -> Weights:
    if not isinstance(weights, Mapping):
        raise UsageError(f"{where}: {weights!r:.60} is not a mapping of sources to weights")
    for name, weight in weights.items():
        if name not in views:
            raise UsageError(f"{where}: {name!r} is not one of the sources {', '.join(map(repr, views))}")
        number = isinstance(weight, Real) and not isinstance(weight, bool)
        if not number or not 0 <= (weight if isinstance(weight, int) else float(weight)) <= HEAVIEST:
            raise UsageError(f"{where}: {name}={weight!r} is not a weight: give a number from 0 to {HEAVIEST:g}")
        if weight and not len(views[name]):
            raise UsageError(f"{where}: {name} has a weight but no rows")
    checked = {str(name): float(weight) for name, weight in weights.items()}
    if not any(checked.values()):
        raise UsageError(f"{where}: all weights are 0")
    return checked


def _check_alike(views: dict[str, View]) -> None:
    """Check that all views have the same vocabulary, row length and arrays, so that their rows fit into one batch."""
    first_name, first = next(iter(views.items()))
    for name, view in views.items():
        for what, mine, theirs in (
            ("tokenizer", *(each.store._manifest.tokenizer["fingerprint"] for each in (view, first))),
            ("seq_len", view.seq_len, first.seq_len),
            ("fields", view._row_format, first._row_format),
        ):
            if mine != theirs:
                raise UsageError(
                    f"{name} and {first_name} differ in {what} ({mine} and {theirs}); pack them in the same way"
                )
        if view._layout.buckets:
            raise UsageError(f"{name}: a view with buckets has rows of several widths and cannot be mixed")
