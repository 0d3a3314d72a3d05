"""A sample is encoded, and its counts are extrapolated to the whole corpus."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.building.machine import resident_bytes
from tokenmill.documents import BLOCK_BYTES, text_bytes, text_offsets
from tokenmill.encoding.encoder import Encoder
from tokenmill.encoding.tokenizer import Tokenizer
from tokenmill.estimating.findings import Inspection
from tokenmill.estimating.sampled import SampledBlock, Stratum
from tokenmill.estimating.survey import Survey
from tokenmill.reading.utf8 import one_text, whole_characters

OVERFLOW = 4  # a corpus that has this many times the text expected is sampled, not counted
FIRST_CALL = 256 << 10  # bytes in the first call of an engine, and in the smallest
LONG_CALL = 0.2  # seconds that a call should not exceed
MOST_ENCODED = 4 << 20  # bytes of a document; the rest of a longer one is taken to be like its start,
CLIPPED_ERROR = 0.05  # give or take this share of its tokens
STANDARD_ERRORS = 2.2  # contain the truth in 95% of cases, as measured; it is 1.96 for independent samples
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
# Student's t for 95% by degrees of freedom; it is about 2 beyond these.
_T = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23}


@dataclass(slots=True)
class Totals:
    """The sums over the corpus. `text_ratios` is text per byte on disk, for each stratum."""

    tokens: float = 0.0
    documents: float = 0.0
    text_bytes: float = 0.0
    skips: float = 0.0
    variance: float = 0.0  # of the tokens
    text_ratios: list[float] = field(default_factory=list)
    lengths: list[npt.NDArray[np.float64]] = field(default_factory=list)  # tokens per document,
    weights: list[npt.NDArray[np.float64]] = field(default_factory=list)  # how many such documents there are,
    is_guess: list[npt.NDArray[np.bool_]] = field(default_factory=list)  # and whether they were encoded only in part

    @property
    def margin(self) -> float:
        """Half the width of the 95% interval of the tokens."""
        return STANDARD_ERRORS * math.sqrt(self.variance)

    def add_lengths(self, lengths: npt.ArrayLike, weight: float, is_guess: npt.ArrayLike) -> None:
        """Add the tokens of some documents, each `weight` times in the corpus."""
        self.lengths.append(np.asarray(lengths, float))
        self.weights.append(np.full(len(self.lengths[-1]), weight))
        self.is_guess.append(np.broadcast_to(np.asarray(is_guess, bool), self.lengths[-1].shape))

    def quantiles(self) -> dict[float, int]:
        """Weighted quantiles of the tokens per document, without those that fall on a document that was encoded in part."""
        if not sum(map(len, self.lengths)):
            return {}
        lengths, is_guess = np.concatenate(self.lengths), np.concatenate(self.is_guess)
        order = np.argsort(lengths, kind="stable")
        lengths, is_guess, reached = lengths[order], is_guess[order], np.cumsum(np.concatenate(self.weights)[order])
        at = np.minimum(np.searchsorted(reached, np.array(QUANTILES) * reached[-1]), len(lengths) - 1)
        places = zip(QUANTILES, at.tolist(), strict=True)
        return {share: round(float(lengths[i])) for share, i in places if not is_guess[i]}


class EncodedSample:
    """Encodes the blocks of a survey in calls of growing size, and measures them.

    Time is CPU time, so that other work on the machine does not count.
    """

    def __init__(self, tokenizer: Tokenizer, around: tuple[int | None, int | None]) -> None:
        self.added = sum(one is not None for one in around)  # tokens added to each document
        began, before = time.process_time(), resident_bytes()
        self.encoder: Encoder = tokenizer._encoder(*around)
        self.load_seconds = time.process_time() - began
        self.memory_growth = max(0, resident_bytes() - before)
        self.calls: list[tuple[int, float]] = []  # bytes and seconds
        eos_name = tokenizer.token_name(around[1])
        self.inspection = Inspection(eos_name if eos_name in tokenizer.added else None)
        self.blocks: list[_EncodedBlock] = []
        self.pending: list[SampledBlock] = []
        self.pending_bytes, self.call_bytes, self.encoded_bytes = 0, FIRST_CALL, 0
        self.clipped_tokens = 0.0  # of parts of documents that were not encoded

    @property
    def seconds_per_byte(self) -> float:
        """Seconds to encode a byte, over the later half of the text: caches of an engine speed up the later calls."""
        enough = sum(nbytes for nbytes, _ in self.calls) / 2
        text, time_spent = 0, 0.0
        for nbytes, seconds in reversed(self.calls):
            text, time_spent = text + nbytes, time_spent + seconds
            if text >= enough:
                break
        return time_spent / max(1, text)

    @property
    def clipped_margin(self) -> float:
        """How far off the tokens of parts that were not encoded may be."""
        return CLIPPED_ERROR * self.clipped_tokens

    def add(self, survey: Survey) -> bool:
        """Encode a survey. False if all of the corpus was to be read, and it turned out to be too much."""
        for block in survey.blocks():
            self.pending.append(block)
            self.pending_bytes += block.texts.nbytes
            if self.pending_bytes >= self.call_bytes:
                self._encode()
                too_much = self.encoded_bytes > OVERFLOW * survey.sample_bytes or time.monotonic() > survey.deadline
                if survey.everything and too_much:
                    return False
        self._encode()
        return not (survey.stopped and survey.everything)

    def _encode(self) -> None:
        """Encode the pending blocks in one call."""
        blocks, self.pending, self.pending_bytes = self.pending, [], 0
        lengths, scale, special = np.empty(0), np.empty(0), np.empty(0, np.int64)
        filled = [block.texts.values for block in blocks if len(block.texts.values)]
        if filled:
            values, scale = _clipped(pa.concat_arrays(filled))
            nbytes = text_bytes(values)
            began, before = time.process_time(), resident_bytes()
            tokens = self.encoder.encode(values)
            seconds = time.process_time() - began
            self.memory_growth += max(0, resident_bytes() - before)
            self.calls.append((nbytes, seconds))
            call_bytes = self.call_bytes // 2 if seconds > LONG_CALL else min(2 * self.call_bytes, BLOCK_BYTES)
            self.call_bytes = max(call_bytes, FIRST_CALL)
            self.encoded_bytes += nbytes
            encoded_lengths = np.diff(tokens.ends, prepend=0)
            lengths = encoded_lengths * scale
            self.clipped_tokens += float((lengths - encoded_lengths).sum())
            special = np.asarray(tokens.special, np.int64)
        at = 0
        for block in blocks:
            end = at + len(block.texts.values)
            encoded = block.texts.nbytes / float(scale[at:end].max(initial=1.0))
            own = lengths[at:end] if block.whole else lengths[at:end] - self.added
            inside = special[(special >= at) & (special < end)] - at
            self.blocks.append(_EncodedBlock(block, encoded, own, scale[at:end] > 1, inside, block.share * self.added))
            at = end

    def totals(self, survey: Survey) -> Totals:
        """Extrapolate each stratum by its own ratio of tokens to bytes on disk, which are known for all of it."""
        totals = Totals()
        for stratum in survey.strata:
            blocks = [one for one in self.blocks if one.block.stratum is stratum]
            blocks.sort(key=lambda one: (one.block.file.path, one.block.spot))
            self._add_stratum(totals, stratum, blocks, survey)
        return totals

    def _add_stratum(self, totals: Totals, stratum: Stratum, tried: list[_EncodedBlock], survey: Survey) -> None:
        """Add a stratum, without the files that fail: a build leaves them out. `tried` has the blocks of those too."""
        blocks = [one for one in tried if one.block.file.shown not in survey.failed]
        covered = _weighted(blocks, lambda one: one.block.covered)
        readable = _readable_share(stratum, tried, survey)
        nbytes = stratum.nbytes * readable
        scale = 1.0 if survey.everything else nbytes / covered if covered else 0.0
        sampled = _weighted(blocks, lambda one: one.documents)
        documents = scale * sampled
        if stratum.rows is not None and not survey.everything:
            rows = _weighted(blocks, lambda one: one.rows)
            documents = _readable_rows(stratum, readable, survey) * (sampled / rows if rows else 1.0)
        totals.documents += documents
        tokens = scale * _weighted(blocks, lambda one: one.tokens)
        totals.tokens += tokens
        totals.skips += scale * _weighted(blocks, lambda one: len(one.block.texts.skips))
        text = scale * _weighted(blocks, lambda one: one.block.texts.nbytes)
        totals.text_bytes += text
        totals.text_ratios.append(text / max(stratum.nbytes, 1))
        if not survey.everything:
            # Of files that were not opened, some may fail too: how many is as uncertain as what is in the others.
            is_known = _is_all_opened(stratum, survey)
            totals.variance += _variance(
                blocks if is_known else tried, stratum, nbytes if is_known else stratum.nbytes, text
            )
        for one in blocks:
            self.inspection.add(one.block, one.special, scale * one.block.weight)
        if stratum.is_one_document and any(one.block.share for one in blocks):
            sizes = np.array([file.size for file in stratum.files if file.shown not in survey.failed], float)
            totals.add_lengths(sizes * tokens / max(nbytes, 1), documents / max(len(sizes), 1), is_guess=False)
        else:
            _add_lengths(totals, blocks, scale)


@dataclass(slots=True)
class _EncodedBlock:
    """A block, how many of its bytes were encoded, the tokens of its values, which of these were encoded only in part and which
    contain special tokens, and the tokens to add for the share of a document that it is."""

    block: SampledBlock
    encoded: float
    lengths: npt.NDArray[np.float64]
    is_clipped: npt.NDArray[np.bool_]
    special: npt.NDArray[np.int64]
    added: float

    @property
    def tokens(self) -> float:
        return float(self.lengths.sum()) + self.added

    @property
    def documents(self) -> float:
        if self.block.documents is not None:
            return self.block.documents
        return len(self.lengths) if self.block.whole else self.block.share

    @property
    def rows(self) -> float:
        if self.block.counted:
            return 0
        return self.block.texts.rows if self.block.whole else self.block.share


def _add_lengths(totals: Totals, blocks: list[_EncodedBlock], scale: float) -> None:
    """Add the tokens per document. The parts of a long document are added up; where some were left out, it is a guess."""
    begun, is_whole = 0.0, True  # of the document that the next block continues
    for one in blocks:
        block, lengths, is_guess = one.block, one.lengths.copy(), one.is_clipped.copy()
        if not block.continues:
            begun, is_whole = 0.0, True
        if block.texts.unfinished:
            begun, is_whole = begun + float(lengths.sum()), is_whole and not is_guess.any()
            continue
        if block.continues and len(lengths):
            lengths[0] = math.inf if block.counted else lengths[0] + begun
            is_guess[0] |= block.counted or not is_whole
        totals.add_lengths(lengths, scale * block.weight, is_guess)


def _is_all_opened(stratum: Stratum, survey: Survey) -> bool:
    return all(file.path in survey.files_read for file in stratum.files if file.size)


def _readable_share(stratum: Stratum, blocks: list[_EncodedBlock], survey: Survey) -> float:
    """The share of the bytes of a stratum that is in files that can be read. Files that were not opened are like the others."""
    if _is_all_opened(stratum, survey):
        failed = sum(file.size for file in stratum.files if file.shown in survey.failed)
        return 1 - failed / max(stratum.nbytes, 1)
    covered = _weighted(blocks, lambda one: one.block.covered)
    in_failed = [one for one in blocks if one.block.file.shown in survey.failed]
    return 1 - _weighted(in_failed, lambda one: one.block.covered) / covered if covered else 1.0


def _readable_rows(stratum: Stratum, readable: float, survey: Survey) -> float:
    """The rows of a stratum in files that can be read."""
    rows = stratum.rows or {}
    if not _is_all_opened(stratum, survey):
        return readable * sum(rows.values())
    return sum(rows.get(file.path, 0) for file in stratum.files if file.shown not in survey.failed)


def _weighted(blocks: list[_EncodedBlock], value: Callable[[_EncodedBlock], float]) -> float:
    """The sum of a value of the blocks, each as often as it is in the corpus."""
    return sum(one.block.weight * value(one) for one in blocks)


def _clipped(values: pa.LargeStringArray) -> tuple[pa.LargeStringArray, npt.NDArray[np.float64]]:
    """The documents with very long ones cut, and the ratio of the full length to that, for each."""
    lengths = np.diff(text_offsets(values))
    scale = np.ones(len(values))
    parts = []
    last = 0
    for i in np.flatnonzero(lengths > MOST_ENCODED).tolist():
        data = values[i].as_buffer()[:MOST_ENCODED].to_pybytes()
        data = data[: whole_characters(data)]
        parts += [values.slice(last, i - last), one_text(data, pa.large_string())]
        scale[i], last = lengths[i] / len(data), i + 1
    return (pa.concat_arrays([*parts, values.slice(last)]) if parts else values), scale


def _variance(blocks: list[_EncodedBlock], stratum: Stratum, nbytes: float, text: float) -> float:
    """The variance of a ratio estimate, from the differences between neighbours, since the places are evenly spaced.

    The blocks stand for `nbytes` on disk, which have `text` bytes of text. Where only some files were opened, files are
    compared and not blocks: text within a file is alike.
    """
    covered = _weighted(blocks, lambda one: one.block.covered)
    share_read = sum(one.encoded for one in blocks) / text if text else 1.0
    if not covered or share_read >= 1:
        return 0.0
    ratio = _weighted(blocks, lambda one: one.tokens) / covered
    by_file = stratum.opened < len(stratum.files)
    residuals: dict[tuple[object, ...], float] = {}
    for one in blocks:
        spot = one.block.file.path, None if by_file else one.block.spot
        residual = one.block.weight * (one.tokens - ratio * one.block.covered)
        residuals[spot] = residuals.get(spot, 0.0) + residual
    count = len(residuals)
    if count == 1 or sum(one.tokens > 0 for one in blocks) == 1:
        return (ratio * nbytes / 4) ** 2  # there is nothing to compare with
    differences = np.diff(np.array(list(residuals.values())))
    squares = count / (count - 1) * float((differences**2).sum()) / 2
    few_spots = (_T.get(count - 1, 2.0) / 1.96) ** 2
    return few_spots * (1 - share_read) * (nbytes / covered) ** 2 * squares
