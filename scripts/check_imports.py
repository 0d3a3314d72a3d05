"""Imports point down only. Each room may use the rooms below it; this reads every import, also those inside functions.

cli > demo_data, recipes, estimating > loading > building, packing (blind to each other) > reading, encoding, store
(blind to each other) > io > documents, events, formatting, user_cache, errors
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "tokenmill"

# A room, and every room it may import from beside itself.
FLOOR = {"documents", "events", "formatting", "user_cache", "errors", "io"}
MIDDLE = {"reading", "encoding", "store"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "documents": set(),
    "events": set(),
    "user_cache": set(),
    "formatting": {"errors"},
    "io": {"errors"},
    "reading": FLOOR,
    "encoding": FLOOR,
    "store": FLOOR,
    "building": MIDDLE | FLOOR,
    "packing": MIDDLE | FLOOR,
    "loading": {"building", "packing"} | MIDDLE | FLOOR,
    "recipes": {"building", "packing", "loading"} | MIDDLE | FLOOR,
    "estimating": {"building"} | MIDDLE | FLOOR,
    "demo_data": {"building"} | MIDDLE | FLOOR,
    "cli": {"demo_data", "recipes", "estimating", "building", "packing"} | MIDDLE | FLOOR,
    # The public names, resolved when asked for.
    "__init__": {"building", "packing", "loading", "recipes", "estimating"} | MIDDLE | FLOOR,
}
# Libraries that only some rooms may import: without them the rest must work.
ONLY_IN = {"torch": {"loading"}, "ray": {"building"}, "huggingface_hub": {"reading", "encoding"}, "pickle": set()}


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported(path: Path) -> list[tuple[int, str]]:
    """Every module a file imports, with the line: absolute names only, which is all the style allows."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                found.append((node.lineno, "." * node.level + (node.module or "")))
            elif node.module == "tokenmill":
                found += [(node.lineno, f"tokenmill.{alias.name}") for alias in node.names]
            else:
                found.append((node.lineno, node.module or ""))
    return found


def problems(package: Path = PACKAGE) -> list[str]:
    wrong = []
    for path in sorted(package.rglob("*.py")):
        room = room_of(path)
        if room not in ALLOWED:
            wrong.append(f"{path}: a room {room!r} that scripts/check_imports.py does not know")
            continue
        for line, name in imported(path):
            head, _, rest = name.partition(".")
            if name.startswith("."):
                wrong.append(f"{path}:{line}: relative import {name}")
            elif head in ONLY_IN and room not in ONLY_IN[head]:
                wrong.append(f"{path}:{line}: {room} must not import {head}")
            elif head == "tokenmill" and rest and not rest.startswith("__"):
                other = rest.partition(".")[0]
                if other != room and other not in ALLOWED[room]:
                    wrong.append(f"{path}:{line}: {room} must not import from {other}")
    return wrong


if __name__ == "__main__":
    found = problems()
    print("\n".join(found) or "imports point down")
    sys.exit(bool(found))
