"""Warnings about the files of a corpus and its fields, beside those about the text itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import xxhash

from tokenmill.errors import InputError
from tokenmill.estimating.findings import COPY_BYTES, LARGE_DOCUMENT, ONE_SHARE, Finding, percent
from tokenmill.estimating.sampled import Head
from tokenmill.formatting import some
from tokenmill.reading import Source, SourceFile
from tokenmill.reading.codecs import open_input
from tokenmill.reading.formats import get_format
from tokenmill.reading.separators import large_document, quoted
from tokenmill.reading.template import dig

HUGE_DOCUMENT = 64 << 20  # bytes; longer than any book
COMPARED = 512 << 10  # bytes compared of files of the same size: start, middle and end
COMPARED_FILES = 64
NAMED = 3  # files named in a message
FIELD_FILES, FIELD_RECORDS = 4, 100  # files that are opened to compare fields, and records of each
SHORT, FAR_MORE = 200, 4  # mean bytes of a short field; another field has this many times its text
LONGER, VERY_FAR_MORE = 1000, 8  # the same for a field that may be a summary
PROSE = 400  # mean bytes of the other field, at least
WORDS = 0.05  # of its characters are spaces, at least: encoded data has fewer


def whole_files(source: Source) -> Finding | None:
    """Files that are one document each, and far too large for that."""
    total = source.num_bytes
    least = max(LARGE_DOCUMENT, min(ONE_SHARE * total, HUGE_DOCUMENT))
    large = [file for file in source.files if file.size >= least and get_format(file.format).one_document(source)]
    share = sum(file.size for file in large) / total if total else 0.0
    found = large_document(source)
    if found is not None:
        count = max(len(large), 1)
        return Finding("one document", found.what, count, count, None, found.remedy)
    if share < ONE_SHARE:
        return None
    named = ", ".join(file.shown for file in large[:NAMED])
    more = f" and {len(large) - NAMED:,} more" if len(large) > NAMED else ""
    each = "a document each" if len(large) > 1 else "one document"
    what = f"{named}{more}: {percent(share)} of the input, read as {each}"
    return Finding("one document", what, len(large), len(large), None, "--format lines or --separator splits it")


def without_separator(files: Sequence[SourceFile], separator: str | None) -> Finding | None:
    """Large texts in which the given separator was not found."""
    if not files or separator is None:
        return None
    if len(files) == 1:
        what = f"{files[0].shown} has no {quoted(separator)}: it is read as one document"
    else:
        what = f"{len(files):,} files, such as {files[0].shown}, have no {quoted(separator)}: each is one document"
    return Finding("one document", what, len(files), len(files), None, "Is the --separator spelled as in the text?")


def equal_files(files: Iterable[SourceFile]) -> Finding | None:
    """Files of the same size with the same start, middle and end."""
    by_size: dict[tuple[int, str], list[SourceFile]] = {}
    for file in files:
        if file.size >= COPY_BYTES:
            by_size.setdefault((file.size, file.format), []).append(file)
    digests: dict[tuple[int, int], list[SourceFile]] = {}
    compared = 0
    for (size, _), candidates in sorted(by_size.items(), key=lambda pair: -pair[0][0] * (len(pair[1]) - 1)):
        if len(candidates) < 2 or compared >= COMPARED_FILES:
            break
        for file in candidates[: COMPARED_FILES - compared]:
            compared += 1
            digest = _parts_digest(file)
            if digest is not None:
                digests.setdefault((size, digest), []).append(file)
    equal = [group for group in digests.values() if len(group) > 1]
    if not equal:
        return None
    count = sum(len(group) - 1 for group in equal)
    pair = " and ".join(file.shown for file in equal[0][:2])
    are = "is a copy" if count == 1 else "are copies"
    what = f"{count:,} of {compared:,} compared files {are} of another one, such as {pair}"
    return Finding("equal files", what, count, count, None, "Pass each content once, unless they are intended")


def _parts_digest(file: SourceFile) -> int | None:
    digest, step = xxhash.xxh3_64(), COMPARED // 3
    try:
        with open_input(file) as raw:
            for start in (0, max(0, file.size // 2 - step // 2), max(0, file.size - step)):
                raw.seek(start)
                digest.update(raw.read(step))
    except OSError:
        return None
    return int(digest.intdigest())


def unreadable(failed: dict[str, str], opened: int, files: int) -> Finding | None:
    """Files that could not be read, with the reason for each."""
    if not failed:
        return None
    of = f" of {opened:,} opened" if opened < files else ""
    reasons = "; ".join(reason.rstrip(".") for reason in list(failed.values())[:NAMED]) + (
        "; ..." if len(failed) > NAMED else ""
    )
    return Finding(
        "unreadable",
        f"{some(len(failed), 'file')}{of} cannot be read: {reasons}",
        len(failed),
        round(len(failed) * files / max(opened, len(failed))),
        None,
        "A build leaves them out, and tries them again when it is run again",
    )


def only_heads(heads: Sequence[Head]) -> Finding | None:
    """Files of which only the start was read, or the start of some parts."""
    cut = [head for head in heads if head.consumed < head.size]
    if not cut:
        return None
    share = sum(head.consumed for head in cut) / sum(head.size for head in cut)
    count = len({head.file.path for head in cut})
    what = f"only the head of {some(count, 'file')} was read ({share:.0%} of their bytes)"
    remedy = "If later parts differ, as in a sorted corpus, the estimate is off: raise --sample"
    return Finding("head", what, count, count, cut[0].file.shown, remedy)


def other_field(source: Source) -> Finding | None:
    """The field that has far more text than the chosen one, if any. A template is taken to be chosen on purpose."""
    if source.template is not None:
        return None
    files = [file for file in source.files if file.size and get_format(file.format).has_fields]
    files = files[:: max(1, len(files) // FIELD_FILES)][:FIELD_FILES]
    records = [record for file in files for record in _first_records(file)]
    texts: dict[str, list[str]] = {}
    for record in records:
        for name, text in _strings(record, source.text_field):
            texts.setdefault(name, []).append(text)
    chosen = texts.pop(source.text_field, [])
    if not texts:
        return None
    best = max(texts, key=lambda name: sum(map(len, texts[name])))
    times = _nbytes(texts[best]) / max(_nbytes(chosen), 1)
    mean = _nbytes(chosen) / max(len(chosen), 1)
    far_more = (mean < SHORT and times >= FAR_MORE) or (mean < LONGER and times >= VERY_FAR_MORE)
    if not far_more or not _is_prose(texts[best]):
        return None
    return Finding(
        "field",
        f"field {best!r} has {times:,.0f} times the text of {source.text_field!r} ({mean:,.0f} bytes per document)",
        len(records),
        len(records),
        files[0].shown,
        f"Is {source.text_field!r} the field with the text? Choose with --text-field {best}",
    )


def _first_records(file: SourceFile) -> Iterator[dict[str, Any]]:
    try:
        yield from get_format(file.format).first_records(file, FIELD_RECORDS)
    except InputError:
        return  # it is reported where the file is sampled


def _strings(record: dict[str, Any], chosen: str) -> Iterator[tuple[str, str]]:
    """The texts of a record by field: at the top, one level down, and of the chosen field at any level."""
    for name, value in record.items():
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, dict):
            yield from ((f"{name}.{inner}", text) for inner, text in value.items() if isinstance(text, str))
    present, text = dig(record, chosen)
    if present and "." in chosen and isinstance(text, str):
        yield chosen, text


def _nbytes(texts: list[str]) -> int:
    return sum(len(text.encode("utf-8", "replace")) for text in texts)


def _is_prose(texts: list[str]) -> bool:
    spaces = sum(text.count(" ") + text.count("\n") for text in texts) / max(1, sum(map(len, texts)))
    return _nbytes(texts) / len(texts) >= PROSE and spaces >= WORDS
