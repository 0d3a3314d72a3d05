"""What a build says: progress summed up once a second, a log that stays small, the terminal, logging, and their page."""

from __future__ import annotations

import logging
from dataclasses import asdict, fields, replace
from itertools import pairwise
from pathlib import Path

import pytest
from pages import load_script

import tokenmill as tm
from tokenmill import events
from tokenmill.building.progress import Aggregator, MemoryUsed, TaskAdvanced, TaskEnded
from tokenmill.building.repair import drop_damaged_lines
from tokenmill.building.reporting import LINES, EventLog, event_sink, listener_for, log_event
from tokenmill.building.terminal import Terminal, message
from tokenmill.errors import BuildError, UsageError
from tokenmill.io.checked_lines import damaged_lines, read_lines

ROOT = Path(__file__).parents[2]


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def shard_done(**changes) -> events.ShardDone:
    seconds = events.StageSeconds(read=0.5, parse=0.25, encode=1.0, write=0.125, sync=0.0625)
    event = events.ShardDone(
        id="a" * 24,
        documents=3,
        tokens=50,
        text_bytes=200,
        source_bytes=100,
        quarantined=1,
        reasons={"bad json": 1},
        pid=7,
        seconds=seconds,
    )
    return replace(event, **changes)


def advanced(task: str, amount: int) -> TaskAdvanced:
    return TaskAdvanced(
        task=task, source_bytes=amount, text_bytes=2 * amount, documents=amount // 10, tokens=amount // 2
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def heard() -> list[events.Event]:
    return []


@pytest.fixture
def aggregator(clock, heard) -> Aggregator:
    return Aggregator(heard.append, clock)


PLANNED = events.Planned(
    files=3,
    streams=0,
    source_bytes=1000,
    ignored={"not a data file (.png)": 2},
    shards=10,
    done=4,
    linked=1,
    tasks=6,
    tokenizer="gpt2",
    vocab_size=50257,
    dtype="uint16",
    eos="<|endoftext|>",
    engine="gigatoken 1.0",
    proof="proved",
    workers="2 workers of at most 1.0 GB",
)
FINISHED = events.Finished(
    seconds=2.0,
    setup_seconds=1.0,
    source_bytes=1000,
    documents=6,
    tokens=100,
    quarantined={"bad json": 2},
    failed_files=0,
    special_documents=1,
    special_tokens="parse",
    by_reference=3,
    spot_checked=2,
    spot_check_seconds=0.1,
    fingerprint="f",
)


# Progress.


def test_one_progress_event_per_second(aggregator, clock, heard):
    """However many reports come in; none of those is passed on."""
    aggregator(events.Started(source_bytes=10_000))
    for i in range(1, 1001):
        clock.now += 0.01
        aggregator(advanced("a", i * 10))
        aggregator(MemoryUsed(bytes=5, budget=9, workers=2))
    names = [event.name for event in heard]
    assert names[0] == "started"
    assert set(names[1:]) == {"progress"}
    assert 9 <= len(names[1:]) <= 11


def test_progress_counts_and_rates(aggregator, clock, heard):
    """Finished and running tasks add up; rates are those of the last ten seconds; the time left is that of the whole run."""
    aggregator(PLANNED)
    aggregator(events.Started(source_bytes=4000))
    for second in range(1, 31):
        clock.now += 1
        aggregator(advanced("a", 10 * second if second <= 15 else 150 + 100 * (second - 15)))
        aggregator(MemoryUsed(bytes=500, budget=900, workers=2))
    last = heard[-1]
    assert (last.seconds, last.source_bytes, last.total_source_bytes) == (30, 1650, 4000)
    assert (last.text_bytes, last.documents, last.tokens) == (3300, 165, 825)
    assert (last.source_bytes_per_second, last.text_bytes_per_second, last.tokens_per_second) == (100, 200, 50)
    assert (last.memory_bytes, last.memory_budget, last.workers) == (500, 900, 2)
    assert (last.shards_done, last.shards) == (4, 10)
    assert last.eta_seconds == pytest.approx(2350 * 30 / 1650, abs=0.1)
    clock.now += 1
    aggregator(TaskEnded(task="a"))
    aggregator(shard_done(source_bytes=1700, text_bytes=3400, documents=170, tokens=850, quarantined=2))
    last = heard[-1]
    assert (last.source_bytes, last.documents, last.tokens, last.shards_done, last.quarantined) == (
        1700,
        170,
        850,
        5,
        2,
    )


def test_the_work_of_a_worker_that_died_is_subtracted(aggregator, clock, heard):
    """And counted again when the task is done again. Rates do not become negative."""
    aggregator(events.Started(source_bytes=1000))
    aggregator(advanced("a", 400))
    aggregator(advanced("b", 200))
    aggregator(TaskEnded(task="a"))
    clock.now += 1
    aggregator(MemoryUsed(bytes=1, budget=1, workers=1))
    assert heard[-1].source_bytes == 200
    aggregator(TaskEnded(task="b"))
    clock.now += 1
    aggregator(MemoryUsed(bytes=1, budget=1, workers=1))
    assert (heard[-1].source_bytes, heard[-1].source_bytes_per_second) == (0, 0)
    assert heard[-1].eta_seconds is None


def test_a_finished_task_is_never_missing(aggregator, clock, heard):
    """Between the end of a task and the event of its shard no progress is sent."""
    aggregator(events.Started(source_bytes=1000))
    aggregator(advanced("a", 100))
    clock.now += 5
    aggregator(TaskEnded(task="a"))
    assert [event.name for event in heard] == ["started"]
    aggregator(shard_done())
    assert [event.name for event in heard] == ["started", "shard_done", "progress"]
    assert heard[-1].source_bytes == 100


@pytest.mark.parametrize("end", [FINISHED, events.Stopped(error="x"), events.UpToDate(path="p", documents=1, tokens=2)])
def test_the_last_word_before_the_end_is_progress(aggregator, clock, heard, end):
    """Complete, however short the build; after the end there is no more of it."""
    aggregator(events.Started(source_bytes=100))
    aggregator(shard_done())
    aggregator(end)
    clock.now += 5
    aggregator(MemoryUsed(bytes=1, budget=1, workers=1))
    assert [event.name for event in heard] == ["started", "shard_done", "progress", end.name]
    assert heard[-2].documents == 3


def test_without_work_there_is_no_progress(aggregator, heard):
    aggregator(events.UpToDate(path="p", documents=1, tokens=2))
    assert [event.name for event in heard] == ["up_to_date"]


def test_a_file_fails_once(aggregator, clock, heard):
    """Also one that fails in each of its pieces; the count is in the progress."""
    aggregator(events.Started(source_bytes=100))
    for file in ("a", "b", "a", "a"):
        aggregator(events.FileFailed(file=file, error=f"{file} is broken"))
    assert [event.file for event in heard if event.name == "file_failed"] == ["a", "b"]
    aggregator(FINISHED)
    assert heard[-2].failed_files == 2


# The log.


def progress_event(second: int = 0) -> events.Progress:
    return events.Progress(
        seconds=float(second),
        source_bytes=10**12 + second,
        total_source_bytes=10**13,
        text_bytes=10**12,
        documents=10**9,
        tokens=10**12,
        source_bytes_per_second=10**8 + 0.1,
        text_bytes_per_second=10**8 + 0.1,
        tokens_per_second=10**8 + 0.1,
        memory_bytes=10**10,
        memory_budget=10**11,
        workers=128,
        shards_done=10**6,
        shards=10**7,
        failed_files=17,
        quarantined=10**6,
        eta_seconds=100_000.5,
    )


@pytest.fixture
def fewer_lines(monkeypatch) -> int:
    """A twentieth of the lines before thinning begins: a build of half a day is then like one of ten days."""
    monkeypatch.setattr("tokenmill.building.reporting.LINES", LINES // 20)
    return LINES // 20


def test_the_log_of_ten_days_is_small(tmp_path, clock, fewer_lines):
    """A progress event each second: every one of the first, ever fewer later, and the last; spread over all of the time."""
    days = 10 * 86_400 // 20
    path = tmp_path / "events.jsonl"
    log = EventLog(path, clock)
    for second in range(days):
        clock.now += 1
        log(progress_event(second))
    log(events.Stopped(error=""))
    log.close()
    assert path.stat().st_size < 8e6 / 20
    lines = [line for line in read_lines(path) if line["event"] == "progress"]
    seconds = [int(line["seconds"]) for line in lines]
    assert seconds[:fewer_lines] == list(range(fewer_lines))
    assert seconds[-1] == days - 1
    assert seconds == sorted(set(seconds))
    gaps = [b - a for a, b in pairwise(seconds)]
    assert max(gaps) < days / fewer_lines
    assert lines[5]["time"] == 1006.0


def test_the_log_of_a_million_shards_is_small_and_adds_up(tmp_path, fewer_lines):
    """The first shards have a line each; the rest are summed up, and no count is lost."""
    path = tmp_path / "events.jsonl"
    log, shard, count = EventLog(path), shard_done(), 1_000_003 // 20
    for _ in range(count):
        log(shard)
    log(FINISHED)
    log.close()
    assert path.stat().st_size < 8e6 / 20
    lines = list(read_lines(path))
    assert lines[-1]["event"] == "finished"
    assert [line["event"] for line in lines[:fewer_lines]] == ["shard_done"] * fewer_lines
    groups = [line for line in lines if line["event"] == "shards_done"]
    singles = [line for line in lines if line["event"] == "shard_done"]
    assert len(singles) + sum(line["shards"] for line in groups) == count
    for name in ("documents", "tokens", "text_bytes", "source_bytes", "quarantined"):
        assert sum(line[name] for line in singles + groups) == count * getattr(shard, name)
    for stage, seconds in asdict(shard.seconds).items():
        assert sum(line["seconds"][stage] for line in singles + groups) == pytest.approx(count * seconds, rel=1e-4)


def test_sums_of_shards_keep_reasons_and_workers(tmp_path, monkeypatch):
    """A line of several shards says why documents were left out, and how long each process has worked."""
    monkeypatch.setattr("tokenmill.building.reporting.LINES", 1)
    log = EventLog(tmp_path / "events.jsonl")
    for changes in ({}, {"pid": 8, "reasons": {"bad json": 2, "null field": 1}, "quarantined": 3}, {"pid": 8}):
        log(shard_done(**changes))
    log(FINISHED)
    log.close()
    single, summed, _ = read_lines(tmp_path / "events.jsonl")
    assert (single["event"], single["reasons"]) == ("shard_done", {"bad json": 1})
    assert (summed["event"], summed["shards"], summed["quarantined"]) == ("shards_done", 2, 4)
    assert summed["reasons"] == {"bad json": 3, "null field": 1}
    assert summed["workers"] == {"8": 2 * 1.9375}


def test_shards_of_older_logs_are_read():
    """Lines without what was added later make events, too."""
    record = asdict(shard_done())
    del record["reasons"], record["by_reference"]
    older = events.ShardDone(**record)
    assert (older.reasons, older.by_reference) == ({}, 0)
    del record["id"], record["pid"]
    summed = events.ShardsDone(shards=2, **record)
    assert (summed.reasons, summed.workers) == ({}, {})


def test_many_failures_do_not_fill_the_disk(tmp_path, fewer_lines):
    """The manifest names every file that failed; the log need not."""
    log = EventLog(tmp_path / "events.jsonl")
    for i in range(50 * fewer_lines):
        log(events.FileFailed(file=f"{i}", error="broken"))
    log.close()
    assert fewer_lines < len(list(read_lines(tmp_path / "events.jsonl"))) < 7 * fewer_lines


def test_every_line_says_its_version_and_run(jsonl, tokenizer_path, tmp_path):
    """The lines of a build share an id that those of the next one do not have."""
    source = jsonl(["a", "b"])
    for _ in range(2):
        tm.build(source, tokenizer_path, tmp_path / "store", workers=0, engine="reference", progress="quiet")
    lines = list(read_lines(tmp_path / "store/events.jsonl"))
    assert {line["v"] for line in lines} == {events.VERSION}
    runs = [line["run"] for line in lines]
    assert len(set(runs)) == 2
    assert runs == sorted(runs, key=runs.index)
    assert damaged_lines(tmp_path / "store/events.jsonl") == []


def test_a_full_disk_does_not_hide_the_error(tmp_path, heard, monkeypatch):
    """The build stops with its own error, which the listener still hears."""

    def full(self, record):
        raise OSError(28, "No space left on device")

    def plan():
        with event_sink(heard.append, tmp_path) as emit:
            emit(events.Started(source_bytes=1000))
            monkeypatch.setattr("tokenmill.io.checked_lines.CheckedLines.append", full)
            emit(PLANNED)

    with pytest.raises(BuildError, match=r"events\.jsonl: No space left"):
        plan()
    assert [event.name for event in heard] == ["begun", "started", "progress", "stopped"]


def test_an_interrupted_repair_of_the_log_loses_nothing(tmp_path, monkeypatch):
    """The log without its damaged lines replaces the old one when it is complete."""
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    log(PLANNED)
    log(FINISHED)
    log.close()
    damaged = path.read_bytes().replace(b'"finished"', b'"Finished"')
    path.write_bytes(damaged)

    def full(self, record):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("tokenmill.io.checked_lines.CheckedLines.append", full)
        with pytest.raises(BuildError, match="No space left"):
            drop_damaged_lines(path)
    assert path.read_bytes() == damaged
    drop_damaged_lines(path)
    assert [line["event"] for line in read_lines(path)] == ["planned"]


# The terminal.

STORY = [
    PLANNED,
    events.Explained(reasons=["2 files changed", "about 3 s"]),
    events.LargeDocument(
        file="a.txt", source_bytes=9, separator="--", count=2, message="a.txt is read as one document"
    ),
    events.Started(source_bytes=1000),
    shard_done(),
    progress_event(),
    events.WorkerRecycled(pid=5),
    events.WorkerDied(pid=6, code=-9, at=(0, 7)),
    events.DeviceLost(why="out of luck"),
    events.DocumentCrashed(task="t", document=3, code=-11),
    events.FileFailed(file="f", error="f: is \x1b[31mbroken"),
    FINISHED,
]


@pytest.mark.parametrize("mode", ["plain", "bar", "quiet", "verbose"])
def test_the_terminal_tells_the_story(capsys, mode):
    """On standard error, without control characters of file names; shards only with verbose, nothing with quiet."""
    terminal = Terminal(mode)
    for event in STORY:
        terminal(event)
    out, err = capsys.readouterr()
    assert out == ""
    if mode == "quiet":
        assert err == ""
        return
    plan = [
        "1.0 kB in 3 files -> 10 shards\n",
        "tokenizer gpt2 (50,257 ids as uint16, bos none, eos <|endoftext|>)\n",
        "engine gigatoken 1.0: proved; 2 workers of at most 1.0 GB\n",
        "4 of 10 shards already done",
    ]
    if mode == "verbose":
        plan = [
            "plan: 3 files of 1.0 kB; 10 shards: 4 reused, 1 of them from other stores, and 6 tasks to do\n",
            "tokenizer: gpt2, 50,257 ids as uint16, bos none, eos <|endoftext|>\n",
            "engine: gigatoken 1.0: proved\n",
            "workers: 2 workers of at most 1.0 GB\n",
            "50 tokens, 1 quarantined; seconds: read 0.50, parse 0.25, encode 1.00, write 0.12, sync 0.06; process 7\n",
            "spot check: 2 documents equal to the reference\nleft to the reference: 3 documents\nfingerprint: f\n",
        ]
    for text in (
        *plan,
        "ignored: not a data file (.png): 2; ",
        "2 files changed; about 3 s",
        "worker 6 died (exit -9)",
        "the engine has lost its device: out of luck. The reference encodes the rest",
        "document 3 of task t crashes the engine and is quarantined",
        "failed: f: is \\x1b[31mbroken",
        "8 documents in = 6 out + 2 quarantined (2 bad json); 100 tokens",
        "1 document with special tokens in the text, encoded as their ids",
    ):
        assert text in err
    assert "done in 2.0 s (1.0 s to start, then 1.0 TB of text per second)" in err
    assert ("shard aaaa" in err) == (mode == "verbose")
    if mode != "bar":
        assert "\x1b" not in err


def test_unknown_modes_are_refused():
    with pytest.raises(UsageError, match="progress='loud' is not one of auto, bar, plain, quiet, verbose"):
        listener_for("loud")


def test_every_event_has_words():
    """No event is shown as its bare name."""
    for event in STORY:
        if not isinstance(event, events.Started):
            assert message(event) != event.name.replace("_", " ")


# Logging.


def test_logging_levels(caplog):
    """The logger `tokenmill` gets every event, with the event itself on the record."""
    caplog.set_level(logging.DEBUG, "tokenmill")
    for event in [*STORY, shard_done(quarantined=0)]:
        log_event(event)
    levels = {(record.event.name, record.levelname) for record in caplog.records}
    assert {level for name, level in levels if name in ("file_failed", "worker_died", "document_crashed")} == {
        "WARNING"
    }
    assert {level for name, level in levels if name in ("planned", "explained", "finished")} == {"INFO"}
    assert {level for name, level in levels if name in ("progress", "worker_recycled")} == {"DEBUG"}
    assert {level for name, level in levels if name == "shard_done"} == {"DEBUG", "WARNING"}
    assert [record.event for record in caplog.records][: len(STORY)] == STORY
    messages = [record.getMessage() for record in caplog.records]
    assert "50 tokens, 1 quarantined; seconds: read 0.50" in messages[STORY.index(shard_done())]
    assert "; engine: gigatoken 1.0: proved; workers: " in messages[STORY.index(PLANNED)]
    assert not any("\n" in text for text in messages)  # one line each, as log files want it


def test_a_build_logs_and_prints_nothing_by_default(jsonl, tokenizer_path, tmp_path, capfd):
    """With progress="quiet" and no logging configured, not even a warning."""
    path = jsonl(["a"])
    path.write_text('{"text": "a"}\n{bad\n')
    tm.build(path, tokenizer_path, tmp_path / "store", workers=0, progress="quiet")
    assert capfd.readouterr() == ("", "")


def test_a_build_is_logged(jsonl, tokenizer_path, tmp_path, caplog):
    """What the callback hears is what is logged."""
    caplog.set_level(logging.DEBUG, "tokenmill")
    heard = []
    tm.build(jsonl(["a", "b"]), tokenizer_path, tmp_path / "store", workers=0, progress=heard.append)
    assert [record.event for record in caplog.records if record.name == "tokenmill"] == heard
    assert heard[-1].name == "finished"


# The page.


@pytest.fixture
def pages():
    return load_script(ROOT / "scripts" / "event_pages.py")


def test_every_event_is_documented(pages):
    """docs/events.md is what scripts/event_pages.py writes, and that has every field of every event."""
    written = (ROOT / "docs" / "events.md").read_text("utf-8")
    assert written == pages.page(), "run scripts/event_pages.py"
    assert {event.__name__ for event in pages.public_events()} == {
        cls.__name__ for cls in events.Event.__subclasses__() if cls.__module__ == "tokenmill.events"
    }
    for event in pages.public_events():
        section = written.split(f"`{event.__name__}`.")[1].split("\n## ")[0]
        for field in fields(event):
            assert f"| `{field.name}` |" in section


@pytest.mark.parametrize("verbose", [False, True])
def test_a_plan_names_streams(verbose):
    """And takes them for no trial."""
    said = message(replace(PLANNED, files=0, streams=1, shards=0, done=0), verbose=verbose)
    assert "1 stream, encoded as it is read" in said
    assert "trial" not in said
    assert "0 files" not in said
