"""Numbers, sizes and text for people: how they are printed, and how they are read from what people type."""

from __future__ import annotations

import operator
import re
from typing import Any

from tokenmill.errors import UsageError

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}


def some(count: int, noun: str) -> str:
    """(1, "file") -> "1 file"; (2000, "file") -> "2,000 files"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def human(number: float, unit: str = "B") -> str:
    """1234567 -> "1.2 MB"."""
    for prefix in ("", "k", "M", "G", "T"):
        if abs(number) < 1000:
            break
        if prefix != "T":
            number /= 1000
    return f"{number:.0f} {unit}" if prefix == "" else f"{number:.1f} {prefix}{unit}"


def human_time(seconds: float) -> str:
    """400.0 -> "7 min"; at least a second."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def percent(part: int, whole: int) -> str:
    """Two digits, and never a 0 or a 100 that is not one."""
    if not part or not whole:
        return "0%"
    if part == whole:
        return "100%"
    share = 100 * part / whole
    return "<0.01%" if share < 0.01 else ">99.99%" if 99.99 < share < 100 else f"{share:.2f}%"


def printable(text: str) -> str:
    """Text from a corpus or a file name, safe for a terminal: control characters are shown, not obeyed."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def parse_size(size: str | int, option: str) -> int:
    """Bytes from "64MB", "1.5GiB" or a number."""
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)\s*", str(size).lower())
    if match:
        number, unit = match.groups()
        unit = unit if not unit or unit.endswith("b") else unit + "b"
        if unit in _UNITS and (found := int(float(number) * _UNITS[unit])) > 0:
            return found
    raise UsageError(f"{option}={size!r} is not a size; write it like 64MB, 4GB or 1.5GiB")


def whole_number(name: str, value: Any, low: int, high: int) -> int:
    """The number an argument stands for, of Python's or numpy's; anything else, or out of range, is a UsageError."""
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if isinstance(value, bool) or not low <= number <= high:
        raise UsageError(f"{name}={value!r} is not a whole number from {low} to {high}")
    return number
