"""Charts as SVG: curves over time, lanes of workers, stacked bars. Text stays outside the SVG, so that it keeps its size.

Colours come from classes, so the same chart serves light and dark pages. Each chart says in words what it shows, for screen
readers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from tokenmill.watching.history import STAGES, Lane
from tokenmill.watching.markup import Markup, joined, tag

WIDTH, HEIGHT = 600, 120
COLUMNS = 240  # of a lane; fewer if there are many lanes


def curve(
    name: str,
    points: Sequence[tuple[float, float]],
    *,
    show: Callable[[float], str],
    show_time: Callable[[float], str],
    limit: float | None = None,
    words: str = "",
) -> Markup:
    """Values over time as an area below a line. `limit` is drawn as a dashed line; `words` stand beside the name."""
    last = points[-1][0] if points else 1.0
    top = _round_up(max([*(value for _, value in points), *([limit] if limit else []), 1e-9]))
    if len(points) == 1:  # of a short build: a value stands for the time until then
        points = [(0.0, points[0][1]), *points]
    places = [(WIDTH * x / max(last, 1e-9), HEIGHT * (1 - y / top)) for x, y in points]
    drawn: list[Markup] = []
    if places:
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        first_x, last_x = f"{places[0][0]:.1f}", f"{places[-1][0]:.1f}"
        drawn = [
            tag("path", class_="area", d=f"M{first_x} {HEIGHT}L{line}L{last_x} {HEIGHT}Z"),
            tag("path", class_="line", d=f"M{line}"),
        ]
    if limit:
        height = f"{HEIGHT * (1 - limit / top):.1f}"
        drawn.append(tag("path", class_="limit", d=f"M0 {height}H{WIDTH}"))
    highest = show(max((value for _, value in points), default=0.0))
    heard = f"{name}: {words or show(points[-1][1]) if points else 'no values yet'}; at most {highest}"
    return tag(
        "figure",
        tag("figcaption", tag("span", name), tag("strong", words)),
        tag("div", svg(drawn, heard), tag("span", show(top), class_="top"), class_="plot"),
        tag("div", tag("span", show_time(0)), tag("span", show_time(last)), class_="times"),
        class_="chart",
    )


def svg(drawn: Iterable[Markup], label: str, width: int = WIDTH, height: int = HEIGHT, class_: str = "") -> Markup:
    """A drawing that fills its box, whatever its shape."""
    return tag(
        "svg",
        joined(drawn),
        viewBox=f"0 0 {width} {height}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        class_=class_ or None,
    )


def lane(work: Lane, until: float, columns: int, label: str) -> Markup:
    """The time of a worker from left to right, in the colours of its stages; idle time is empty."""
    paths: dict[str, list[str]] = {stage: [] for stage in STAGES}
    for stage, start, stop in _stretches(work, until, columns):
        paths[stage].append(f"M{start} 0h{stop - start}v10h-{stop - start}z")
    drawn = [tag("path", class_=f"stage-{stage}", d="".join(path)) for stage, path in paths.items() if path]
    return svg(drawn, label, columns, 10, "lane")


def _stretches(work: Lane, until: float, columns: int) -> list[tuple[str, int, int]]:
    """Runs of columns with the same stage: (stage, first column, last column + 1)."""
    found: list[tuple[str, int, int]] = []
    bars = iter(work.bars)
    bar = next(bars, None)
    for column in range(columns):
        moment = (column + 0.5) * until / columns
        while bar is not None and bar.stop < moment:
            bar = next(bars, None)
        if bar is None:
            break
        if moment < bar.start:
            continue
        stage = _stage_at(bar.stages, (moment - bar.start) / max(bar.stop - bar.start, 1e-9))
        if found and found[-1][0] == stage and found[-1][2] == column:
            found[-1] = stage, found[-1][1], column + 1
        else:
            found.append((stage, column, column + 1))
    return found


def _stage_at(stages: dict[str, float], share: float) -> str:
    """The stage at a share of a stretch, as if each had been done in one go."""
    left = share * sum(stages.values())
    for stage, seconds in stages.items():
        left -= seconds
        if left <= 0 and seconds:
            return stage
    return STAGES[0]


def stacked(parts: Sequence[tuple[str, float, str]], label: str) -> Markup:
    """One bar of several parts: (class, share, name)."""
    drawn, start = [], 0.0
    for kind, share, _ in parts:
        width = WIDTH * share
        if width:
            drawn.append(tag("rect", class_=kind, x=f"{start:.1f}", y=0, width=f"{width:.1f}", height=10))
        start += width
    return svg(drawn, label, WIDTH, 10, "stacked")


def meter(share: float, label: str) -> Markup:
    """A bar that is filled to a share."""
    filled = tag("rect", class_="filled", x=0, y=0, width=f"{WIDTH * min(max(share, 0.0), 1.0):.1f}", height=10)
    return svg([filled], label, WIDTH, 10, "meter")


def columns_chart(name: str, bars: Sequence[tuple[str, int]], label: str) -> Markup:
    """A histogram: a column for each (name, count)."""
    most, count = max([value for _, value in bars] or [1]), max(len(bars), 1)
    drawn = []
    for number, (_, value) in enumerate(bars):
        height = max(HEIGHT * value / most, 1) if value else 0
        x, width = f"{WIDTH * (number + 0.08) / count:.1f}", f"{WIDTH * 0.84 / count:.1f}"
        y, high = f"{HEIGHT - height:.1f}", f"{height:.1f}"
        drawn.append(tag("rect", class_="column", x=x, y=y, width=width, height=high))
    ends = [bars[0][0], bars[len(bars) // 2][0], bars[-1][0]] if len(bars) > 2 else [bar[0] for bar in bars]
    return tag(
        "figure",
        tag("figcaption", tag("span", name)),
        tag("div", svg(drawn, label), tag("span", f"{most:,}", class_="top"), class_="plot"),
        tag("div", [tag("span", end) for end in ends], class_="times"),
        class_="chart",
    )


def _round_up(value: float) -> float:
    """1, 2, 5 or 10 times a power of ten."""
    power: float = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in (1, 2, 5) if value <= step * power), 10 * power)
