"""The parts of the page about documents: one with its tokens in colours, and those that hold a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tokenmill.dashboard.inspection import Inspection
from tokenmill.dashboard.store_parts import link, visible
from tokenmill.errors import UsageError
from tokenmill.formatting import some
from tokenmill.watching.markup import Markup, joined, tag

TOKENS = 1000  # shown at once
COLOURS = 5
LONGEST_CHARACTER = 8  # tokens that may share the bytes of one character
MOST_FOUND = 20
LARGEST = 1 << 62


class TokenText(NamedTuple):
    """The text of a token, or of several that make up a character together."""

    ids: tuple[int, ...]
    text: str


def documents_part(inspection: Inspection, store: str, query: dict[str, str]) -> Markup:
    """One document, or what a search finds. `query` is what the page asks for."""
    document, search = number(query.get("document"), 0), query.get("search", "")
    if query.get("token"):
        return _at_token(inspection, store, number(query["token"], 0))
    body = (
        _search(inspection, store, search, number(query.get("first"), 0))
        if search
        else _document(inspection, store, document, number(query.get("from"), 0))
    )
    return joined([_form(len(inspection.store), inspection.store.num_tokens, document, search), body])


def number(text: str | None, default: int) -> int:
    """A whole number that is not negative. Raises UsageError for another text."""
    if not text:
        return default
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"{text[:40]!r} is not a whole number of 0 or more")
    return min(int(text), LARGEST) if len(text) < 20 else LARGEST  # Python refuses to read thousands of digits


def _form(documents: int, tokens: int, document: int, search: str, token: str = "") -> Markup:
    def field(label: str, kind: str, name: str, value: str, hint: str) -> Markup:
        box = tag("input", type=kind, name=name, value=value, placeholder=hint, min=0 if kind == "number" else None)
        return tag("form", tag("label", f"{label} ", box), tag("button", "Go", type="submit"), data_part="documents")

    return tag(
        "div",
        field("Document", "number", "document", str(document), f"0 to {max(documents - 1, 0):,}"),
        field("Token position", "number", "token", token, f"0 to {max(tokens - 1, 0):,}"),
        field("Text", "search", "search", search, "text to find"),
        class_="asks",
    )


def _at_token(inspection: Inspection, store: str, token: int) -> Markup:
    """The document at a position in the stream of all tokens, from that token on."""
    whole = inspection.store
    if token >= whole.num_tokens:
        form = _form(len(whole), whole.num_tokens, 0, "", str(token))
        return joined([form, tag("p", f"The store has {some(whole.num_tokens, 'token')}.", class_="error")])
    document, offset = whole.document_at(token)
    form = _form(len(whole), whole.num_tokens, document, "", str(token))
    found = f"Token {token:,} of the store is token {offset:,} of document {document:,}."
    return joined([form, tag("p", found), _document(inspection, store, document, offset // TOKENS * TOKENS, offset)])


def _document(inspection: Inspection, store: str, document: int, first: int, marked: int | None = None) -> Markup:
    whole = inspection.store
    if document >= len(whole):
        return tag("p", f"The store has {some(len(whole), 'document')}.", class_="error")
    ids = whole[document]
    place = whole.locate(document)
    last = min(first + TOKENS, len(ids))
    links = [
        *([_to("← document before", store, document - 1)] if document else []),
        *([_to("tokens before", store, document, first - TOKENS)] if first else []),
        *([_to("more tokens", store, document, last)] if last < len(ids) else []),
        *([_to("next document →", store, document + 1)] if document + 1 < len(whole) else []),
    ]
    heading = f"Document {document:,} of 0 to {len(whole) - 1:,}"
    shown = "" if last - first == len(ids) else f", {first:,} to {last - 1:,} shown"
    return joined(
        [
            tag("h3", heading),
            tag(
                "p",
                "from ",
                tag("code", inspection.short_name(place.file), title=place.file),
                f", row {place.row:,}; {some(len(ids), 'token')}{shown}",
            ),
            tag(
                "div",
                _coloured(inspection, ids, first, last, marked),
                class_="tokens",
                dir="auto",
                tabindex=0,
                role="region",
                aria_label=f"{heading}, its tokens in colours",
            ),
            tag("nav", links, class_="pages", aria_label="documents"),
        ]
    )


def _to(text: str, store: str, document: int, first: int = 0) -> Markup:
    query: dict[str, Any] = {"from": first} if first else {}
    return link(text, "documents", store, document=document, **query)


def _coloured(inspection: Inspection, ids: Any, first: int, last: int, marked: int | None) -> Iterator[Markup]:
    at = first
    for count, token in enumerate(token_texts(inspection.store.tokenizer, ids, first, last)):
        words = " + ".join(map(str, token.ids))
        text = token.text.replace("\n", "⏎\n") if token.text else visible("")
        is_marked = marked is not None and at <= marked < at + len(token.ids)
        kind = f"token t{count % COLOURS}" + (" marked" if is_marked else "")
        yield tag("span", text, class_=kind, title=f"id {words}, token {at:,}")
        at += len(token.ids)


def token_texts(tokenizer: Any, ids: Any, first: int, last: int) -> Iterator[TokenText]:
    """What each token contributes to the text; tokens that hold parts of one character are taken together."""
    at = first
    while at < last:
        for stop in range(at + 1, min(at + LONGEST_CHARACTER, last) + 1):
            try:
                text = tokenizer.decode_bytes(ids, at, stop).decode()
                break
            except UnicodeDecodeError:
                continue
        else:
            stop = at + 1
            text = tokenizer.decode_bytes(ids, at, stop).decode("utf-8", "replace")
        yield TokenText(tuple(int(token) for token in ids[at:stop]), text)
        at = stop


def _search(inspection: Inspection, store: str, search: str, first: int) -> Markup:
    found, after = inspection.search(search, first, MOST_FOUND)
    items = [
        tag(
            "li",
            link(f"document {each.document:,}", "documents", store, document=each.document),
            tag("p", each.before, tag("mark", each.match), each.after, class_="snippet"),
        )
        for each in found
    ]
    total = len(inspection.store)
    words = f"{some(len(found), 'document')} found in documents {first:,} to {max(after - 1, 0):,} of {total:,}."
    return joined(
        [
            tag("p", words, role="status"),
            tag("ul", items, class_="found"),
            *([link("search on →", "documents", store, search=search, first=after)] if after < total else []),
        ]
    )
