"""The parts of the page by name, each from what the page asks for."""

from __future__ import annotations

from collections.abc import Callable

from tokenmill.dashboard.cache_parts import cache_part
from tokenmill.dashboard.document_parts import documents_part, number
from tokenmill.dashboard.store_parts import (
    facts_part,
    files_part,
    packing_form,
    packing_part,
    quarantine_part,
    row_part,
    tokens_part,
)
from tokenmill.dashboard.watched import Watched
from tokenmill.watching.markup import Markup, joined, tag

__all__ = ["PARTS", "cache_part"]
SEQ_LEN = 2048
Part = Callable[[Watched, dict[str, str]], Markup]


def _packing(watched: Watched, query: dict[str, str]) -> Markup:
    seq_len = number(query.get("seq_len"), SEQ_LEN)
    result = packing_part(watched.inspection(), seq_len, quick="quick" in query)
    if "only" in query:  # while the slider moves, the form stays
        return result
    return joined([packing_form(seq_len), tag("div", result, id="packing-result", aria_live="polite")])


PARTS: dict[str, Part] = {
    "facts": lambda watched, query: facts_part(watched.inspection()),
    "tokens": lambda watched, query: tokens_part(watched.inspection()),
    "files": lambda watched, query: files_part(
        watched.inspection(),
        watched.name,
        query.get("search", ""),
        query.get("sort", ""),
        number(query.get("first"), 0),
    ),
    "packing": _packing,
    "documents": lambda watched, query: documents_part(watched.inspection(), watched.name, query),
    "quarantine": lambda watched, query: quarantine_part(
        watched.inspection(), watched.name, query.get("reason", ""), number(query.get("first"), 0)
    ),
    "row": lambda watched, query: row_part(watched.inspection(), number(query.get("entry"), -1)),
}
