"""Calls that are wrong in one way each end in an error or a warning that names the cause, none in silent success."""

from __future__ import annotations

import pytest
from wrong_inputs import outcome, wrong_inputs

COUNT = 200
DRAWN = wrong_inputs(0, COUNT)


@pytest.mark.parametrize("number", range(COUNT), ids=lambda number: f"{number}-{DRAWN[number].kind}".replace(" ", "-"))
def test_a_wrong_input_is_told(number, tmp_path):
    wrong = DRAWN[number]
    said = outcome(wrong, tmp_path)
    assert said == "", f"{wrong.kind}: {wrong.description}"
