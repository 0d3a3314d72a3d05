"""The history of a build from its log, and the panel that is drawn from it."""

from __future__ import annotations

import html
import re
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

import pytest
from build_helpers import write_jsonl

import tokenmill as tm
from tokenmill import events
from tokenmill.building.notebook_panel import NotebookPanel, panel_html
from tokenmill.io.checked_lines import read_lines
from tokenmill.store.facts import info
from tokenmill.watching.charts import curve, lane
from tokenmill.watching.history import MOST_BARS, MOST_LANES, MOST_POINTS, MOST_REASONS, STAGES, History, Lane
from tokenmill.watching.markup import Markup, joined, tag
from tokenmill.watching.panel import sections, share_done, what_limits

SECONDS = {"read": 1.0, "parse": 0.5, "encode": 2.0, "write": 0.25, "sync": 0.25}


EMPTY = {"int": 0, "float": 0.0, "str": "", "list": [], "dict": {}, "StageSeconds": {}, "bool": False}


def record(event: events.Event | str, time: float, run: str = "r", **fields: Any) -> dict[str, Any]:
    """A line of the log. Fields that are not given are empty."""
    if isinstance(event, str):
        kind = getattr(events, "".join(word.title() for word in event.split("_")))
        empty = {each.name: EMPTY.get(str(each.type).partition("[")[0]) for each in dataclass_fields(kind)}
        named = {"event": event, **empty}
    else:
        named = event.as_record()
    return {**named, **fields, "time": time, "run": run}


def shard(time: float, pid: int, **changes: Any) -> dict[str, Any]:
    return record("shard_done", time, **{"id": "a", "pid": pid, "seconds": SECONDS, "reasons": {}, **changes})


def progress(seconds: float, **changes: Any) -> events.Progress:
    values: dict[str, Any] = {
        "seconds": seconds,
        "source_bytes": 50,
        "total_source_bytes": 100,
        "text_bytes": 40,
        "documents": 3,
        "tokens": 10,
        "source_bytes_per_second": 5.0,
        "text_bytes_per_second": 4.0,
        "tokens_per_second": 1.0,
        "memory_bytes": 1000,
        "memory_budget": 4000,
        "workers": 2,
        "shards_done": 1,
        "shards": 2,
        "failed_files": 0,
        "quarantined": 0,
        "eta_seconds": 10.0,
    }
    return events.Progress(**{**values, **changes})


def history_of(*records: dict[str, Any]) -> History:
    history = History()
    for each in records:
        history.add(each)
    return history


@pytest.fixture(scope="module")
def built(tmp_path_factory, tokenizer_path) -> Path:
    """A store of good and bad rows and a file that failed."""
    folder = tmp_path_factory.mktemp("built")
    write_jsonl(folder / "corpus" / "a.jsonl", [f"text number {i} <b>" for i in range(200)])
    (folder / "corpus" / "b.jsonl").write_text('{"text": "good"}\nnot json\n{"text": 5}\n', "utf-8")
    (folder / "corpus" / "c.parquet").write_bytes(b"PAR1 is damaged")
    tm.build(folder / "corpus", tokenizer_path, folder / "store", workers=0, progress="quiet", engine="reference")
    return folder / "store"


def figures(panel: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r'data-figure="([^"]+)" data-value="([^"]+)"', panel)}


# The history.


def test_a_real_log_gives_the_totals_of_the_store(built):
    history = history_of(*read_lines(built / "events.jsonl"))
    facts, run = info(built), history.run
    assert run is not None
    assert run.begun is not None
    assert run.begun["folder"] == str(built)
    shown = figures(sections(history)["figures"])
    assert shown["documents"] == facts["documents"] == 201
    assert shown["tokens"] == facts["tokens"]
    assert shown["quarantined"] == facts["quarantined"] == 2
    assert shown["failed-files"] == len(facts["failed_files"]) == 1
    assert run.reasons == facts["quarantined_by_reason"]
    status = sections(history)["status"]
    assert 'class="state incomplete"' in status
    assert "The store is not complete: 1 input file failed. The next build tries again." in status
    assert "66% done" in status  # of three files
    assert "finished" not in status
    assert history.skipped == 0
    assert sections(history)["problems"].count("<h3>Log</h3>") == 0


def test_workers_that_ended_pass_their_lane_on():
    history = history_of(
        record("begun", 0.0),
        shard(5, pid=1),
        shard(6, pid=2),
        record("worker_died", 7, pid=1, code=-9),
        shard(12, pid=3),
    )
    lanes = history.run.lanes
    assert [(each.pid, each.shards) for each in lanes] == [("3", 2), ("2", 1)]
    assert [(bar.start, bar.stop) for bar in lanes[0].bars] == [(1.0, 5.0), (8.0, 12.0)]


def test_a_device_that_is_lost_is_noted():
    run = history_of(record("begun", 0.0), record("device_lost", 7, why="out of <luck>")).run
    assert list(run.notes) == [(7, "the engine lost its device: out of <luck>. The reference encodes the rest")]


def test_sums_of_shards_are_shared_out_among_workers():
    line = record("shards_done", 10, shards=4, seconds=SECONDS, reasons={"bad": 2}, workers={"1": 3.0, "2": 1.0})
    run = history_of(record("begun", 0.0), line).run
    assert (run.shards, run.reasons) == (4, {"bad": 2})
    assert [(each.pid, each.shards) for each in run.lanes] == [("1", 3), ("2", 1)]
    assert sum(run.lanes[0].bars[0].stages.values()) == pytest.approx(3.0)


def test_memory_is_bounded():
    history = history_of(record("begun", 0.0))
    for i in range(5 * MOST_POINTS):
        history.add(record(progress(float(i), memory_bytes=i), i))
        history.add(shard(i, pid=i % (2 * MOST_LANES)))
    run = history.run
    assert MOST_POINTS / 2 <= len(run.points) <= MOST_POINTS
    assert (run.points[-1].seconds, run.points[-1].memory) == (5 * MOST_POINTS - 1, 5 * MOST_POINTS - 1)
    assert len(run.lanes) == MOST_LANES
    assert max(len(each.bars) for each in run.lanes) <= MOST_BARS
    assert run.shards == sum(each.shards for each in run.lanes) == 5 * MOST_POINTS
    seconds = {stage: sum(bar.stages[stage] for each in run.lanes for bar in each.bars) for stage in STAGES}
    assert seconds == pytest.approx(run.seconds)


def test_a_build_that_finds_nothing_to_do_does_not_hide_the_one_before():
    history = history_of(
        record("begun", 0.0, run="first"),
        record("started", 1.0, run="first", source_bytes=9),
        shard(5, pid=1, run="first"),
        record("begun", 100.0, run="second"),
        record("up_to_date", 101.0, run="second", path="x", documents=1, tokens=2),
    )
    assert (history.run.id, history.run.checked) == ("first", 101.0)
    assert "found up to date" in sections(history)["status"]


def test_a_new_build_takes_the_place_of_the_last():
    history = history_of(
        record("begun", 0.0, run="first"), shard(5, pid=1, run="first"), record("begun", 9.0, run="second")
    )
    assert (history.run.id, history.run.shards) == ("second", 0)


def test_slices_that_write_at_the_same_time_do_not_take_each_others_place():
    history = history_of(
        record("begun", 0.0, run="first", pid=1, host="h"),
        record("begun", 1.0, run="second", pid=2, host="h"),
        shard(2, pid=2, run="second"),
        shard(3, pid=1, run="first"),
        shard(4, pid=2, run="second"),
        record("slice_done", 5.0, run="first", slice="0/2", missing=[1]),
        shard(6, pid=2, run="second"),
    )
    assert (history.run.id, history.run.shards, history.run.is_over) == ("second", 3, False)
    assert history.run.begun is not None


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        {"event": "progress", "time": 1.0},
        {"event": "shard_done", "time": 1.0, "run": "r"},
        {"event": "shard_done", "time": 1.0, "run": "r", "pid": 1, "seconds": None},
        {"event": "planned", "time": "yesterday", "run": "r"},
        {"event": ["list"], "time": 1.0, "run": "r"},
        {"event": "__init__", "time": 1.0, "run": "r"},
        {"event": "event", "time": 1.0, "run": "r"},
        {**record("finished", 1.0), "seconds": float("nan")},
        {**record("finished", 1.0), "quarantined": {"bad": "many"}},
        {**record("stopped", 1e300)},
        {**record("stopped", 253402300800.0)},  # the year 10000
        {**record("stopped", -1.0)},
        {**record("finished", 1.0), "seconds": -1.0},
        None,  # damaged
        {**record("planned", 1.0), "tokenizer": None},
        {name: value for name, value in record("finished", 1.0).items() if name != "seconds"},
    ],
)
def test_lines_that_are_no_events_are_left_out(damaged):
    history = history_of(record("begun", 0.0), damaged, shard(2.0, pid=1))
    assert history.run.shards == 1
    assert history.run.end is None
    assert sections(history, now=3.0)["status"]
    assert history.skipped == 1
    assert "1 line of events.jsonl left out" in sections(history, now=3.0)["problems"]


def test_a_log_without_events_says_so():
    panel = sections(history_of({"no": "event"}, {"no": "event"}))
    assert "No build has begun" in panel["status"]
    assert "2 lines of events.jsonl left out" in panel["problems"]


def test_long_texts_and_lists_are_cut():
    reasons = {f"reason {number}": 1 for number in range(5000)}
    history = history_of(
        record("begun", 0.0),
        record("explained", 0.1, reasons=["x" * 10**6] * 500),
        shard(1.0, pid=1, reasons=reasons),
        record("file_failed", 1.5, file="a", error="y" * 1_400_000),
        record("stopped", 2.0, error="z" * 1_400_000),
    )
    assert history.run.reasons["other reasons"] == 5000 - MOST_REASONS
    panel = "".join(sections(history).values())
    assert "zzz ... (1,400,000 characters)" in panel
    assert "and 91 more" in panel
    assert len(panel) < 300_000


def test_a_store_that_an_earlier_slice_has_finished_is_not_called_incomplete():
    history = history_of(
        record("begun", 0.0, run="first"),
        record("begun", 1.0, run="second"),
        record("planned", 1.5, run="second", shards=3, done=1),
        shard(2.0, pid=2, run="second"),
        record("slice_done", 3.0, run="second", slice="1/2", missing=[0]),
    )
    assert share_done(history.run) == pytest.approx(2 / 3), "of the shards of all slices"
    history.add(record("finished", 4.0, run="first", documents=5))
    assert 'class="state finished"' in sections(history)["status"]
    assert share_done(history.run) == 1.0


# What it says.


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ({"encode": 0.7, "parse": 0.1, "read": 0.2}, "CPU-bound: 80% of the time in parse and encode"),
        ({"write": 0.71, "encode": 0.29}, "disk-bound: 71% of the time in write"),
        ({"write": 0.4, "sync": 0.2, "encode": 0.4}, "disk-bound: 60% of the time in write and sync"),
        (
            {"read": 0.6, "encode": 0.4},
            "input-bound: 60% of the time in read (disk, network, decompression or parquet)",
        ),
        ({"read": 0.4, "encode": 0.35, "write": 0.25}, "balanced: 40% read, 35% encode, 25% write"),
        ({}, ""),
    ],
)
def test_what_limits_a_build(shares, said):
    assert what_limits({**dict.fromkeys(STAGES, 0.0), **shares}) == said


@pytest.mark.parametrize(
    ("extra", "is_alive", "now", "word"),
    [
        ([], True, 100.0, "planning"),
        ([record("started", 1.0, source_bytes=9)], True, 100.0, "running"),
        ([record("started", 1.0, source_bytes=9)], None, 2.0, "running"),
        ([record("started", 1.0, source_bytes=9)], None, 100.0, "silent"),
        ([record("started", 1.0, source_bytes=9)], False, 2.0, "stopped"),
        ([record("stopped", 1.0, error="full")], True, 2.0, "stopped"),
        ([record("slice_done", 1.0, slice="0/2", shards=1, missing=[1], differing=[])], None, 2.0, "incomplete"),
        ([record("finished", 1.0, seconds=1.0)], None, 2.0, "finished"),
        ([record("finished", 1.0, seconds=1.0, failed_files=1)], None, 2.0, "incomplete"),
    ],
)
def test_the_state_in_a_word(extra, is_alive, now, word):
    panel = sections(history_of(record("begun", 0.0), *extra), is_alive=is_alive, now=now)
    assert f'class="state {word}"' in panel["status"]


@pytest.mark.parametrize(
    ("files", "failed", "said"), [(2000, 0, "100%"), (2000, 1, "99%"), (5, 1, "80%"), (0, 2, "0%")]
)
def test_files_that_failed_are_not_done(files, failed, said):
    history = history_of(
        record("begun", 0.0), record("planned", 0.5, files=files), record("finished", 1.0, failed_files=failed)
    )
    assert f"<strong>{said}</strong>" in sections(history)["status"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("KeyboardInterrupt: ", "Interrupted by Ctrl-C. Finished"),
        ("Terminated: ", "Ended by SIGTERM. Finished"),
        ("BuildError: the disk is full.", "Stopped: BuildError: the disk is full. Finished"),
    ],
)
def test_why_a_build_stopped(error, said):
    assert said in sections(history_of(record("begun", 0.0), record("stopped", 1.0, error=error)))["status"]


def test_figures_agree_with_the_lanes_and_lists_below_them():
    """Shards come as they are finished, progress once a second."""
    planned = record("planned", 0.5, done=4, tokenizer="t", engine="e", workers="w")
    after = [shard(at, pid=1, reasons={"bad json": 1}) for at in (3, 4, 5)]
    history = history_of(
        record("begun", 0.0), planned, record(progress(2.0, shards_done=5, quarantined=1), 2.0), *after
    )
    shown = figures(sections(history)["figures"])
    assert (shown["shards"], shown["quarantined"]) == (7, 3)


def test_a_build_that_was_killed_has_no_time_left():
    history = history_of(record("begun", 0.0), record(progress(2.0, eta_seconds=660.0), 2.0))
    assert "11 min" in sections(history, is_alive=True, now=3.0)["curves"]
    assert "11 min" not in sections(history, is_alive=False, now=3.0)["curves"]


def test_without_a_build_it_says_so():
    panel = sections(History())
    assert "No build has begun" in panel["status"]
    assert panel["workers"] == ""


def test_progress_is_drawn():
    records = [record(progress(float(i), text_bytes_per_second=100.0 * i), i) for i in range(1, 5)]
    panel = sections(history_of(record("begun", 0.0), record("started", 0.5, source_bytes=100), *records), now=5.0)
    assert 'data-share="0.5"' in panel["status"]
    assert panel["curves"].count("<svg") == 3
    assert "400 B/s of text" in panel["curves"]
    assert "1.0 kB of 4.0 kB" in panel["curves"]


def test_a_lane_shows_stages_in_proportion():
    work = Lane("1")
    work.add(8.0, {**dict.fromkeys(STAGES, 0.0), "read": 2.0, "encode": 2.0}, 1)
    drawn = lane(work, 8.0, 8, "worker 1")
    assert re.findall(r'class="stage-(\w+)" d="([^"]+)"', drawn) == [
        ("read", "M4 0h2v10h-2z"),
        ("encode", "M6 0h2v10h-2z"),
    ]


def test_a_build_with_one_value_has_a_line():
    panel = sections(history_of(record("begun", 0.0), record(progress(0.5, memory_bytes=2000), 0.5)))
    assert panel["curves"].count('class="line" d="M0.0 ') == 3
    assert 'd="M0.0 72.0L600.0 72.0"' in panel["curves"], "2 of 5 kB of memory, all the time"


def test_a_curve_without_values_is_empty():
    assert "<path" not in curve("Time left", [], show=str, show_time=str)


# Escaping, and the notebook.


def test_everything_is_escaped():
    evil = "<script>alert('x')</script>"
    failed = record("file_failed", 2.0, file=evil, error=evil)
    planned = record("planned", 1.0, tokenizer=evil, engine=evil, workers=evil)
    reasons = shard(3.0, pid=1, reasons={evil: 1})
    panel = joined(
        sections(
            history_of(record("begun", 0.0), planned, failed, reasons, record("stopped", 4.0, error=evil))
        ).values()
    )
    assert "<script" not in panel
    assert panel.count(html.escape(evil)) >= 4


def test_markup_escapes_texts_and_attributes():
    assert tag("p", "<", Markup("<b>")) == "<p>&lt;<b></p>"
    assert tag("a", "x", href='"><script>') == '<a href="&quot;&gt;&lt;script&gt;">x</a>'
    assert tag("input", name="n", hidden=True, value=None, class_="c") == '<input name="n" hidden class="c"/>'
    assert tag("p", "a\x00\x1b\x7f\ud800b\n") == "<p>a␀␛␡?b\n</p>"
    assert tag("p", "a\u202eb\u2066\u200f\x85\u2028", title="\u202e") == (
        r'<p title="\u202e">a\u202eb\u2066\u200f\u0085\u2028</p>'
    )
    assert tag("p", "👩\u200d🚀 العربية") == "<p>👩\u200d🚀 العربية</p>"


def test_a_notebook_shows_the_same_figures(built):
    history = history_of(*read_lines(built / "events.jsonl"))
    page = panel_html(history)
    assert figures(page) == figures(sections(history)["figures"])
    assert page.startswith('<div class="tokenmill-panel"><style>')
    assert "http:" not in page
    assert "https:" not in page


def test_a_build_in_a_notebook_draws_its_panel(monkeypatch, tmp_path, tokenizer_path):
    shown: list[str] = []

    class Output:
        def update(self, drawn: Any) -> None:
            shown.append(drawn)

    def display(drawn: Any, display_id: bool) -> Output:
        shown.append(drawn)
        return Output()

    module = type("display", (), {"HTML": staticmethod(lambda text: text), "display": staticmethod(display)})
    monkeypatch.setitem(__import__("sys").modules, "IPython.display", module)
    source = write_jsonl(tmp_path / "a.jsonl", ["one", "two"])
    store = tm.build(
        source, tokenizer_path, tmp_path / "store", workers=0, engine="reference", progress=NotebookPanel()
    )
    assert len(shown) >= 3
    assert figures(shown[-1])["tokens"] == store.num_tokens
    assert 'class="state finished"' in shown[-1]


def test_a_notebook_takes_events_as_they_are():
    panel = NotebookPanel()
    for event in (
        events.Begun(folder="f", pid=1, host="h"),
        events.WorkerDied(pid=1, code=-9, at=(0, 5)),
        events.WorkerStuck(pid=1, seconds=60.0, is_silent=True, file=None, is_replaced=True),
        progress(1.0, eta_seconds=None),
    ):
        panel(event)
    assert panel._history.skipped == 0
    assert [text for _, text in panel._history.run.notes] == [
        "worker 1 died (exit -9); its tasks went to other workers",
        "worker 1 made no progress for 60 s; it was replaced",
    ]


def test_notebooks_get_the_panel_without_being_asked(monkeypatch):
    from tokenmill.building.terminal import Terminal

    monkeypatch.setitem(__import__("sys").modules, "ipykernel", type("ipykernel", (), {}))
    assert isinstance(Terminal("auto")._notebook, NotebookPanel)
    assert Terminal("plain")._notebook is None
