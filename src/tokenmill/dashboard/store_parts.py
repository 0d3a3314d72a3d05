"""The parts of the page about a finished store, as HTML: facts, files, tokens, packing, quarantine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tokenmill.building.source_text import source_row
from tokenmill.dashboard.inspection import SORTED_BY, FileCounts, Inspection
from tokenmill.errors import TokenmillError, UsageError
from tokenmill.formatting import percent, some
from tokenmill.log_records import shortened
from tokenmill.packing.comparison import Packed
from tokenmill.split_names import held_out
from tokenmill.store.facts import info_rows
from tokenmill.store.manifest import NAME
from tokenmill.watching.charts import columns_chart, meter, stacked
from tokenmill.watching.markup import Markup, joined, tag

PAGE = 50  # entries of a list
TOP_TOKENS = 40
LENGTHS = (128, 131072)  # of rows, that the slider reaches
LONGEST = 1 << 24  # that can be typed
IN_BAR = (("once", "tokens"), ("repeated", "repeated"), ("padding", "padding"), ("lost", "truncated or dropped"))


def facts_part(inspection: Inspection) -> Markup:
    rows: list[Markup] = []
    for name, value in info_rows(inspection.facts):
        rows += [*([tag("dt", name)] if name else []), tag("dd", value)]  # without a name it goes on from the last
    return tag("dl", rows, class_="facts")


def link(text: str, part: str, store: str, class_: str = "", **query: Any) -> Markup:
    """A link to a part of the page about a store."""
    given = {"store": store, **{key: value for key, value in query.items() if value not in (None, "")}}
    return tag("a", text, href=f"#{part}?{urlencode(given)}", class_=class_ or None)


def table(
    caption: str, heads: Sequence[str | Markup], rows: Sequence[Sequence[str | Markup]], numbers: int = 0
) -> Markup:
    """A table. The last `numbers` columns are numbers."""
    last = len(heads) - numbers
    head = [tag("th", each, scope="col", class_="number" if i >= last else None) for i, each in enumerate(heads)]
    body = [
        tag("tr", [tag("td", cell, class_="number" if i >= last else None) for i, cell in enumerate(row)])
        for row in rows
    ]
    whole = tag("table", tag("caption", caption), tag("thead", tag("tr", head)), tag("tbody", body))
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)


def tokens_part(inspection: Inspection) -> Markup:
    """How long documents are, and which tokens are the most frequent."""
    store, lengths = inspection.store, inspection.lengths()
    looked = "" if lengths.looked_at == len(store) else f", from {lengths.looked_at:,} of {len(store):,} documents"
    bars = [(f"{low:,}", count) for low, _, count in lengths.bins]
    first = next((i for i, (_, count) in enumerate(bars) if count), 0)
    words = ", ".join(f"{count:,} of {low:,} to {high:,}" for low, high, count in lengths.bins if count)
    histogram = columns_chart(
        f"Tokens per document (a column for each power of two{looked})", bars[first:], f"documents by tokens: {words}"
    )
    found = inspection.frequencies(TOP_TOKENS)
    counted = f", counted in {found.looked_at:,} of {store.num_tokens:,} tokens"
    part = "" if found.looked_at == store.num_tokens else counted
    most = found.counts[0][1] if found.counts else 1
    rows = [
        [
            str(token),
            tag("code", _token_text(inspection, token)),
            meter(count / most, percent(count, found.looked_at)),
            f"{count:,}",
            percent(count, found.looked_at),
        ]
        for token, count in found.counts
    ]
    beside = tag("span", "beside the most frequent", class_="unseen")
    summary = (
        f"{some(len(store), 'document')}, {lengths.mean:,.1f} tokens each on average;"
        f" {found.distinct:,} of {store._manifest.tokenizer['vocab_size']:,} ids occur{part}."
    )
    return joined(
        [
            tag("p", summary),
            histogram,
            table(f"The most frequent tokens{part}", ["id", "token", beside, "count", "share"], rows, numbers=2),
        ]
    )


def _token_text(inspection: Inspection, token: int) -> str:
    try:
        return visible(inspection.token_text(token))
    except TokenmillError:  # an imported store may have no tokenizer
        return "?"


def visible(text: str) -> str:
    """A token with its white space shown."""
    return text.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥").replace("\r", "␍") or "(empty)"


def files_part(inspection: Inspection, store: str, search: str, sort: str, first: int) -> Markup:
    """The input files, and how well the tokenizer fits each."""
    sort = sort if sort in SORTED_BY else SORTED_BY[0]
    shown, count = inspection.files(sort, search, first, PAGE)
    names = {key: key.replace("_", " ") for key in ("file", "documents", "tokens", "bytes_per_token", "quarantined")}
    heads = [
        tag("strong", name) if key == sort else link(name, "files", store, sort=key, search=search)
        for key, name in names.items()
    ]
    rows = [_file_row(each, inspection.short_name(each.file), store) for each in shown]
    where = f" in {inspection.folder}" if inspection.folder else ""
    caption = f"{first + 1:,} to {first + len(shown):,} of {some(count, 'file')}{where}" if shown else "No file"
    return joined(
        [
            tag(
                "form",
                tag("label", "Files with ", tag("input", type="search", name="search", value=search)),
                tag("input", type="hidden", name="sort", value=sort),
                tag("button", "Search", type="submit"),
                data_part="files",
                class_="ask",
            ),
            table(caption, heads, rows, numbers=4),
            pages("files", store, first, count, search=search, sort=sort),
        ]
    )


def _file_row(counts: FileCounts, shown: str, store: str) -> list[str | Markup]:
    name = link(shown, "documents", store, document=counts.first) if counts.documents else tag("span", shown)
    ratio = f"{counts.bytes_per_token:.2f}" if counts.tokens else "–"
    failed = [" ", tag("strong", "failed", class_="error")] if counts.has_failed else []
    return [joined([name, *failed]), f"{counts.documents:,}", f"{counts.tokens:,}", ratio, f"{counts.quarantined:,}"]


def pages(part: str, store: str, first: int, count: int, **query: Any) -> Markup:
    """Links to the entries before and after."""
    links = []
    if first > 0:
        links.append(link("← before", part, store, first=max(0, first - PAGE) or None, **query))
    if first + PAGE < count:
        links.append(link("after →", part, store, first=first + PAGE, **query))
    return tag("nav", links, class_="pages", aria_label="pages of the list") if links else Markup("")


def quarantine_part(inspection: Inspection, store: str, reason: str, first: int) -> Markup:
    """Documents that were left out, with a button that shows each."""
    by_reason, failed = inspection.store._manifest.quarantined, inspection.store.failed
    total = sum(by_reason.values())
    if not total and not failed:
        return tag("p", "No document was left out, and no file failed.")
    parts: list[Markup] = []
    if failed:
        lines = [[inspection.short_name(each["file"]), shortened(each["error"])] for each in failed[:PAGE]]
        parts.append(table(f"{some(len(failed), 'file')} failed; the next build tries again", ["file", "error"], lines))
    if total:
        choices = [link(f"all {total:,}", "quarantine", store, "chosen" if not reason else "")]
        choices += [
            link(f"{name}: {count:,}", "quarantine", store, "chosen" if name == reason else "", reason=name)
            for name, count in by_reason.items()
        ]
        entries = inspection.quarantined(reason, first, PAGE)
        count = by_reason.get(reason, 0) if reason else total
        rows = [_quarantined_row(number, entry, inspection.short_name(entry["file"])) for number, entry in entries]
        caption = f"{first + 1:,} to {first + len(entries):,} of {some(count, 'quarantined document')}"
        parts += [
            tag("nav", choices, class_="choices", aria_label="reasons"),
            table(caption, ["file", "reason", "text", "row"], rows, numbers=1),
            pages("quarantine", store, first, count, reason=reason),
        ]
    return joined(parts)


def _quarantined_row(number: int, entry: dict[str, Any], file: str) -> list[str | Markup]:
    reason = shortened(entry["reason"] + (f" ({entry['detail']})" if entry.get("detail") else ""))
    where = f"{file}, row {entry['row']:,}"
    button = tag("button", "show", type="button", data_row=number, aria_label=f"show the text of {where}")
    return [file, reason, tag("div", button), f"{entry['row']:,}"]


def is_own(folder: Path) -> bool:
    """Whether this user, or root, has made a store: others could name any file in it that this user can read."""
    return not hasattr(os, "getuid") or (folder / NAME).stat().st_uid in (os.getuid(), 0)


def row_part(inspection: Inspection, number: int) -> Markup:
    """The text of a quarantined row, from the file it came from."""
    entry = inspection.quarantined_entry(number)
    if entry is None:
        return tag("p", "There is no such entry.", class_="error")
    if not is_own(inspection.store.path):
        return tag("p", "The store belongs to another user: the files that it names are not read.", class_="error")
    try:
        row = source_row(inspection.store, entry["file"], entry["row"])
    except TokenmillError as error:
        return tag("p", str(error), class_="error")
    return joined(
        [tag("pre", row.text, tabindex=0), *([tag("p", "... cut off here", class_="quiet")] if row.is_cut else [])]
    )


def packing_part(inspection: Inspection, seq_len: int, *, quick: bool) -> Markup:
    """What rows of a length cost, with every strategy."""
    if not 1 <= seq_len <= LONGEST:
        raise UsageError(f"a row has 1 to {LONGEST:,} positions")
    packed, documents = inspection.packed(seq_len, quick=quick)
    whole = len(inspection.store)
    scale = 1.0 if documents == whole else inspection.store.num_tokens / max(packed[0].stats.tokens, 1)
    rows = [_packed_row(each, scale) for each in packed]
    heads = ["strategy", "positions", "rows", "padding", "truncated", "dropped", "repeated", "split"]
    exact = "" if documents == whole else f", estimated from {documents:,} of {whole:,} documents"
    if evaluation := held_out(inspection.facts.get("splits", {})):
        exact += f"; text for evaluation ({', '.join(evaluation)}) counts too"
    return tag(
        "div",
        table(f"Rows of {seq_len:,} positions{exact}", heads, rows, numbers=6),
        tag(
            "ul",
            [tag("li", tag("span", class_=f"key part-{kind}"), name) for kind, name in IN_BAR],
            class_="legend",
        ),
        data_seq_len=seq_len,
        data_documents=documents,
    )


def _packed_row(packed: Packed, scale: float) -> list[str | Markup]:
    """`scale` is how many times as many tokens the whole store has as the part that was counted."""
    stats = packed.stats
    once, lost = stats.positions - stats.padding - stats.repeated, stats.truncated + stats.dropped
    counts = {"once": once, "repeated": stats.repeated, "padding": stats.padding, "lost": lost}
    parts = [(f"part-{kind}", counts[kind] / max(stats.positions + lost, 1), kind) for kind, _ in IN_BAR]
    fill = f"{percent(stats.positions - stats.padding, stats.positions)} full, {percent(lost, stats.tokens)} of tokens lost"
    figures = {name: getattr(stats, name) for name in ("rows", "padding", "truncated", "dropped", "repeated")}
    data: dict[str, Any] = {f"data_{name}": value for name, value in figures.items()}
    return [
        tag(
            "span", packed.name, data_strategy=packed.name, data_positions=stats.positions, data_fill=stats.fill, **data
        ),
        stacked(parts, fill),
        f"{stats.rows:,}" if scale == 1.0 else f"about {round(stats.rows * scale):,}",
        percent(stats.padding, stats.positions),
        percent(stats.truncated, stats.tokens),
        percent(stats.dropped, stats.tokens),
        percent(stats.repeated, stats.tokens),
        percent(stats.documents_split, stats.documents),
    ]


def packing_form(seq_len: int) -> Markup:
    """The slider and the box for the length of rows."""
    low, high = (length.bit_length() - 1 for length in LENGTHS)
    at = min(max(seq_len, 1).bit_length() - 1, high)
    slider = tag("input", type="range", name="power", min=low, max=high, step=0.125, value=at, data_packing=True)
    box = tag("input", type="number", name="seq_len", min=1, max=LONGEST, step=1, required=True, value=seq_len)
    exactly = tag("label", tag("span", "exactly ", class_="quiet"), box)
    return tag("form", tag("label", "Positions per row ", slider), exactly, class_="ask", data_part="packing")
