"""Numbers, sizes and text for people: how they are printed, and how they are read from what people type."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TextIO

from tokenmill.errors import UsageError

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
LEAST_WITHOUT_UNIT = 1_000_000


def some(count: int, noun: str) -> str:
    """(1, "file") -> "1 file"; (2000, "file") -> "2,000 files"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def in_words(counts: Mapping[str, int], most: int = 8) -> str:
    """{"hidden": 2, "a token store": 1} -> "hidden: 2, a token store: 1"; the first few, and how many more there are."""
    words = [f"{printable(reason)}: {count:,}" for reason, count in list(counts.items())[:most]]
    more = sum(list(counts.values())[most:])
    return ", ".join([*words, *([f"others: {more:,}"] if more else [])])


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


def fitted(text: str, stream: TextIO, indent: int = 4) -> str:
    """Text for a stream: on a terminal, long lines are broken between words, and what follows is indented.

    Words longer than a line stay whole, such as paths. Elsewhere the text is left as it is, for programs and logs.
    """
    if not stream.isatty():
        return text
    width = max(shutil.get_terminal_size().columns, 40)
    break_line = partial(
        textwrap.fill, width=width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(break_line(line) if len(line) > width else line for line in text.split("\n"))


def parse_size(size: str | int, option: str) -> int:
    """Bytes from "64MB", "1.5GiB" or a number. Raises UsageError, naming the option, for anything else."""
    try:
        return size_in_bytes(size)
    except ValueError as error:
        raise UsageError(f"{option}={size!r} {error}") from None


def size_in_bytes(size: str | int) -> int:
    """The same; raises ValueError with the rest of the sentence "option=value ...".

    A small number without a unit is refused: a bare 100 is rarely bytes.
    """
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    match = re.fullmatch(
        r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?))?(b?)\s*", size.lower() if isinstance(size, str) else ""
    )
    if match:
        number, prefix, binary, b = match.groups()
        unit = (1024 if binary else 1000) ** _POWERS[prefix or ""]
        found = int(float(number) * unit)
        if found > 0 and (prefix or b or found >= LEAST_WITHOUT_UNIT):
            return found
        if found > 0:
            raise ValueError(
                f"has no unit: {number} means {number} bytes; write {number}MB or {number}GB, or {number}B"
            )
    raise ValueError("is not a size; write it like 64MB, 4GB or 1.5GiB")


def in_short(proof: str) -> str:
    """The beginning of the proof of an engine, which says the most."""
    return proof.partition(";")[0].partition(":")[0]


def first_names(names: Iterable[str], most: int = 3) -> str:
    """The first names of a list, and dots if there are more."""
    names = list(names)
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")
