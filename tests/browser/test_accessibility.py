"""axe-core finds nothing to complain about on any part of the page, light and dark, on a telephone and on a screen."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from browser_page import show, wait_for_state
from dashboard_servers import Command
from large_history import write_large_history

from conftest import ODD_NAME, WIDTHS

pytestmark = pytest.mark.browser
AXE = Path(__file__).parents[2] / ".bench" / "browser" / "node_modules" / "axe-core" / "axe.min.js"
PARTS = ("build", "facts", "documents", "search", "packing", "tokens", "files", "quarantine")
LOOKS = [(width, scheme) for width in WIDTHS for scheme in ("light", "dark")]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """The page of a build that this process makes, as far as the log tells."""
    folder = write_large_history(tmp_path_factory.mktemp("running"), time.time() + 86400, is_finished=False)
    command = Command("dash", folder)
    yield command.url
    command.kill()


@pytest.fixture(scope="module")
def cache(tmp_path_factory, store):
    root = tmp_path_factory.mktemp("cached")
    (root / "stores").mkdir()
    (root / "stores" / "one").symlink_to(store.path)
    command = Command("dash", root)
    yield command.url
    command.kill()


def check(page, what: str) -> None:
    """No violation, and nothing that is wider than the window."""
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(result => result.violations)")
    said = [f"{each['id']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0]['failureSummary']}" for each in found]
    assert not said, what
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{what} is {wide} pixels too wide"


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_every_part_of_a_store(dash, open_page, width, scheme):
    page = open_page(dash, width, scheme)
    wait_for_state(page, "incomplete")
    for part in PARTS:
        if part == "search":
            show(page, "documents")
            page.fill("#part input[name='search']", "onerror")
            page.press("#part input[name='search']", "Enter")
            page.wait_for_selector(".found li")
        elif part != "build":
            show(page, part)
        if part == "quarantine":
            page.locator(f"tr:has-text({ODD_NAME!r})").first.get_by_role("button").click()
            page.wait_for_selector("pre")
        check(page, f"{part}, {width} {scheme}")


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_a_running_build(running, open_page, width, scheme):
    page = open_page(running, width, scheme)
    wait_for_state(page, "running")
    check(page, f"a running build, {width} {scheme}")


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_a_cache(cache, open_page, width, scheme):
    page = open_page(cache, width, scheme)
    page.wait_for_selector("#part table")
    check(page, f"a cache, {width} {scheme}")
