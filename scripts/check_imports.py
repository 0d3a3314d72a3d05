"""Check the structure of the package: imports point down, nothing imports in a circle, and no name is used twice.

Layers, top to bottom. A module may import from its own folder and from the layers below it:

    cli
    dashboard
    recipes, estimating, exchange, demo_data, integrations
    loading
    building, packing            (neither imports the other)
    reading, encoding, store, watching     (none imports another)
    bar_chart, callers, child_process, io, documents, events, display, formatting, habits, hub_errors, known_datasets,
    log_records, options, option_*, python_sources, split_names, synonyms, errors, user_cache

Every import counts, including those inside functions and those for type checking only.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "tokenmill"

BASE = {
    "bar_chart",
    "callers",
    "child_process",
    "display",
    "documents",
    "errors",
    "events",
    "formatting",
    "habits",
    "hub_errors",
    "io",
    "known_datasets",
    "log_records",
    "option_calls",
    "option_kinds",
    "option_types",
    "options",
    "python_sources",
    "split_names",
    "synonyms",
    "user_cache",
}
MIDDLE = {"reading", "encoding", "store", "watching"} | BASE
# The folders and top-level modules each one may import from, besides itself.
ALLOWED: dict[str, set[str]] = {
    "errors": {"synonyms"},
    "bar_chart": {"errors"},
    "callers": {"errors"},
    "python_sources": set(),
    "documents": set(),
    "child_process": {"errors"},
    "display": {"formatting"},
    "events": {"display"},
    "split_names": {"errors"},
    "user_cache": {"callers", "io"},
    "formatting": {"errors"},
    "habits": {"errors", "synonyms"},
    "hub_errors": set(),
    "known_datasets": set(),
    "log_records": {"events"},
    "option_kinds": {"errors", "formatting", "synonyms"},
    "option_types": {"errors", "option_kinds"},
    "options": {"option_kinds", "option_types"},
    "option_calls": {"errors", "option_types", "options", "synonyms"},
    "synonyms": set(),
    "io": {"child_process", "errors"},
    "reading": BASE,
    "encoding": BASE,
    "store": BASE,
    "watching": BASE,
    "building": MIDDLE,
    "packing": MIDDLE,
    "loading": {"building", "packing"} | MIDDLE,
    "recipes": {"building", "packing", "loading"} | MIDDLE,
    "estimating": {"building"} | MIDDLE,
    "demo_data": {"building"} | MIDDLE,
    "exchange": {"building", "packing"} | MIDDLE,
    "integrations": {"errors", "loading"},
    "testing": {"building", "packing", "loading", "exchange"} | MIDDLE,
    "dashboard": {"building", "packing"} | MIDDLE,
    "cli": {"dashboard", "demo_data", "recipes", "estimating", "exchange", "building", "packing"} | MIDDLE,
    # The public names, imported when they are first used.
    "__init__": {"building", "packing", "loading", "recipes", "estimating", "exchange"} | MIDDLE,
    "__main__": {"cli"},
}
# What a folder imports against the rule, and only there: a store decodes with its own tokenizer.
EXCEPTIONS = {("store/store.py", "tokenmill.encoding.api.StoredTokenizer")}
# Libraries that only some folders may import, so that the rest works without them.
ONLY_IN = {
    "torch": {"loading", "exchange"},
    "ray": {"building"},
    "starlette": {"dashboard"},
    "uvicorn": {"dashboard"},
    "huggingface_hub": {"hub_errors", "reading", "encoding"},
    "pickle": set(),
}
NAMES_USED_TWICE = {"__init__", "__main__", "api", "base"}  # each folder may have one


def module_name(path: Path, package: Path) -> str:
    """The dotted name of a module of the package."""
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(("tokenmill", *parts)).removesuffix(".__init__")


def imports_of(path: Path) -> list[tuple[int, str]]:
    """The line and dotted name of everything a module imports. `from a import b` counts as a.b."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
    return found


def wrong_imports(package: Path) -> list[str]:
    """Imports that point up, sideways, or to a library that the folder must do without."""
    wrong = []
    for path in sorted(package.rglob("*.py")):
        folder = path.relative_to(package).parts[0].removesuffix(".py")
        if folder not in ALLOWED:
            wrong.append(f"{path}: scripts/check_imports.py does not know {folder!r}")
            continue
        for line, name in dict.fromkeys(imports_of(path)):
            head, *rest = name.split(".")
            if (path.relative_to(package).as_posix(), name) in EXCEPTIONS:
                continue
            if name.startswith("."):
                wrong.append(f"{path}:{line}: relative import {name}")
            elif head in ONLY_IN and folder not in ONLY_IN[head]:
                wrong.append(f"{path}:{line}: {folder} must not import {head}")
            elif head == "tokenmill" and rest and rest[0] not in {folder, "__version__", *ALLOWED[folder]}:
                wrong.append(f"{path}:{line}: {folder} must not import from {rest[0]}")
    return wrong


def cycles(package: Path) -> list[str]:
    """Groups of modules that import each other, directly or through others."""
    modules = {module_name(path, package): path for path in package.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        targets = set()
        for _, name in imports_of(path):
            while name and name not in modules:
                name = name.rpartition(".")[0]
            if name not in ("", "tokenmill", module):
                targets.add(name)
        graph[module] = targets
    reachable = {module: _reachable(module, graph) for module in graph}
    groups = {
        frozenset(other for other in reachable[module] if module in reachable[other]) | {module}
        for module in graph
        if module in reachable[module]
    }
    return [f"import cycle: {', '.join(sorted(group))}" for group in sorted(groups, key=sorted)]


def _reachable(start: str, graph: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += graph[module]
    return found


def names_used_twice(package: Path) -> list[str]:
    """Module names that two folders share: a stranger could not tell which one is meant."""
    counts = Counter(path.stem for path in package.rglob("*.py"))
    return [
        f"{count} modules are called {name}.py"
        for name, count in sorted(counts.items())
        if count > 1 and name not in NAMES_USED_TWICE
    ]


def problems(package: Path = PACKAGE) -> list[str]:
    return wrong_imports(package) + cycles(package) + names_used_twice(package)


if __name__ == "__main__":
    found = problems()
    print("\n".join(found) or "imports point down, without cycles; module names are unique")
    sys.exit(bool(found))
