"""Several packings of one store side by side."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from tokenmill.display import fields_in_one_line
from tokenmill.formatting import percent, some
from tokenmill.option_types import declared
from tokenmill.options import LayoutOptions, PackOptions, Strategy
from tokenmill.packing.api import pack
from tokenmill.packing.layout import ONLY_FOR, layout_of
from tokenmill.packing.stats import Stats
from tokenmill.packing.strategies import count_rows
from tokenmill.store.store import Store
from tokenmill.store.stream import Documents

# The strategies for which an option makes a difference. Where no document is split, all rows start at a document anyway.
_RELEVANT_FOR = {**ONLY_FOR, "row_start": ("concat",)}


@dataclass(frozen=True, slots=True)
class Packed:
    """One way to pack a store, with its statistics."""

    strategy: str
    options: dict[str, Any]  # all but strategy and seq_len
    left_out: tuple[str, ...]  # given, but not taken by this strategy
    stats: Stats
    seconds: float

    __repr__ = fields_in_one_line

    @property
    def name(self) -> str:
        """The strategy with its options, as a label."""
        options = (f"{option} {_option_text(value)}" for option, value in self.options.items())
        return ", ".join([self.strategy, *options])

    def as_dict(self) -> dict[str, Any]:
        return {
            "strategy": self.strategy,
            "options": self.options,
            "left_out": list(self.left_out),
            "seconds": round(self.seconds, 4),
            "stats": self.stats.as_dict(),
        }


def compare(store: Store, seq_len: int, given: dict[str, Any], split: str | None = None) -> list[Packed]:
    """Pack a store with every strategy under the given options. Makes and keeps the plans of all of them.

    A strategy that does not take one of the options is packed without it. Options that are not given are tried both ways where
    that matters: rows that start anywhere or at documents, long documents split or truncated. Windows without overlap equal
    pad's rows, so the default here is an overlap of a quarter.
    """
    packed = []
    for strategy, own in _variants(seq_len, given):
        accepted = {option: value for option, value in given.items() if _takes(strategy, option, given)}
        left_out = tuple(option for option in given if option not in accepted)
        packed.append(measure(store, seq_len, strategy, accepted | own, left_out, split=split))
    return packed


def compare_counts(documents: Documents, seq_len: int) -> list[Packed]:
    """The same without further options, for documents whose lengths are in memory: rows are counted, and nothing is written."""
    packed = []
    for strategy, options in _variants(seq_len, {}):
        start = time.perf_counter()
        layout = layout_of(PackOptions(seq_len=seq_len, strategy=strategy, **options))
        stats = count_rows(documents, layout).stats(seq_len)
        packed.append(Packed(strategy, options, (), stats, time.perf_counter() - start))
    return packed


def _variants(seq_len: int, given: dict[str, Any]) -> list[tuple[Strategy, dict[str, Any]]]:
    """Every strategy, with the options that are tried in addition to those given."""
    has_stride = "stride" in given or "overlap" in given
    variants: list[tuple[Strategy, dict[str, Any]]] = [("concat", {})]
    if not has_stride and "row_start" not in given:
        variants.append(("concat", {"row_start": "document"}))
    variants.append(("best_fit", {}))
    variants += [("pad", {})] if "long_docs" in given else [("pad", {}), ("pad", {"long_docs": "truncate"})]
    variants.append(("windows", {} if has_stride else {"overlap": seq_len // 4}))
    return variants


def measure(
    store: Store,
    seq_len: int,
    strategy: Strategy,
    options: dict[str, Any],
    left_out: tuple[str, ...] = (),
    *,
    split: str | None = None,
) -> Packed:
    """Pack a store in one way, and time it."""
    start = time.perf_counter()
    stats = pack(store, seq_len, strategy=strategy, split=split, **options).stats
    return Packed(strategy, options, left_out, stats, time.perf_counter() - start)


def _takes(strategy: str, option: str, given: dict[str, Any]) -> bool:
    if option == "row_start" and given.get("long_docs", "split") != "split":
        return True
    return strategy in _RELEVANT_FOR.get(option, (strategy,))


def comparison_table(packed: list[Packed]) -> str:
    """A table with a column for each packing: its options above, its statistics below."""
    options = list(dict.fromkeys(option for one in packed for option in (*one.left_out, *one.options)))
    columns = [_column(one, options) for one in packed]
    labels = list(columns[0])
    left = max(map(len, labels))
    widths = [max(map(len, column.values())) for column in columns]
    lines = [
        f"{label:<{left}}"
        + "".join(f"  {column[label]:>{width}}" for column, width in zip(columns, widths, strict=True))
        for label in labels
    ]
    lines.insert(1 + len(options), "-" * len(lines[0]))
    stats = packed[0].stats
    notes = [
        "Fill and padding are shares of the positions; truncated, dropped and repeated of the tokens;",
        "split of the documents. Seconds are the time to make the plan, or to open an existing one.",
    ]
    if any(column[option] == "-" for option in options for column in columns):
        notes.append("- : the strategy does not take this option.")
    head = f"{some(stats.documents, 'document')}, {some(stats.tokens, 'token')}, rows of {stats.seq_len:,}"
    return "\n".join([head, "", *(line.rstrip() for line in lines), "", *notes])


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
    if option in packed.options:
        return _option_text(packed.options[option])
    if packed.strategy not in _RELEVANT_FOR.get(option, (packed.strategy,)) or option in packed.left_out:
        return "-"
    default = {"stride": packed.stats.seq_len, "overlap": 0}.get(option, declared(LayoutOptions)[option].default)
    return "none" if default is None else _option_text(default)


def _option_text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
