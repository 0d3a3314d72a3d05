"""What is odd about the text of a corpus, from a sample of it: said before a long build, with the option that mends it.

A finding that is only likely (characters gone wrong, a field that looks like an id) has to be clear to be said at all: an
alarm about good text is worse than silence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from tokenmill.documents import BLANK, Skip, text_offsets
from tokenmill.estimating.blocks import Block
from tokenmill.reading import SourceFile
from tokenmill.reading.utf8 import places

FEW = 3  # documents: less than this is no pattern
EOS_SHARE = 0.05  # of documents that end in the eos token
EMPTY_SHARE = 0.01
GARBLED_SHARE = 0.01  # of documents with characters gone wrong; a text about encodings has some
COPY_SHARE = 0.02  # of the sampled documents that are copies of another one
COPY_BYTES = 32  # shorter documents may well be equal
SAME_SHARE = 0.5  # of documents with one and the same text
LIKE_IDS_SHARE = 0.9  # of documents that are a number, an address or an id
SOME = 20  # documents it takes to say that most are alike
ONE_SHARE = 0.4  # of all text in one document
LARGE_DOCUMENT = 1 << 20  # bytes: a smaller one may be most of a corpus
HUGE_DOCUMENT = 64 << 20  # no book is as long
HASHED = 200_000  # documents compared, at most
COMPARED = 512 << 10  # bytes of a file that are compared with one of the same size: its start, middle and end
COMPARED_FILES = 64
NAMED = 3  # files in a message

# UTF-8 read as Latin-1 or cp1252. Only what no language writes: "Ã" ends Portuguese words, but no "©" follows there.
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
    """Something to know before a build: `seen` times in the sample, about `count` times in all; where, and the remedy."""

    kind: str
    what: str
    seen: int
    count: int
    place: str | None
    remedy: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        place = f" (for example {self.place})" if self.place else ""
        return f"{self.what}{place}. {self.remedy}"


@dataclass(slots=True)
class _Seen:
    """How often something was seen, how often it is in all, and where it was first."""

    count: int = 0
    weight: float = 0.0
    block: Block | None = None
    document: int | None = None
    skip: Skip | None = None

    def add(self, block: Block, documents: npt.NDArray[np.int64], weight: float) -> None:
        if len(documents) and self.block is None:
            self.block, self.document = block, int(documents[0])
        self.count += len(documents)
        self.weight += weight * len(documents)

    def place(self) -> str | None:
        return None if self.block is None else self.block.place(self.document, self.skip)


class Looked:
    """Looks at the sample's documents. Costs some 10 ms a MB, most of it for the characters."""

    def __init__(self, eos_name: str | None) -> None:
        self.eos_name = eos_name
        self.documents, self.parts, self.weight = 0, 0, 0.0
        self.seen: dict[str, _Seen] = {}
        self.bad: dict[str, _Seen] = {}
        self.rows_weight = 0.0
        self.hashes: Counter[int] = Counter()
        self.longest = 0

    def look(self, block: Block, special: Sequence[int] | npt.NDArray[np.int64], scale: float) -> None:
        """Take in a block. `scale`: how often each of its documents is in the corpus; `special`: which hold such tokens."""
        for skip in () if block.counted else block.skips:
            if skip.reason == BLANK:
                continue
            seen = self.bad.setdefault(skip.reason, _Seen(block=block, skip=skip))
            seen.count += skip.rows
            seen.weight += scale * skip.rows
            self.rows_weight += scale * skip.rows
        values = block.values
        garbled = places(pc.match_substring_regex(values, GARBLED))
        if not block.whole:
            self.parts += len(values)
            self._note("garbled parts", block, garbled, scale)
            return
        self._note("garbled", block, garbled, scale)
        self._note("replaced", block, places(pc.match_substring(values, "\ufffd")), scale)
        self.documents += len(values)
        self.weight += scale * len(values)
        self.rows_weight += scale * len(values)
        lengths = np.diff(text_offsets(values)) if len(values) else np.empty(0, np.int64)
        self.longest = max(self.longest, int(lengths.max(initial=0)))
        self._note("empty", block, np.flatnonzero(lengths == 0), scale)
        ended = self._ended(values)
        self._note("eos", block, ended, scale)
        self._note("special", block, np.setdiff1d(np.asarray(special, np.int64), ended), scale)
        self._note("ids", block, _like_ids(values, lengths), scale)
        self._hash(block, lengths, scale)

    def findings(self, *, special_tokens: str, text_field: str, all_text: float, known: float) -> list[Finding]:
        """What there is to say. `known` is the sampled share of the corpus."""
        found: list[Finding | None] = [
            *(self._bad_rows(reason, seen) for reason, seen in self.bad.items()),
            self._common(
                "eos", EOS_SHARE, "end in the eos token already", "It would stand there twice: --eos none", few=1
            ),
            self._specials(special_tokens),
            self._common(
                "empty", EMPTY_SHARE, "are empty", "Each becomes a lone eos; choose another field with --text-field?"
            ),
            self._same(text_field),
            self._common(
                "ids",
                LIKE_IDS_SHARE,
                "are a number, an address or an id",
                f"Is {text_field!r} the field with the text? Choose with --text-field",
                SOME,
            ),
            self._copies(known),
            self._common(
                "garbled",
                GARBLED_SHARE,
                "hold UTF-8 that was read as Latin-1, such as 'Ã©' for 'é'",
                "Mend the text where it was made: a build takes it as it is",
            ),
            self._garbled_parts(),
            self._common(
                "replaced",
                GARBLED_SHARE,
                "hold U+FFFD, which stands where characters could not be read",
                "Mend the text where it was made: a build takes it as it is",
            ),
            self._one_document(all_text),
        ]
        return [one for one in found if one is not None]

    def _note(self, kind: str, block: Block, which: npt.NDArray[np.int64], scale: float) -> None:
        self.seen.setdefault(kind, _Seen()).add(block, which, scale)

    def _ended(self, values: pa.LargeStringArray) -> npt.NDArray[np.int64]:
        if self.eos_name is None:
            return np.empty(0, np.int64)
        return places(pc.or_(pc.ends_with(values, self.eos_name), pc.ends_with(values, self.eos_name + "\n")))

    def _hash(self, block: Block, lengths: npt.NDArray[np.int64], scale: float) -> None:
        """Which documents were seen before."""
        if self.documents > HASHED or not len(lengths):
            return
        bounds = text_offsets(block.values)
        data = memoryview(block.values.buffers()[2] or b"")
        copies = []
        for i in np.flatnonzero(lengths):
            key = xxhash.xxh3_64_intdigest(data[bounds[i] : bounds[i + 1]])
            self.hashes[key] += 1
            if self.hashes[key] > 1 and lengths[i] >= COPY_BYTES:
                copies.append(i)
        self._note("copy", block, np.array(copies, np.int64), scale)

    def _share(self, seen: _Seen) -> float:
        return seen.weight / self.weight if self.weight else 0.0

    def _common(self, kind: str, least: float, what: str, remedy: str, few: int = FEW) -> Finding | None:
        seen = self.seen.get(kind, _Seen())
        if seen.count < few or self._share(seen) < least:
            return None
        what = f"{_percent(self._share(seen))} of the documents {what}"
        return Finding(kind, what, seen.count, round(seen.weight), seen.place(), remedy)

    def _garbled_parts(self) -> Finding | None:
        """Of one long text it takes most parts of it."""
        seen = self.seen.get("garbled parts", _Seen())
        if self.parts < SOME or seen.count < SAME_SHARE * self.parts:
            return None
        what = "long texts hold UTF-8 that was read as Latin-1, such as 'Ã©' for 'é'"
        remedy = "Mend the text where it was made: a build takes it as it is"
        return Finding("garbled", what, seen.count, round(seen.weight), seen.place(), remedy)

    def _bad_rows(self, reason: str, seen: _Seen) -> Finding:
        share = _percent(seen.weight / self.rows_weight) if self.rows_weight else "some"
        what = f"{share} of the rows are bad: {reason}"
        remedy = "They would be left out and listed in quarantine.jsonl; --on-error raise stops at the first"
        return Finding("bad rows", what, seen.count, round(seen.weight), seen.place(), remedy)

    def _specials(self, policy: str) -> Finding | None:
        seen = self.seen.get("special", _Seen())
        if not seen.count or policy == "text":
            return None
        remedy = {
            "parse": "They become those tokens' ids, as nobody may have meant; --special-tokens text keeps them as text",
            "error": "The build would stop at the first: --special-tokens text or --special-tokens parse",
        }[policy]
        what = f"{_percent(self._share(seen))} of the documents hold the name of a special token"
        return Finding("special_tokens", what, seen.count, round(seen.weight), seen.place(), remedy)

    def _same(self, text_field: str) -> Finding | None:
        often = self.hashes.most_common(1)[0][1] if self.hashes else 0
        total = sum(self.hashes.values())
        if total < SOME or often < SAME_SHARE * total:
            return None
        what = f"{_percent(often / total)} of the documents have one and the same text"
        remedy = f"Is {text_field!r} the field with the text? Choose with --text-field"
        return Finding("same", what, often, round(often / total * self.weight), None, remedy)

    def _copies(self, known: float) -> Finding | None:
        """Copies in the sample are a lower bound: of a pair that lies anywhere, a sample seldom holds both."""
        seen = self.seen.get("copy", _Seen())
        share = seen.count / self.documents if self.documents else 0.0
        if seen.count < FEW or share < COPY_SHARE:
            return None
        least = "" if known >= 1 else "at least "
        what = f"{least}{_percent(share)} of the documents are copies of another one"
        if known < 1:
            what += f" ({seen.count:,} of {self.documents:,} sampled; copies outside the sample are not seen)"
        remedy = "Deduplicate before building, if they are not meant"
        return Finding("copies", what, seen.count, round(share * self.weight), seen.place(), remedy)

    def _one_document(self, all_text: float) -> Finding | None:
        if self.longest < max(LARGE_DOCUMENT, ONE_SHARE * all_text) or self.documents < 2:
            return None
        what = f"one document is {_percent(self.longest / all_text)} of all text"
        return Finding("one document", what, 1, 1, None, "Is it one? --format lines or --separator cuts text files")


def _like_ids(values: pa.LargeStringArray, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    short = np.flatnonzero((lengths > 0) & (lengths < 200))
    if len(short) < len(lengths) * LIKE_IDS_SHARE:
        return np.empty(0, np.int64)
    return np.array([i for i in short.tolist() if _LIKE_ID.fullmatch(values[i].as_py())], np.int64)


def whole_files(files: Sequence[SourceFile], separator: str | None) -> Finding | None:
    """Text files that are one document each, and far too large for that."""
    total = sum(file.size for file in files)
    large = [f for f in files if f.format == "text" and separator is None and f.size >= LARGE_DOCUMENT]
    odd = [file for file in large if file.size >= min(ONE_SHARE * total, HUGE_DOCUMENT)]
    share = sum(file.size for file in odd) / total if total else 0.0
    if share < ONE_SHARE:
        return None
    each = "a document each" if len(odd) > 1 else "one document"
    what = f"{_named(odd)}: {_percent(share)} of the input, read as {each}"
    return Finding("one document", what, len(odd), len(odd), None, "--format lines or --separator cuts it")


def equal_files(files: Iterable[SourceFile]) -> Finding | None:
    """Files with the same bytes, as far as their size, start, middle and end say."""
    by_size: dict[tuple[int, str], list[SourceFile]] = {}
    for file in files:
        if file.size >= COPY_BYTES:
            by_size.setdefault((file.size, file.format), []).append(file)
    found: dict[tuple[int, int], list[SourceFile]] = {}
    looked = 0
    for (size, _), some in sorted(by_size.items(), key=lambda pair: -pair[0][0] * (len(pair[1]) - 1)):
        if len(some) < 2 or looked >= COMPARED_FILES:
            break
        for file in some[: COMPARED_FILES - looked]:
            looked += 1
            if (key := _parts_digest(file)) is not None:
                found.setdefault((size, key), []).append(file)
    equal = [some for some in found.values() if len(some) > 1]
    if not equal:
        return None
    count = sum(len(some) - 1 for some in equal)
    pair = " and ".join(file.shown for file in equal[0][:2])
    what = f"{count:,} files of {looked:,} that were compared are copies of another one, as {pair}"
    return Finding("equal files", what, count, count, None, "Name each content once, if they are not meant")


def _parts_digest(file: SourceFile) -> int | None:
    digest, step = xxhash.xxh3_64(), COMPARED // 3
    try:
        with open(file.path, "rb") as raw:
            for start in (0, max(0, file.size // 2 - step // 2), max(0, file.size - step)):
                raw.seek(start)
                digest.update(raw.read(step))
    except OSError:
        return None
    return int(digest.intdigest())


def unreadable(failed: dict[str, str], looked_at: int, files: int) -> Finding | None:
    """Files that failed."""
    if not failed:
        return None
    of = f" of {looked_at:,} looked at" if looked_at < files else ""
    named = "; ".join(list(failed.values())[:NAMED]) + ("; ..." if len(failed) > NAMED else "")
    return Finding(
        "unreadable",
        f"{len(failed):,} {'file' if len(failed) == 1 else 'files'}{of} cannot be read: {named}",
        len(failed),
        round(len(failed) * files / max(looked_at, len(failed))),
        None,
        "A build leaves them out, and tries them again when it is run again",
    )


def _named(files: Sequence[SourceFile]) -> str:
    more = f" and {len(files) - NAMED:,} more" if len(files) > NAMED else ""
    return ", ".join(file.shown for file in files[:NAMED]) + more


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.2g}%" if not share else f"{100 * share:.2g}%"
