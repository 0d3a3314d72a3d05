"""Builds the documentation as a site, and checks what a reader's browser will get. `make docs` runs this.

python scripts/build_site.py            # writes site/; open site/index.html

The pages are copied to .site/ in the folders they have here, so that every link means the same on GitHub and in the site. Broken
links and anchors, assets from other hosts, pictures without a description and code blocks that were not recognised are errors.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parent.parent
PAGES = ROOT / ".site"
SITE = ROOT / "site"
COPIED = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", "examples")
SHIM = re.compile(r'<script[^>]* src="?https://unpkg\.com/iframe-worker/shim"?[^>]*></script>')
# What a browser loads without being asked, by element. Links (`a`) are followed by people.
LOADED = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "source": ("src", "srcset"),
    "iframe": ("src",),
    "object": ("data",),
}
LOADED |= {"embed": ("src",), "video": ("src", "poster"), "audio": ("src",), "use": ("href",), "image": ("href",)}
LOADING_LINKS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest"}
ELSEWHERE = re.compile(r"^\s*(?:https?:)?//", re.IGNORECASE)
IN_STYLES = re.compile(r"""(?:url\(|@import)\s*["']?\s*((?:https?:)?//[^"')\s]+)""", re.IGNORECASE)


class Page(HTMLParser):
    """One page of the site: what it loads, where it links to, the anchors it has, and what is wrong in itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = {""}  # the top of the page
        self.problems: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        self.loads += IN_STYLES.findall(found.get("style", ""))
        self.loads += [found[name] for name in LOADED.get(tag, ()) if name in found]
        if tag == "link" and LOADING_LINKS & set(found.get("rel", "").split()):
            self.loads.append(found.get("href", ""))
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag == "img" and not found.get("alt", "").strip():
            self.problems.append(f"a picture without a description: {found.get('src', '')}")

    def handle_data(self, data: str) -> None:
        if "```" in data:
            self.problems.append(f"a code block that was not recognised: {data.strip().splitlines()[0]}")
        if self.lasttag == "style":
            self.loads += IN_STYLES.findall(data)


def problems(site: Path) -> Iterator[str]:
    """Everything that is wrong in a built site, as lines for people."""
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        for problem in page.problems:
            yield f"{name}: {problem}"
        for address in page.loads:
            if ELSEWHERE.match(address):
                yield f"{name}: loads {address} from another host"
        if path.name == "404.html":  # a server shows it for any path, so its links are not relative to its own
            continue
        for address in (*page.links, *page.loads):
            if not urlsplit(address).scheme and not ELSEWHERE.match(address) and not _exists(address, path, pages):
                yield f"{name}: {address} leads nowhere"
    for path in sorted(site.rglob("*.css")):
        for address in IN_STYLES.findall(path.read_text("utf-8")):
            yield f"{path.relative_to(site)}: loads {address} from another host"


def _exists(address: str, path: Path, pages: dict[Path, Page]) -> bool:
    """Whether a relative address on a page is a file of the site, and its anchor an anchor there."""
    parts = urlsplit(address)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return False
    return not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].anchors


def copy_pages() -> None:
    """Copy the pages, and the files they link to, into a folder of their own."""
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, PAGES / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        else:
            shutil.copy2(ROOT / name, PAGES / name)


def remove_shim() -> None:
    """Take out the script from another host that search would use in pages on the disk. docs/site.js does that work."""
    for path in SITE.rglob("*.html"):
        path.write_text(SHIM.sub("", path.read_text("utf-8")), "utf-8")


def main() -> int:
    copy_pages()
    shutil.rmtree(SITE, ignore_errors=True)
    built = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "--clean"], cwd=ROOT)
    if built.returncode:
        return built.returncode
    remove_shim()
    found = list(problems(SITE.resolve()))
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"{len(list(SITE.rglob('*.html')))} pages, {len(found)} problems: site/index.html", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
