"""Blocks of documents: encoded in one call, written to the shard, counted to the pieces they come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.building.document_sampler import DocumentSampler
from tokenmill.building.machine import release_memory, resident_bytes
from tokenmill.building.task_context import CrashHistory
from tokenmill.building.task_counts import PieceCounts, StageClock
from tokenmill.documents import Tokens
from tokenmill.encoding.encoder import Encoder
from tokenmill.store.shard import ShardWriter

SUSPECT_PARTS = 16  # a block that crashed a process is encoded again in this many parts

Announce = Callable[[int, int], None]


class Enough(Exception):
    """The token limit of a trial is reached within the shard, after this many documents."""

    def __init__(self, documents: int) -> None:
        self.documents = documents


@dataclass(slots=True)
class Documents:
    """Documents of one piece to encode, with their numbers in the task. With `unfinished` the last one goes on."""

    values: pa.LargeStringArray
    numbers: npt.NDArray[np.int64]
    first: int  # number of the first document of the block as it was read, left-out documents included
    counts: PieceCounts
    unfinished: bool = False


@dataclass(slots=True)
class ShardOutput:
    """The shard being written. Raises Enough instead of writing more than `max_tokens`."""

    writer: ShardWriter
    clock: StageClock
    max_tokens: int | None = None

    def append(self, tokens: Tokens) -> None:
        self.clock.lap("encode")
        if self.max_tokens is not None and self.writer.tokens + len(tokens.ids) > self.max_tokens:
            fitting = np.searchsorted(tokens.ends, self.max_tokens - self.writer.tokens, "right")
            raise Enough(self.writer.documents + int(fitting))
        self.writer.append(tokens)
        self.clock.lap("write")


class EngineMemory:
    """Reloads the engine when its caches have outgrown this process's share of memory."""

    def __init__(self, encoder: Encoder, limit: int | None) -> None:
        self._encoder, self._limit, self._after_reload = encoder, limit, 0

    def check(self) -> None:
        """Reload if needed, but not again before the process has grown by a quarter."""
        if self._limit is not None and resident_bytes() > max(self._limit, self._after_reload * 5 // 4):
            self._encoder.refresh()
            release_memory()
            self._after_reload = resident_bytes()


class BlockEncoder:
    """Encodes blocks of documents and writes them.

    `announce` is called with the documents about to be encoded, and with (0, 0) afterwards. `found_special` is called with the
    number of the first document that holds a special token.
    """

    def __init__(
        self,
        encoder: Encoder,
        output: ShardOutput,
        *,
        crashes: CrashHistory,
        announce: Announce,
        memory: EngineMemory,
        sampler: DocumentSampler | None,
        found_special: Callable[[int], None],
    ) -> None:
        self.encoder, self.output, self.memory = encoder, output, memory
        self._suspects = crashes.suspects
        self.announce, self._sampler, self.found_special = announce, sampler, found_special

    def encode(self, blocks: list[Documents]) -> None:
        """Encode blocks of one or more pieces as one."""
        blocks = [block for block in blocks if len(block.values)]
        if not blocks:
            return
        values = blocks[0].values if len(blocks) == 1 else pa.concat_arrays([block.values for block in blocks])
        numbers = np.concatenate([block.numbers for block in blocks])
        block_ends = np.cumsum([len(block.values) for block in blocks])
        step = self._step(numbers)
        for start in range(0, len(values), step):
            part, part_numbers = values.slice(start, step), numbers[start : start + step]
            self.announce(int(part_numbers[0]), int(part_numbers[-1]) + 1)
            tokens = self.encoder.encode(part)
            self.output.append(tokens)
            if len(tokens.special):
                special = np.asarray(tokens.special, np.int64)
                self.found_special(int(part_numbers[special[0]]))
                for block in np.searchsorted(block_ends, start + special, "right").tolist():
                    blocks[block].counts.special_documents += 1
            _count_tokens(blocks, block_ends, start, tokens)
            if self._sampler is not None:
                self._sampler.take(part, tokens, part_numbers)
        self.announce(0, 0)
        self.memory.check()

    def _step(self, numbers: npt.NDArray[np.int64]) -> int:
        """How many documents to encode at once: all, unless one of them may crash the process."""
        first, last = self._suspects
        if numbers[0] < last and first <= numbers[-1]:
            return max(1, (last - first) // SUSPECT_PARTS)
        return len(numbers)


def _count_tokens(blocks: list[Documents], block_ends: npt.NDArray[np.int64], first: int, tokens: Tokens) -> None:
    """Add the tokens of the documents from `first` on to the counts of their pieces."""
    ends = np.concatenate(([0], tokens.ends))
    low = first
    for block in range(int(np.searchsorted(block_ends, first, "right")), len(blocks)):
        high = min(int(block_ends[block]), first + len(tokens.ends))
        blocks[block].counts.tokens += int(ends[high - first] - ends[low - first])
        low = high
