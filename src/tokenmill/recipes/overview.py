"""The result of a recipe, for `tokenmill run`: as facts and as a table."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from tokenmill.encoding.resolve import BUILT_IN
from tokenmill.errors import UsageError
from tokenmill.reading import check_fields
from tokenmill.recipes.api import Recipe
from tokenmill.recipes.api import recipe as make_recipe
from tokenmill.recipes.checking import TRAIN
from tokenmill.store.store import Store

Facts = dict[str, Any]
UNEVEN = 0.05  # a source whose epochs differ from 1 by more gets a line


def check(recipe: Recipe) -> Facts:
    """The cheap checks outside the recipe: its files exist and have the fields and splits, its stores open, its
    tokenizer exists.

    Of a tokenizer on the Hub only the name is checked, and `tokenizer_found` is False.
    """
    sources: dict[str, Facts] = {}
    for name, found in recipe.inputs.items():
        if isinstance(found, Store):
            sources[name] = {"store": str(found.path), "documents": len(found), "tokens": found.num_tokens}
        else:
            with recipe._naming(name):
                check_fields(found)
            sources[name] = {"files": len(found.files), "bytes": found.num_bytes}
    spec = recipe.tokenizer
    local = spec is not None and os.path.isabs(spec)  # a path that exists
    if local:
        from tokenmill.encoding.resolve import define, find

        found_files = find(spec)
        if found_files.kind == "json":  # other kinds take seconds to convert
            define(found_files)
    splits = dict.fromkeys(split for own in recipe._splits_of(recipe.inputs).values() for split in own)
    return {
        "ok": True,
        "sources": sources,
        "splits": sorted(splits, key=lambda split: split != TRAIN),
        "tokenizer": spec,
        "tokenizer_found": local or spec in (None, *BUILT_IN),
    }


def facts(recipe: Recipe) -> Facts:
    """Build or find the stores, plan the rows of every split, and count."""
    sources = {}
    for name, store in recipe.stores().items():
        sources[name] = {
            "documents": len(store),
            "tokens": store.num_tokens,
            "weight": recipe.config.sources[name].get("weight"),
            "store": store.name,
            "failed": len(store.failed),
        }
    return {
        "recipe": recipe.name,
        "sources": sources,
        "seq_len": recipe.config.pack["seq_len"],
        "splits": {split: _split_facts(recipe, split) for split in recipe.splits},
    }


def _split_facts(recipe: Recipe, split: str) -> Facts:
    views = recipe.views(split)
    counted = {name: (len(view), view.stats) for name, view in views.items()}
    rows = sum(count for count, _ in counted.values())
    positions = sum(stats.positions for _, stats in counted.values())
    found: Facts = {
        "rows": rows,
        "documents": sum(stats.documents for _, stats in counted.values()),
        "tokens": sum(stats.tokens for _, stats in counted.values()),
        "fill": 1 - sum(stats.padding for _, stats in counted.values()) / positions if positions else 1.0,
        "rows_of": {name: count for name, (count, _) in counted.items()},
        "times_of": _times(recipe, {name: count for name, (count, _) in counted.items()}),
    }
    try:
        one = recipe.loader(split, epochs=1, rank=0, world_size=1, prefetch=0, device=None, pin_memory=False)
        return {**found, "batches": len(one)}
    except UsageError as error:
        return {**found, "batches": None, "no_batches": str(error)}


def _times(recipe: Recipe, rows: dict[str, int]) -> dict[str, float]:
    """How often each row of a source comes in an epoch of all sources together."""
    weights = {name: weight for name in rows if (weight := recipe.config.sources[name].get("weight")) is not None}
    if len(rows) < 2 or len(weights) < len(rows):
        return dict.fromkeys(rows, 1.0)
    total, whole = sum(rows.values()), sum(weights.values())
    return {name: weights[name] / whole * total / count if count else 0.0 for name, count in rows.items()}


def python(path: str, changes: list[str], recipe: Recipe, rows: dict[str, int]) -> list[str]:
    """Two lines of Python that work: they load a split, train if it has rows, and build nothing again at every start."""
    kept = [change for change in changes if not change.startswith("build.force=")]
    kept += ["build.force=false"] if make_recipe(path, set=kept).config.build.get("force") else []
    made = f"tm.recipe({path!r}{f', set={kept!r}' if kept else ''})"
    for split in sorted(rows, key=lambda split: (not rows[split], split != TRAIN)):
        size = {"batch_size": min(8, rows[split])}
        for more in ({}, size, {"device": None}, {**size, "device": None}) if rows[split] else ():
            with suppress(UsageError):
                recipe.loader(split, **more, rank=0, world_size=1)
                given = "".join(f", {name}={value!r}" for name, value in more.items())
                return ["import tokenmill as tm", f"loader = {made}.loader({split!r}{given})"]
    return ["import tokenmill as tm", f"stores = {made}.stores()"]


def table(facts: Facts) -> str:
    """The facts as text."""
    sources = [["source", "documents", "tokens", "weight", "store"]]
    for name, each in facts["sources"].items():
        weight = "-" if each["weight"] is None else f"{each['weight']:g}"
        sources.append([name, f"{each['documents']:,}", f"{each['tokens']:,}", weight, each["store"]])
    splits = [["split", f"rows of {facts['seq_len']:,}", "tokens", "fill", "batches per epoch"]]
    notes = []
    for name, each in facts["splits"].items():
        batches = "-" if each["batches"] is None else f"{each['batches']:,}"
        splits.append([name, f"{each['rows']:,}", f"{each['tokens']:,}", f"{100 * each['fill']:.2f}%", batches])
        uneven = {source: times for source, times in each["times_of"].items() if abs(times - 1) > UNEVEN}
        if uneven:
            often = ", ".join(f"{source} {times:.1f}" for source, times in uneven.items())
            notes.append(f"{name}: epochs per source, by weight: {often}")
        if each["batches"] is None:
            notes.append(f"{name}: {each['no_batches']}")
    lines = [*_columns(sources, left={0, 4}), "", *_columns(splits, left={0})]
    return "\n".join(lines + (["", *notes] if notes else []))


def _columns(rows: list[list[str]], left: set[int]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
