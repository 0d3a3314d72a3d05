"""Executors keep their contract, and the right one is chosen. What is sent to workers survives JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

import pytest

from tokenmill.building.executors.choose import SMALL_BYTES, executor_for
from tokenmill.building.executors.crashes import STRIKES, TASK_STRIKES, TaskCrashes
from tokenmill.building.executors.in_process import InProcess
from tokenmill.building.executors.process_pool import ProcessPool
from tokenmill.building.task_context import CrashHistory, TaskContext, TaskResult
from tokenmill.events import ShardDone, StageSeconds
from tokenmill.testing.executors import ExecutorTests, plan_work, write_corpus


class TestInProcess(ExecutorTests):
    def executor(self, emit):
        return InProcess(1 << 30, emit)


class TestProcessPool(ExecutorTests):
    def executor(self, emit):
        return ProcessPool(2, 1 << 30, emit)


def ignore(event):
    pass


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"workers": 0}, InProcess),
        ({"workers": 1}, ProcessPool),
        ({"workers": 3, "text_bytes": 10}, ProcessPool),
        ({"text_bytes": SMALL_BYTES - 1}, InProcess),
        ({"text_bytes": SMALL_BYTES}, ProcessPool),
        ({"text_bytes": None}, ProcessPool),
        ({"text_bytes": 10, "is_slow": True}, ProcessPool),
        ({"is_trial": True}, InProcess),
        ({"workers": 2, "is_trial": True}, InProcess),
        ({"workers": 2, "is_slow": True, "live": object()}, InProcess),
    ],
)
def test_which_executor(options, kind):
    """Worker processes, unless they would not pay or cannot do it."""
    chosen = executor_for(ignore, **{"workers": None, "memory": "8GB", "text_bytes": 1 << 30} | options)
    with chosen:
        assert type(chosen) is kind


def test_workers_share_the_memory():
    """As many processes as asked for, if the memory is enough for them."""
    with executor_for(ignore, workers=4, memory="8GB", text_bytes=None) as executor:
        assert executor.processes == 4
        assert executor.describe() == "4 workers of at most 2.0 GB"
    with executor_for(ignore, workers=4, memory="400MB", text_bytes=None) as executor:
        assert executor.describe().startswith("1 worker of at most")


def test_what_is_sent_to_workers_survives_json(tmp_path):
    """Contexts, crash histories and results come out of JSON as they went in."""
    write_corpus(tmp_path / "corpus")
    context = plan_work(tmp_path / "corpus", tmp_path / "out").context
    history = CrashHistory([3, 5], (7, 9), alone=True)
    result = TaskResult(
        shard=ShardDone(
            id="a",
            documents=1,
            tokens=2,
            text_bytes=3,
            source_bytes=4,
            quarantined=5,
            reasons={"bad json": 5},
            pid=6,
            seconds=StageSeconds(read=0.5, sync=0.25),
        ),
        contents=["b", None],
        failed_files=[{"file": "c", "error": "d"}],
    )
    for value, received in ((history, CrashHistory.from_json), (result, TaskResult.from_json)):
        assert received(json.loads(json.dumps(asdict(value)))) == value
    sent = json.loads(json.dumps(asdict(context)))
    assert asdict(TaskContext(**sent)) == sent


def test_a_crash_is_searched_for():
    """Three deaths in a block, one in each smaller part, three at the document: then it is quarantined."""
    crashes = TaskCrashes()
    decisions = [crashes.record((0, 100)) for _ in range(STRIKES)]
    assert decisions == ["retry"] * STRIKES
    assert crashes.history == CrashHistory([], (0, 100), alone=True)
    assert crashes.record((40, 46)) == "retry"
    assert crashes.history.suspects == (40, 46)
    assert [crashes.record((42, 43)) for _ in range(STRIKES)] == ["retry", "retry", "quarantine"]
    assert crashes.history == CrashHistory([42], (0, 0), alone=True)


@pytest.mark.parametrize(
    "places", [[None], [(0, 9), (9, 18), (18, 27), (27, 36), (36, 45), (45, 54), (54, 63), (63, 72)]]
)
def test_a_task_that_dies_anywhere_is_given_up(places):
    """Deaths that do not come at one place are not the fault of a document; in the end the task is given up."""
    crashes = TaskCrashes()
    decisions = [crashes.record(places[i % len(places)]) for i in range(TASK_STRIKES)]
    assert decisions == ["retry"] * (TASK_STRIKES - 1) + ["give up"]
    assert crashes.history == CrashHistory([], (0, 0), alone=True)


def test_a_worker_imports_little():
    """Not the command line, the terminal, nor what only the supervisor needs: a worker starts fast."""
    script = (
        "import sys, tokenmill.building.executors.worker\n"
        "print([name for name in ('rich', 'torch', 'transformers', 'tokenmill.cli', 'tokenmill.building.api',"
        " 'tokenmill.building.sequence', 'tokenmill.building.terminal', 'tokenmill.building.executors.process_pool')"
        " if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "[]"
