"""The live view of a build in a terminal or a notebook: progress, rates, memory, and what each worker does."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

from tokenmill import events
from tokenmill.formatting import human, human_time, some
from tokenmill.watching.panel import what_limits

MOST_WORKERS = 8  # that have a line each
RECENT_SHARDS = 8  # of a worker, that its rate and its stages are taken from
_STAGES = {"read": "reading", "parse": "parsing", "encode": "encoding", "write": "writing", "sync": "syncing"}


@dataclass(slots=True)
class _Worker:
    shards: int = 0
    recent: deque[events.ShardDone] = field(default_factory=lambda: deque(maxlen=RECENT_SHARDS))

    def add(self, shard: events.ShardDone) -> None:
        self.shards += 1
        self.recent.append(shard)

    def rate(self) -> float:
        """Bytes of text per second."""
        seconds = sum(sum(asdict(shard.seconds).values()) for shard in self.recent)
        return sum(shard.text_bytes for shard in self.recent) / max(seconds, 1e-9)


class LivePanel:
    """Shows a build until it is closed. Lines printed meanwhile appear above it."""

    def __init__(self, console: Any, total_bytes: int) -> None:
        from rich.live import Live

        self._total = total_bytes
        self._progress: events.Progress | None = None
        self._workers: dict[int, _Worker] = {}
        self._live = Live(self, console=console, auto_refresh=False, transient=True)
        self._live.start(refresh=True)

    def add_shard(self, event: events.ShardDone) -> None:
        self._workers.setdefault(event.pid, _Worker()).add(event)

    def drop_worker(self, pid: int) -> None:
        self._workers.pop(pid, None)

    def show(self, event: events.Progress) -> None:
        self._progress = event
        self._live.refresh()

    def close(self) -> None:
        self._live.stop()

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        progress = self._progress
        if progress is None:
            return Text("starting ...")
        head = Table.grid(padding=(0, 1), expand=True)
        head.add_column(ratio=1)
        head.add_column(no_wrap=True)
        bar = ProgressBar(self._total or None, progress.source_bytes, pulse=not self._total)
        head.add_row(bar, _how_far(progress))
        lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in self._lines(progress)]
        return Group(head, *lines)

    def _lines(self, progress: events.Progress) -> list[str]:
        """What is below the bar, one line each."""
        shards = f"{progress.shards_done:,} of {some(progress.shards, 'shard')}" if progress.shards else ""
        failed = f"{some(progress.failed_files, 'file')} failed" if progress.failed_files else ""
        quarantined = f"{progress.quarantined:,} quarantined" if progress.quarantined else ""
        rates = [
            *([failed] if failed else []),
            f"{human(progress.text_bytes_per_second)}/s of text",
            f"{human(progress.tokens_per_second, '')}tok/s",
            some(progress.documents, "document"),
            *(part for part in (shards, quarantined) if part),
        ]
        memory = f"memory {human(progress.memory_bytes)} of {human(progress.memory_budget)}"
        recent = [shard for worker in self._workers.values() for shard in worker.recent]
        lines = ["   ".join(rates), "   ".join([memory, *([what_limits(_stage_shares(recent))] if recent else [])])]
        for pid, worker in list(self._workers.items())[:MOST_WORKERS] if len(self._workers) > 1 else []:
            lines.append(
                f"worker {pid}   {some(worker.shards, 'shard')}   {human(worker.rate())}/s   {_shares(worker.recent)}"
            )
        if len(self._workers) > MOST_WORKERS:
            lines.append(f"and {some(len(self._workers) - MOST_WORKERS, 'more worker')}")
        return lines


def _stage_shares(shards: Any) -> dict[str, float]:
    sums = {stage: sum(getattr(shard.seconds, stage) for shard in shards) for stage in _STAGES}
    total = max(sum(sums.values()), 1e-9)
    return {stage: seconds / total for stage, seconds in sums.items()}


def _shares(shards: Any) -> str:
    shares = sorted(_stage_shares(shards).items(), key=lambda item: -item[1])
    return ", ".join(f"{100 * share:.0f}% {_STAGES[stage]}" for stage, share in shares if share >= 0.05)


def _how_far(progress: events.Progress) -> str:
    if not progress.total_source_bytes:
        return f"{human(progress.source_bytes)}, {human_time(progress.seconds)}"
    share = 100 * progress.source_bytes / progress.total_source_bytes
    is_known = progress.eta_seconds is not None and progress.source_bytes < progress.total_source_bytes
    left = f", {human_time(progress.eta_seconds or 0)} left" if is_known else ""
    return f"{share:.0f}% of {human(progress.total_source_bytes)}{left}"
