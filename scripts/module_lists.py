"""Writes the lists of modules in ARCHITECTURE.md from the first sentence of each module's docstring.

python scripts/module_lists.py            # rewrite the lists; a test fails while they are out of date
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "ARCHITECTURE.md"
PACKAGE = ROOT / "src" / "tokenmill"
LIST = re.compile(r"(<!-- modules of (?P<folder>[\w.]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def page() -> str:
    """ARCHITECTURE.md with its lists as they should be."""
    return LIST.sub(lambda found: found.group(1) + _list(found["folder"]) + found.group(3), PAGE.read_text("utf-8"))


def _list(folder: str) -> str:
    """The modules of a folder, or with "." the top-level modules of the package, as a code block."""
    paths = sorted(PACKAGE.glob("*.py") if folder == "." else (PACKAGE / folder).rglob("*.py"))
    rows = [(path.relative_to(PACKAGE / folder).as_posix(), _sentence(path)) for path in paths if _is_listed(path)]
    width = max(len(name) for name, _ in rows)
    return "```\n" + "".join(f"{name:<{width}}  {sentence}\n" for name, sentence in rows) + "```\n"


def _is_listed(path: Path) -> bool:
    return path.name not in ("__init__.py", "__main__.py")


def _sentence(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    first = " ".join(docstring.split("\n\n")[0].split())
    return re.split(r"(?<=\w)\. ", first)[0].rstrip(".:")


def folders() -> set[str]:
    """The folders that ARCHITECTURE.md lists."""
    return {found["folder"] for found in LIST.finditer(PAGE.read_text("utf-8"))}


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
