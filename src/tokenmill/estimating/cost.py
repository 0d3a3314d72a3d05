"""The time, memory and disk space of a build on this machine, from the cost of encoding a sample."""

from __future__ import annotations

import time
from typing import NamedTuple

from tokenmill.building.executors.worker_process import SMALL_BYTES
from tokenmill.building.machine import PARENT_BYTES, share_out
from tokenmill.building.request import SHARD_BYTES, SLOW_SHARD_BYTES
from tokenmill.encoding.tokenizer import Tokenizer
from tokenmill.errors import InputError
from tokenmill.estimating.sampled import Stratum
from tokenmill.estimating.survey import Survey
from tokenmill.estimating.totals import EncodedSample, Totals
from tokenmill.formatting import parse_size
from tokenmill.reading import Piece, Source, read_piece, text_weight
from tokenmill.reading.codecs import reading

START_SECONDS = 0.6  # processes, imports, the last fsync
WRITE_RATE = 5e8  # bytes of a store per second: checksums and writing
WORKER_BASE = 100 << 20  # memory of a worker without an engine
ENGINE_BASE = 60 << 20  # memory of an engine at least, plus
ENGINE_TIMES = 14  # times the tokenizer.json: the measured growth misses memory that was allocated before
REFERENCE_TIMES = 8  # times the tokenizer.json: the reference engine, which spot-checks a build
PACE_BYTES = 4 << 20  # of text, read to measure the speed of reading
PACE_FILES = 50
SHARD_FILES = 3000  # bytes per shard: headers and receipt
SHARD_CHECK = 20 / (4 << 20)  # bytes of checksums per byte of tokens
NAME_BYTES = 250  # per input file, in receipts
SKIP_BYTES = 18  # per run of rows that gave no document


class BuildCost(NamedTuple):
    seconds: float
    memory: int
    workers: int
    disk_bytes: int


def build_cost(encoded: EncodedSample, tokenizer: Tokenizer, survey: Survey, totals: Totals) -> BuildCost:
    source, is_slow = survey.source, tokenizer._reference_traits.is_slow
    shard_bytes = parse_size(SLOW_SHARD_BYTES if is_slow else SHARD_BYTES, "shard_bytes")
    weight = sum(map(text_weight, source.files))
    in_process = tokenizer._traits.in_process_only or (weight < SMALL_BYTES and not is_slow)
    most_workers, memory_share = share_out(None, None)
    workers = 1 if in_process else most_workers
    ids_bytes = totals.tokens * tokenizer.dtype.itemsize
    work = longest = 0.0
    for stratum, ratio in zip(survey.strata, totals.text_ratios, strict=True):
        writing = ids_bytes / max(totals.text_bytes, 1) / WRITE_RATE
        per_byte = encoded.seconds_per_byte + _reading_pace(stratum, source) + writing
        work += stratum.nbytes * ratio * per_byte
        longest = max(longest, per_byte * _longest_task(stratum, ratio, shard_bytes))
    seconds = (0.0 if in_process else START_SECONDS) + encoded.load_seconds + max(work / workers, longest)
    json_bytes = len(tokenizer._definition.json or "")
    per_worker = min(memory_share, WORKER_BASE + max(encoded.memory_growth, ENGINE_BASE + ENGINE_TIMES * json_bytes))
    memory = per_worker if in_process else PARENT_BYTES + REFERENCE_TIMES * json_bytes + workers * per_worker
    disk = ids_bytes * (1 + SHARD_CHECK) + 8 * totals.documents + SKIP_BYTES * totals.skips
    disk += max(1, weight // shard_bytes) * SHARD_FILES + NAME_BYTES * len(source.files)
    disk += sum(map(len, tokenizer._definition.contents().values()))
    return BuildCost(seconds, memory, workers, round(disk))


def _longest_task(stratum: Stratum, ratio: float, shard_bytes: int) -> float:
    """Text of the largest task. A file that cannot be split is one task, however large."""
    text = max(file.size for file in stratum.files) * ratio
    return text if stratum.entry in ("head", "document") else min(text, shard_bytes)


def _reading_pace(stratum: Stratum, source: Source) -> float:
    """Seconds per byte of text to read as a build does, measured on a few MB."""
    began, text = time.process_time(), 0
    for file in stratum.files[:: max(1, len(stratum.files) // PACE_FILES)]:
        piece = Piece(file, 0, PACE_BYTES) if stratum.entry == "records" else Piece(file)
        try:
            with reading(file):
                for texts in read_piece(piece, source):
                    text += texts.nbytes
                    if text >= PACE_BYTES:
                        break
        except InputError:
            continue
        if text >= PACE_BYTES:
            break
    return (time.process_time() - began) / max(text, 1)
