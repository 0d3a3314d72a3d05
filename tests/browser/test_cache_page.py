"""The page of a cache, and the keyboard."""

from __future__ import annotations

import pytest
from browser_page import wait_for, wait_for_state
from dashboard_servers import Command

import tokenmill as tm
from tokenmill.building.cache.maintenance import list_stores
from tokenmill.formatting import human

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache with two stores: the second was built because a file was added."""
    root, text = tmp_path_factory.mktemp("cached"), tmp_path_factory.mktemp("text")
    for name in ("first", "second"):
        (text / f"{name}.txt").write_text(f"the {name} text " * 100)
        tm.build(text, "demo", cache_dir=root, workers=0, engine="reference", progress="quiet")
    return root


@pytest.fixture(scope="module")
def cache_dash(cache):
    command = Command("dash", cache)
    yield command.url
    command.kill()


def test_stores_of_a_cache(cache, cache_dash, open_page):
    page = open_page(cache_dash)
    page.wait_for_selector("#part table")
    stores = [each for each in list_stores(cache) if not each.is_dataset]
    assert len(stores) == 2
    for store in stores:
        row = page.locator(f"tr:has-text('{store.name}')")
        assert human(store.nbytes) in row.inner_text()
        assert f"{store.facts['tokens']:,}" in row.inner_text()
    assert "1 file was added" in page.locator(".miss").inner_text() or "added" in page.locator(".miss").inner_text()


def test_links_lead_to_the_store(cache, cache_dash, open_page):
    page = open_page(cache_dash)
    store = next(each for each in list_stores(cache) if not each.is_dataset)
    assert not page.locator("#parts [data-part='documents']").is_visible()
    page.click(f"#part a:has-text('{store.name}')")
    wait_for_state(page, "finished")
    wait_for(page, f"document.getElementById('name').textContent === '{store.name}'")
    page.click("#parts [data-part='documents']")
    page.wait_for_selector(".tokens .token")
    page.click("text=Cache")
    page.wait_for_selector("#part table")
    assert page.locator("#name").inner_text() == ""


def test_a_store_that_is_not_there(cache_dash, open_page):
    page = open_page(f"{cache_dash}#documents?store=../elsewhere")
    page.wait_for_selector("#part .error:has-text('there is no store')")


def test_a_store_that_was_removed_shows_no_other(cache, cache_dash, open_page):
    page = open_page(cache_dash)
    store = next(each for each in list_stores(cache) if not each.is_dataset)
    page.click(f"#part a:has-text('{store.name}')")
    wait_for_state(page, "finished")
    page.goto(f"{cache_dash}#build?store=removed")
    page.wait_for_selector("#status .error:has-text('it may have been removed')")
    assert page.locator("#figures").inner_text() == ""
    assert page.locator("#connection").inner_text() == ""
    page.goto(f"{cache_dash}#documents")  # without a store: the list of all
    page.wait_for_selector("#part table")


def focused(page) -> str:
    return page.evaluate(
        "(e => e.dataset.part && e.tagName === 'A' ? e.dataset.part : e.name || e.tagName.toLowerCase())"
        "(document.activeElement)"
    )


def test_the_keyboard_reaches_everything(dash, open_page):
    page = open_page(dash)
    wait_for_state(page, "incomplete")
    parts = ["build", "facts", "documents", "packing", "tokens", "files", "quarantine"]
    reached = []
    for _ in parts:
        page.keyboard.press("Tab")
        reached.append(focused(page))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", "the focus is visible"
    assert reached == parts
    for _ in range(3):
        page.keyboard.press("Shift+Tab")
    assert focused(page) == "packing"
    page.keyboard.press("Enter")
    page.wait_for_selector("#packing-result [data-strategy]")
    page.keyboard.press("Tab")
    assert focused(page) == "power"
    page.keyboard.press("Tab")
    assert focused(page) == "seq_len"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "scroll", "the table can be scrolled"


def test_the_keyboard_goes_through_documents(dash, open_page):
    page = open_page(f"{dash}#documents")
    page.wait_for_selector(".tokens .token")
    page.focus("#part input[name='document']")
    order = []
    for _ in range(8):
        order.append(focused(page))
        page.keyboard.press("Tab")
    assert order == ["document", "button", "token", "button", "search", "button", "div", "a"]
    page.locator("text=next document").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("h3:has-text('Document 1 of')")
    assert page.evaluate("document.activeElement.textContent") == "next document →", "the focus stays"
    page.keyboard.press("Enter")
    page.wait_for_selector("h3:has-text('Document 2 of')")
