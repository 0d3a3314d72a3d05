"""The CUDA C++ source of the rules, and what has to be passed to it for a pattern."""

from __future__ import annotations

from pathlib import Path

from tokenmill.encoding.gpu.patterns import Pattern

_FLAGS = {"contractions": 1, "any_case": 2, "line_breaks": 4, "cases": 8, "alone": 16, "nfc": 32}


def starts_source() -> str:
    return (Path(__file__).parent / "starts.cu").read_text("utf-8")


def pattern_flags(pattern: Pattern) -> int:
    """The template argument for a pattern: `PatternFlags` in starts.cu."""
    return sum(flag for name, flag in _FLAGS.items() if getattr(pattern, name))
