"""Bar charts as SVG, written without a library, or as PNG with matplotlib. The colours are readable on white and on black."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from tokenmill.errors import UsageError

SUFFIXES = (".svg", ".png")
OWN, OTHER, TEXT = "#2f8f5f", "#9aa5a0", "#777777"
TITLE_CHARACTERS, TITLE_LINE = 110, 18  # of a line of the title, and its height in pixels
LABELS, BARS, NOTES, LINE = 260, 340, 170, 30  # widths of the three columns and the height of a line, in pixels


@dataclass(frozen=True, slots=True)
class Bar:
    """A line of a chart: what it is, its length, what is written behind it, and whether it stands out."""

    label: str
    value: float
    note: str
    own: bool = False


def check_chart(path: Path) -> None:
    """Raise a UsageError unless a chart can be saved at this path. Called before anything is measured."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--plot {path}: the file name must end in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise UsageError(f"--plot {path}: there is no folder {path.parent}; create it first")
    if path.suffix.lower() == ".png":
        try:
            import matplotlib.figure  # noqa: F401
        except ImportError as error:
            raise UsageError(
                f"--plot {path} needs matplotlib ({error}): pip install 'tokenmill[plot]', or choose a name in .svg"
            ) from error


def save_chart(title: str, bars: Sequence[Bar], path: Path) -> None:
    """Save a chart of horizontal bars as .svg or .png."""
    try:
        if path.suffix.lower() == ".svg":
            path.write_text(svg_chart(title, bars), "utf-8")
        else:
            _save_png(title, bars, path)
    except OSError as error:
        raise UsageError(f"--plot {path}: the chart cannot be written: {error.strerror or error}") from error


def svg_chart(title: str, bars: Sequence[Bar]) -> str:
    """The chart as the text of an SVG file; the same chart gives the same text."""
    longest = max((bar.value for bar in bars), default=0.0) or 1.0
    titles = textwrap.wrap(title, TITLE_CHARACTERS) or [""]
    above = LINE + TITLE_LINE * (len(titles) - 1)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABELS + BARS + NOTES}" height="{above + LINE * len(bars) + 10}"'
        f' role="img" font-family="sans-serif" font-size="13" fill="{TEXT}">',
        f"<title>{escape(title)}</title>",
        *(f'<text x="10" y="{20 + TITLE_LINE * n}">{escape(line)}</text>' for n, line in enumerate(titles)),
    ]
    for number, bar in enumerate(bars):
        top, width = above + LINE * number + 4, max(2, round(BARS * bar.value / longest))
        weight = ' font-weight="bold"' if bar.own else ""
        color = OWN if bar.own else OTHER
        lines.append(f'<text x="10" y="{top + 15}"{weight}>{escape(bar.label)}</text>')
        lines.append(f'<rect x="{LABELS}" y="{top}" width="{width}" height="{LINE - 9}" rx="2" fill="{color}"/>')
        lines.append(f'<text x="{LABELS + width + 8}" y="{top + 15}"{weight}>{escape(bar.note)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _save_png(title: str, bars: Sequence[Bar], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1 + 0.4 * len(bars)), layout="constrained")
    axes = figure.subplots()
    drawn = axes.barh(
        range(len(bars)), [bar.value for bar in bars], color=[OWN if bar.own else OTHER for bar in bars], height=0.7
    )
    axes.bar_label(drawn, [bar.note for bar in bars], padding=4)
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.set_xticks([])
    axes.set_xmargin(0.2)
    axes.invert_yaxis()
    axes.set_frame_on(False)
    figure.suptitle(textwrap.fill(title, TITLE_CHARACTERS), fontsize=10, x=0.01, ha="left")
    figure.savefig(path, dpi=150)
