"""What a build costs on this machine: time, memory and disk, from what a sample took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from tokenmill.building.executors.process_pool import SMALL_BYTES
from tokenmill.building.machine import PARENT_BYTES, resident_bytes, share_out
from tokenmill.building.request import SHARD_BYTES, SLOW_SHARD_BYTES
from tokenmill.building.sequence import RACE_BYTES
from tokenmill.building.task_rows import safely
from tokenmill.encoding import Tokenizer
from tokenmill.errors import InputError
from tokenmill.estimating.blocks import Stratum
from tokenmill.estimating.entering import how_entered
from tokenmill.estimating.survey import Survey
from tokenmill.formatting import parse_size
from tokenmill.reading import Piece, Source, read_piece, text_weight

START_SECONDS = 0.6  # processes, imports, the last fsync
RACE_SECONDS = 2.0  # engines are compared on a sample of a corpus that was not built before
WRITE_RATE = 5e8  # bytes of a store a second: checksums and writing
WORKER_BASE = 100 << 20  # a worker without an engine
ENGINE_BASE, ENGINE_TIMES = (
    60 << 20,
    14,
)  # of an engine, at least, and times the tokenizer.json: memory may have been there
REFERENCE_TIMES = 8  # times the tokenizer.json: the reference, which looks at some documents of a build
PACE_BYTES = 4 << 20  # of text read to measure reading
PACE_FILES = 50
SHARD_FILES = 3000  # bytes of headers and receipt of a shard, about,
SHARD_CHECK = 20 / (4 << 20)  # of checksums, per byte of tokens
NAME_BYTES = 250  # of an input file in receipts
SKIP_BYTES = 18  # of a run of rows that gave no document


class Plan(NamedTuple):
    """What a build takes."""

    seconds: float
    memory: int
    workers: int
    disk_bytes: int


@dataclass(slots=True)
class Took:
    seconds: float = 0.0


@dataclass(slots=True)
class Cost:
    """What the sample took: CPU time, so that other work on the machine does not count, and memory."""

    load_seconds: float = 0.0
    calls: list[tuple[int, float]] = field(default_factory=list)
    grown: int = 0

    @contextmanager
    def loading(self) -> Iterator[None]:
        began, before = time.process_time(), resident_bytes()
        yield
        self.load_seconds = time.process_time() - began
        self.grown = max(0, resident_bytes() - before)

    @contextmanager
    def encoding(self, nbytes: int) -> Iterator[Took]:
        began, before, took = time.process_time(), resident_bytes(), Took()
        yield took
        took.seconds = time.process_time() - began
        self.calls.append((nbytes, took.seconds))
        self.grown += max(0, resident_bytes() - before)

    @property
    def per_byte(self) -> float:
        """Seconds to encode a byte, in the later half of the calls: engines get faster with what they have seen."""
        later = self.calls[len(self.calls) // 2 :]
        return sum(took for _, took in later) / max(1, sum(nbytes for nbytes, _ in later))


def build_cost(
    cost: Cost,
    tokenizer: Tokenizer,
    survey: Survey,
    per_source: list[float],
    tokens: float,
    documents: float,
    text: float,
    skips: float,
) -> Plan:
    """Time, memory and disk of a build. `per_source` is text per byte on disk, for each kind of file."""
    source, is_slow = survey.source, tokenizer.definition.reference == "python"
    shard_bytes = parse_size(SLOW_SHARD_BYTES if is_slow else SHARD_BYTES, "shard_bytes")
    weight = sum(map(text_weight, source.files))
    workers, share = share_out(None, None)
    inside = tokenizer.engine == "live" or (weight < SMALL_BYTES and not is_slow)
    work = longest = 0.0
    for stratum, ratio in zip(survey.strata, per_source, strict=True):
        per_byte = (
            cost.per_byte
            + _reading_pace(stratum, source)
            + tokens * tokenizer.dtype.itemsize / max(text, 1) / WRITE_RATE
        )
        work += stratum.nbytes * ratio * per_byte
        longest = max(longest, per_byte * _longest_task(stratum, source, ratio, shard_bytes))
    shards = max(1, weight // shard_bytes)
    workers = 1 if inside else workers
    seconds = (0.0 if inside else START_SECONDS) + cost.load_seconds + max(work / workers, longest)
    if tokenizer.wanted == "auto" and not is_slow and weight >= RACE_BYTES:
        seconds += RACE_SECONDS
    file_bytes = len(tokenizer.definition.json or "")
    each = min(share, WORKER_BASE + max(cost.grown, ENGINE_BASE + ENGINE_TIMES * file_bytes))
    memory = each if inside else PARENT_BYTES + REFERENCE_TIMES * file_bytes + workers * each
    ids = tokens * tokenizer.dtype.itemsize
    kept = sum(map(len, tokenizer.definition.contents().values()))
    disk = ids * (1 + SHARD_CHECK) + 8 * documents + SKIP_BYTES * skips
    disk += shards * SHARD_FILES + NAME_BYTES * len(source.files) + kept
    return Plan(seconds, memory, workers, round(disk))


def _longest_task(stratum: Stratum, source: Source, ratio: float, shard_bytes: int) -> float:
    """Text of the largest task: a stream, and a file that is one document, is one, however large."""
    largest = max(stratum.files, key=lambda file: file.size)
    text = largest.size * ratio
    return text if how_entered(largest, source) in ("head", "text") else min(text, shard_bytes)


def _reading_pace(stratum: Stratum, source: Source) -> float:
    """Seconds to read a byte of text as a build does: some MB in one go."""
    began, text = time.process_time(), 0
    for file in stratum.files[:: max(1, len(stratum.files) // PACE_FILES)]:
        piece = Piece(file, 0, PACE_BYTES) if how_entered(file, source) == "cells" else Piece(file)
        try:
            for texts in safely(piece, read_piece(piece, source)):
                text += texts.nbytes
                if text >= PACE_BYTES:
                    break
        except InputError:
            continue
        if text >= PACE_BYTES:
            break
    return (time.process_time() - began) / max(text, 1)
