"""Streaming datasets of Hugging Face `datasets`, which can be read on from a state instead of from their start.

A state is what `IterableDataset.state_dict` gives. It is used only if it is plain JSON. Whether it leads to the same rows is for
the caller to check: a dataset with a shuffle buffer, for one, goes on with other rows.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa


class ResumePoint(NamedTuple):
    """The next row to read, and a state of the dataset after `state_row` rows, which are as many or fewer."""

    row: int
    state_row: int
    state: Any


def is_dataset(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "datasets" and hasattr(data, "with_format")  # not a column of one


def identity(data: Any) -> str | None:
    """A digest of how a streaming dataset is defined: its files with their dates, its functions and their arguments.

    None for anything that has no states, or cannot be told apart from others.
    """
    if not is_dataset(data) or not hasattr(data, "load_state_dict"):
        return None
    from datasets.fingerprint import Hasher

    try:
        return str(Hasher.hash(data._ex_iterable))
    except Exception:  # of whatever the dataset holds that cannot be pickled
        return None


class DatasetTables:
    """The tables of a dataset, a batch each, from its start or from a resume point."""

    def __init__(self, data: Any, batch_rows: int, resume: ResumePoint | None) -> None:
        self._data, self._batch_rows = data.with_format("arrow"), batch_rows
        self._has_states = hasattr(self._data, "load_state_dict")
        self._row = 0
        self._states: deque[tuple[int, Any]] = deque()  # after so many rows
        if resume is not None:
            self._data.load_state_dict(resume.state)
            self._row = resume.state_row

    def __iter__(self) -> Iterator[pa.Table]:
        for table in self._data.iter(batch_size=self._batch_rows):
            self._row += table.num_rows
            if self._has_states:
                self._note_state()
            yield table

    def resume_point(self, row: int) -> ResumePoint | None:
        """Where to go on at a row that was reached; rows are asked for in order. None if there is no state for it."""
        while len(self._states) > 1 and self._states[1][0] <= row:
            self._states.popleft()
        if not self._states or self._states[0][0] > row:
            return None
        state_row, state = self._states[0]
        return ResumePoint(row, state_row, state) if _is_json(state) else None

    def _note_state(self) -> None:
        try:
            self._states.append((self._row, self._data.state_dict()))
        except Exception:  # a kind of dataset without states
            self._has_states = False
            self._states.clear()


def _is_json(state: Any) -> bool:
    """Whether a state is the same after it was written and read as JSON."""
    try:
        return bool(json.loads(json.dumps(state)) == state)
    except (TypeError, ValueError, RecursionError):
        return False
