"""The spot check: during a build, a few documents are encoded by the reference too. One differing id stops the build."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from tokenmill.building.document_sampler import Sample
from tokenmill.documents import text_array
from tokenmill.encoding.api import load_tokenizer
from tokenmill.encoding.encoder import Encoder
from tokenmill.encoding.selection.examination import Encoded
from tokenmill.encoding.tokenizer import Tokenizer
from tokenmill.errors import DifferenceError
from tokenmill.option_types import option_name

SHARE = 0.015  # of the CPU time of all processes of the build may go into the check
MOST_PROCESSES = 16  # more processes do not give this one more time
AT_LEAST = 2  # documents are checked however short the build: loading the reference is most of the cost
LOAD_RATE = 30e6  # bytes of tokenizer.json that the reference loads per second, about
WAITING = 64  # documents kept until there is time for them


@dataclass(frozen=True, slots=True)
class Difference:
    """A text for which an engine and the reference give different ids."""

    text: str
    expected: list[int]
    found: list[int]

    @classmethod
    def of(cls, texts: Sequence[str], expected: Encoded, actual: Encoded, i: int) -> Difference:
        """The difference in document `i`."""
        of_each = [ids[offsets[i] : offsets[i + 1]].tolist() for ids, offsets in (expected, actual)]
        return cls(texts[i], *of_each)

    @property
    def position(self) -> int:
        """The index of the first id that differs."""
        pairs = zip(self.expected, self.found, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(self.expected), len(self.found)))

    def __str__(self) -> str:
        at = self.position
        low = max(0, at - 4)

        def shown(ids: list[int]) -> str:
            dots = ("... " if low else "", " ..." if len(ids) > at + 12 else "")
            return f"[{dots[0]}{', '.join(map(str, ids[low : at + 12]))}{dots[1]}]"

        return f"first at token {at}: {shown(self.expected)} by the reference, {shown(self.found)} by the engine"


class SpotCheck:
    """Encodes sampled documents with the reference, in this process, while there is time.

    Loading the reference counts too, so that a short build checks only its last few documents. `seconds` is the CPU time it
    took, `checked` the number of documents that agreed. `locate` says where a document came from, for the error.
    """

    def __init__(
        self, tokenizer: Tokenizer, bos: int | None, eos: int | None, processes: int, locate: Callable[[Sample], str]
    ) -> None:
        self._tokenizer, self._bos, self._eos = tokenizer, bos, eos
        self._processes, self._locate = processes, locate
        self._began = time.monotonic()
        self.seconds, self.checked = 0.0, 0
        self._encoder: Encoder | None = None
        self._loading: Future[tuple[Encoder, float]] | None = None
        self._load_seconds = len(tokenizer._definition.json or "") / LOAD_RATE
        self._waiting: deque[Sample] = deque(maxlen=WAITING)

    def load_ahead(self) -> None:
        """Load the reference in another thread, beside what this process does. It will be needed in any case."""
        loader = ThreadPoolExecutor(1)
        self._loading = loader.submit(self._load)
        loader.shutdown(wait=False)

    def _load(self) -> tuple[Encoder, float]:
        """The reference, and the CPU time that it took to load."""
        began = time.thread_time()
        encoder = load_tokenizer(self._tokenizer, engine="reference")._encoder(self._bos, self._eos)
        return encoder, time.thread_time() - began

    def offer(self, sample: Sample) -> None:
        """Take a document. It is checked now if there is time, or later, or not at all."""
        self._waiting.append(sample)
        while self._waiting and self._has_time():
            self._check(self._waiting.pop())

    def finish(self) -> None:
        """The build is done: check a few documents in any case, the shortest ones if none was checked yet."""
        if not self.checked:
            self._waiting = deque(sorted(self._waiting, key=lambda sample: -len(sample.text)))
        while self._waiting and (self.checked < AT_LEAST or self._has_time()):
            self._check(self._waiting.pop())

    def _has_time(self) -> bool:
        to_load = self._load_seconds if self._encoder is None else 0.0
        elapsed = time.monotonic() - self._began
        return self.seconds + to_load < SHARE * min(self._processes, MOST_PROCESSES) * elapsed

    def _check(self, sample: Sample) -> None:
        if self._encoder is None:
            self._encoder, seconds = self._load() if self._loading is None else self._loading.result()
            self.seconds += seconds
        began = time.thread_time()
        expected = self._encoder.encode(text_array([sample.text])).ids.tolist()
        if expected != sample.ids:
            raise DifferenceError(self._explain(Difference(sample.text, expected, sample.ids), sample))
        self.checked += 1
        self.seconds += time.thread_time() - began

    def _explain(self, difference: Difference, sample: Sample) -> str:
        tokenizer = self._tokenizer
        return (
            f"{tokenizer.choose_engine()} {tokenizer.engine_version} gives other ids than the reference for"
            f" {self._locate(sample)} ({sample.text[:40]!r}): {difference}. (Rows and tokens count from 0.) Shards that"
            " were not published yet are deleted, and this engine will not be chosen for this tokenizer again. Build"
            f" again, with {option_name('engine', 'reference')} to be sure. Shards published before were built by the"
            " same engine: check them with tokenmill verify --reencode 1000, or rebuild them with"
            f" {option_name('force', True)}"
        )
