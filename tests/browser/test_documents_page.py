"""Documents on the page: their tokens, the search, and texts that try to be markup."""

from __future__ import annotations

import pytest
from browser_page import show, wait_for

from conftest import ATTACK, ODD_NAME, SCRIPTS

pytestmark = pytest.mark.browser


@pytest.fixture
def page(dash, open_page):
    return open_page(dash)


def ask(page, name: str, value: str) -> None:
    page.fill(f"#part input[name='{name}']", value)
    page.press(f"#part input[name='{name}']", "Enter")


def shown_text(page) -> str:
    """The tokens of the document, one after the other, without the marks of line breaks and the end."""
    texts = page.locator(".tokens .token").all_text_contents()
    return "".join(texts).replace("⏎\n", "\n")


def wait_for_document(page, number: int) -> None:
    page.wait_for_selector(f"h3:has-text('Document {number:,} of')")


def test_tokens_make_up_the_text(page, store, odd_document):
    show(page, "documents")
    for number, text in [(odd_document, ATTACK), (odd_document + 1, SCRIPTS)]:
        ask(page, "document", str(number))
        wait_for_document(page, number)
        assert store.text(number) == text
        assert shown_text(page).removesuffix("<|endoftext|>") == text
    kinds = page.locator(".tokens .token").evaluate_all("all => all.map(each => each.className)")
    assert len(set(kinds)) == 5, "neighbours differ in colour"


def test_next_and_previous(page, store, odd_document):
    show(page, "documents")
    wait_for_document(page, 0)
    assert page.locator("text=document before").count() == 0
    page.click("text=next document")
    wait_for_document(page, 1)
    page.click("text=document before")
    wait_for_document(page, 0)
    page.go_back()
    wait_for_document(page, 1)
    ask(page, "document", str(len(store) - 1))
    wait_for_document(page, len(store) - 1)
    assert page.locator("text=next document").count() == 0
    ask(page, "document", str(len(store)))
    page.wait_for_selector(f".error:has-text('{len(store):,} documents')")


def test_a_token_of_the_store(page, store):
    position = int(store.lengths[:7].sum()) + 3
    show(page, "documents")
    ask(page, "token", str(position))
    wait_for_document(page, 7)
    title = page.locator(".token.marked").get_attribute("title")
    assert title == f"id {store[7][3]}, token 3"
    ask(page, "token", str(store.num_tokens))
    page.wait_for_selector(f".error:has-text('{store.num_tokens:,} tokens')")


def test_search(page, odd_document):
    show(page, "documents")
    ask(page, "search", "onerror=")
    page.wait_for_selector(".found li")
    assert page.locator(".found mark").all_text_contents() == ["onerror="]
    assert page.locator(".found .snippet").inner_text() == ATTACK
    page.click(".found a")
    wait_for_document(page, odd_document)
    ask(page, "search", "漢字と仮名")
    wait_for(page, "document.querySelector('.found mark')?.textContent === '漢字と仮名'")
    ask(page, "search", "<img src=nowhere>")
    page.wait_for_selector("[role=status]:has-text('0 documents found')")


def test_names_of_files_are_text(page, odd_document):
    show(page, "files")
    ask(page, "search", "<b onclick")
    name = page.locator(f"#part a:has-text({ODD_NAME!r})")
    name.wait_for()
    name.click()
    wait_for_document(page, odd_document)
    assert ODD_NAME in page.locator("#part code").inner_text()


def test_quarantined_rows_are_text(page):
    show(page, "quarantine")
    assert "broken.parquet" in page.locator("#part").inner_text()
    row = page.locator(f"tr:has-text({ODD_NAME!r})").first
    row.get_by_role("button").click()
    row.locator("pre").wait_for()
    assert ATTACK in row.locator("pre").inner_text()
    row.get_by_role("button").click()
    row.locator("pre").wait_for(state="detached")


def test_addresses_that_attack(dash, open_page):
    """Nothing of an address becomes markup."""
    for part in ("documents?search=", "files?search=", "quarantine?reason=", "packing?seq_len=", "build?store="):
        page = open_page(f"{dash}#{part}<img src=x onerror='window.attacked = 3'>")
        wait_for(page, "!document.querySelector('#part[aria-busy]')")
        assert page.locator("#part img").count() == 0
