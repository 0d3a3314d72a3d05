"""Is it the right field? The first records of a few files, every field of them: where is most of the text?"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tokenmill.errors import InputError
from tokenmill.estimating.findings import Finding
from tokenmill.reading import Source, SourceFile
from tokenmill.reading.template import dig

FILES = 4  # looked at
RECORDS = 100  # of each
HEAD_BYTES = 1 << 20  # of JSON lines and csv
SHORT, FAR_MORE = 200, 4  # bytes: a field that is short, and another with so many times its text
LONGER, VERY_FAR_MORE = 1000, 8  # a field that might be a summary has to be outdone by more
PROSE = 400  # bytes: the other is long
WORDS = 0.05  # of its characters are spaces, as in text and unlike in encoded data


def other_field(source: Source) -> Finding | None:
    """The field that has far more text than the chosen one, if there is one. A template was chosen with care."""
    if source.template is not None:
        return None
    files = [file for file in source.files if file.size and file.format not in ("text", "lines")]
    texts: dict[str, list[str]] = {}
    records = 0
    for file in files[:: max(1, len(files) // FILES)][:FILES]:
        for record in _records(file):
            records += 1
            for name, text in _strings(record):
                texts.setdefault(name, []).append(text)
            found, chosen = dig(record, source.text_field)
            if found and "." in source.text_field and isinstance(chosen, str):
                texts.setdefault(source.text_field, []).append(chosen)
    own = sum(len(text.encode("utf-8", "replace")) for text in texts.get(source.text_field, ()))
    mean = own / max(len(texts.get(source.text_field, ())), 1)
    best = max(
        (name for name in texts if name != source.text_field), key=lambda name: sum(map(len, texts[name])), default=None
    )
    if best is None or not records:
        return None
    other = sum(len(text.encode("utf-8", "replace")) for text in texts[best])
    times = other / max(own, 1)
    spaces = sum(text.count(" ") + text.count("\n") for text in texts[best]) / max(1, sum(map(len, texts[best])))
    clear = (mean < SHORT and times >= FAR_MORE) or (mean < LONGER and times >= VERY_FAR_MORE)
    if not clear or other / len(texts[best]) < PROSE or spaces < WORDS:
        return None
    return Finding(
        "field",
        f"field {best!r} has {times:,.0f} times the text of {source.text_field!r} ({mean:,.0f} bytes a document)",
        records,
        records,
        files[0].shown,
        f"Is {source.text_field!r} the field with the text? Choose with --text-field {best}",
    )


def _records(file: SourceFile) -> Iterator[dict[str, Any]]:
    from tokenmill.reading.codecs import reading

    try:
        with reading(file):
            yield from {"jsonl": _json, "parquet": _parquet, "arrow": _arrow}.get(file.format, _csv)(file)
    except InputError:
        return  # it is named where it is read


def _json(file: SourceFile) -> Iterator[dict[str, Any]]:
    for line in _head(file).split(b"\n")[:RECORDS]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record


def _csv(file: SourceFile) -> Iterator[dict[str, Any]]:
    lines = io.StringIO(_head(file).decode("utf-8-sig", "replace"), newline="")
    rows = csv.DictReader(lines, delimiter="\t" if file.format == "tsv" else ",")
    for _, row in zip(range(RECORDS), rows, strict=False):
        yield row


def _head(file: SourceFile) -> bytes:
    from tokenmill.reading.codecs import open_stream

    with open_stream(file) as stream:
        return stream.read(HEAD_BYTES)


def _parquet(file: SourceFile) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file.path, buffer_size=1 << 20, pre_buffer=False) as table:
        batches = table.iter_batches(RECORDS, columns=_text_names(table.schema_arrow), use_threads=False)
        yield from next(batches, pa.RecordBatch.from_pylist([])).to_pylist()


def _arrow(file: SourceFile) -> Iterator[dict[str, Any]]:
    from tokenmill.reading.tables import is_arrow_file

    with pa.memory_map(file.path) as raw:
        if is_arrow_file(file):
            reader = pa.ipc.open_file(raw)
            batch = reader.get_batch(0) if reader.num_record_batches else None
        else:
            batch = next(iter(pa.ipc.open_stream(raw)), None)
        if batch is not None:
            yield from batch.select(_text_names(batch.schema)).slice(0, RECORDS).to_pylist()


def _text_names(schema: pa.Schema) -> list[str]:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_struct)
    return [field.name for field in schema if any(test(field.type) for test in kinds)]


def _strings(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts of a record, and of the records right within it."""
    for name, value in record.items():
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, dict):
            yield from ((f"{name}.{inner}", text) for inner, text in value.items() if isinstance(text, str))
