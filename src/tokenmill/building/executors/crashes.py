"""What to do after a worker died: try again, find the document or file that did it and leave it out, or give up the task."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from tokenmill.building.task_context import CrashHistory

STRIKES = 3  # deaths in one block before it is searched; at a single document or file before that is left out
TASK_STRIKES = 15  # deaths anywhere in a task, with nothing learned, before its files are given up

Decision = Literal["retry", "quarantine", "leave out file", "give up"]


@dataclass(slots=True)
class TaskCrashes:
    """The deaths of workers at one task, and what is known from them."""

    history: CrashHistory = field(default_factory=CrashHistory)
    _deaths: int = 0
    _by_place: Counter[tuple[int, int]] = field(default_factory=Counter)
    _by_piece: Counter[int] = field(default_factory=Counter)

    def record(self, at: tuple[int, int] | None, piece: int | None = None, code: int = 0) -> Decision:
        """A worker died while it encoded documents [first, last) of the task, or read a piece, or at an unknown place.

        From now on the task runs alone in its worker, so that the next death is certainly its own. A block in which STRIKES
        workers died is encoded in ever smaller parts, until a single document is left; after "quarantine", `history.poison`
        has that document as its last. A piece at which STRIKES workers died is not read any more: its file fails.
        """
        self.history.alone = True
        self._deaths += 1
        if at is not None:
            self._by_place[at] += 1
            size = at[1] - at[0]
            if size > 1 and self._is_narrower(at):
                self.history.suspects = at
                return "retry"
            if self._by_place[at] >= STRIKES:
                self._deaths = self._by_place[at] = 0
                if size > 1:
                    self.history.suspects = at
                    return "retry"
                self.history.poison.append(at[0])
                self.history.suspects = (0, 0)
                return "quarantine"
        elif piece is not None:
            self._by_piece[piece] += 1
            if self._by_piece[piece] >= STRIKES:
                self._leave_out(piece, code)
                return "leave out file"
        return "give up" if self._deaths >= TASK_STRIKES else "retry"

    def _leave_out(self, piece: int, code: int) -> None:
        """Do not read a piece again. Documents after it get other numbers, so what is known of them is found out again."""
        hint = "; is memory short?" if code == -9 else "; the file is damaged, or its reader is"
        error = f"reading it ended {STRIKES} processes (last exit {code}){hint}"
        self.history.deadly_pieces.append((piece, error))
        self.history.poison, self.history.suspects = [], (0, 0)
        self._deaths = 0
        self._by_place.clear()

    def _is_narrower(self, at: tuple[int, int]) -> bool:
        first, last = self.history.suspects
        return first <= at[0] and at[1] <= last
