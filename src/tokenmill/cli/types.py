"""What a flag may be: arguments turned into values, or refused as wrong usage."""

from __future__ import annotations

import argparse


def count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def token_range(text: str) -> slice:
    if ":" not in text:
        return slice(0, count(text))
    try:
        low, high = (int(part) if part else None for part in text.split(":"))
    except ValueError as error:
        raise argparse.ArgumentTypeError("a number, or a range as 1000:1200") from error
    return slice(low, high)


def widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError("widths with commas between them, as 128,512") from error
