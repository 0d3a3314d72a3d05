"""What a build would give and take, from a sample, in seconds; and what is worth knowing before a long one."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.building.destination import without_own_files
from tokenmill.documents import BLOCK_BYTES, text_offsets
from tokenmill.encoding import Encoder, Tokenizer, load_tokenizer
from tokenmill.errors import UsageError
from tokenmill.estimating.blocks import Block, Stratum
from tokenmill.estimating.cost import Cost, build_cost
from tokenmill.estimating.fields import other_field
from tokenmill.estimating.findings import Finding, Looked, equal_files, unreadable, whole_files
from tokenmill.estimating.survey import Survey
from tokenmill.formatting import parse_size
from tokenmill.reading import Source, check_fields, read, text_weight

LEAST_SAMPLE = 64 << 10
OVERFLOW = 4  # times the sample: so much text where less was expected is sampled after all
FIRST_CALL, LONG_CALL = 256 << 10, 0.2  # bytes for the first call of an engine; seconds that a call should not take
CLIPPED = 4 << 20  # of a longer document so much is encoded, and the rest taken to be like it
STANDARD_ERRORS = 2.2  # hold the truth 19 times of 20, as measured; 1.96 would, were places of a sample independent
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
# Student's t for 95%, by degrees of freedom; beyond these it is nearly 2.
_T = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23}


@dataclass(frozen=True)
class Estimate:
    """What a build would give. `low` and `high` hold the number of tokens 19 times of 20, as far as the sample can tell.

    With `exact` everything was read and counted. `head_share` is the share of the input of which only the head could be
    read: what lies behind it may be of another kind, and the interval knows nothing of that. `seconds` and `memory` are for
    a first build on this machine, as it is now; `quantiles` are tokens a document.
    """

    tokens: int
    low: int
    high: int
    documents: int
    text_bytes: int
    source_bytes: int
    disk_bytes: int
    seconds: float
    memory: int
    workers: int
    engine: str
    dtype: str
    files: int
    quantiles: dict[float, int]
    exact: bool
    sampled_bytes: int
    sampled_documents: int
    sampled_files: int
    head_share: float
    warnings: tuple[Finding, ...]

    @property
    def bytes_per_token(self) -> float:
        return self.text_bytes / self.tokens if self.tokens else 0.0

    @property
    def tokens_per_document(self) -> float:
        return self.tokens / self.documents if self.documents else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        means = {"bytes_per_token": self.bytes_per_token, "tokens_per_document": self.tokens_per_document}
        quantiles = {f"p{round(100 * share)}": count for share, count in self.quantiles.items()}
        return {**asdict(self), **means, "quantiles": quantiles, "warnings": [one.as_dict() for one in self.warnings]}


def estimate(
    source: Any,
    tokenizer: Any,
    *,
    eos: str | int | None = "auto",
    bos: str | int | None = None,
    special_tokens: str | None = None,
    engine: str | None = None,
    sample: str | int = "32MB",
    seconds: float = 5.0,
    **reading: Any,
) -> Estimate:
    """What `build` with the same arguments would give, from about `sample` of text, read all over the corpus.

    Takes some `seconds` for reading and encoding, whatever the size of the corpus, and the loading of the tokenizer; an
    engine is put on trial if none was before. A corpus smaller than the sample is counted, not estimated. The sample is the
    same every time, unless the time is up before it is read: then it is a smaller one. Nothing is written but the heads of
    compressed files: up to 256 MB of text, in a temporary folder.
    """
    sample_bytes = parse_size(sample, "sample")
    if sample_bytes < LEAST_SAMPLE:
        raise UsageError(f"sample={sample!r} is less than 64KiB; some MB are usual")
    if not seconds > 0:
        raise UsageError(f"seconds={seconds} must be more than 0")
    if not isinstance(source, Source):
        source = read(*(source if isinstance(source, tuple) else (source,)), **reading)
    elif reading:
        raise UsageError(f"give {', '.join(reading)} to tm.read, where the source was made")
    if source.streams:
        raise UsageError(
            f"{source.streams[0].name} can be read only once, and an estimate would use it up: save it as a file, or build it"
        )
    if source.limit is not None:
        raise UsageError(f"limit={source.limit} is for a trial build; an estimate is of the whole input")
    source = without_own_files(source)
    loaded = load_tokenizer(tokenizer, engine, special_tokens)
    check_fields(source)
    around = loaded.resolve("bos", bos), loaded.resolve("eos", eos)
    everything = sum(map(text_weight, source.files)) <= sample_bytes
    counted = _Count(source, loaded, around)
    if everything and not counted.take(Survey(source, sample_bytes, seconds, everything=True)):
        sample_bytes, everything = min(sample_bytes, max(LEAST_SAMPLE, counted.encoded)), False
        counted = _Count(source, loaded, around)
    if not everything:
        counted.take(Survey(source, sample_bytes, seconds))
    return counted.estimate


class _Count:
    """Encodes a sample and sums it up."""

    def __init__(self, source: Source, tokenizer: Tokenizer, around: tuple[int | None, int | None]) -> None:
        self.source, self.tokenizer, self.around = source, tokenizer, around
        self.added = sum(one is not None for one in around)
        self.cost = Cost()
        with self.cost.loading():
            self.encoder: Encoder = tokenizer.encoder(*around)
        eos_name = tokenizer.token_name(around[1])
        self.looked = Looked(eos_name if eos_name in tokenizer.added else None)
        self.blocks: list[_Counted] = []
        self.pending: list[Block] = []
        self.pending_bytes, self.call_bytes, self.encoded = 0, FIRST_CALL, 0

    def take(self, survey: Survey) -> bool:
        """Count a survey. False where all of it was wanted, and it turned out to be too much."""
        most = OVERFLOW * survey.sample_bytes
        with survey:
            for block in survey.blocks():
                self.pending.append(block)
                self.pending_bytes += _bytes_of(block)
                if self.pending_bytes >= self.call_bytes:
                    self._encode()
                    if survey.everything and (self.encoded > most or time.monotonic() > survey.deadline):
                        return False
            self._encode()
            if survey.stopped and survey.everything:
                return False
            self.estimate = self._summed(survey)
        return True

    def _encode(self) -> None:
        blocks, self.pending, self.pending_bytes = self.pending, [], 0
        filled = [block for block in blocks if len(block.values)]
        if filled:
            values = pa.concat_arrays([block.values for block in filled])
            values, scale = _clipped(values)
            nbytes = int(np.diff(text_offsets(values)).sum())
            with self.cost.encoding(nbytes) as took:
                tokens = self.encoder.encode(values)
            self.call_bytes = (
                self.call_bytes // 2 if took.seconds > LONG_CALL else min(2 * self.call_bytes, BLOCK_BYTES)
            )
            self.call_bytes = max(self.call_bytes, FIRST_CALL)
            self.encoded += nbytes
            lengths = np.diff(tokens.ends, prepend=0) * scale
            special = np.asarray(tokens.special, np.int64)
        at = 0
        for block in blocks:
            count = len(block.values)
            own = lengths[at : at + count] if count else np.empty(0)
            inside = special[(special >= at) & (special < at + count)] - at if count else np.empty(0, np.int64)
            at += count
            nbytes = _bytes_of(block)
            encoded = nbytes if not count else nbytes / float(scale[at - count : at].max())
            self.blocks.append(_Counted(block, nbytes, encoded, own if block.whole else own - self.added, inside))

    def _summed(self, survey: Survey) -> Estimate:
        """Each kind of file by its own ratio of tokens to bytes on disk, which is known for all of it."""
        tokens = documents = text = skips = variance = 0.0
        lengths: list[npt.NDArray[np.float64]] = []
        weights: list[npt.NDArray[np.float64]] = []
        per_source: list[float] = []
        for number, stratum in enumerate(survey.strata):
            own = [counted for counted in self.blocks if counted.block.stratum == number]
            own.sort(key=lambda one: one.block.spot)
            covered = sum(one.block.weight * one.block.covered for one in own)
            scale = 1.0 if survey.everything else stratum.nbytes / covered if covered else 0.0
            here = sum(one.block.weight * one.tokens for one in own)
            found = sum(one.block.weight * one.documents for one in own)
            many = scale * found
            if stratum.rows is not None and not survey.everything:
                rows = sum(one.block.weight * one.rows for one in own)
                many = stratum.rows * (found / rows if rows else 1.0)
            partial = sum(1 for one in own if not one.block.whole)
            tokens += scale * here + (many * self.added if partial and not found else 0.0)
            documents += many
            skips += scale * sum(one.block.weight * len(one.block.skips) for one in own)
            own_text = scale * sum(one.block.weight * one.nbytes for one in own)
            text += own_text
            per_source.append(own_text / max(stratum.nbytes, 1))
            if not survey.everything:
                variance += _variance(own, stratum, covered, own_text)
            for one in own:
                each, times = one.documents_like(self.added)
                lengths.append(each)
                weights.append(np.full(len(each), scale * times))
                self.looked.look(one.block, one.special, scale * one.block.weight)
        spread = STANDARD_ERRORS * math.sqrt(variance)
        known = 1.0 if survey.everything else min(1.0, self.encoded / max(text, 1))
        plan = build_cost(self.cost, self.tokenizer, survey, per_source, tokens, documents, text, skips)
        return Estimate(
            tokens=round(tokens),
            low=max(0, round(tokens - spread)),
            high=round(tokens + spread),
            documents=round(documents),
            text_bytes=round(text),
            source_bytes=self.source.num_bytes,
            disk_bytes=plan.disk_bytes,
            seconds=plan.seconds,
            memory=plan.memory,
            workers=plan.workers,
            engine=f"{self.tokenizer.engine} {self.tokenizer.engine_version}",
            dtype=self.tokenizer.dtype.name,
            files=len(self.source.files),
            quantiles=_quantiles(lengths, weights),
            exact=survey.everything,
            sampled_bytes=self.encoded,
            sampled_documents=self.looked.documents,
            sampled_files=len(survey.files_read),
            head_share=_head_share(survey),
            warnings=tuple(self._warnings(survey, text, known)),
        )

    def _warnings(self, survey: Survey, text: float, known: float) -> list[Finding]:
        found: list[Finding | None] = [
            unreadable(survey.failed, len(survey.files_read), len(self.source.files)),
            other_field(self.source),
            whole_files(self.source.files, self.source.separator),
            *self.looked.findings(
                special_tokens=self.tokenizer.special_tokens,
                text_field=self.source.text_field,
                all_text=text,
                known=known,
            ),
            equal_files(self.source.files),
            _only_heads(survey),
        ]
        return [one for one in found if one is not None]


@dataclass(slots=True)
class _Counted:
    """A block, and what it holds."""

    block: Block
    nbytes: int
    encoded: float
    lengths: npt.NDArray[np.float64]
    special: npt.NDArray[np.int64]

    @property
    def tokens(self) -> float:
        return float(self.lengths.sum())

    @property
    def documents(self) -> int:
        if self.block.documents is not None:
            return self.block.documents
        return len(self.lengths) if self.block.whole else 0

    def documents_like(self, added: int) -> tuple[npt.NDArray[np.float64], float]:
        """Tokens of documents, and how often there are such: its own; or the one it is a part of, if that is like it."""
        block = self.block
        if block.whole or not block.covered:
            return self.lengths, block.weight
        share = block.covered / block.file.size
        return np.array([self.tokens / share + added]), block.weight * share

    @property
    def rows(self) -> int:
        return 0 if self.block.counted else self.block.rows


def _bytes_of(block: Block) -> int:
    offsets = text_offsets(block.values)
    return int(offsets[-1] - offsets[0]) if len(block.values) else 0


def _clipped(values: pa.LargeStringArray) -> tuple[pa.LargeStringArray, npt.NDArray[np.float64]]:
    """Documents with only the beginning of very long ones, and how many times that each is."""
    lengths = np.diff(text_offsets(values))
    scale = np.ones(len(values))
    long = np.flatnonzero(lengths > CLIPPED)
    if not len(long):
        return values, scale
    parts = []
    last = 0
    for i in long.tolist():
        data = values[i].as_buffer()[:CLIPPED].to_pybytes().decode("utf-8", "ignore").encode()
        offsets = pa.py_buffer(np.array([0, len(data)], np.int64))
        one = pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(data)])
        parts += [values.slice(last, i - last), one]
        scale[i], last = lengths[i] / len(data), i + 1
    return pa.concat_arrays([*parts, values.slice(last)]), scale


def _variance(own: list[_Counted], stratum: Stratum, covered: float, text: float) -> float:
    """Of a ratio estimate, by how much neighbours in the sample differ: places were taken at even distances.

    Where only some files were opened, files are compared, since what lies in one is alike.
    """
    read = sum(one.encoded for one in own) / text if text else 1.0
    if not covered or read >= 1:
        return 0.0
    ratio = sum(one.block.weight * one.tokens for one in own) / covered
    by_file = stratum.looked_at < len(stratum.files)
    spots: dict[tuple[object, ...], float] = {}
    for one in own:
        spot = one.block.spot[:1] if by_file else one.block.spot
        spots[spot] = spots.get(spot, 0.0) + one.block.weight * (one.tokens - ratio * one.block.covered)
    residuals = np.array(list(spots.values()))
    count = len(residuals)
    if sum(one.tokens > 0 for one in own) == 1:
        return (ratio * stratum.nbytes / 4) ** 2  # nothing to compare with
    wider = (_T.get(count - 1, 2.0) / 1.96) ** 2
    squares = count / (count - 1) * float((np.diff(residuals) ** 2).sum()) / 2
    return wider * (1 - read) * (stratum.nbytes / covered) ** 2 * squares


def _quantiles(lengths: list[npt.NDArray[np.float64]], weights: list[npt.NDArray[np.float64]]) -> dict[float, int]:
    if not sum(map(len, lengths)):
        return {}
    values, weight = np.concatenate(lengths), np.concatenate(weights)
    order = np.argsort(values, kind="stable")
    values, reached = values[order], np.cumsum(weight[order])
    at = np.searchsorted(reached, np.array(QUANTILES) * reached[-1])
    return {
        share: round(float(values[min(i, len(values) - 1)])) for share, i in zip(QUANTILES, at.tolist(), strict=True)
    }


def _head_share(survey: Survey) -> float:
    """The share of the input that lies behind heads; those of files not opened count as those that were."""
    hidden = 0.0
    total = max(survey.source.num_bytes, 1)
    for stratum in survey.strata:
        mine = {file.path for file in stratum.files}
        heads = [head for head in survey.heads if head.file.path in mine]
        size = sum(head.size for head in heads)
        if size:
            hidden += stratum.nbytes * (1 - min(1.0, sum(head.consumed for head in heads) / size))
    return hidden / total


def _only_heads(survey: Survey) -> Finding | None:
    cut = [head for head in survey.heads if head.consumed < head.size]
    if not cut:
        return None
    share = sum(head.consumed for head in cut) / sum(head.size for head in cut)
    what = f"only the head of {len(cut):,} {'file was' if len(cut) == 1 else 'files was'} read ({share:.0%} of their bytes)"
    remedy = "If later parts are of another kind, as in a sorted corpus, the estimate is off: give --sample more"
    return Finding("head", what, len(cut), len(cut), cut[0].file.shown, remedy)
