"""A plot of a packing: the lengths of the documents, what fills the rows, and what is lost.

Uses matplotlib without its global state, so it does not affect a program that plots too. Shades and hatches differ as well as
colours, so the plot can be read in black and white.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenmill.errors import UsageError
from tokenmill.formatting import percent, some
from tokenmill.packing.comparison import Packed
from tokenmill.packing.stats import Stats

SUFFIXES = (".png", ".svg")

# Where positions and tokens go: the field of the stats, its label, and how it is drawn.
_IN_ROWS = (
    ("once", "tokens", {"facecolor": "#2b4c7e"}),
    ("repeated", "repeated tokens", {"facecolor": "#9db8d9", "hatch": "////"}),
    ("padding", "padding", {"facecolor": "white", "hatch": "...."}),
)
_LOST = (
    ("truncated", "truncated tokens", {"facecolor": "#b5651d", "hatch": "xxxx"}),
    ("dropped", "dropped tokens", {"facecolor": "#f2cf9f"}),
)


def check_picture(path: str | os.PathLike[str]) -> None:
    """Raise a UsageError unless a plot can be saved at this path. Called before minutes are spent on a plan."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise UsageError(f"--plot {path}: the file name must end in {' or '.join(SUFFIXES)}")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise UsageError(f"--plot needs matplotlib ({error}): pip install 'tokenmill[plot]'") from error


def draw(packed: Sequence[Packed], path: str | os.PathLike[str]) -> None:
    """Save a plot of one packing, or of several of the same store side by side, as .png or .svg."""
    check_picture(path)
    import matplotlib
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "font.size": 9,
        "hatch.linewidth": 0.6,
        "svg.fonttype": "none",
        "svg.hashsalt": "tokenmill",
    }
    with matplotlib.rc_context(style):
        if len(packed) == 1:
            figure = Figure(figsize=(11, 4.2), layout="constrained")
            lengths, places = figure.subplots(1, 2, width_ratios=(1, 1.1))
            _draw_places(places, packed[0].stats)
        else:
            figure = Figure(figsize=(14, 2.2 + 0.55 * len(packed)), layout="constrained")
            lengths, rows, lost = figure.subplots(1, 3, width_ratios=(1, 1.25, 0.75))
            _draw_rows(rows, packed)
            _draw_lost(lost, packed)
        _draw_lengths(lengths, packed[0].stats)
        figure.suptitle(_title(packed), fontsize=11)
        svg = Path(path).suffix.lower() == ".svg"
        try:  # no date, so that the same packing gives the same file
            figure.savefig(path, dpi=150, metadata={"Date": None} if svg else None)
        except OSError as error:
            raise UsageError(f"--plot {path}: the plot cannot be written: {error.strerror or error}") from error


def _title(packed: Sequence[Packed]) -> str:
    stats = packed[0].stats
    corpus = f"{some(stats.documents, 'document')}, {some(stats.tokens, 'token')}, seq_len {stats.seq_len:,}"
    if len(packed) == 1:
        return f"{packed[0].name}: {some(stats.rows, 'row')} from {corpus}"
    return ", ".join([corpus, *replace(packed[0], options=_shared(packed)).name.split(", ")[1:]])


def _shared(packed: Sequence[Packed]) -> dict[str, Any]:
    """The options that all packings share, which go into the title."""
    first = packed[0].options
    return {name: value for name, value in first.items() if all(one.options.get(name) == value for one in packed)}


def _draw_lengths(axes: Any, stats: Stats) -> None:
    """The histogram: a bar for each power of two, with seq_len marked."""
    places = [_place(low) for low, _, _ in stats.lengths]
    counts = [count for _, _, count in stats.lengths]
    axes.bar(places, counts, width=1, align="edge", facecolor="0.75", edgecolor="0.2", lw=0.7)
    last = int(max([*places, _place(stats.seq_len), 1]))
    every = 1 + last // 8  # keeps labels apart
    ticks = [place for place in range(last + 2) if place % every == 0]
    axes.set_xticks(ticks, [_short(0 if place == 0 else 1 << (place - 1)) for place in ticks])
    axes.axvline(_place(stats.seq_len), color="black", ls="--", lw=1.3, label=f"seq_len {stats.seq_len:,}")
    axes.set_xlim(-0.2, last + 1.2)
    axes.set_title("Length of the documents")
    axes.set_xlabel("tokens in a document (1k = 1,024)")
    axes.set_ylabel("documents")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False, loc="upper left")
    axes.margins(y=0.16)  # space for the legend
    _hide_frame(axes)


def _place(tokens: int) -> float:
    """The coordinate of a length on an axis where 0, 1, 2-3, 4-7, ... are equally wide."""
    return 1 + math.log2(tokens) if tokens else 0.0


def _short(number: int) -> str:
    for name, size in (("G", 1 << 30), ("M", 1 << 20), ("k", 1 << 10)):
        if number >= size:
            return f"{number // size}{name}"
    return str(number)


def _draw_places(axes: Any, stats: Stats) -> None:
    """One packing: a bar for each place that positions and tokens go to."""
    parts = [(*part, stats.positions, "positions") for part in _IN_ROWS]
    parts += [(*part, stats.tokens, "tokens") for part in _LOST]
    counts = [_count(stats, field) for field, *_ in parts]
    widest = max([*counts, 1])
    for line, ((_, _, style, whole, what), count) in enumerate(zip(parts, counts, strict=True)):
        if count:
            axes.barh(line, count, height=0.6, edgecolor="0.2", lw=0.7, **style)
        share = f"{count:,}\n{percent(count, whole)} of {what}" if count else "0"
        axes.text(count + 0.01 * widest, line, share, va="center")
    axes.axhline(len(_IN_ROWS) - 0.5, color="0.6", lw=0.8)
    axes.set_yticks(range(len(parts)), [name for _, name, *_ in parts])
    axes.set_ylim(len(parts) - 0.5, -0.5)
    axes.set_xlim(0, 1.5 * widest)  # space for the numbers
    axes.set_xticks([])
    axes.text(1.49 * widest, len(_IN_ROWS) - 0.57, "in the rows", ha="right", va="bottom", style="italic")
    axes.text(1.49 * widest, len(_IN_ROWS) - 0.43, "in no row", ha="right", va="top", style="italic")
    axes.set_title("Where positions and tokens go")
    axes.tick_params(left=False)
    _hide_frame(axes, keep=("left",))


def _draw_rows(axes: Any, packed: Sequence[Packed]) -> None:
    """Several packings: what fills the rows of each, in percent of the positions."""
    for line, one in enumerate(packed):
        stats = one.stats
        _draw_shares(axes, line, stats, _IN_ROWS, stats.positions)
        fill = f"{percent(stats.positions - stats.padding, stats.positions)} full" if stats.positions else "no rows"
        axes.text(102, line, f"{fill}\n{some(stats.rows, 'row')}", va="center", fontsize=8)
    shared = _shared(packed)
    own = [{name: value for name, value in one.options.items() if name not in shared} for one in packed]
    names = [replace(one, options=options).name.replace(", ", "\n") for one, options in zip(packed, own, strict=True)]
    axes.set_yticks(range(len(packed)), names, fontsize=8)
    axes.set_xlim(0, 128)
    axes.set_xticks(range(0, 101, 25))
    axes.set_title("What fills the rows")
    axes.set_xlabel("% of the positions")
    _finish_bars(axes, len(packed), _IN_ROWS)
    axes.spines["bottom"].set_bounds(0, 100)


def _draw_lost(axes: Any, packed: Sequence[Packed]) -> None:
    """Several packings: the tokens in no row, in percent of all tokens."""
    most = 0.0
    for line, one in enumerate(packed):
        stats = one.stats
        end = _draw_shares(axes, line, stats, _LOST, stats.tokens)
        lost = stats.truncated + stats.dropped
        text = percent(lost, stats.tokens) if lost else "none"
        axes.annotate(text, (end, line), (4, 0), textcoords="offset points", va="center", fontsize=8)
        most = max(most, end)
    axes.set_xlim(0, 1.3 * most if most else 1)
    axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= min(100, axes.get_xlim()[1])])
    axes.set_yticks(range(len(packed)), [""] * len(packed))
    axes.set_title("What is in no row")
    axes.set_xlabel("% of the tokens")
    _finish_bars(axes, len(packed), _LOST)


def _draw_shares(axes: Any, line: int, stats: Stats, parts: Any, whole: int) -> float:
    """One bar of several parts, in percent of `whole`; returns where it ends."""
    end = 0.0
    for field, _, style in parts:
        share = 100 * _count(stats, field) / max(whole, 1)
        if share:
            axes.barh(line, share, left=end, height=0.6, edgecolor="0.2", lw=0.7, **style)
        end += share
    return end


def _finish_bars(axes: Any, bars: int, parts: Any) -> None:
    from matplotlib.patches import Patch

    legend = [Patch(edgecolor="0.2", lw=0.7, label=name, **style) for _, name, style in parts]
    axes.legend(handles=legend, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=len(legend))
    axes.set_ylim(bars - 0.5, -0.5)
    axes.tick_params(left=False)
    _hide_frame(axes)


def _count(stats: Stats, field: str) -> int:
    if field == "once":
        return stats.positions - stats.padding - stats.repeated
    return int(getattr(stats, field))


def _hide_frame(axes: Any, keep: Sequence[str] = ("left", "bottom")) -> None:
    for side in ("left", "right", "top", "bottom"):
        axes.spines[side].set_visible(side in keep)
