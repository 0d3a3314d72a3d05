"""What happened in the builds of a store, from the records of events.jsonl, in bounded memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tokenmill.watching.log_records import is_event

STAGES = ("read", "parse", "encode", "write", "sync")
MOST_POINTS = 600  # of a curve; then neighbours are merged
MOST_BARS = 240  # of a worker
MOST_LANES = 64  # workers with a lane of their own
MOST_NOTES = 200
MOST_FAILED = 1000
MOST_RUNS = 1000  # whose ids are known

Record = dict[str, Any]


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
            self.bars = [_merged_bars(*self.bars[at : at + 2]) for at in range(0, len(self.bars), 2)]


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
        self._before: Run | None = None  # the one before that
        self._earlier: deque[str] = deque(maxlen=MOST_RUNS)  # ids

    def add(self, record: Record) -> None:
        """Take in one line of the log. Lines that are no events are left out."""
        run = self._run_of(record["run"], float(record["time"])) if is_event(record) else None
        if run is None:
            return
        run.last = float(record["time"])
        if record["event"] in _TAKERS:
            _TAKERS[record["event"]](self, run, record)

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
        run.explained = [str(reason) for reason in record["reasons"]]

    def _planned(self, run: Run, record: Record) -> None:
        run.planned = record

    def _started(self, run: Run, record: Record) -> None:
        run.started = record["time"]

    def _progress(self, run: Run, record: Record) -> None:
        run.progress = record
        point = Point(
            float(record["seconds"]),
            float(record["text_bytes_per_second"]),
            float(record["tokens_per_second"]),
            record["eta_seconds"],
            int(record["memory_bytes"]),
            int(record["workers"]),
        )
        run.points.append(point)
        if len(run.points) > MOST_POINTS:
            run.points = [_merged_points(*run.points[at : at + 2]) for at in range(0, len(run.points), 2)]

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
            run.reasons[reason] = run.reasons.get(reason, 0) + count

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

    def _worker_recycled(self, run: Run, record: Record) -> None:
        self._end_lane(run, record)
        self._note(run, record, f"worker {record['pid']} outgrew its share of memory and was replaced")

    def _worker_died(self, run: Run, record: Record) -> None:
        self._end_lane(run, record)
        self._note(run, record, f"worker {record['pid']} died (exit {record['code']}); its tasks went to other workers")

    def _worker_stuck(self, run: Run, record: Record) -> None:
        at = f" at {record['file']}" if record["file"] else ""
        then = "; it was replaced" if record["is_replaced"] else ""
        self._note(run, record, f"worker {record['pid']} made no progress for {record['seconds']:.0f} s{at}{then}")

    def _device_lost(self, run: Run, record: Record) -> None:
        self._note(run, record, f"the engine lost its device: {record['why']}. The reference encodes the rest")

    def _document_crashed(self, run: Run, record: Record) -> None:
        self._note(
            run, record, f"document {record['document']} of task {record['task']} crashed the engine: quarantined"
        )

    def _large_document(self, run: Run, record: Record) -> None:
        self._note(run, record, record["message"])

    def _waiting(self, run: Run, record: Record) -> None:
        self._note(run, record, f"waiting for process {record['process']}, which builds the same store")

    def _engine_proof(self, run: Run, record: Record) -> None:
        self._note(run, record, f"first use of {record['tokenizer']}: the fast engine is compared with its reference")

    def _downloading(self, run: Run, record: Record) -> None:
        self._note(run, record, f"{record['files']:,} files of the Hub are copied while others are encoded")

    def _ended(self, run: Run, record: Record) -> None:
        run.end = record

    def _up_to_date(self, run: Run, record: Record) -> None:
        """A build that found nothing to do says less than the one before it, which stays."""
        run.end = record
        if self._before is not None and run.started is None:
            self._earlier[-1] = run.id
            self.run, self._before = self._before, None
            self.run.checked = record["time"]

    def _note(self, run: Run, record: Record, text: str) -> None:
        run.notes.append((record["time"], text))

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
    "worker_recycled": History._worker_recycled,
    "worker_died": History._worker_died,
    "worker_stuck": History._worker_stuck,
    "device_lost": History._device_lost,
    "document_crashed": History._document_crashed,
    "large_document": History._large_document,
    "waiting": History._waiting,
    "engine_proof": History._engine_proof,
    "downloading": History._downloading,
    "up_to_date": History._up_to_date,
    **dict.fromkeys(("finished", "stopped", "slice_done"), History._ended),
}


def _stages(seconds: Record) -> dict[str, float]:
    return {stage: float(seconds.get(stage, 0.0)) for stage in STAGES}


def _merged_points(first: Point, second: Point | None = None) -> Point:
    """The later of two neighbours, with the rates and the memory of both."""
    if second is None:
        return first
    return Point(
        second.seconds,
        (first.text_rate + second.text_rate) / 2,
        (first.token_rate + second.token_rate) / 2,
        second.eta,
        max(first.memory, second.memory),
        second.workers,
    )


def _merged_bars(first: Bar, second: Bar | None = None) -> Bar:
    if second is None:
        return first
    stages = {stage: first.stages[stage] + second.stages[stage] for stage in STAGES}
    return Bar(first.start, second.stop, stages, first.shards + second.shards)
