"""A chart of the speed of a build beside the other ways to do its job, as SVG, from a result of `builds`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LABELS, BARS, LINE = 250, 380, 30  # widths of the two columns and the height of a line, in pixels
COLORS = ("#2f6f4f", "#9aa5a0", "#9aa5a0")


def speeds(result: dict[str, Any]) -> dict[str, float]:
    """MB of text per second, by what was run on the same jsonl file."""
    runs, size = result["runs"], result["text_bytes"] / 1e6
    build = size / runs["build jsonl"]["seconds"]
    faster = next(bar["ratio"] for bar in result["bars"] if bar["what"].startswith("MB/s of build / tokenizers"))
    return {
        "tokenmill build, to synced files": build,
        "gigatoken, all in memory": size / runs["one-shot jsonl"]["seconds"],
        "tokenizers.encode_batch": build / faster,
    }


def svg(result: dict[str, Any]) -> str:
    """The chart: a horizontal bar for each way, with its speed beside it."""
    found, machine = speeds(result), result["machine"]
    title = f"MB of text per second: {result['text_bytes'] / 1e6:.0f} MB of jsonl, {machine['cores']} cores ({machine['cpu']})"
    height = LINE * (len(found) + 1) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABELS + BARS + 70}" height="{height}" role="img"'
        ' font-family="sans-serif" font-size="13" fill="#777">',
        f"<title>{title}</title>",
        f'<text x="10" y="20">{title}</text>',
    ]
    for number, ((name, speed), color) in enumerate(zip(found.items(), COLORS, strict=True), 1):
        top, width = LINE * number + 4, max(2, round(BARS * speed / max(found.values())))
        lines.append(f'<text x="10" y="{top + 15}">{name}</text>')
        lines.append(f'<rect x="{LABELS}" y="{top}" width="{width}" height="{LINE - 9}" fill="{color}"/>')
        lines.append(f'<text x="{LABELS + width + 8}" y="{top + 15}">{speed:.3g}</text>')
    return "\n".join([*lines, "</svg>", ""])


def write_chart(results: Path, output: Path) -> None:
    """Draw the speeds of a build, of gigatoken in memory and of tokenizers as an SVG file."""
    output.write_text(svg(json.loads(results.read_text("utf-8"))), "utf-8")
