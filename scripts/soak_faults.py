"""Let every call on the file system fail, and the power at every step, while stores are built, repaired and removed.

    python scripts/soak_faults.py [STORIES...] [--processes N] [--draws N]

The stories are in tests/support/fault_stories.py: a build, a rebuild after changes, a repair, a build in the cache, a prune, a
plan of rows. In each, every call meets with every error in turn (io_faults.py): EIO, ENOSPC, EACCES, EINTR, short writes, the
end of the process. Then every state in which a power failure may leave the files (unsynced.py) is read and built upon: the
extremes, and after each step `--draws` more by chance. No reader may see anything but a whole store, old or new, and the next
run must give the same bytes.

Exit code 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from fault_stories import STORIES, Told
from io_faults import errors_of
from unsynced import all_states

from tokenmill.building import source_index

PARTS = 4  # of a story, each told by a process of its own
MEMORY = "/dev/shm"  # syncing takes no time here
FOLDER = MEMORY if os.access(MEMORY, os.W_OK) else tempfile.gettempdir()
COLUMNS = ("       story", "calls", "faults", "done", "error", "died", "steps", "power failures", "wrong", "seconds")


@dataclass
class Report:
    """What became of one part of a story."""

    calls: int
    steps: int
    outcomes: Counter[str] = field(default_factory=Counter)
    power_failures: int = 0
    wrong: list[str] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("stories", nargs="*", default=list(STORIES), metavar="STORIES")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--draws", type=int, default=8)
    options = parser.parse_args()
    print(line(COLUMNS), flush=True)
    wrong: list[str] = []
    with ProcessPoolExecutor(options.processes) as pool:
        for story in options.stories:
            began = time.monotonic()
            reports = list(pool.map(tell, *zip(*product([story], range(PARTS), [options.draws]), strict=True)))
            outcomes = sum((report.outcomes for report in reports), Counter[str]())
            found = [f"{story}: {what}" for report in reports for what in report.wrong]
            counts = [outcomes.total(), *(outcomes[name] for name in COLUMNS[3:6]), reports[0].steps]
            states = sum(report.power_failures for report in reports)
            row = [story, reports[0].calls, *counts, states, len(found), round(time.monotonic() - began)]
            print(line(row), flush=True)
            wrong += found
    print(*wrong[:40], sep="\n")
    return 1 if wrong else 0


def line(values: Sequence[object]) -> str:
    return "".join(f"{value!s:>{max(len(name), 6) + 2}}" for name, value in zip(COLUMNS, values, strict=True))


def tell(name: str, part: int, draws: int) -> Report:
    """One of PARTS parts of the faults and power failures of a story."""
    source_index.SETTLING = 0  # the input was written a moment ago, and does not change
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, open(os.devnull, "w") as nowhere:
        os.environ["TOKENMILL_CACHE"], tempfile.tempdir = f"{folder}/user", folder
        with redirect_stdout(nowhere), redirect_stderr(nowhere):
            told = Told(name, Path(folder, "story"))
            report = Report(len(told.calls), len(told.recorder.steps))
            faults = [(number, error) for number, call in enumerate(told.calls, 1) for error in errors_of(call)]
            for number, error in faults[part::PARTS]:
                outcome, wrong = told.with_fault(number, error)
                report.outcomes[outcome] += 1
                report.wrong += [f"call {number} ({told.calls[number - 1]}), {error}: {wrong}"] if wrong else []
            for tree, ended in all_states(told.recorder, draws)[part::PARTS]:
                report.power_failures += 1
                wrong = told.after_power_failure(tree, ended=ended)
                report.wrong += [f"power failure: {wrong}"] if wrong else []
    return report


if __name__ == "__main__":
    sys.exit(main())
