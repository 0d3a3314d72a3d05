"""What happened in the builds of a store, from the records of events.jsonl, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tokenmill.log_records import is_event, shortened

STAGES = ("read", "parse", "encode", "write", "sync")
MOST_POINTS = 600  # of a curve; then neighbours are merged
MOST_BARS = 240  # of a worker
MOST_LANES = 64  # workers with a lane of their own
MOST_NOTES = 200
MOST_FAILED = 1000
MOST_REASONS = 100
MOST_RUNS = 1000  # whose ids are known

Record = dict[str, Any]
T = TypeVar("T")


@dataclass(slots=True)
class Point:
    """The state of a build at one moment."""

    seconds: float  # since encoding began
    text_rate: float  # bytes of text per second
    token_rate: float
    eta: float | None
    memory: int
    workers: int


@dataclass(slots=True)
class Bar:
    """A stretch of the time of a worker, in seconds since the run began, and the seconds it spent in each stage."""

    start: float
    stop: float
    stages: dict[str, float]
    shards: int = 1


@dataclass(slots=True)
class Lane:
    """The work of one worker, and of those that took its place when it ended."""

    pid: str
    bars: list[Bar] = field(default_factory=list)
    shards: int = 0
    has_ended: bool = False

    def add(self, stop: float, stages: dict[str, float], shards: int) -> None:
        before = self.bars[-1].stop if self.bars else 0.0
        start = min(stop, max(before, stop - sum(stages.values())))
        self.bars.append(Bar(start, stop, stages, shards))
        self.shards += shards
        if len(self.bars) > MOST_BARS:
            self.bars = _halved(self.bars, _merged_bars)


@dataclass(slots=True)
class Run:
    """One build: the events with the same `run`."""

    id: str
    began: float  # seconds since 1970
    last: float = 0.0  # time of the last event
    begun: Record | None = None
    planned: Record | None = None
    started: float | None = None  # when encoding began
    progress: Record | None = None  # the last one
    end: Record | None = None  # finished, stopped, up_to_date or slice_done
    checked: float | None = None  # when a later build found that there was nothing to do
    explained: list[str] = field(default_factory=list)  # why there was something to build
    points: list[Point] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    shards: int = 0
    reasons: dict[str, int] = field(default_factory=dict)  # quarantined documents
    failed: list[Record] = field(default_factory=list)
    failed_names: set[str] = field(default_factory=set)
    notes: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=MOST_NOTES))

    @property
    def is_over(self) -> bool:
        return self.end is not None

    @property
    def is_slice_done(self) -> bool:
        return self.end is not None and self.end["event"] == "slice_done"

    def stage_shares(self) -> dict[str, float]:
        """The share of each stage in the time of the workers."""
        total = sum(self.seconds.values())
        return {stage: seconds / total if total else 0.0 for stage, seconds in self.seconds.items()}


class History:
    """The builds of a store. `run` is the last one that had something to do.

    Slices of a build write to one log at the same time: the one that began last counts.
    """

    def __init__(self) -> None:
        self.run: Run | None = None
        self.skipped = 0  # lines that are no events
        self._before: Run | None = None  # the one before that
        self._earlier: deque[str] = deque(maxlen=MOST_RUNS)  # ids

    def add(self, record: Record | None) -> None:
        """Take in one line of the log, None for a damaged one. Lines that are no events are left out, and counted."""
        if record is None or not is_event(record):
            self.skipped += 1
            return
        record = shortened(record)
        run = self._run_of(record["run"], float(record["time"]))
        if run is None:
            if record["event"] == "finished" and self.run is not None and self.run.is_slice_done:
                self.run.end = record  # a slice that began earlier was the last to end, and has finished the store
            return
        run.last = float(record["time"])
        if record["event"] in _TAKERS:
            _TAKERS[record["event"]](self, run, record)
        if record["event"] in _NOTES:
            run.notes.append((record["time"], _NOTES[record["event"]](record)))

    def _run_of(self, name: str, time: float) -> Run | None:
        """None for one that began before the last."""
        if self.run is not None and self.run.id == name:
            return self.run
        if name in self._earlier:
            return None
        if self.run is not None:
            self._earlier.append(self.run.id)
        self._before, self.run = self.run, Run(name, time)
        return self.run

    def _begun(self, run: Run, record: Record) -> None:
        run.begun = record

    def _explained(self, run: Run, record: Record) -> None:
        run.explained = record["reasons"][:MOST_REASONS]

    def _planned(self, run: Run, record: Record) -> None:
        run.planned = record

    def _started(self, run: Run, record: Record) -> None:
        run.started = record["time"]

    def _progress(self, run: Run, record: Record) -> None:
        run.progress = record
        names = ("seconds", "text_bytes_per_second", "tokens_per_second", "eta_seconds", "memory_bytes", "workers")
        run.points.append(Point(*(record[name] for name in names)))
        if len(run.points) > MOST_POINTS:
            run.points = _halved(run.points, _merged_points)

    def _shard_done(self, run: Run, record: Record) -> None:
        stages = _stages(record["seconds"])
        self._count(run, record, 1, stages)
        self._lane(run, str(record["pid"])).add(record["time"] - run.began, stages, 1)

    def _shards_done(self, run: Run, record: Record) -> None:
        shards, stages = int(record["shards"]), _stages(record["seconds"])
        self._count(run, record, shards, stages)
        workers = record.get("workers", {})
        total = sum(workers.values()) or 1.0
        for pid, seconds in workers.items():
            part = {stage: spent * seconds / total for stage, spent in stages.items()}
            self._lane(run, pid).add(record["time"] - run.began, part, max(1, round(shards * seconds / total)))

    def _count(self, run: Run, record: Record, shards: int, stages: dict[str, float]) -> None:
        run.shards += shards
        for stage, seconds in stages.items():
            run.seconds[stage] += seconds
        for reason, count in record.get("reasons", {}).items():
            name = reason if reason in run.reasons or len(run.reasons) < MOST_REASONS else "other reasons"
            run.reasons[name] = run.reasons.get(name, 0) + count

    def _lane(self, run: Run, pid: str) -> Lane:
        """The lane of a worker: its own, that of one which ended, or a new one. The last lane takes what is too much."""
        for lane in run.lanes:
            if lane.pid == pid:
                return lane
        for lane in run.lanes:
            if lane.has_ended:
                lane.pid, lane.has_ended = pid, False
                return lane
        if len(run.lanes) < MOST_LANES:
            run.lanes.append(Lane(pid))
        return run.lanes[-1]

    def _file_failed(self, run: Run, record: Record) -> None:
        if len(run.failed) < MOST_FAILED and record["file"] not in run.failed_names:
            run.failed_names.add(record["file"])
            run.failed.append(record)

    def _ended(self, run: Run, record: Record) -> None:
        run.end = record

    def _up_to_date(self, run: Run, record: Record) -> None:
        """A build that found nothing to do says less than the one before it, which stays."""
        run.end = record
        if self._before is not None and run.started is None:
            self._earlier[-1] = run.id
            self.run, self._before = self._before, None
            self.run.checked = record["time"]

    def _end_lane(self, run: Run, record: Record) -> None:
        for lane in run.lanes:
            if lane.pid == str(record["pid"]):
                lane.has_ended = True


_TAKERS = {
    "begun": History._begun,
    "explained": History._explained,
    "planned": History._planned,
    "started": History._started,
    "progress": History._progress,
    "shard_done": History._shard_done,
    "shards_done": History._shards_done,
    "file_failed": History._file_failed,
    "up_to_date": History._up_to_date,
    **dict.fromkeys(("worker_recycled", "worker_died"), History._end_lane),
    **dict.fromkeys(("finished", "stopped", "slice_done"), History._ended),
}
_NOTES: dict[str, Callable[[Record], str]] = {
    "worker_recycled": lambda it: f"worker {it['pid']} outgrew its share of memory and was replaced",
    "worker_died": lambda it: f"worker {it['pid']} died (exit {it['code']}); its tasks went to other workers",
    "worker_stuck": lambda it: (
        f"worker {it['pid']} made no progress for {it['seconds']:.0f} s"
        + (f" at {it['file']}" if it["file"] else "")
        + ("; it was replaced" if it["is_replaced"] else "")
    ),
    "device_lost": lambda it: f"the engine lost its device: {it['why']}. The reference encodes the rest",
    "document_crashed": lambda it: f"document {it['document']} of task {it['task']} crashed the engine: quarantined",
    "large_document": lambda it: str(it["message"]),
    "waiting": lambda it: f"waiting for process {it['process']}, which builds the same store",
    "engine_proof": lambda it: f"first use of {it['tokenizer']}: the fast engine is compared with its reference",
    "downloading": lambda it: f"{it['files']:,} files of the Hub are copied while others are encoded",
}


def _stages(seconds: Record) -> dict[str, float]:
    return {stage: float(seconds.get(stage, 0.0)) for stage in STAGES}


def _halved(values: list[T], merged: Callable[[T, T], T]) -> list[T]:
    """Each two neighbours as one."""
    return [*map(merged, values[::2], values[1::2]), *values[len(values) // 2 * 2 :]]


def _merged_points(first: Point, second: Point) -> Point:
    """The later of two neighbours, with the rates and the memory of both."""
    rates = (first.text_rate + second.text_rate) / 2, (first.token_rate + second.token_rate) / 2
    return Point(second.seconds, *rates, second.eta, max(first.memory, second.memory), second.workers)


def _merged_bars(first: Bar, second: Bar) -> Bar:
    stages = {stage: first.stages[stage] + second.stages[stage] for stage in STAGES}
    return Bar(first.start, second.stop, stages, first.shards + second.shards)
