"""During a build, some documents are encoded by the reference too. One differing id and the build stops."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tokenmill.documents import text_array
from tokenmill.encoding import Difference, Encoder, Tokenizer, load_tokenizer
from tokenmill.errors import DifferenceError

SHARE = 0.015  # of the build's time, all its processes together
MOST_PROCESSES = 16  # more of them do not give this one more time
AT_LEAST = 2  # documents, however short the build: loading the reference is most of the price
LOAD_RATE = 30e6  # bytes of tokenizer.json that the reference loads in a second, about
WAITING = 64  # documents kept until there is time for them


class Sample(NamedTuple):
    """A document of a task, and the ids an engine gave for it, `bos` and `eos` included."""

    task: str
    number: int
    text: str
    ids: list[int]


class Sampling:
    """Encodes documents that workers send, with the reference, in this process, while there is time.

    Loading the reference counts too, so that of a short build only the last few documents are looked at. `seconds` is the
    CPU time it took, `checked` how many documents agreed.
    """

    def __init__(
        self, tokenizer: Tokenizer, bos: int | None, eos: int | None, processes: int, locate: Callable[[Sample], str]
    ) -> None:
        self.tokenizer, self.around, self.processes, self._locate = tokenizer, (bos, eos), processes, locate
        self.began = time.monotonic()
        self.seconds, self.checked = 0.0, 0
        self._encoder: Encoder | None = None
        self._load_seconds = len(tokenizer.definition.json or "") / LOAD_RATE
        self._waiting: deque[Sample] = deque(maxlen=WAITING)

    def offer(self, sample: Sample) -> None:
        """Take a document; it is looked at now if there is time, later, or not at all."""
        self._waiting.append(sample)
        while self._waiting and self._has_time():
            self._check(self._waiting.pop())

    def finish(self) -> None:
        """The build is done: look at a few documents in any case, the shorter ones if nothing was looked at yet."""
        if not self.checked:
            self._waiting = deque(sorted(self._waiting, key=lambda sample: -len(sample.text)))
        while self._waiting and (self.checked < AT_LEAST or self._has_time()):
            self._check(self._waiting.pop())

    def _has_time(self) -> bool:
        ahead = self._load_seconds if self._encoder is None else 0.0
        return self.seconds + ahead < SHARE * min(self.processes, MOST_PROCESSES) * (time.monotonic() - self.began)

    def _check(self, sample: Sample) -> None:
        began = time.thread_time()
        if self._encoder is None:
            self._encoder = load_tokenizer(self.tokenizer, engine="reference").encoder(*self.around)
        right = self._encoder.encode(text_array([sample.text])).ids.tolist()
        if right != sample.ids:
            raise DifferenceError(self._complaint(Difference(sample.text, right, sample.ids), sample))
        self.checked += 1
        self.seconds += time.thread_time() - began

    def _complaint(self, difference: Difference, sample: Sample) -> str:
        tokenizer = self.tokenizer
        return (
            f"{tokenizer.engine} {tokenizer.engine_version} gives other ids than the reference for"
            f" {self._locate(sample)} ({sample.text[:40]!r}): {difference}. (Rows and tokens count from 0.) Shards that"
            " were not published yet are thrown away, and this engine will not be chosen for this tokenizer again. Build"
            " again, with --engine reference (engine='reference') to be sure. What was published before was made the same"
            " way: check it with tokenmill verify --reencode 1000, or rebuild it with --force"
        )
