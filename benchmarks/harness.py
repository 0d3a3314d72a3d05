"""What all benchmarks share: child processes, comparisons with a bar, facts about the machine, tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PEERS = Path(__file__).parent / "peers"
PROGRAMS = Path(__file__).parent / "programs"
Result = dict[str, Any]


def child(program: Path, *arguments: Any, python: str = sys.executable) -> Any:
    """Run a program in a process of its own; the last line it prints is its result, as JSON."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [python, str(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def against_bar(what: str, measured: float, unit: str, sign: str, bar: float) -> Result:
    """A figure with the bar it should meet."""
    met = measured >= bar if sign == ">=" else measured <= bar if sign == "<=" else measured < bar
    return {"what": what, "measured": measured, "unit": unit, "bar": f"{sign} {bar:.6g}", "met": met}


def figure(what: str, measured: float, unit: str) -> Result:
    """A figure without a bar."""
    return {"what": what, "measured": measured, "unit": unit, "bar": "", "met": None}


def joined(sections: Iterable[Result]) -> Result:
    """The runs, bars and notes of several sections."""
    parts = list(sections)
    return {name: [entry for part in parts for entry in part[name]] for name in ("notes", "runs", "bars")}


def machine_line(result: Result) -> str:
    return ", ".join(f"{key} {value}" for key, value in result["machine"].items())


def bar_lines(result: Result, digits: int = 4) -> list[str]:
    """The figures of a result beside their bars, and its notes."""
    lines = ["", f"{'figure':<80}{'measured':>12}{'bar':>14}"]
    for bar in result["bars"]:
        measured = f"{bar['measured']:.{digits}g} {bar['unit']}".rstrip()
        met = {True: "   met", False: "   MISSED", None: ""}[bar["met"]]
        lines.append(f"{bar['what']:<80}{measured:>12}{bar['bar']:>14}{met}".rstrip())
    return [*lines, "", *result["notes"]]


def cell(value: float | None, form: str, width: int, scale: float = 1) -> str:
    return f"{'' if value is None else format(value * scale, form):>{width}}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
