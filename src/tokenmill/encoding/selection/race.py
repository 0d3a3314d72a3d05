"""The race: how fast each engine is on a sample of text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenmill.encoding.engines import engine_traits
from tokenmill.encoding.engines.base import BATCH_BYTES
from tokenmill.encoding.selection.trial import Trial, write_texts

MAX_TURNS = 8  # large turns, as in a build: some engines need them to be fast
FAR_BEHIND = 3  # times slower than the fastest engine
WARM_UP_CHARACTERS = 100_000  # the first turn of the reference, which is usually far behind


@dataclass(slots=True)
class _Runner:
    """One engine in the race, with the bytes and seconds of the turns that count."""

    trial: Trial
    turns_for_sure: int  # before the engine may be dropped as too slow
    sharing: int  # processes that share what it computes on
    nbytes: float = 0.0
    seconds: float = 0.0
    rate: float = 0.0

    def run(self, path: Path, times: int) -> None:
        for _ in range(times):
            timing = self.trial.time(path)
            if not timing:  # it failed, so its speed so far does not matter
                self.rate = 0.0
                return
            self.nbytes += timing["bytes"]
            self.seconds += timing["seconds"] * self.sharing
        self.rate = self.nbytes / max(self.seconds, 1e-9)


def race(reference: Trial, others: list[Trial], texts: list[str], folder: Path, processes: int = 1) -> dict[str, float]:
    """Return the rate of each engine in bytes of text per second and core, measured in the second half of the texts.

    Seconds are CPU time; for engines that do not compute on the CPU, wall time for each of the `processes` of a build, which
    share the device: so such an engine wins if it alone is faster than another one on all cores. The engines take turns with
    every part of the texts, so that a temporary load on the machine affects all of them. The first half fills their caches.
    The second half is encoded twice: in a long build most words have been seen before, so new and known text count equally.
    An engine that is far behind is stopped early.
    """
    runners = [*(_Runner(trial, 2, _sharing(trial, processes)) for trial in others), _Runner(reference, 1, 1)]
    parts = list(_parts(texts, max(sum(map(len, texts)) / MAX_TURNS, BATCH_BYTES)))
    counted = len(parts) // 2
    for turn, part in enumerate(parts):
        paths: dict[int, Path] = {}  # this part of the texts, by the size of its blocks
        for runner in runners:
            surely = turn < runner.turns_for_sure
            if turn == counted:
                runner.nbytes = runner.seconds = 0.0  # forget the warm-up
            if not surely and runner.rate < max(other.rate for other in runners) / FAR_BEHIND:
                continue
            block_bytes = engine_traits(runner.trial.engine).best_batch_bytes
            if surely and runner.trial is reference:
                path = folder / "warm-up.arrow"
                write_texts(path, next(_parts(part, WARM_UP_CHARACTERS)), block_bytes)
            elif block_bytes in paths:
                path = paths[block_bytes]
            else:
                path = paths[block_bytes] = folder / f"part-{block_bytes}.arrow"
                write_texts(path, part, block_bytes)
            runner.run(path, 1 if turn < counted else 2)
    return {runner.trial.engine: runner.rate for runner in runners if parts}


def _sharing(trial: Trial, processes: int) -> int:
    return 1 if engine_traits(trial.engine).device == "cpu" else processes


def _parts(texts: list[str], size: float) -> Iterator[list[str]]:
    """Consecutive texts in lists of about `size` characters."""
    part: list[str] = []
    characters = 0
    for text in texts:
        part.append(text)
        characters += len(text)
        if characters >= size:
            yield part
            part, characters = [], 0
    if part:
        yield part
