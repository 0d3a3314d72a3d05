"""The site of the documentation: what `make docs` checks in it, and that its navigation has every page. Builds no site."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import load_script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def build_site():
    return load_script(ROOT / "scripts" / "build_site.py")


def pages_of(nav: Any) -> Iterator[str]:
    """The pages of a navigation, whose sections may have sections."""
    for entry in nav:
        for below in entry.values():
            if isinstance(below, str):
                yield below
            else:
                yield from pages_of(below)


def test_every_page_is_in_the_navigation_once(build_site):
    config = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))
    folders = [ROOT / name for name in build_site.COPIED]
    pages = [path for path in folders if path.is_file()]
    pages += [path for folder in folders if folder.is_dir() for path in folder.rglob("*.md")]
    wanted = sorted(path.relative_to(ROOT).as_posix() for path in pages)
    assert sorted(pages_of(config["project"]["nav"])) == wanted


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ('<script src="https://cdn.example.org/a.js"></script>', "from another host"),
        ('<link rel="stylesheet" href="//fonts.example.org/css">', "from another host"),
        ('<link rel="preconnect" href="https://fonts.example.org">', "from another host"),
        ('<img alt="a" srcset="https://example.org/a.png 2x">', "from another host"),
        ("<style>@import 'https://example.org/a.css';</style>", "from another host"),
        ('<p style="background: url(http://example.org/a.png)"></p>', "from another host"),
        ('<img src="a.svg">', "a picture without a description"),
        ("<p>```bash unknown</p>", "a code block that was not recognised"),
        ('<a href="other.html#nothing">x</a>', "other.html#nothing leads nowhere"),
        ('<a href="nothing.html">x</a>', "nothing.html leads nowhere"),
        ('<a href="#nothing">x</a>', "#nothing leads nowhere"),
        ('<img alt="a" src="nothing.svg">', "nothing.svg leads nowhere"),
    ],
)
def test_what_is_wrong_in_a_page_is_found(build_site, tmp_path, html, problem):
    (tmp_path / "other.html").write_text('<h2 id="here">x</h2>')
    (tmp_path / "a.svg").write_text("<svg/>")
    (tmp_path / "page.html").write_text(html)
    (found,) = build_site.problems(tmp_path)
    assert found.startswith("page.html: ")
    assert problem in found


def test_what_is_right_in_a_page(build_site, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "index.html").write_text('<h2 id="here">x</h2><a href="../page.html">x</a>')
    (tmp_path / "a.svg").write_text("<svg/>")
    (tmp_path / "page.html").write_text(
        '<a href="folder/#here">x</a> <a href="https://example.org">followed by people</a> <img src="a.svg" alt="a">'
        '<link rel="canonical" href="https://example.org/page"> <a href="#">top</a>'
    )
    assert list(build_site.problems(tmp_path)) == []


def test_styles_that_load_from_elsewhere_are_found(build_site, tmp_path):
    (tmp_path / "a.css").write_text("a { background: url('https://example.org/a.png') } b { background: url(b.png) }")
    assert list(build_site.problems(tmp_path)) == ["a.css: loads https://example.org/a.png from another host"]
