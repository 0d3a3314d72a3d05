"""Whether a line of a log is an event: it has the fields of one, with values of their types. A log may be forged, or newer."""

from __future__ import annotations

from dataclasses import MISSING, fields
from itertools import islice
from typing import Any

from tokenmill import events

LARGEST = 1e18
LATEST = 253_402_300_800  # seconds from 1970 to the year 10000
MOST_TEXT = 2000  # characters that are kept of a text
MOST_ITEMS = 10_000  # of a list or an object


def is_event(record: dict[str, Any] | None) -> bool:
    """Whether a record is an event that is known here. Further fields do not matter. None is a damaged line."""
    if record is None or not _fits(record.get("time"), "float") or not isinstance(record.get("run"), str):
        return False
    declared = _EVENTS.get(str(record.get("event")))
    if declared is None or record["time"] >= LATEST:
        return False
    return all(_fits(record[name], kind) if name in record else not required for name, kind, required in declared)


def shortened(value: Any) -> Any:
    """A JSON value with its long texts and lists cut."""
    if isinstance(value, str) and len(value) > MOST_TEXT:
        return f"{value[:MOST_TEXT]} ... ({len(value):,} characters)"
    if isinstance(value, list):
        return [shortened(each) for each in value[:MOST_ITEMS]]
    if isinstance(value, dict):
        return {shortened(key): shortened(each) for key, each in islice(value.items(), MOST_ITEMS)}
    return value


def _declared(kind: type[Any]) -> list[tuple[str, str, bool]]:
    """The fields of an event: name, type, and whether it must be there."""
    return [
        (each.name, str(each.type), each.default is MISSING and each.default_factory is MISSING)
        for each in fields(kind)
    ]


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


_EVENTS = {
    _snake(name): _declared(kind)
    for name, kind in vars(events).items()
    if isinstance(kind, type) and issubclass(kind, events.Event) and kind is not events.Event
}


def _fits(value: Any, kind: str) -> bool:
    """Whether a JSON value is of a type, as annotations spell it."""
    if " | " in kind:
        return any(_fits(value, each) for each in kind.split(" | "))
    outer, _, inner = kind.partition("[")
    if outer in ("int", "float"):  # a whole number may be negative: an exit code
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and (0 if outer == "float" else -LARGEST) <= value < LARGEST
    if outer in ("list", "tuple"):
        return isinstance(value, list | tuple) and all(_fits(each, inner.rstrip("]").split(",")[0]) for each in value)
    if outer in ("dict", "StageSeconds"):
        of = inner.rstrip("]").split(", ")[-1] if inner else "float"
        return isinstance(value, dict) and all(_fits(each, of) for each in value.values())
    return value is None if outer == "None" else type(value).__name__ == outer
