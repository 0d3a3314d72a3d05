"""The panel of a build in the output of a notebook: the same as on the page, drawn anew with each progress."""

from __future__ import annotations

import time
from typing import Any

from tokenmill import events
from tokenmill.events import Event
from tokenmill.watching.history import History
from tokenmill.watching.markup import Markup, joined, tag
from tokenmill.watching.panel import sections, style

DRAWN_AT = (events.Started, events.Progress, events.Finished, events.SliceDone, events.Stopped)


class NotebookPanel:
    """A listener that shows a build below the cell that runs it. Needs nothing but IPython, and works where no page can."""

    def __init__(self) -> None:
        self._history = History()
        self._output: Any = None

    def __call__(self, event: Event) -> None:
        self._history.add({**event.as_record(), "time": time.time(), "run": "this"})
        if isinstance(event, DRAWN_AT) and (self._output is not None or isinstance(event, events.Started)):
            self._draw()

    def _draw(self) -> None:
        from IPython.display import HTML, display

        html = HTML(panel_html(self._history))
        if self._output is None:
            self._output = display(html, display_id=True)
        else:
            self._output.update(html)


def panel_html(history: History) -> str:
    """The whole panel with its style, as one piece of HTML."""
    return tag(
        "div",
        tag("style", Markup(style())),
        joined(sections(history, is_alive=True).values()),
        class_="tokenmill-panel",
    )
