"""The slider of the packing page: what it shows is what `tm.pack` does."""

from __future__ import annotations

import pytest
from browser_page import show, wait_for

import tokenmill as tm

pytestmark = pytest.mark.browser
NAMES = ("rows", "positions", "padding", "truncated", "dropped", "repeated")
SLIDER = "input[name='power']"
BOX = "input[name='seq_len']"


@pytest.fixture
def page(dash, open_page):
    page = open_page(dash)
    show(page, "packing")
    page.wait_for_selector("#packing-result [data-strategy]")
    return page


def shown_figures(page) -> dict[str, dict[str, int]]:
    """The exact figures of each strategy by its name."""
    rows = page.locator("[data-strategy]").evaluate_all("rows => rows.map(row => ({...row.dataset}))")
    return {row["strategy"]: {name: int(row[name]) for name in NAMES} for row in rows}


def packed_figures(store, seq_len: int) -> dict[str, dict[str, int]]:
    """The same by `tm.pack`."""
    ways = {
        "concat": {},
        "concat, row_start document": {"row_start": "document"},
        "best_fit": {},
        "pad": {},
        "pad, long_docs truncate": {"long_docs": "truncate"},
        f"windows, overlap {seq_len // 4}": {"overlap": seq_len // 4},
    }
    found = {}
    for name, options in ways.items():
        stats = tm.pack(store, seq_len, strategy=name.partition(",")[0], **options).stats
        found[name] = {figure: getattr(stats, figure) for figure in NAMES}
    return found


def wait_for_length(page, seq_len: int) -> None:
    """Until the rows of this length were counted in all documents, not only in some."""
    wait_for(page, f"document.querySelector('#packing-result > [data-seq-len=\"{seq_len}\"]') !== null")


def test_lengths_by_keyboard(page, store):
    wait_for_length(page, 2048)
    assert shown_figures(page) == packed_figures(store, 2048)
    page.focus(SLIDER)
    for key, seq_len in [("Home", 128), ("ArrowRight", 136), ("End", 131072), ("ArrowLeft", 120192)]:
        page.keyboard.press(key)
        wait_for_length(page, seq_len)
        assert page.input_value(BOX) == str(seq_len)
        assert shown_figures(page) == packed_figures(store, seq_len), key


def test_lengths_by_mouse(page, store):
    box = page.locator(SLIDER).bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.4, middle)
    page.mouse.down()
    seen = set()
    for share in (0.3, 0.5, 0.7):
        page.mouse.move(box["x"] + box["width"] * share, middle)
        seq_len = int(page.input_value(BOX))
        seen.add(seq_len)
        wait_for_length(page, seq_len)
        assert shown_figures(page) == packed_figures(store, seq_len)
    page.mouse.up()
    assert len(seen) == 3


@pytest.mark.parametrize("seq_len", [20, 333, 1000, 200_000])
def test_lengths_that_are_typed(page, store, seq_len):
    page.fill(BOX, str(seq_len))
    page.keyboard.press("Enter")
    wait_for_length(page, seq_len)
    assert shown_figures(page) == packed_figures(store, seq_len)
    assert page.input_value(BOX) == str(seq_len)


@pytest.mark.parametrize("typed", ["0", "-5", "2.5", "99999999999"])
def test_lengths_that_cannot_be_are_refused(page, typed):
    page.fill(BOX, "512")
    page.evaluate(f'document.querySelector("{BOX}").dataset.old = 1')
    page.keyboard.press("Enter")  # draws the form anew
    wait_for(page, "document.querySelector('[data-old]') === null")
    wait_for_length(page, 512)
    page.fill(BOX, typed)
    page.keyboard.press("Enter")
    assert page.evaluate(f"document.querySelector(\"{BOX}\").matches(':invalid')")
    assert "Rows of 512 positions" in page.inner_text("#packing-result")


def test_a_link_to_a_length(dash, store, open_page):
    page = open_page(f"{dash}#packing?seq_len=512")
    wait_for_length(page, 512)
    assert page.input_value(BOX) == "512"
    assert page.input_value(SLIDER) == "9"
