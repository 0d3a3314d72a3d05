"""`estimate`: what a build would produce and cost, from a sample, in seconds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenmill.building.destination import without_own_files
from tokenmill.building.reporting import announce_proof, listener_for
from tokenmill.building.request import source_for
from tokenmill.encoding.api import load_tokenizer
from tokenmill.encoding.tokenizer import Tokenizer
from tokenmill.errors import UsageError
from tokenmill.estimating.cost import build_cost
from tokenmill.estimating.file_findings import (
    equal_files,
    only_heads,
    other_field,
    unreadable,
    whole_files,
    without_separator,
)
from tokenmill.estimating.findings import Finding
from tokenmill.estimating.result import Estimate
from tokenmill.estimating.survey import Survey
from tokenmill.estimating.totals import EncodedSample, Totals
from tokenmill.formatting import parse_size
from tokenmill.option_calls import takes
from tokenmill.options import EstimateArguments
from tokenmill.reading import Source, check_fields, text_weight
from tokenmill.reading.spool import Spool

LEAST_SAMPLE = 64 << 10


@takes(EstimateArguments, "what tm.read takes, or what it returns")
def estimate(source: Any, options: EstimateArguments) -> Estimate:
    """What `build` with the same arguments would produce, from about `sample` of text, read all over the corpus.

    Takes about `seconds` for reading and encoding, whatever the size of the corpus, plus the time to load the tokenizer; its
    engines are compared first if they never were, which a line on standard error says. A corpus smaller than the sample is
    counted, not estimated. The sample is the same every time, unless the time is up before it is read. Nothing is written
    except, in a temporary folder, the heads of compressed files, up to 256 MB of text, and all of a table or list in memory.

    Example:
        expected = tm.estimate("data/*.jsonl", "path/to/tokenizer.json")
        expected.tokens, expected.seconds, expected.disk_bytes
    """
    source = without_own_files(source_for(source, options))
    if not source._streams:
        return _estimated(source, options)
    for stream in source._streams:
        if not hasattr(stream.data, "__len__"):
            raise UsageError(
                f"{stream.name} can be read only once or has no length, and an estimate would use it up:"
                " save it to a file, or build it"
            )
    with TemporaryDirectory(prefix="tokenmill-estimate-") as folder:
        spool = Spool(source, Path(folder), parse_size(options.sample, "sample"))
        saved = [segment.file for stream in source._streams for segment in spool.segments(stream)]
        return _estimated(replace(source, files=(*source.files, *saved), _streams=()), options)


def _estimated(source: Source, options: EstimateArguments) -> Estimate:
    sample_bytes, seconds = parse_size(options.sample, "sample"), options.seconds
    loaded = load_tokenizer(options.tokenizer, options.engine, options.special_tokens)
    check_fields(source)
    around = loaded._resolve("bos", options.bos), loaded._resolve("eos", options.eos)
    weight = sum(map(text_weight, source.files))
    announce_proof(loaded, min(weight, sample_bytes), listener_for("auto"))
    loaded = loaded._for_corpus(min(weight, sample_bytes))
    if weight <= sample_bytes:
        encoded = EncodedSample(loaded, around)
        with Survey(source, sample_bytes, seconds, everything=True) as survey:
            if encoded.add(survey):
                return _estimate(survey, encoded, loaded)
        sample_bytes = min(sample_bytes, max(LEAST_SAMPLE, encoded.encoded_bytes))  # it was larger than expected
    encoded = EncodedSample(loaded, around)
    with Survey(source, sample_bytes, seconds) as survey:
        encoded.add(survey)
        return _estimate(survey, encoded, loaded)


def _estimate(survey: Survey, encoded: EncodedSample, tokenizer: Tokenizer) -> Estimate:
    totals = encoded.totals(survey)
    margin = totals.margin + encoded.clipped_margin
    return Estimate(
        tokens=round(totals.tokens),
        low=max(0, round(totals.tokens - margin)),
        high=round(totals.tokens + margin),
        documents=round(totals.documents),
        text_bytes=round(totals.text_bytes),
        source_bytes=survey.source.num_bytes,
        **build_cost(encoded, tokenizer, survey, totals)._asdict(),
        engine=f"{tokenizer.choose_engine()} {tokenizer.engine_version}",
        dtype=tokenizer.dtype.name,
        files=len(survey.source.files),
        failed_files=_failed_files(survey),
        ignored=survey.source.ignored_by_reason,
        quantiles=totals.quantiles(),
        exact=survey.everything and not encoded.clipped_tokens,
        sampled_bytes=encoded.encoded_bytes,
        sampled_documents=encoded.inspection.documents,
        sampled_files=len(survey.files_read),
        head_share=_head_share(survey),
        warnings=tuple(_warnings(survey, encoded, totals, tokenizer)),
    )


def _warnings(survey: Survey, encoded: EncodedSample, totals: Totals, tokenizer: Tokenizer) -> list[Finding]:
    source = survey.source
    known_share = 1.0 if survey.everything else min(1.0, encoded.encoded_bytes / max(totals.text_bytes, 1))
    one_document = whole_files(source) or without_separator(survey.unseparated, source.separator)
    findings: list[Finding | None] = [
        unreadable(survey.failed, len(survey.files_read), len(source.files)),
        other_field(source),
        one_document,
        *encoded.inspection.findings(
            special_tokens=tokenizer.special_tokens,
            text_field=source.text_field,
            all_text=totals.text_bytes,
            known_share=known_share,
            unsplit=one_document.count if one_document is not None else 0,
        ),
        equal_files(source.files),
        only_heads(survey.heads),
    ]
    return [finding for finding in findings if finding is not None]


def _failed_files(survey: Survey) -> int:
    """How many files a build would leave out. Files that were not opened count like those that were."""
    failed, opened = len(survey.failed), len(survey.files_read)
    return round(failed * len(survey.source.files) / opened) if opened else 0


def _head_share(survey: Survey) -> float:
    """The share of the input behind heads. Files that were not opened count like those that were."""
    hidden = 0.0
    for stratum in survey.strata:
        heads = [head for head in survey.heads if head.stratum is stratum]
        size = sum(head.size for head in heads)
        if size:
            hidden += stratum.nbytes * (1 - min(1.0, sum(head.consumed for head in heads) / size))
    return hidden / max(survey.source.num_bytes, 1)
