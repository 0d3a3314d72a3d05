"""JSON lines: where lines end does not depend on how long they are."""

from __future__ import annotations

import json
import random

import pytest

import tokenmill as tm
from tokenmill.documents import BLANK
from tokenmill.reading.formats.jsonl import LONG_ENOUGH, jsonl_texts

SHORT = [3] * 400
LONG = [5 * LONG_ENOUGH] * 30
MIXED = random.Random(5).choices([0, 2, 30, LONG_ENOUGH, 4 * LONG_ENOUGH], k=300)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "a.jsonl"
    path.write_bytes(b"")
    return tm.read(path)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(
    "lengths", [SHORT, LONG, SHORT + LONG, LONG + SHORT, LONG * 3 + SHORT * 9 + LONG, MIXED, [9], []]
)
def test_lines_of_any_length(source, lengths, end):
    """Every line is a row: a document, a blank line, or one that is bad and named."""
    texts = [f"{i} " + "x" * length for i, length in enumerate(lengths)]
    lines = [json.dumps({"text": text}).encode() for text in texts]
    lines[10:10] = [b"", b"not json"]
    for last in (b"", end):
        found = jsonl_texts(end.join(lines) + last, source)
        assert found.values.to_pylist() == texts
        assert found.rows == len(lines)
        blank, bad = min(10, len(texts)), min(11, len(texts) + 1)
        assert [(skip.row, skip.reason) for skip in found.skips] == [(blank, BLANK), (bad, "bad json")]
