"""Documents for the spot check: a few of each task, with the ids an engine gave for them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.documents import Tokens, text_offsets

SAMPLE_SECONDS = 0.5  # between samples of a task
SAMPLE_DOCUMENTS = 4  # documents per sample
SAMPLE_BYTES = 16 << 10  # longer documents are not sampled,
LONG_SAMPLE_BYTES = 256 << 10  # unless all are longer: then the shortest, up to this


class Sample(NamedTuple):
    """A document of a task, and the ids an engine gave for it, `bos` and `eos` included."""

    task: str
    number: int
    text: str
    ids: list[int]


class DocumentSampler:
    """Takes a few documents of a task for the check, twice a second. Which ones is random, but always the same."""

    def __init__(self, task: str, offer: Callable[[Sample], None]) -> None:
        self._task, self._offer = task, offer
        self._taken_at = float("-inf")

    def take(self, values: pa.LargeStringArray, tokens: Tokens, numbers: npt.NDArray[np.int64]) -> None:
        """Maybe sample the documents of a block, given with their tokens and their numbers in the task."""
        if time.monotonic() - self._taken_at < SAMPLE_SECONDS:
            return
        sizes = np.diff(text_offsets(values))
        short = np.flatnonzero(sizes <= max(SAMPLE_BYTES, min(int(sizes.min()), LONG_SAMPLE_BYTES)))
        if not len(short):
            return
        self._taken_at = time.monotonic()
        draw = random.Random(f"{self._task} {numbers[0]}")
        for i in draw.sample(short.tolist(), min(SAMPLE_DOCUMENTS, len(short))):
            start = int(tokens.ends[i - 1]) if i else 0
            ids = tokens.ids[start : int(tokens.ends[i])].tolist()
            self._offer(Sample(self._task, int(numbers[i]), values[i].as_py(), ids))
