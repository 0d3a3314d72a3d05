"""What people type on their first day works, or is answered with the name of what does."""

from __future__ import annotations

import pytest
from first_lines import LINES, Line, outcome

NOT_YET: set[str] = {
    # What Python itself says: the objects are plain ones, or would have to be odd ones to say more.
    "python: import torch.utils.data; next(iter(torch.utils.data.DataLoader(store, batch_size=4)))",
    "python: train, val = view.split(train=0.9, val=0.1); first = train[0]['input_ids']",
    "python: len(loader.dataset)",
    "python: x, y = next(iter(loader)); x.shape",
    "python: next(iter(loader)).to('cpu')['input_ids']",
    "python: with tm.load(view, 4, epochs=1) as batches:;     n = sum(1 for _ in batches)",
    'python: tok.encode("the cat").ids',
    "python: tok.pad_token = tok.added and '<|endoftext|>'",
    "python: view[0].input_ids",
    'python: m = tm.mix({"a": (view, 0.7), "b": (view, 0.3)}); m[0]',
}

CASES = [
    pytest.param(line, marks=pytest.mark.xfail(line.id in NOT_YET, reason="not yet"), id=line.id) for line in LINES
]


@pytest.mark.parametrize("line", CASES)
def test_a_first_line_works_or_is_answered(line: Line, tmp_path):
    assert outcome(line, tmp_path) in ("works", "told"), line.wants


def test_every_line_is_another_one_and_can_be_judged():
    assert len({line.id for line in LINES}) == len(LINES) >= 160
    assert {line.id for line in LINES} >= NOT_YET
    assert len(NOT_YET) <= len(LINES) / 20
    for line in LINES:
        assert line.works or line.told, line.id
        assert line.wants, line.id
