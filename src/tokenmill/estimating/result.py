"""The result of an estimate: its figures, as values and in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tokenmill.display import html_table, one_line
from tokenmill.estimating.findings import Finding
from tokenmill.formatting import human, human_time, in_words, some
from tokenmill.habits import Answering


@dataclass(frozen=True)
class Estimate(Answering):
    """What a build would produce. The number of tokens is between `low` and `high` with 95% confidence.

    If `exact`, everything was encoded and counted. `head_share` is the share of the input behind the heads of files that can
    only be read from the start: it was not seen, and the interval assumes that it is like the heads. `seconds` and
    `memory` are for a first build on this machine. `quantiles` are of tokens per document; one that falls on a document that
    was encoded only in part is left out. Files that cannot be read (`failed_files`) count for nothing else.
    """

    tokens: int  # with the ids around documents
    low: int  # of the interval
    high: int  # of the interval
    documents: int  # that would be in the store
    text_bytes: int  # of the text of all documents, in UTF-8
    source_bytes: int  # of the input files
    disk_bytes: int  # that the store would take
    seconds: float  # that the build would take here
    memory: int  # that the build would take here, in bytes
    workers: int  # that the build would use
    engine: str  # that would encode
    dtype: str  # of the ids in the store
    files: int  # that would be read
    failed_files: int  # that a build would leave out
    ignored: dict[str, int]  # files and folders in the input that are not read, by reason
    quantiles: dict[float, int]  # tokens per document, by share of the documents
    exact: bool  # whether everything was counted
    sampled_bytes: int  # of text that was encoded
    sampled_documents: int  # that were encoded
    sampled_files: int  # that were read from
    head_share: float  # of the input, that could not be sampled
    warnings: tuple[Finding, ...]  # about unusual text and files

    @property
    def bytes_per_token(self) -> float:
        """Bytes of text per token."""
        return self.text_bytes / self.tokens if self.tokens else 0.0

    @property
    def tokens_per_document(self) -> float:
        """The mean length of a document."""
        return self.tokens / self.documents if self.documents else 0.0

    def __repr__(self) -> str:
        about = "" if self.exact else "about "
        tokens = f"{about}{some(self.tokens, 'token')}", f"{about}{some(self.documents, 'document')}"
        cost = f"{human(self.disk_bytes)} on disk", human_time(self.seconds), some(len(self.warnings), "warning")
        return one_line("Estimate", *tokens, *cost)

    def _repr_html_(self) -> str:
        warnings = [("warning", str(finding)) for finding in self.warnings]
        return html_table("estimate", [*estimate_rows(self), *warnings])

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        means = {"bytes_per_token": self.bytes_per_token, "tokens_per_document": self.tokens_per_document}
        quantiles = {f"p{round(100 * share)}": count for share, count in self.quantiles.items()}
        return {**asdict(self), **means, "quantiles": quantiles, "warnings": [asdict(one) for one in self.warnings]}


def estimate_table(found: Estimate) -> str:
    """An estimate as a table for people, with its warnings below."""
    lines = [f"{name:<12}{value}" for name, value in estimate_rows(found)]
    return "\n".join([*lines, *(["", *(f"warning: {one}" for one in found.warnings)] if found.warnings else [])])


def estimate_rows(found: Estimate) -> list[tuple[str, str]]:
    """An estimate in words, each figure with its name."""
    about = "" if found.exact else "about "
    between = "counted" if found.exact else f"95% interval: {_short(found.low)} to {_short(found.high)}"
    failed = f", of which {about}{found.failed_files:,} cannot be read" if found.failed_files else ""
    head = f"; {found.head_share:.0%} of the input is beyond the heads that were read" if found.head_share else ""
    return [
        ("tokens", f"{about}{f'{found.tokens:,}' if found.exact else _short(found.tokens)} ({between})"),
        ("documents", f"{about}{found.documents:,}{_lengths(found)}"),
        ("text", f"{about}{human(found.text_bytes)}, {found.bytes_per_token:.2f} bytes per token"),
        ("source", f"{human(found.source_bytes)} in {some(found.files, 'file')}{failed}"),
        *([("ignored", in_words(found.ignored))] if found.ignored else []),
        ("store", f"{about}{human(found.disk_bytes)} on disk, ids as {found.dtype}"),
        (
            "build",
            f"about {human_time(found.seconds)} with {some(found.workers, 'worker')} of {found.engine},"
            f" {human(found.memory)} of memory",
        ),
        (
            "sample",
            f"{human(found.sampled_bytes)} of text, {_sampled(found)} {some(found.sampled_files, 'file')}{head}",
        ),
    ]


def _lengths(found: Estimate) -> str:
    """The tokens per document, and how they are spread if there are several documents."""
    if found.documents <= 1:
        return f", of {some(round(found.tokens_per_document), 'token')}" if found.documents else ""
    shown = [(name, share) for name, share in (("median", 0.5), ("p95", 0.95)) if share in found.quantiles]
    spread = ", ".join(f"{name} {found.quantiles[share]:,}" for name, share in shown)
    return f", {found.tokens_per_document:,.0f} tokens each{f'; {spread}' if spread else ''}"


def _sampled(found: Estimate) -> str:
    if found.sampled_bytes and not found.sampled_documents:
        return "from parts of documents in"
    return f"{some(found.sampled_documents, 'document')} from"


def _short(number: int) -> str:
    """A number rounded to the four digits an estimate is good for."""
    for unit, size in (("trillion", 10**12), ("billion", 10**9), ("million", 10**6)):
        if number >= size:
            return f"{number / size:.4g} {unit}"
    return f"{number:,}"
