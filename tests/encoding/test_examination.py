"""What two engines gave for the same documents: which of them differ, and how that is shown."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tokenmill.building.spot_check import Difference
from tokenmill.encoding.engines import check_shape
from tokenmill.encoding.selection.examination import Encoded, Examined, differing
from tokenmill.errors import EncodingError


def answer(*documents: list[int]) -> Encoded:
    ids = np.array([token for document in documents for token in document], np.uint32)
    return ids, np.cumsum([0, *map(len, documents)])


def test_the_first_difference_is_shown():
    right, found = answer([1, 2], [], [*range(40)], [5]), answer([1, 2], [], [*range(20), 7, *range(21, 40)], [5, 6])
    assert differing(right, right) == []
    assert differing(right, found) == [2, 3]
    texts = ["a", "", "b", "c"]
    one, other = (Difference.of(texts, right, found, i) for i in (2, 3))
    assert (one.text, one.position) == ("b", 20)
    assert str(one) == (
        "first at token 20: [... 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31 ...] by the reference,"
        " [... 16, 17, 18, 19, 7, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31 ...] by the engine"
    )
    assert str(other) == "first at token 1: [5] by the reference, [5, 6] by the engine"


def test_shifted_borders_differ():
    """The same ids in a row are not the same documents."""
    assert differing(answer([1, 2], [3]), answer([1], [2, 3])) == [0, 1]


@pytest.mark.parametrize("seed", range(20))
def test_documents_that_differ(seed):
    """As a comparison of one document after the other finds them."""
    draw = random.Random(seed)
    right = [[draw.randrange(3) for _ in range(draw.choice([0, 0, 1, 2, 5]))] for _ in range(draw.randrange(12))]
    found = [list(document) for document in right]
    for document in found:
        if draw.random() < 0.3:
            document[draw.randrange(len(document) + 1) :] = [draw.randrange(3)] * draw.randrange(3)
    expected = [i for i, (a, b) in enumerate(zip(right, found, strict=True)) if a != b]
    assert differing(answer(*right), answer(*found)) == expected


@pytest.mark.parametrize(
    ("count", "offsets"), [(2, []), (2, [0, 4]), (2, [0, 1, 2, 4]), (2, [1, 2, 4]), (2, [0, 2, 3]), (2, [0, 5, 4])]
)
def test_offsets_that_are_none(count, offsets):
    with pytest.raises(EncodingError, match="gigatoken"):
        check_shape("gigatoken", count, np.zeros(4, np.uint32), np.array(offsets, np.int64))


@pytest.mark.parametrize("block_bytes", [1, 100, 1 << 20])
def test_texts_in_blocks_of_any_size(tmp_path, gpu_definition, gpu_texts, block_bytes):
    """The ids of a process of its own are those of this one, document by document."""
    texts = gpu_texts[:300]
    gpu_definition.save(tmp_path)
    with Examined("gigatoken") as engine, Examined("tokenizers") as reference:
        engine.ask(tmp_path, texts, block_bytes)
        reference.ask(tmp_path, texts)
        (ids, offsets), expected = engine.answer(), reference.answer()
    assert len(offsets) == len(texts) + 1
    assert differing(expected, (ids, offsets)) == []
