"""Conformance suite for executors.

    class TestMyExecutor(ExecutorTests):
        def executor(self, emit):
            return MyExecutor(emit)

The suite builds a small corpus with the `bytes` tokenizer. It needs neither network nor files from outside.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from tokenmill.building.document_sampler import Sample
from tokenmill.building.executors.base import Executor, Failures
from tokenmill.building.executors.in_process import InProcess
from tokenmill.building.plan import Task, groups, task_of
from tokenmill.building.progress import Aggregator
from tokenmill.building.task_context import TaskContext, TaskResult
from tokenmill.documents import BLANK
from tokenmill.encoding.api import load_tokenizer
from tokenmill.errors import DocumentError, TokenizerError
from tokenmill.events import Event, FileFailed, Listener, Progress, ShardDone, Started, Stopped
from tokenmill.option_types import values_of
from tokenmill.options import ReadOptions
from tokenmill.reading import Source, head_of, read
from tokenmill.store.shard import is_done, read_receipt

EOS = 10
BUILD_KEY = "conformance"
CRASH_MARK = "this text crashes the engine"

# Run by every Python process that is started while it is on PYTHONPATH; the test itself must survive.
CRASHING = f"""
import os, signal
if os.environ.get("TEST_SURVIVOR") not in (None, str(os.getpid())):
    from tokenmill.encoding.encoder import Encoder
    encode = Encoder.encode
    def crash(self, values):
        if any({CRASH_MARK!r} in text for text in values.to_pylist()):
            os.kill(os.getpid(), signal.SIGKILL)
        return encode(self, values)
    Encoder.encode = crash
"""


class StopTheBuild(Exception):
    """Raised by a test from within a callback."""


@dataclass
class Work:
    """A corpus, its tasks, and the context to run them in."""

    source: Source
    tasks: list[Task]
    context: TaskContext

    @property
    def shards(self) -> Path:
        return Path(self.context.shards)

    def has_receipt(self, task: Task) -> bool:
        receipt = read_receipt(self.shards, task.id)
        return receipt is not None and is_done(self.shards, receipt)

    def files(self) -> dict[str, bytes]:
        """Every file of the shards' folder."""
        return {path.name: path.read_bytes() for path in self.shards.iterdir()} if self.shards.exists() else {}

    def receipts(self) -> list[dict[str, Any]]:
        names = [path.stem for path in self.shards.glob("*.json")]
        return [receipt for name in names if (receipt := read_receipt(self.shards, name)) is not None]

    def totals(self) -> dict[str, int]:
        """What all receipts together say."""
        receipts = self.receipts()
        totals = {name: sum(receipt[name] for receipt in receipts) for name in ("documents", "tokens", "text_bytes")}
        return {**totals, "quarantined": sum(count for _, count, reason, _ in self.skips() if reason != BLANK)}

    def skips(self) -> list[list[Any]]:
        """Every run of rows that was left out: row, count, reason, detail."""
        pieces = [piece for receipt in self.receipts() for piece in receipt["pieces"]]
        return [skip for piece in pieces for skip in piece.get("skips", ())]


def write_corpus(folder: Path) -> None:
    """Files that become pieces, files that are grouped, compressed files, and rows that are left out."""
    folder.mkdir(parents=True)
    rows = [json.dumps({"text": f"document {i} " + "with some words " * (i % 30)}) for i in range(400)]
    rows[7], rows[11], rows[300] = "{bad", "", '{"text": null}'
    (folder / "large.jsonl").write_text("\n".join(rows) + "\n")
    for i in range(5):
        (folder / f"small{i}.jsonl").write_text(f'{{"text": "small {i}"}}\n{{"text": ""}}\n')
    (folder / "packed.jsonl.gz").write_bytes(gzip.compress("\n".join(rows[20:60]).encode()))


def plan_work(corpus: Path, out: Path, *, on_error: Literal["quarantine", "raise"] = "quarantine") -> Work:
    """Plan a build of the files in `corpus` into `out`."""
    source = read(str(corpus), on_error=on_error)
    tokenizer = load_tokenizer("bytes")
    (out / "tokenizer").mkdir(parents=True)
    for name, content in tokenizer._definition.contents().items():
        (out / "tokenizer" / name).write_bytes(content)
    context = TaskContext(
        shards=str(out / "shards"),
        build_key=BUILD_KEY,
        reading=values_of(ReadOptions, source),
        tokenizer=str(out / "tokenizer"),
        python_class=tokenizer._definition.python_class,
        python_path=[],
        encoder=tokenizer._encoder_options(None, EOS),
        refuse_special_tokens=False,
        journals=str(out),
        reading_key="conformance",
        listed_at=source._looked_at,
    )
    tasks = [task_of(pieces, BUILD_KEY) for pieces in groups(source, 8 << 10, head_of)]
    return Work(source, tasks, context)


class Notes:
    """Collects what an executor reports."""

    def __init__(self) -> None:
        self.results: list[tuple[str, TaskResult]] = []
        self.events: list[Event] = []
        self.samples: list[Sample] = []

    def note(self, task: Task, result: TaskResult) -> None:
        self.results.append((task.id, result))

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class ExecutorTests:
    """What every executor must do. Override `executor`."""

    def executor(self, emit: Listener) -> Executor:
        """A new executor that sends its events to `emit`."""
        raise NotImplementedError

    @pytest.fixture
    def work(self, tmp_path: Path) -> Work:
        write_corpus(tmp_path / "corpus")
        return plan_work(tmp_path / "corpus", tmp_path / "out")

    @contextmanager
    def begun(self, work: Work, notes: Notes) -> Iterator[Executor]:
        with self.executor(notes.events.append) as executor:
            executor.begin(work.context, notes.samples.append)
            yield executor

    def run(self, work: Work, notes: Notes) -> Failures:
        with self.begun(work, notes) as executor:
            return executor.run(work.tasks, work.has_receipt, notes.note)

    def test_it_describes_itself(self) -> None:
        with self.executor(lambda event: None) as executor:
            assert executor.describe()
            assert executor.processes >= 1

    def test_the_same_bytes_as_any_executor(self, work: Work, tmp_path: Path) -> None:
        """The files of the shards, receipts included, do not depend on who made them."""
        other = plan_work(tmp_path / "corpus", tmp_path / "other")
        with InProcess(1 << 30, lambda event: None) as in_process:
            in_process.begin(other.context, None)
            in_process.run(other.tasks, other.has_receipt, lambda task, result: None)
        assert self.run(work, Notes()) == {}
        assert len(work.tasks) > 3
        assert work.files() == other.files()

    def test_every_task_is_noted_once(self, work: Work) -> None:
        """With the name of its shard, whose receipt is on disk by then, and the digest of every piece."""
        seen: list[str] = []

        def note(task: Task, result: TaskResult) -> None:
            assert result.shard is not None
            assert read_receipt(work.shards, result.shard.id) is not None
            assert len(result.contents) == len(task.pieces)
            assert None not in result.contents
            seen.append(task.id)

        with self.begun(work, Notes()) as executor:
            assert executor.run(work.tasks, work.has_receipt, note) == {}
        assert sorted(seen) == sorted(task.id for task in work.tasks)

    def test_it_may_start_early_and_run_several_times(self, work: Work) -> None:
        notes = Notes()
        with self.executor(notes.events.append) as executor:
            executor.start()
            executor.begin(work.context, None)
            assert executor.run([], work.has_receipt, notes.note) == {}
            for task in work.tasks:
                assert executor.run([task], work.has_receipt, notes.note) == {}
        assert [task for task, _ in notes.results] == [task.id for task in work.tasks]
        assert len(work.receipts()) == len({result.shard.id for _, result in notes.results if result.shard})

    def test_failed_files_are_returned_by_task(self, tmp_path: Path) -> None:
        """A file that cannot be read fails alone. The event is the same as what is returned."""
        work, notes, bad = self.broken(tmp_path)
        failures = self.run(work, notes)
        failed = sorted((entry["file"], entry["error"]) for entries in failures.values() for entry in entries)
        assert [file for file, _ in failed] == bad
        assert all(file in error for file, error in failed)
        assert sorted((event.file, event.error) for event in notes.of(FileFailed)) == failed
        files = {task.id: {piece.file.shown for piece in task.pieces} for task in work.tasks}
        for task, entries in failures.items():
            assert {entry["file"] for entry in entries} <= files[task]

    def test_a_task_without_a_readable_file_makes_no_shard(self, tmp_path: Path) -> None:
        """It is not noted; all others are."""
        work, notes, bad = self.broken(tmp_path)
        self.run(work, notes)
        readable = [task.id for task in work.tasks if {piece.file.shown for piece in task.pieces} - set(bad)]
        assert sorted(task for task, _ in notes.results) == sorted(readable)
        assert len(work.receipts()) == len(readable) < len(work.tasks)

    def broken(self, tmp_path: Path) -> tuple[Work, Notes, list[str]]:
        """Work in which two files cannot be read: one that is a task of its own, and one in a group."""
        write_corpus(tmp_path / "corpus")
        large, small = tmp_path / "corpus/broken.jsonl.gz", tmp_path / "corpus/small1.jsonl.gz"
        large.write_bytes(gzip.compress(os.urandom(9000).hex().encode())[:-9])
        small.write_bytes(gzip.compress(b'{"text": "a"}\n')[:-6])
        return plan_work(tmp_path / "corpus", tmp_path / "out"), Notes(), sorted([str(large), str(small)])

    def test_fatal_errors_keep_their_type(self, tmp_path: Path) -> None:
        """A bad row with on_error="raise", and a tokenizer that cannot be loaded."""
        write_corpus(tmp_path / "corpus")
        work = plan_work(tmp_path / "corpus", tmp_path / "out", on_error="raise")
        with pytest.raises(DocumentError, match=r"large\.jsonl, row 7: bad json"):
            self.run(replace(work, tasks=[task for task in work.tasks if task.pieces[0].start == 0]), Notes())
        gone = replace(work, context=replace(work.context, tokenizer=str(tmp_path / "nowhere")))
        with pytest.raises(TokenizerError, match="nowhere"):
            self.run(gone, Notes())

    def test_nothing_is_written_after_stop(self, work: Work) -> None:
        """A callback that raises ends the run with its own error. After `stop` no receipt appears, and a new run finishes."""
        notes = Notes()

        def offer(sample: Sample) -> None:
            raise StopTheBuild

        with self.executor(notes.events.append) as executor:
            executor.begin(work.context, offer)
            with pytest.raises(StopTheBuild):
                executor.run(work.tasks, work.has_receipt, notes.note)
            executor.stop()
            before = work.files()
            deadline = time.monotonic() + 0.5
            while time.monotonic() < deadline:
                assert work.files() == before
                time.sleep(0.05)
            executor.begin(work.context, None)
            left = [task for task in work.tasks if task.id not in {done for done, _ in notes.results}]
            assert executor.run(left, work.has_receipt, notes.note) == {}
        assert sorted(task for task, _ in notes.results) == sorted(task.id for task in work.tasks)

    def test_documents_are_offered_for_the_spot_check(self, work: Work) -> None:
        """A few of each task, as text and ids."""
        notes = Notes()
        self.run(work, notes)
        assert {sample.task for sample in notes.samples} == {task.id for task in work.tasks}
        for sample in notes.samples:
            assert sample.ids == [*sample.text.encode(), EOS]
            assert sample.number >= 0

    def test_progress_adds_up(self, work: Work) -> None:
        """The last Progress and the sum of all ShardDone are what the receipts say."""
        notes = Notes()
        progress: list[Event] = []
        aggregator = Aggregator(progress.append)
        total = sum(task.new_bytes for task in work.tasks)
        aggregator(Started(source_bytes=total))

        def emit(event: Event) -> None:
            notes.events.append(event)
            aggregator(event)

        with self.executor(emit) as executor:
            executor.begin(work.context, None)
            executor.run(work.tasks, work.has_receipt, notes.note)
        aggregator(Stopped(error=""))
        last = [event for event in progress if isinstance(event, Progress)][-1]
        expected = {**work.totals(), "source_bytes": total}
        assert {name: getattr(last, name) for name in expected} == expected
        shards = notes.of(ShardDone)
        assert {name: sum(getattr(event, name) for event in shards) for name in expected} == expected
        assert all(result.shard in shards for _, result in notes.results)
        assert len(shards) == len(notes.results)
        assert last.shards_done == len(work.tasks)
        assert last.memory_bytes > 0
        assert last.memory_budget > 0

    def test_a_document_that_crashes_the_engine_is_quarantined(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """For isolated executors: that document alone is left out, and every other one is there."""
        with self.executor(lambda event: None) as executor:
            if not executor.is_isolated:
                pytest.skip("this executor does not survive a crash")
        write_corpus(tmp_path / "corpus")
        texts = [f"fine {i}" for i in range(40)]
        lines = [json.dumps({"text": text}) for text in [*texts[:25], CRASH_MARK, *texts[25:]]]
        (tmp_path / "corpus" / "crash.jsonl").write_text("\n".join(lines))
        (tmp_path / "site").mkdir()
        (tmp_path / "site" / "sitecustomize.py").write_text(CRASHING)
        monkeypatch.setenv("TEST_SURVIVOR", str(os.getpid()))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=os.pathsep)
        work, notes = plan_work(tmp_path / "corpus", tmp_path / "out"), Notes()
        assert self.run(work, notes) == {}
        crashed = [count for _, count, reason, _ in work.skips() if reason == "crashed the engine"]
        assert crashed == [1]
        assert sorted(task for task, _ in notes.results) == sorted(task.id for task in work.tasks)
