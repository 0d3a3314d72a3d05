"""Conformance tests for tokenizer engines, for pytest.

To test an engine, subclass `EngineContract` and override its class-scoped fixture `case`:

    class TestMyEngine(EngineContract):
        @pytest.fixture(scope="class")
        @classmethod
        def case(cls):
            texts = [*suite_texts(definition), *texts_with(special_names)]
            return EngineCase(lambda: MyEngine(definition), texts, [reference(text) for text in texts], vocab_size)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from tokenmill.encoding.engines.base import Engine, EngineTraits
from tokenmill.encoding.selection.suite import texts as suite_texts

__all__ = ["EngineCase", "EngineContract", "encode", "suite_texts", "texts_with"]

# Contexts for a special name: what a tokenizer may strip, merge or take for a part of it.
_CONTEXTS = (
    "{}",
    "a{}b",
    "a {} b",
    "{0}{0}",
    " {0}  {0} ",
    "\n{0}\n\n{0}",
    "中{}文",
    "«{}»",
    "x{0}y{0}z",
    "## {0} ▁{0}▁",
)


def texts_with(names: Sequence[str]) -> list[str]:
    """Texts with the names of special tokens, whole and in parts."""
    texts = [context.format(name) for name in names for context in _CONTEXTS]
    return [*texts, "".join(names), " ".join(names), *(name[:-1] + name for name in names)]


def encode(engine: Engine, texts: list[str] | pa.LargeStringArray, vocab_size: int = 1 << 32) -> list[list[int]]:
    """The ids of each document. Checks the form of the result: dtypes, shapes, offsets, and the range of ids."""
    values = pa.array(texts, pa.large_string()) if isinstance(texts, list) else texts
    ids, offsets = engine.encode(values)
    assert (ids.dtype, offsets.dtype) == (np.dtype(np.uint32), np.dtype(np.int64))
    assert (ids.ndim, offsets.shape) == (1, (len(values) + 1,))
    assert (offsets[0], offsets[-1]) == (0, len(ids))
    assert (np.diff(offsets) >= 0).all()
    assert not len(ids) or ids.max() < vocab_size
    return [ids[start:stop].tolist() for start, stop in pairwise(offsets)]


@dataclass
class EngineCase:
    """An engine, texts, and the ids they must become.

    Expected ids of None mean that only the ids in `special_ids` must not occur.
    """

    make: Callable[[], Engine]
    texts: list[str]
    expected: Sequence[list[int] | None]
    vocab_size: int
    special_ids: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.engine: Engine = self.make()

    def encode(self, texts: list[str]) -> list[list[int]]:
        return encode(self.engine, texts, self.vocab_size)


class EngineContract:
    """What every engine must do."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls) -> EngineCase:
        raise NotImplementedError("override the fixture `case`")

    def test_name_and_traits(self, case: EngineCase) -> None:
        assert case.engine.name
        assert isinstance(case.engine.traits, EngineTraits)
        assert case.engine.traits.device in ("cpu", "cuda")
        assert case.engine.traits.best_batch_bytes > 0

    def test_ids_are_those_of_the_reference(self, case: EngineCase) -> None:
        for text, ids, expected in zip(case.texts, case.encode(case.texts), case.expected, strict=True):
            if expected is None:
                assert not case.special_ids & {*ids}, ascii(text[:80])
            else:
                assert ids == expected, ascii(text[:80])

    def test_order_and_neighbours_do_not_matter(self, case: EngineCase) -> None:
        """Each document is encoded on its own: in any order, alone or with others, twice."""
        draw = random.Random(1)
        order = draw.sample(range(len(case.texts)), min(300, len(case.texts))) * 2
        draw.shuffle(order)
        texts, start = [case.texts[i] for i in order], 0
        in_batches: list[list[int]] = []
        while start < len(order):
            size = draw.choice((1, 1, 2, 3, 50, 200))
            in_batches += case.encode(texts[start : start + size])
            start += size
        whole = dict(zip(order, case.encode(texts), strict=True))
        assert in_batches == [whole[i] for i in order]

    def test_no_documents(self, case: EngineCase) -> None:
        assert case.encode([]) == []
        assert encode(case.engine, pa.array(["a", "b"], pa.large_string()).slice(1, 0)) == []

    def test_empty_documents(self, case: EngineCase) -> None:
        """They have no ids, in any position."""
        assert case.encode(["", "", ""]) == [[], [], []]
        [ids] = case.encode(["one text"])
        assert case.encode(["", "one text", "", "", "one text", ""]) == [[], ids, [], [], ids, []]

    def test_slices_of_arrays(self, case: EngineCase) -> None:
        """An array that starts in the middle of its buffers is encoded from there."""
        texts = ["first words", "", "zweites é", "三", "</s><|endoftext|>[CLS]", "last"]
        values, whole = pa.array(texts, pa.large_string()), case.encode(texts)
        for start in range(len(texts) + 1):
            for stop in range(start, len(texts) + 1):
                assert encode(case.engine, values.slice(start, stop - start)) == whole[start:stop]

    def test_results_are_not_overwritten(self, case: EngineCase) -> None:
        """A result stays as it is, whatever is encoded after it; and the same texts give the same result."""
        values = pa.array(case.texts[:300], pa.large_string())
        ids, offsets = case.engine.encode(values)
        before = ids.copy(), offsets.copy()
        for texts in (case.texts[300:600], ["x" * 100_000], case.texts[:300], []):
            case.encode(texts)
            assert np.array_equal(ids, before[0])
            assert np.array_equal(offsets, before[1])
        for engine in (case.engine, case.make()):
            again = engine.encode(values)
            assert np.array_equal(again[0], before[0])
            assert np.array_equal(again[1], before[1])
