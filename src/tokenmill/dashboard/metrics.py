"""The state of a build in the text format of Prometheus."""

from __future__ import annotations

from typing import Any

from tokenmill.formatting import printable
from tokenmill.watching.history import Run
from tokenmill.watching.panel import share_done

FIGURES = {  # of the last progress: name, type and help
    "source_bytes": ("source_bytes_total", "counter", "Bytes of input read in this run."),
    "text_bytes": ("text_bytes_total", "counter", "Bytes of text encoded in this run."),
    "documents": ("documents_total", "counter", "Documents written in this run."),
    "tokens": ("tokens_total", "counter", "Tokens written in this run."),
    "text_bytes_per_second": ("text_bytes_per_second", "gauge", "Rate over the last ten seconds."),
    "tokens_per_second": ("tokens_per_second", "gauge", "Rate over the last ten seconds."),
    "memory_bytes": ("memory_bytes", "gauge", "Resident memory of all processes of the build."),
    "memory_budget": ("memory_budget_bytes", "gauge", "Memory that they may use."),
    "workers": ("workers", "gauge", "Worker processes with a task."),
    "shards_done": ("shards_done", "gauge", "Finished shards, earlier runs included."),
    "shards": ("shards", "gauge", "Shards of the whole store; 0 if not known."),
    "failed_files": ("failed_files", "gauge", "Input files that could not be read."),
    "quarantined": ("quarantined_documents", "gauge", "Documents left out of finished shards."),
    "eta_seconds": ("eta_seconds", "gauge", "Time left."),
}


def metrics(runs: dict[str, tuple[Run | None, bool | None]]) -> str:
    """The figures of the last build of each store, by name. With each: whether its process exists, if that is known."""
    known = {_labels(name): run for name, (run, _) in runs.items() if run is not None}
    gone = {_labels(name) for name, (_, is_alive) in runs.items() if is_alive is False}
    running = {labels: int(run.end is None and labels not in gone) for labels, run in known.items()}
    lines = _metric("build_running", "gauge", "Whether a build is running.", running)
    lines += _metric(
        "build_share_done", "gauge", "From 0 to 1.", {name: share_done(run) for name, run in known.items()}
    )
    said = "When the build last said something, in seconds since 1970."
    lines += _metric("build_last_event_seconds", "gauge", said, {name: run.last for name, run in known.items()})
    for field, (metric, kind, help) in FIGURES.items():
        figures = {labels: (run.progress or {}).get(field) for labels, run in known.items()}
        lines += _metric(f"build_{metric}", kind, help, figures)
    builds = [(name, run) for name, (run, _) in runs.items() if run is not None]
    stages = {_labels(name, stage=stage): spent for name, run in builds for stage, spent in run.seconds.items()}
    lines += _metric("build_stage_seconds_total", "counter", "Time of the workers by stage.", stages)
    reasons = {_labels(name, reason=reason): count for name, run in builds for reason, count in run.reasons.items()}
    lines += _metric("build_quarantined_by_reason", "gauge", "Documents left out of shards of this run.", reasons)
    return "\n".join([*lines, ""])


def _metric(name: str, kind: str, help: str, values: dict[str, Any]) -> list[str]:
    """The values by their labels, as far as they are known."""
    lines = [f"tokenmill_{name}{labels} {value}" for labels, value in values.items() if value is not None]
    return [f"# HELP tokenmill_{name} {help}", f"# TYPE tokenmill_{name} {kind}", *lines] if lines else []


def _labels(store: str, **more: str) -> str:
    pairs = {"store": store, **more}
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs.items()) + "}"


def _escaped(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
