"""A chart of how long whole commands take beside `tokenmill build`, as SVG, from a result of `peers`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenmill.bar_chart import Bar, save_chart


def write_chart(results: Path, output: Path) -> None:
    """Draw the time of each peer that ran, in times of the builds it was measured with."""
    result = json.loads(results.read_text("utf-8"))
    save_chart(title(result), bars(result), output)


def title(result: dict[str, Any]) -> str:
    machine = result["machine"]
    text = f"{result['text_bytes'] / 1e6:.0f} MB of jsonl, the same tokens, {machine['cores']} cores ({machine['cpu']})"
    return f"Time of the whole command, tokenmill build = 1: {text}"


def bars(result: dict[str, Any]) -> list[Bar]:
    """A bar for tokenmill and one for each peer, shortest first."""
    peers = [
        Bar(f"{row['name']} {row['version']}", row["times"], f"{row['times']:.{0 if row['times'] >= 10 else 1}f}")
        for row in result["peers"]
        if not row["failed"]
    ]
    return sorted([Bar("tokenmill build", 1.0, "1", own=True), *peers], key=lambda bar: bar.value)
