"""Faults at every step: whatever call on the file system fails, the next run gives the same store, and readers see a whole one.

Here a sample of the calls fail; `make soak` lets every call fail in every way.
"""

from __future__ import annotations

import random

import pytest
from fault_stories import STORIES, Told
from io_faults import ERRORS, HALF_THEN_FULL, SHORT, Faults, errors_of, hooked
from unsynced import states_after

import tokenmill as tm
from tokenmill.building import source_index
from tokenmill.errors import TokenmillError
from tokenmill.io import disk
from tokenmill.io.checked_lines import CheckedLines, damaged_lines, read_lines

SAMPLE = 6  # faults of each story, and states that a power failure may leave
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def tell(tmp_path_factory):
    """Each story, told once undisturbed. Its input is trusted although it was written a moment ago: it does not change."""
    told: dict[str, Told] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_index, "SETTLING", 0)
        yield lambda name: told.get(name) or told.setdefault(name, Told(name, tmp_path_factory.mktemp("story")))


@pytest.mark.parametrize("name", STORIES)
def test_any_call_may_fail(tell, name):
    told = tell(name)
    faults = [(number, error) for number, call in enumerate(told.calls, 1) for error in errors_of(call)]
    assert len(faults) > 100
    for number, error in random.Random(name).sample(faults, SAMPLE):
        outcome, wrong = told.with_fault(number, error)
        assert wrong == "", f"call {number} ({told.calls[number - 1]}), {error}: {outcome}"


@pytest.mark.parametrize("name", STORIES)
def test_the_power_may_fail_at_any_step(tell, name):
    told, chance = tell(name), random.Random(name)
    end = len(told.recorder.steps)
    for count in [*chance.sample(range(end), SAMPLE - 1), end]:
        tree = chance.choice(list(states_after(told.recorder, count, draws=3)))
        assert told.after_power_failure(tree, ended=count == end) == "", f"after {count} of {end} steps"


def test_a_folder_is_known_as_a_store_s_before_anything_else_is_in_it(tell):
    """Else a build that is repeated after a power failure would refuse the folder."""
    recorder = tell("build").recorder
    for count in range(len(recorder.steps) + 1):
        for tree in states_after(recorder, count, draws=4):
            names = tree.folders.get(tree.find("store") or -1, {}).keys()
            assert names <= {".lock"} or "events.jsonl" in names


def test_a_store_is_gone_for_good_before_its_files_are_removed(tell):
    """Else a power failure could bring it back without some of them."""
    steps = tell("prune").recorder.steps
    first = [step.what for step in steps].index("move")
    assert [(step.what, step.node) for step in steps[first + 1 : first + 2]] == [("sync", steps[first].folder)]


@pytest.mark.parametrize("error", [*ERRORS[:4], HALF_THEN_FULL])
def test_a_line_that_could_not_be_written_does_not_damage_the_next(tmp_path, error):
    path = tmp_path / "lines.jsonl"
    lines = CheckedLines(path)
    lines.append({"line": 1})
    with hooked(Faults(tmp_path, 1, error)), pytest.raises(OSError):
        lines.append({"line": 2})
    lines.append({"line": 3})
    lines.close()
    assert list(read_lines(path)) == [{"line": 1}, {"line": 3}]
    assert damaged_lines(path) == []


def test_a_short_write_is_continued(tmp_path):
    faults = Faults(tmp_path, 2, SHORT)
    with hooked(faults), disk.open_file(tmp_path / "file", "wb") as out:
        assert out.write(bytes(range(100))) == 100
    assert faults.calls == ["open", "write", "write"]
    assert disk.read_bytes(tmp_path / "file") == bytes(range(100))


def test_a_store_that_cannot_be_read_is_an_error_with_a_name(tell):
    told = tell("pack")
    told.before.write(told.story.work)
    calls = Faults(told.story.work)
    with hooked(calls):
        tm.open(told.story.out)
    for number in range(1, len(calls.calls) + 1):
        with hooked(Faults(told.story.work, number, "EIO")), pytest.raises(TokenmillError, match="Input/output error"):
            tm.open(told.story.out)
