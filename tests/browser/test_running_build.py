"""The page of a build that is running, has finished or was killed, and of a server that was away."""

from __future__ import annotations

import json
import random
import shutil
import signal

import pytest
from browser_page import figure, show, wait_for, wait_for_state
from build_helpers import wait_until
from dashboard_servers import facts

from tokenmill.building.notebook_panel import panel_html
from tokenmill.dashboard.followed_log import FollowedLog

pytestmark = pytest.mark.browser
SLOW = ("--engine", "reference", "--workers", "2", "--shard-bytes", "512KB")
FIGURES = ("documents", "tokens", "quarantined", "failed-files")


@pytest.fixture
def build(start, corpus, tmp_path):
    """A build that takes some seconds on any machine, with its page."""
    text = tmp_path / "text"
    shutil.copytree(corpus, text)
    draw = random.Random(12)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(1, 9))) for _ in range(5000)]
    for number in range(20):
        lines = (json.dumps({"text": " ".join(draw.choices(words, k=300))}) for _ in range(500))
        (text / f"more-{number:02}.jsonl").write_text("\n".join(lines), "utf-8")
    return start("build", text, "-t", "demo", "-o", tmp_path / "store", *SLOW, "--dashboard")


def figures_of(store) -> list[int]:
    found = facts(store)
    return [found["documents"], found["tokens"], found["quarantined"], len(found["failed_files"])]


def test_numbers_move_until_they_are_those_of_the_store(build, tmp_path, open_page):
    page = open_page(build.url)
    wait_for_state(page, "running")
    seen, shares = set(), set()
    while page.locator("#status .state").text_content() == "running":
        seen.add(figure(page, "tokens"))
        shares.add(page.locator(".whole").get_attribute("data-share"))
        page.wait_for_timeout(20)
    assert len(seen) >= 3, "the tokens increased at least twice"
    assert len(shares) >= 3, "and so did the bar"
    wait_for_state(page, "incomplete")
    assert page.locator(".lanes tr").count() == 2
    assert build.wait() == 4, "one file failed"
    assert float(page.locator(".whole").get_attribute("data-share")) == pytest.approx(29 / 30), "of the files"
    assert [figure(page, name) for name in FIGURES] == figures_of(tmp_path / "store")

    server = build.server()
    show(page, "documents")
    assert page.locator(".tokens .token").count()
    assert server.is_running(), "the page is open"
    page.context.close()
    wait_until(lambda: not server.is_running() or server.status() == "zombie")


def test_a_build_that_is_killed(build, tmp_path, open_page):
    page = open_page(build.url)
    wait_for(page, "document.querySelector(\"[data-figure='tokens']\")?.dataset.value > 0")
    build.process.send_signal(signal.SIGKILL)
    build.wait()
    wait_for_state(page, "stopped")
    assert "run the same build to resume" in page.locator(".status-line").text_content()
    assert figure(page, "tokens") > 0


def test_a_server_that_comes_back(store, start, open_page):
    first = start("dash", store.path)
    page = open_page(first.url)
    wait_for_state(page, "incomplete")
    first.kill()
    page.wait_for_selector("#connection:has-text('does not answer')")
    assert figure(page, "tokens") == store.num_tokens, "what was shown stays"
    start("dash", store.path, "--port", str(first.port))
    wait_for(page, "document.getElementById('connection').textContent === ''")
    show(page, "documents")
    assert page.locator(".tokens .token").count()


def test_the_panel_of_a_notebook_shows_the_same(store, dash, open_page):
    page = open_page(dash)
    wait_for_state(page, "incomplete")
    log = FollowedLog()
    log.update(store.path)
    blank = open_page("about:blank")
    blank.set_content(panel_html(log.history))
    names = [each.get_attribute("data-figure") for each in page.locator("[data-figure]").all()]
    assert len(names) == 8
    for name in names:
        shown = [each.locator(f"[data-figure='{name}']").inner_text() for each in (page, blank)]
        assert shown[0] == shown[1]
    assert blank.locator(".lanes tr").count() == page.locator(".lanes tr").count()
