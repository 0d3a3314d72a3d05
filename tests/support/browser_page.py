"""What the browser tests do with a page."""

from __future__ import annotations

import time
from typing import Any

PATIENCE = 30.0


def wait_for(page: Any, expression: str) -> None:
    """Wait until an expression is true. (Playwright's own way is refused by the policy of the page: it calls `eval`.)"""
    deadline = time.monotonic() + PATIENCE
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"never true: {expression}"
        page.wait_for_timeout(20)


def wait_for_state(page: Any, state: str) -> None:
    page.wait_for_selector(f"#status .state.{state}")


def figure(page: Any, name: str) -> int:
    """The exact value of a figure of the panel."""
    return int(page.locator(f"[data-figure='{name}']").get_attribute("data-value"))


def show(page: Any, part: str) -> None:
    """Go to a part of the page by its link, and wait until it is there."""
    page.click(f"#parts [data-part='{part}']")
    wait_for(page, "document.querySelector('#part').innerHTML !== '' && !document.querySelector('#part[aria-busy]')")
