"""Warnings about unusual text in a sample, each with the option that fixes it.

A warning that rests on a guess (wrongly decoded characters, a field that looks like an id) needs clear evidence: a false
alarm about good text is worse than silence.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from tokenmill.display import fields_in_one_line
from tokenmill.documents import BLANK, text_offsets
from tokenmill.estimating.sampled import SampledBlock
from tokenmill.reading.utf8 import places

FEW = 3  # fewer documents are not a pattern
EOS_SHARE = 0.05  # of documents that end in the eos token
EMPTY_SHARE = 0.01
GARBLED_SHARE = 0.01  # of documents with wrongly decoded characters; a text about encodings contains some
COPY_SHARE = 0.02  # of the sampled documents that are copies of another one
COPY_BYTES = 32  # shorter documents may be equal by chance
SAME_SHARE = 0.5  # of documents with the same text
LIKE_IDS_SHARE = 0.9  # of documents that are a number, an address or an id
ENOUGH = 20  # documents needed to say that most are alike
ONE_SHARE = 0.4  # of all text in one document
LARGE_DOCUMENT = 1 << 20  # bytes; a smaller one may well be most of a small corpus
HASHED = 200_000  # documents compared, at most
FIX_TEXT = "Fix the text at its origin: a build takes it as it is"
GARBLED_WHAT = "contain UTF-8 that was read as Latin-1, such as 'Ã©' for 'é'"

# UTF-8 read as Latin-1 or cp1252. Only sequences that no language writes: Portuguese words end in "Ã", but not in "Ã©".
_AFTER = (
    "\u0080-\u00bf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc"
    "\u2013-\u2022\u2026\u2030\u2039\u203a\u20ac\u2122"
)
GARBLED = (
    "\u00e2\u20ac[\u2122\u0153\u009d\u201c\u201d\u02dc\u00a6\u00a2\u2013\u2014]"  # quotes, dashes, an ellipsis
    "|\u00e2\u0080[\u0090-\u00a6]"
    "|\u00c3[\u00a1-\u00a9\u00ae\u00af\u00b1\u00b3-\u00b6\u00b9\u00bc]"  # accented letters
    "|\u00c2[\u00a0\u00a9\u00ab\u00ae\u00b0\u00b1\u00b7\u00bb]"
    f"|(?:[\u00d0\u00d1][{_AFTER}]){{4}}"  # Cyrillic
    f"|(?:[\u00e3-\u00e9][{_AFTER}]{{2}}){{3}}"  # Chinese, Japanese
)
_LIKE_ID = re.compile(r"\s*(?:https?://\S+|www\.\S+|[-+]?[\d.,:/ -]+|[0-9a-fA-F-]{16,}|[\w./-]*\d[\w./-]*)\s*")


@dataclass(frozen=True, slots=True)
class Finding:
    """A warning: `seen` times in the sample, about `count` times in the corpus, an example of the place, and the remedy."""

    kind: str
    what: str
    seen: int
    count: int
    place: str | None
    remedy: str

    __repr__ = fields_in_one_line

    def __str__(self) -> str:
        place = f" (for example {self.place})" if self.place else ""
        return f"{self.what}{place}. {self.remedy}"


@dataclass(slots=True)
class _Seen:
    """How often something is in the sample and in the corpus, and where it was first seen."""

    count: int = 0
    weight: float = 0.0
    place: Callable[[], str] | None = None  # may read the file up to there

    def add(self, block: SampledBlock, row: int, count: int, scale: float) -> None:
        """Add `count` cases in a block, the first of them at a row of its texts. Each is `scale` times in the corpus."""
        self.place = self.place or partial(block.place, row)
        self.count += count
        self.weight += scale * count

    def finding(self, kind: str, what: str, remedy: str) -> Finding:
        return Finding(kind, what, self.count, round(self.weight), self.place() if self.place else None, remedy)


class Inspection:
    """Looks at the documents of a sample. Costs about 10 ms per MB, most of it for wrongly decoded characters."""

    def __init__(self, eos_name: str | None) -> None:
        self.eos_name = eos_name
        self.documents, self.parts, self.weight = 0, 0, 0.0
        self.seen: defaultdict[str, _Seen] = defaultdict(_Seen)
        self.bad: defaultdict[str, _Seen] = defaultdict(_Seen)
        self.rows_weight = 0.0
        self.hashes: Counter[int] = Counter()
        self.longest = 0

    def add(self, block: SampledBlock, special: npt.NDArray[np.int64], scale: float) -> None:
        """Look at a block. `scale` is how often each of its documents is in the corpus; `special` lists those that contain
        special tokens."""
        self._add_skips(block, scale)
        values = block.texts.values
        garbled = places(pc.match_substring_regex(values, GARBLED))
        if not block.whole:
            self.parts += len(values)
            self._note("garbled parts", block, garbled, scale)
            return
        self.documents += len(values)
        self.weight += scale * len(values)
        self.rows_weight += scale * len(values)
        lengths = np.diff(text_offsets(values)) if len(values) else np.empty(0, np.int64)
        self.longest = max(self.longest, int(lengths.max(initial=0)))
        ended = self._ended(values)
        self._note("garbled", block, garbled, scale)
        self._note("replaced", block, places(pc.match_substring(values, "\ufffd")), scale)
        self._note("empty", block, np.flatnonzero(lengths == 0), scale)
        self._note("eos", block, ended, scale)
        self._note("special", block, np.setdiff1d(special, ended), scale)
        self._note("ids", block, _like_ids(values, lengths), scale)
        if self.documents <= HASHED:
            self._note("copy", block, self._copies_in(values, lengths), scale)

    def findings(
        self, *, special_tokens: str, text_field: str, all_text: float, known_share: float, unsplit: int
    ) -> list[Finding]:
        """The warnings. `known_share` is the share of the corpus that was sampled. `unsplit` documents are files that should be
        split, says another warning: then it does not matter how they end."""
        is_it = f"Is {text_field!r} the field with the text? Choose with --text-field"
        lone_eos = "Each becomes a lone eos; choose another field with --text-field?"
        second_eos = "Avoid a second one with --eos none"
        found: list[Finding | None] = [
            *(self._bad_rows(reason, seen) for reason, seen in self.bad.items()),
            self._common("eos", EOS_SHARE, "already end in the eos token", second_eos, few=unsplit + 1),
            self._special(special_tokens),
            self._common("empty", EMPTY_SHARE, "are empty", lone_eos),
            self._same(is_it),
            self._common("ids", LIKE_IDS_SHARE, "are a number, an address or an id", is_it, few=ENOUGH),
            self._copies(known_share),
            self._common("garbled", GARBLED_SHARE, GARBLED_WHAT, FIX_TEXT),
            self._garbled_parts(),
            self._common("replaced", GARBLED_SHARE, "contain U+FFFD, which replaces unreadable characters", FIX_TEXT),
            self._one_document(all_text),
        ]
        return [finding for finding in found if finding is not None]

    def _add_skips(self, block: SampledBlock, scale: float) -> None:
        for skip in () if block.counted else block.texts.skips:
            if skip.reason == BLANK:
                continue
            self.bad[skip.reason].add(block, skip.row, skip.rows, scale)
            self.rows_weight += scale * skip.rows

    def _note(self, kind: str, block: SampledBlock, documents: npt.NDArray[np.int64], scale: float) -> None:
        if len(documents):
            self.seen[kind].add(block, block.texts.row_of(int(documents[0])), len(documents), scale)

    def _ended(self, values: pa.LargeStringArray) -> npt.NDArray[np.int64]:
        """The documents that end in the eos token."""
        if self.eos_name is None:
            return np.empty(0, np.int64)
        return places(pc.or_(pc.ends_with(values, self.eos_name), pc.ends_with(values, self.eos_name + "\n")))

    def _copies_in(self, values: pa.LargeStringArray, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The documents that were seen before."""
        copies = []
        if len(values):
            offsets, data = text_offsets(values), memoryview(values.buffers()[2] or b"")
            for i in np.flatnonzero(lengths):
                key = xxhash.xxh3_64_intdigest(data[offsets[i] : offsets[i + 1]])
                self.hashes[key] += 1
                if self.hashes[key] > 1 and lengths[i] >= COPY_BYTES:
                    copies.append(i)
        return np.array(copies, np.int64)

    def _share(self, seen: _Seen) -> float:
        return seen.weight / self.weight if self.weight else 0.0

    def _common(self, kind: str, least: float, what: str, remedy: str, *, few: int = FEW) -> Finding | None:
        """A finding about at least a `least` share of the documents."""
        seen = self.seen[kind]
        if seen.count < few or self._share(seen) < least:
            return None
        return seen.finding(kind, f"{percent(self._share(seen))} of the documents {what}", remedy)

    def _garbled_parts(self) -> Finding | None:
        """Of a long text, most parts must be garbled."""
        seen = self.seen["garbled parts"]
        if self.parts < ENOUGH or seen.count < SAME_SHARE * self.parts:
            return None
        return seen.finding("garbled", f"long texts {GARBLED_WHAT}", FIX_TEXT)

    def _bad_rows(self, reason: str, seen: _Seen) -> Finding:
        share = percent(seen.weight / self.rows_weight) if self.rows_weight else "some"
        remedy = "A build leaves them out and lists them in quarantine.jsonl; --on-error raise stops at the first"
        return seen.finding("bad rows", f"{share} of the rows are bad: {reason}", remedy)

    def _special(self, policy: str) -> Finding | None:
        seen = self.seen["special"]
        if not seen.count or policy == "text":
            return None
        remedy = {
            "parse": "They will be encoded as special tokens, which may not be intended; --special-tokens text prevents it",
            "error": "The build would stop at the first: --special-tokens text or --special-tokens parse",
        }[policy]
        what = f"{percent(self._share(seen))} of the documents contain the name of a special token"
        return seen.finding("special_tokens", what, remedy)

    def _same(self, remedy: str) -> Finding | None:
        most = self.hashes.most_common(1)[0][1] if self.hashes else 0
        total = sum(self.hashes.values())
        if total < ENOUGH or most < SAME_SHARE * total:
            return None
        what = f"{percent(most / total)} of the documents have the same text"
        return Finding("same", what, most, round(most / total * self.weight), None, remedy)

    def _copies(self, known_share: float) -> Finding | None:
        """Copies in the sample are a lower bound: a sample rarely contains both of a pair."""
        seen = self.seen["copy"]
        share = seen.count / self.documents if self.documents else 0.0
        if seen.count < FEW or share < COPY_SHARE:
            return None
        what = f"{percent(share)} of the documents are copies of another one"
        if known_share < 1:
            sampled = f"{seen.count:,} of {self.documents:,} sampled; copies outside the sample are not seen"
            what = f"at least {what} ({sampled})"
        finding = seen.finding("copies", what, "Deduplicate before building, unless they are intended")
        return replace(finding, count=round(share * self.weight))

    def _one_document(self, all_text: float) -> Finding | None:
        if self.longest < max(LARGE_DOCUMENT, ONE_SHARE * all_text) or self.documents < 2:
            return None
        what = f"one document is {percent(self.longest / all_text)} of all text"
        return Finding("one document", what, 1, 1, None, "Is it one? --format lines or --separator splits text files")


def _like_ids(values: pa.LargeStringArray, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    short = np.flatnonzero((lengths > 0) & (lengths < 200))
    if len(short) < len(lengths) * LIKE_IDS_SHARE:
        return np.empty(0, np.int64)
    return np.array([i for i in short.tolist() if _LIKE_ID.fullmatch(values[i].as_py())], np.int64)


def percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{100 * share:.2g}%"
