"""Is it the right field? Compares the text in all fields of the first records of a few files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tokenmill.errors import InputError
from tokenmill.estimating.findings import Finding
from tokenmill.reading import Source, SourceFile
from tokenmill.reading.formats import get_format
from tokenmill.reading.template import dig

FILES = 4  # that are opened
RECORDS = 100  # of each
SHORT, FAR_MORE = 200, 4  # mean bytes of a short field; another field has this many times its text
LONGER, VERY_FAR_MORE = 1000, 8  # the same for a field that may be a summary
PROSE = 400  # mean bytes of the other field, at least
WORDS = 0.05  # of its characters are spaces, at least: encoded data has fewer


def other_field(source: Source) -> Finding | None:
    """The field that has far more text than the chosen one, if any. A template is taken to be chosen on purpose."""
    if source.template is not None:
        return None
    files = [file for file in source.files if file.size and get_format(file.format).has_fields]
    files = files[:: max(1, len(files) // FILES)][:FILES]
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
        yield from get_format(file.format).first_records(file, RECORDS)
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
