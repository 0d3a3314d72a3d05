"""Globs over names that are not on the local disk."""

from __future__ import annotations

import re


def glob_expression(pattern: str) -> str:
    """A glob as a regular expression: * and ? do not match a slash, ** matches any folders."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", pattern)
    meanings = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(
        meanings.get(part) or (part.replace("[!", "[^") if part.startswith("[") and len(part) > 1 else re.escape(part))
        for part in parts
    )


def fixed_part(pattern: str) -> str:
    """The folder that everything a glob matches lies in."""
    return re.split(r"[*?\[]", pattern)[0].rpartition("/")[0]
