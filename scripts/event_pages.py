"""Writes docs/events.md from tokenmill.events: every event, its fields, their types and the comments beside them.

python scripts/event_pages.py            # rewrite the page; a test fails while it is out of date
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from tokenmill import events

PAGE = Path(__file__).parent.parent / "docs" / "events.md"
FIELD = re.compile(r"^    (\w+): ([^#=\n]+?)(?: = [^#\n]+?)?(?:  # (.*))?$", re.MULTILINE)

INTRODUCTION = f"""# Events

Written by `scripts/event_pages.py` from `src/tokenmill/events.py`.

A build reports what it does as typed events. They go to three places:

- **The log**, `events.jsonl` in the folder of the store: one JSON line per event. Every line has the fields below and
  `event` (the name), `v` (the version of this page's vocabulary, {events.VERSION}), `run` (an id of the build), `time` (seconds
  since 1970) and `crc` (a checksum of the line).
- **A callback**: `tm.build(..., progress=function)` calls the function with each event, a frozen dataclass of
  `tokenmill.events` with a `name`. An exception in it stops the build.
- **Python's logging**: the logger `tokenmill` gets each event as text, at WARNING for failed files, large documents, dead workers
  and shards with quarantined documents, at DEBUG for other shards and progress, at INFO for the rest. The event itself is the
  attribute `event` of the log record. Nothing is printed unless the application configures logging.

The terminal is a listener like any other; `progress="quiet"` turns it off.

The log of one build grows with the logarithm of its length. The first thousand events of a kind get a line each, then every
second one, every fourth, and so on. Shards in between are summed up in `shards_done` lines, so the counts in the log add up;
the last `progress` before the end always has a line. A build of ten days writes about 5 MB.
"""


def page() -> str:
    """The page, as it should be."""
    parts = [INTRODUCTION]
    for event in public_events():
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", event.__name__).lower()
        parts += [f"## {name}\n", f"`{event.__name__}`. {inspect.cleandoc(event.__doc__ or '')}\n", _table(event)]
    stages = events.StageSeconds
    parts += ["## Stages\n", f"`{stages.__name__}`. {inspect.cleandoc(stages.__doc__ or '')}\n"]
    return "\n".join(parts)


def public_events() -> list[type[events.Event]]:
    """Every event of the module, in the order of the file."""
    members = vars(events).values()
    return [member for member in members if isinstance(member, type) and issubclass(member, events.Event)][1:]


def _table(event: type[events.Event]) -> str:
    rows = [
        f"| `{name}` | {kind.strip().replace('|', 'or')} | {comment or ''} |"
        for name, kind, comment in FIELD.findall(inspect.getsource(event))
    ]
    return "\n".join(["| field | type | meaning |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
