"""What a packing costs, as tables for people: one packing alone, or the strategies side by side."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenmill.formatting import percent
from tokenmill.packing.layout import ONLY_FOR

if TYPE_CHECKING:
    from tokenmill.packing.stats import Stats
    from tokenmill.store import Store

BAR = 40  # characters of the longest bar of a histogram

# Where an option is told apart. Others take row_start too where no document is split: they cannot do otherwise.
_TOLD_FOR = {**ONLY_FOR, "row_start": ("concat",)}


@dataclass(frozen=True, slots=True)
class Packed:
    """One way to pack a store, and what it came to."""

    strategy: str
    options: dict[str, Any]  # those it was packed with, beside strategy and seq_len
    left_out: tuple[str, ...]  # those that were given and that this strategy does not take
    stats: Stats
    seconds: float

    @property
    def name(self) -> str:
        """The strategy with its options, short enough for a label."""
        return ", ".join([self.strategy, *(f"{option} {_shown(value)}" for option, value in self.options.items())])

    def as_dict(self) -> dict[str, Any]:
        return {
            "strategy": self.strategy,
            "options": self.options,
            "left_out": list(self.left_out),
            "seconds": round(self.seconds, 4),
            "stats": self.stats.as_dict(),
        }


def compare(store: Store, seq_len: int, given: dict[str, Any]) -> list[Packed]:
    """Pack a store with every strategy under the options given; costs the plans of all of them, and keeps them.

    A strategy that does not take one of the options is packed without it. What was left open is shown both ways where
    that changes much: rows that start anywhere or at documents, long documents split or truncated. Windows without
    overlap are pad's rows, so they overlap by a quarter where nothing else was asked for.
    """
    stepped = "stride" in given or "overlap" in given
    variants: list[tuple[str, dict[str, Any]]] = [("concat", {})]
    if not stepped and "row_start" not in given:
        variants.append(("concat", {"row_start": "document"}))
    variants.append(("best_fit", {}))
    variants += [("pad", {})] if "long_docs" in given else [("pad", {}), ("pad", {"long_docs": "truncate"})]
    variants.append(("windows", {} if stepped else {"overlap": seq_len // 4}))
    packed = []
    for strategy, own in variants:
        taken = {option: value for option, value in given.items() if _takes(strategy, option, given)}
        left_out = tuple(option for option in given if option not in taken)
        packed.append(measure(store, seq_len, strategy, taken | own, left_out))
    return packed


def measure(
    store: Store, seq_len: int, strategy: str, options: dict[str, Any], left_out: tuple[str, ...] = ()
) -> Packed:
    """Pack a store in one way, by the clock."""
    from tokenmill.packing import pack

    start = time.perf_counter()
    stats = pack(store, seq_len, strategy=strategy, **options).stats
    return Packed(strategy, options, left_out, stats, time.perf_counter() - start)


def _takes(strategy: str, option: str, given: dict[str, Any]) -> bool:
    if option == "row_start" and given.get("long_docs", "split") != "split":
        return True
    return strategy in _TOLD_FOR.get(option, (strategy,))


def stats_table(stats: Stats) -> str:
    """The figures of one packing, and the lengths of the documents it was made from."""
    even = stats.positions == stats.rows * stats.seq_len
    width = max(len(f"{number:,}") for number in (stats.padding, stats.truncated, stats.dropped, stats.repeated))

    def of(part: int, whole: int, what: str, more: str = "") -> str:
        return f"{part:>{width},}   {percent(part, whole)} of the {what}{more}" if part else f"{0:>{width}}"

    truncated = f", from {_count(stats.documents_truncated, 'document')}"
    dropped = f", {_count(stats.documents_dropped, 'document')} whole" if stats.documents_dropped else ""
    split = f" ({percent(stats.documents_split, stats.documents)}) that no row holds whole"
    rows = [
        ("rows", f"{stats.rows:,}, of {'' if even else 'up to '}{stats.seq_len:,} positions each"),
        ("documents", f"{stats.documents:,} with {_count(stats.tokens, 'token')}"),
        ("fill", percent(stats.positions - stats.padding, stats.positions) if stats.positions else "no rows"),
        ("padding", of(stats.padding, stats.positions, "positions")),
        ("truncated", of(stats.truncated, stats.tokens, "tokens", truncated)),
        ("dropped", of(stats.dropped, stats.tokens, "tokens", dropped)),
        ("repeated", of(stats.repeated, stats.tokens, "tokens")),
        ("split", _count(stats.documents_split, "document") + (split if stats.documents_split else "")),
        ("boundaries", f"{stats.boundaries:,} between documents inside rows, {stats.boundaries_per_row:.2f} a row"),
    ]
    return "\n".join([*(f"{name:<12}{value}" for name, value in rows), "", *_histogram(stats)])


def _histogram(stats: Stats) -> list[str]:
    """The documents by length, a line for each bin from the first that holds any."""
    if not stats.lengths:
        return ["no documents"]
    bins = stats.lengths[next((i for i, (_, _, count) in enumerate(stats.lengths) if count), 0) :]
    most = max(count for _, _, count in bins)
    names = [f"{low:,}" if low == high else f"{low:,} - {high:,}" for low, high, _ in bins]
    left = max(6, *map(len, names))
    right = max(9, len(f"{most:,}"))
    lines = [f"{'tokens':>{left}}  {'documents':>{right}}"]
    for name, (low, high, count) in zip(names, bins, strict=True):
        bar = "#" * -(-count * BAR // most) if most else ""  # rounded up: a single document is seen
        mark = "< seq_len" if low <= stats.seq_len <= high else ""
        lines.append(f"{name:>{left}}  {count:>{right},}  {' '.join(part for part in (bar, mark) if part)}".rstrip())
    return lines


def comparison_table(packed: list[Packed]) -> str:
    """A column for each way to pack, with what it was asked for above and what that costs below."""
    columns = [_column(one, _options_shown(packed)) for one in packed]
    labels = list(columns[0])
    left = max(map(len, labels))
    widths = [max(map(len, column.values())) for column in columns]
    lines = [
        f"{label:<{left}}"
        + "".join(f"  {column[label]:>{width}}" for column, width in zip(columns, widths, strict=True))
        for label in labels
    ]
    lines.insert(1 + len(_options_shown(packed)), "-" * len(lines[0]))
    stats = packed[0].stats
    notes = [
        "Fill and padding are shares of the positions; truncated, dropped and repeated of the tokens;",
        "split of the documents. Seconds are for the plan, or for finding the one that was kept.",
    ]
    if any("-" in (column[option] for option in _options_shown(packed)) for column in columns):
        notes.append("- : the strategy does not take this option, and was packed without it.")
    head = f"{_count(stats.documents, 'document')}, {_count(stats.tokens, 'token')}, rows of {stats.seq_len:,}"
    return "\n".join([head, "", *(line.rstrip() for line in lines), "", *notes])


def _options_shown(packed: Iterable[Packed]) -> list[str]:
    return list(dict.fromkeys(option for one in packed for option in (*one.left_out, *one.options)))


def _column(packed: Packed, options: list[str]) -> dict[str, str]:
    stats = packed.stats
    return {
        "strategy": packed.strategy,
        **{option: _option_cell(packed, option) for option in options},
        "rows": f"{stats.rows:,}",
        "fill": percent(stats.positions - stats.padding, stats.positions) if stats.positions else "no rows",
        "padding": percent(stats.padding, stats.positions),
        "truncated": percent(stats.truncated, stats.tokens),
        "dropped": percent(stats.dropped, stats.tokens),
        "repeated": percent(stats.repeated, stats.tokens),
        "documents split": percent(stats.documents_split, stats.documents),
        "boundaries/row": f"{stats.boundaries_per_row:.2f}",
        "seconds": f"{packed.seconds:.3f}",
    }


def _option_cell(packed: Packed, option: str) -> str:
    from tokenmill.packing import pack

    if option in packed.options:
        return _shown(packed.options[option])
    if packed.strategy not in _TOLD_FOR.get(option, (packed.strategy,)) or option in packed.left_out:
        return "-"
    default = {**(pack.__kwdefaults__ or {}), "stride": packed.stats.seq_len, "overlap": 0}[option]
    return "none" if default is None else _shown(default)


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
