"""A browser, text to build from, a store made from it, and pages that notice scripts, dialogs and refused content."""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_servers import Command

import tokenmill as tm

if importlib.util.find_spec("playwright") is None or shutil.which("chromium") is None:
    collect_ignore_glob = ["*"]

ATTACK = "<script>window.attacked = 1; alert(1)</script><img src=x onerror='window.attacked = 2; alert(2)'>"
SCRIPTS = "emoji 👩‍🚀🎉, 漢字と仮名,\nnew lines\n\n\tand tabs, العربية"
ODD_NAME = "odd <b onclick=alert(3)>&name.jsonl"
WIDTHS = (390, 1440)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser) -> Iterator[Any]:
    """Opens pages that must run no script of others, show no dialog and break no rule of their own policy."""
    problems: list[str] = []
    contexts = []

    def open_(url: str, width: int = 1440, scheme: str = "light", **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
        context.set_default_timeout(20_000)
        context.add_init_script(
            "addEventListener('securitypolicyviolation', event => console.error(`refused: ${event.violatedDirective}`))"
        )
        contexts.append(context)
        page = context.new_page()
        page.on("dialog", lambda dialog: (problems.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
        page.on("pageerror", lambda error: problems.append(f"an error: {error}"))
        page.on("console", lambda said: problems.append(said.text) if _is_problem(said) else None)
        page.goto(url)
        return page

    yield open_
    for context in contexts:
        for page in context.pages:
            if page.evaluate("window.attacked") is not None:
                problems.append("a script in a document ran")
        context.close()
    assert not problems


def _is_problem(said: Any) -> bool:
    """Refused content and errors; a server that does not answer is none."""
    return said.type == "error" and "net::ERR" not in said.text and "Failed to load resource" not in said.text


@pytest.fixture
def start() -> Iterator[Any]:
    """Starts commands that end with the test."""
    started: list[Command] = []

    def start_(*words: Any, **options: Any) -> Command:
        started.append(Command(*words, **options))
        return started[-1]

    yield start_
    for command in started:
        command.kill()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """Some MB of text: documents that attack the page, rows that are no JSON, and a file that is not what its name says."""
    folder = tmp_path_factory.mktemp("text") / "corpus"
    folder.mkdir()
    draw = random.Random(11)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(1, 9))) for _ in range(5000)]
    for number in range(8):
        lengths = [draw.choice((20, 60, 300, 900)) for _ in range(400)]
        _write(folder / f"part-{number:02}.jsonl", [" ".join(draw.choices(words, k=length)) for length in lengths])
    _write(folder / ODD_NAME, [ATTACK, SCRIPTS, "a plain document"], ["{ no JSON: " + ATTACK, '{"title": "no text"}'])
    (folder / "broken.parquet").write_bytes(b"not a parquet file")
    return folder


def _write(path: Path, texts: list[str], bad_rows: list[str] | None = None) -> None:
    rows = [json.dumps({"text": text}) for text in texts] + (bad_rows or [])
    path.write_text("\n".join(rows) + "\n", "utf-8")


@pytest.fixture(scope="session")
def store(corpus, tmp_path_factory) -> tm.Store:
    folder = tmp_path_factory.mktemp("stores") / "finished"
    return tm.build(corpus, "demo", out=folder, workers=0, shard_bytes="1MB", progress="quiet")


@pytest.fixture(scope="session")
def dash(store) -> Iterator[str]:
    """The address of a page that shows the store."""
    command = Command("dash", store.path)
    yield command.url
    command.kill()


@pytest.fixture(scope="session")
def odd_document(store) -> int:
    """The number of the document that attacks the page; the next one has many scripts."""
    return next(number for number in range(len(store)) if store.locate(number).file.endswith(ODD_NAME))
