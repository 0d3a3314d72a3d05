"""Pictures of the dashboard for the docs: a build that is running, documents and packing, on a screen and on a telephone.

    python scripts/dashboard_pictures.py docs/images

Builds a store from the modules of Python's standard library, which are copied so often that the build takes a while.
`make pictures` installs what this needs.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from tokenmill.python_sources import source_texts

WIDTHS = {"wide": (1440, 740), "narrow": (390, 844)}
SCHEMES = ("light", "dark")
COPIES = 150  # about 700 MB
COLOURS = 256
MOST_BYTES = 200_000
SHARE = 0.6  # of the build that is done in its picture
PATIENCE = 300.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the pictures go")
    folder = parser.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, sync_playwright() as playwright:
        os.chdir(work)  # pictures show relative paths
        write_corpus(Path("stdlib"))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        pages = {(width, scheme): new_page(browser, width, scheme) for width in WIDTHS for scheme in SCHEMES}
        take_running(folder, pages)
        take_finished(folder, pages)
        browser.close()


def write_corpus(folder: Path) -> None:
    """The modules of the standard library, several times."""
    folder.mkdir()
    for copy in range(COPIES):
        rows = (json.dumps({"text": f"# copy {copy}\n{text}"}) for text in source_texts())
        (folder / f"part-{copy:03}.jsonl").write_text("\n".join(rows) + "\n", "utf-8")


def new_page(browser: Any, width: str, scheme: str) -> Any:
    size = dict(zip(("width", "height"), WIDTHS[width], strict=True))
    return browser.new_context(viewport=size, color_scheme=scheme).new_page()


def take_running(folder: Path, pages: dict[tuple[str, str], Any]) -> None:
    """Pictures of a build that is running."""
    command = [sys.executable, "-P", "-m", "tokenmill", "build", "stdlib", "-t", "demo", "-o", "corpus", "--dashboard"]
    command += ["--shard-bytes", "8MB", "-q"]
    build = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert build.stderr is not None
    url = address(build.stderr.readline())
    for page in pages.values():
        page.goto(url)
    page = next(iter(pages.values()))
    deadline = time.monotonic() + PATIENCE
    while float(page.evaluate("document.querySelector('.whole')?.dataset.share ?? 0")) < SHARE:
        if time.monotonic() > deadline or build.poll() is not None:
            raise SystemExit("the build was over before its picture was taken")
        page.wait_for_timeout(50)
    for (width, scheme), page in pages.items():
        save(page, folder / f"build-{width}-{scheme}.png")
    if build.wait() != 0:
        raise SystemExit(f"the build failed: {build.stderr.read()}")
    build.stderr.close()


def take_finished(folder: Path, pages: dict[tuple[str, str], Any]) -> None:
    """Pictures of the finished store."""
    command = [sys.executable, "-P", "-m", "tokenmill", "dash", "corpus"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        url = address(server.stderr.readline())
        number = [path.name for path in sorted(Path(os.__file__).parent.glob("*.py"))].index("queue.py")
        for (width, scheme), page in pages.items():
            page.goto(f"{url}#documents?document={number}")
            page.wait_for_selector(".tokens .token")
            save(page, folder / f"documents-{width}-{scheme}.png")
            page.goto(f"{url}#packing?seq_len=2048")
            page.wait_for_selector("#packing-result [data-strategy]")
            save(page, folder / f"packing-{width}-{scheme}.png")
    finally:
        server.terminate()
        server.communicate()


def address(line: str) -> str:
    found = re.match(r"dashboard: (\S+)", line)
    if found is None:
        raise SystemExit(f"no address was printed: {line}")
    return found[1]


def save(page: Any, path: Path) -> None:
    """A picture of what the window shows, in few colours."""
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    if path.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{path} is too large: {path.stat().st_size:,} bytes")
    print(f"{path.name}: {path.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
