"""The panel of a build: where it stands, how fast it is, what each worker does, what limits it, and what went wrong."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from tokenmill.formatting import human, human_time, some
from tokenmill.watching.charts import COLUMNS, curve, lane, meter, stacked
from tokenmill.watching.history import STAGES, History, Run
from tokenmill.watching.markup import Markup, joined, tag

SILENT_SECONDS = 20.0  # without an event, before the page says so
LIMITING_SHARE = 0.5  # of the time of the workers
MOST_SHOWN = 10  # failed files and notes
FEW_LANES = 12
_LIMITS = {
    "input-bound": (("read",), " (disk, network, decompression or parquet)"),
    "CPU-bound": (("parse", "encode"), ""),
    "disk-bound": (("write", "sync"), ""),
}


def sections(
    history: History,
    *,
    is_alive: bool | None = None,
    now: float | None = None,
    nothing: str = "No build has begun yet.",
) -> dict[str, Markup]:
    """The parts of the panel by name.

    `is_alive`: whether a process is building, if that is known. `nothing` is said when there is no event.
    """
    now = time.time() if now is None else now
    run = history.run
    if run is None:
        waiting = tag("p", nothing, class_="status-line")
        empty = dict.fromkeys(("figures", "curves", "workers"), Markup(""))
        return {"status": waiting, **empty, "problems": _skipped(history)}
    is_running = run.end is None and is_alive is not False
    return {
        "status": _status(run, now, is_alive=is_alive),
        "figures": _figures(run),
        "curves": _curves(run, is_running=is_running),
        "workers": _workers(run, now, is_running=is_running),
        "problems": joined([_problems(run), _skipped(history)]),
    }


def style() -> str:
    """The style sheet of the panel."""
    return (files("tokenmill.watching") / "panel.css").read_text("utf-8")


def state_of(run: Run, now: float, *, is_alive: bool | None) -> tuple[str, str]:
    """The state of a build in one word and in a sentence."""
    end = run.end
    if end is None:
        return _unfinished(run, now, is_alive=is_alive)
    if end["event"] == "finished" and end["failed_files"]:
        failed = some(end["failed_files"], "input file")
        return "incomplete", f"The store is not complete: {failed} failed. The next build tries again."
    if end["event"] == "finished":
        return "finished", f"Finished in {human_time(end['seconds'])}."
    if end["event"] == "up_to_date":
        return "finished", "Up to date: there was nothing to build."
    if end["event"] == "slice_done":
        missing = some(len(end["missing"]), "slice")
        return "incomplete", f"Slice {end['slice']} is done. The store is not complete: {missing} missing."
    return "stopped", f"{_why_stopped(end['error'])} Finished shards are kept: run the same build to resume."


def _why_stopped(error: str) -> str:
    kind = error.partition(": ")[0]
    if kind in ("KeyboardInterrupt", "Terminated"):
        return "Interrupted by Ctrl-C." if kind == "KeyboardInterrupt" else "Ended by SIGTERM."
    return f"Stopped: {error.rstrip('. ')}."


def _unfinished(run: Run, now: float, *, is_alive: bool | None) -> tuple[str, str]:
    silent = now - run.last
    if is_alive is False:
        return (
            "stopped",
            "The process that built this store exited unexpectedly: it was killed, or the machine stopped."
            " Finished shards are kept: run the same build to resume.",
        )
    if silent > SILENT_SECONDS and is_alive is None:
        return "silent", f"No news for {human_time(silent)}: is the build still running?"
    if run.started is None:
        return "planning", "Planning: finding files, cutting them into tasks, choosing an engine."
    progress = run.progress
    if progress is None:
        return "running", "Encoding begins."
    left = progress["eta_seconds"]
    return "running", f"Encoding, {human_time(left)} left." if left is not None else "Encoding."


def share_done(run: Run) -> float | None:
    """From 0 to 1; None if it is not known. Files that failed are not done."""
    planned, progress = run.planned or {}, run.progress or {}
    if run.end is not None and run.end["event"] in ("finished", "up_to_date"):
        failed = run.end.get("failed_files", 0)
        whole = max(planned.get("files", 0), failed, 1)
        done = whole - failed
    elif run.is_slice_done:  # of the shards of all slices
        done, whole = planned.get("done", 0) + run.shards, planned.get("shards", 0)
    else:
        done, whole = progress.get("source_bytes", 0), progress.get("total_source_bytes", 0)
    return float(min(max(done / whole, 0), 1)) if whole else None


def _status(run: Run, now: float, *, is_alive: bool | None) -> Markup:
    state, sentence = state_of(run, now, is_alive=is_alive)
    share = share_done(run)
    planned = run.planned
    plan = f"{planned['tokenizer']} by {planned['engine']}; {planned['workers']}" if planned is not None else ""
    checked = f" · found up to date {_date(run.checked)}" if run.checked is not None else ""
    percent = "" if share is None else f"{int(100 * share)}%"  # 100% only when all is done
    return joined(
        [
            tag("p", tag("strong", state, class_=f"state {state}"), " ", tag("span", sentence), class_="status-line"),
            tag(
                "div", meter(share or 0.0, f"{percent} done"), tag("strong", percent), class_="whole", data_share=share
            ),
            tag("p", f"begun {_date(run.began)}", " · " if plan else "", plan, checked, class_="quiet"),
            *([tag("p", "Built because: ", "; ".join(run.explained), class_="quiet")] if run.explained else []),
        ]
    )


def _date(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _figures(run: Run) -> Markup:
    """Numbers in boxes. Those of a finished build are of the whole store."""
    progress, end = run.progress or {}, run.end or {}
    is_finished = end.get("event") in ("finished", "up_to_date")
    documents = end["documents"] if is_finished else progress.get("documents", 0)
    tokens = end["tokens"] if is_finished else progress.get("tokens", 0)
    # Shards are logged as they are finished, progress once a second: what is larger is newer.
    quarantined = (
        sum(end.get("quarantined", {}).values())
        if is_finished
        else max(progress.get("quarantined", 0), sum(run.reasons.values()))
    )
    failed: int = end["failed_files"] if "failed_files" in end else progress.get("failed_files", len(run.failed))
    shards = max(progress.get("shards_done", 0), (run.planned or {}).get("done", 0) + run.shards)
    all_shards = progress.get("shards", 0)
    of_all = f" of {all_shards:,}" if all_shards else ""
    text_bytes, seconds = progress.get("text_bytes", 0), progress.get("seconds", 0.0)
    rate, token_rate = progress.get("text_bytes_per_second", 0.0), progress.get("tokens_per_second", 0.0)
    if is_finished and seconds:
        rate, token_rate = text_bytes / seconds, progress["tokens"] / seconds
    boxes = [
        _box("documents", f"{documents:,}", documents),
        _box("tokens", f"{tokens:,}", tokens),
        _box("text", human(text_bytes), text_bytes),
        _box("throughput", f"{human(rate)}/s", round(rate)),
        _box("tokens per second", human(token_rate, "").strip(), round(token_rate)),
        _box("shards", f"{shards:,}{of_all}", shards),
        _box("failed files", f"{failed:,}", failed, is_bad=bool(failed)),
        _box("quarantined", f"{quarantined:,}", quarantined, is_bad=bool(quarantined)),
    ]
    return tag("dl", boxes, class_="figures")


def _box(name: str, text: str, value: float, *, is_bad: bool = False) -> Markup:
    return tag(
        "div",
        tag("dt", name),
        tag("dd", text),
        class_="box bad" if is_bad else "box",
        data_figure=name.replace(" ", "-"),
        data_value=value,
    )


def _curves(run: Run, *, is_running: bool) -> Markup:
    if not run.points:
        return Markup("")
    last, budget = run.points[-1], (run.progress or {}).get("memory_budget", 0)
    rates = [(point.seconds, point.text_rate) for point in run.points]
    left = [(point.seconds, point.eta) for point in run.points if point.eta is not None]
    memory = [(point.seconds, float(point.memory)) for point in run.points]
    in_words = human_time(last.eta) if is_running and last.eta is not None else ""
    used = human(last.memory) + (f" of {human(budget)}" if budget else "")
    rate = f"{human(last.text_rate)}/s of text"
    return tag(
        "div",
        curve("Throughput", rates, show=lambda value: f"{human(value)}/s", show_time=_clock, words=rate),
        curve("Time left", left, show=_clock, show_time=_clock, words=in_words),
        curve("Memory", memory, show=human, show_time=_clock, limit=float(budget) or None, words=used),
        class_="curves",
    )


def _clock(seconds: float) -> str:
    """0 s, 1:05, 2:03:04."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def what_limits(shares: Mapping[str, float]) -> str:
    """What a build waits for, in words, from the share of each stage in the time of its workers."""
    groups = {name: sum(shares[stage] for stage in stages) for name, (stages, _) in _LIMITS.items()}
    name = max(groups, key=lambda each: groups[each])
    if not groups[name]:
        return ""
    if groups[name] < LIMITING_SHARE:
        most = sorted(shares.items(), key=lambda item: -item[1])[:3]
        return f"balanced: {', '.join(f'{100 * share:.0f}% {stage}' for stage, share in most)}"
    stages, more = _LIMITS[name]
    words = " and ".join(stage for stage in stages if shares[stage] >= 0.01)
    return f"{name}: {100 * groups[name]:.0f}% of the time in {words}{more}"


def _workers(run: Run, now: float, *, is_running: bool) -> Markup:
    """Where the time went, in all and by worker."""
    shares = run.stage_shares()
    if not run.shards:
        return Markup("")
    legend = [
        tag("li", tag("span", class_=f"key stage-{stage}"), f"{stage} {100 * shares[stage]:.0f}%") for stage in STAGES
    ]
    parts = [(f"stage-{stage}", shares[stage], stage) for stage in STAGES]
    until = max(now if is_running else run.last, run.last) - run.began
    columns = COLUMNS if len(run.lanes) <= FEW_LANES else COLUMNS // 3
    rows = [
        tag(
            "tr",
            tag("th", f"worker {each.pid}", scope="row"),
            tag("td", lane(each, max(until, 1e-9), columns, f"worker {each.pid}: {some(each.shards, 'shard')}")),
            tag("td", some(each.shards, "shard"), class_="number"),
        )
        for each in run.lanes
    ]
    return joined(
        [
            tag("p", tag("strong", what_limits(shares), class_="limits")),
            stacked(parts, ", ".join(f"{stage} {100 * shares[stage]:.0f}%" for stage in STAGES)),
            tag("ul", legend, class_="legend"),
            tag(
                "table",
                tag("caption", f"Finished shards of each worker, {_clock(until)} from left to right"),
                tag("tbody", rows),
                class_="lanes",
            ),
        ]
    )


def _problems(run: Run) -> Markup:
    reasons: dict[str, Any] = (run.end or {}).get("quarantined") or run.reasons
    return joined(
        [
            _list("Quarantined documents", [f"{count:,} {reason}" for reason, count in reasons.items()]),
            _list("Failed files", [each["error"] for each in run.failed]),
            _list("Notes", [text for _, text in list(run.notes)[-MOST_SHOWN:]]),
        ]
    )


def _skipped(history: History) -> Markup:
    lines = f"{some(history.skipped, 'line')} of events.jsonl left out: damaged, or not of this version of tokenmill"
    return _list("Log", [lines] if history.skipped else [])


def _list(title: str, texts: list[str]) -> Markup:
    """The first texts of a list, and how many more there are."""
    more = len(texts) - MOST_SHOWN
    items = tag("ul", [tag("li", text) for text in texts[:MOST_SHOWN]])
    rest = [tag("p", f"and {more:,} more")] if more > 0 else []
    return joined([tag("h3", title), items, *rest]) if texts else Markup("")
