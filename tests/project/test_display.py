"""What objects look like in a console and in a notebook: short, on one line, and with nothing obeyed that a corpus says."""

from __future__ import annotations

import dataclasses
import typing
from html.parser import HTMLParser

import pytest

import tokenmill as tm
from tokenmill import events
from tokenmill.display import LONGEST_LINE, html_table, one_line, shown
from tokenmill.reading import SourceFile

LONG = "a long name with <b>tags</b> & \x1b[31mcolours\x1b[0m\nand lines " * 20
HOSTILE = "st<b>ore & 'quotes' \x1b[31m"


@pytest.fixture(scope="module")
def things(tmp_path_factory) -> dict[str, object]:
    """One object of each kind that users meet, over many files with awkward names."""
    folder = tmp_path_factory.mktemp("things") / HOSTILE
    folder.mkdir()
    (folder / "a.txt").write_text("some text " * 50)
    source = tm.read(folder / "a.txt")
    tokenizer = tm.load_tokenizer("bytes", engine="reference")
    store = tm.build(source, tokenizer, folder / "store", workers=0, eos="none", progress="quiet")
    view = tm.pack(store, 16, strategy="best_fit")
    many = tuple(SourceFile(f"/{LONG}/{i}.jsonl", 10, "", "jsonl") for i in range(15_000))
    recipe = {"sources": {f"source-{i}": LONG for i in range(500)}, "tokenizer": LONG, "pack": {"seq_len": 8}}
    return {
        "source": dataclasses.replace(source, files=many, inputs=tuple(file.path for file in many), template=LONG),
        "iterable": tm.read(iter(["a"])),
        "store": store,
        "manifest": store._manifest,
        "stored tokenizer": store.tokenizer,
        "tokenizer": dataclasses.replace(tokenizer, name=LONG),
        "definition": tokenizer._definition,
        "choice": tokenizer._choice,
        "view": view,
        "layout": view._layout,
        "row format": view._row_format,
        "stats": view.stats,
        "mixture": tm.mix({f"{LONG}{i}": (view, 1) for i in range(20)}),
        "loader": tm.load(view, batch_size=2),
        "estimate": tm.estimate(source, tokenizer, eos="none"),
        "recipe": tm.recipe(recipe),
        "recipe's config": tm.recipe(recipe).config,
    }


def is_short(text: str) -> bool:
    return len(text) <= LONGEST_LINE and text.isprintable()


def test_reprs_are_one_short_line(things):
    for name, thing in things.items():
        assert is_short(repr(thing)), name
        assert type(thing).__name__ in repr(thing)


def test_reprs_say_the_essential(things):
    assert "15,000 files of 150.0 kB" in repr(things["source"])
    assert "1 stream" in repr(things["iterable"])
    assert "documents=1, tokens=500" in repr(things["store"])
    assert "vocab_size=259" in repr(things["tokenizer"])
    assert repr(things["stored tokenizer"]).startswith("StoredTokenizer('bytes', vocab_size=259, ")
    assert "best_fit, rows=32, seq_len=16" in repr(things["view"])
    assert "rows=32" in repr(things["stats"])
    assert repr(things["estimate"]).startswith("Estimate(500 tokens, 1 document, ")


@pytest.mark.parametrize("kind", [one for one in vars(events).values() if hasattr(one, "as_record")][1:])
def test_events_are_one_short_line(kind):
    samples = {str: LONG, list: [LONG] * 500, dict: {f"{LONG}{i}": i for i in range(500)}, int: 10**12, float: 0.25}
    hints = typing.get_type_hints(kind)
    values = {name: samples.get(typing.get_origin(hint) or hint) for name, hint in hints.items()}
    assert is_short(repr(kind(**values)))


class Cells(HTMLParser):
    """The tags and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.parametrize("name", ["store", "view", "stats", "estimate", "loader"])
def test_notebooks_show_a_small_escaped_table(things, name):
    page = things[name]._repr_html_()
    cells = Cells(page)
    assert cells.tags == {"table", "caption", "tr", "th", "td"}
    assert "\x1b" not in page
    assert len(page) < 4000
    if name in ("store", "view"):
        assert any("st<b>ore & 'quotes'" in text for text in cells.texts)


def test_long_cells_are_cut():
    page = html_table("<i>", [("<script>", LONG * 100), ("empty", "")])
    assert len(page) < 1000
    assert Cells(page).tags == {"table", "caption", "tr", "th", "td"}
    assert "empty" not in page


def test_a_value_is_shown_at_the_same_cost_for_any_size():
    assert shown(list(range(10**6))) == "[0, 1, 2, ...]"
    assert one_line("A", "b\nc", "d\te") == "A(b c, d e)"
