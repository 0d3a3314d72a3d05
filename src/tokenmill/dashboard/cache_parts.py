"""The part of the page about a cache: its stores with their sizes, and why each was built."""

from __future__ import annotations

import time
from pathlib import Path

from tokenmill.building.cache.maintenance import CachedStore, total_bytes
from tokenmill.dashboard.followed_log import FollowedLog, is_alive
from tokenmill.dashboard.store_parts import link, table
from tokenmill.dashboard.watched import Cache
from tokenmill.formatting import first_names, human, human_time, some
from tokenmill.watching.history import Run
from tokenmill.watching.markup import Markup, joined, tag
from tokenmill.watching.panel import state_of


def cache_part(cache: Cache) -> Markup:
    """All stores, builds and datasets, the most recently used first."""
    stores = cache.list()
    runs = {store.name: _last_run(store.path) for store in stores if not store.is_dataset}
    rows = [_row(store, runs.get(store.name)) for store in stores]
    heads = ["store", "built from", "why it was built", "used", "documents", "tokens", "size", "not shared"]
    caption = f"{some(len(stores), 'store')} in the cache, {human(total_bytes(cache.root))}"
    last = _last_miss([run for run in runs.values() if run is not None])
    return joined(
        [
            tag("p", "Cache in ", tag("code", str(cache.root))),
            *([tag("p", tag("strong", "Why the last build was needed: "), last, class_="miss")] if last else []),
            table(caption, heads, rows, numbers=4),
        ]
    )


def _row(store: CachedStore, run: Run | None) -> list[str | Markup]:
    facts = store.facts
    used = f"{human_time(max(0.0, time.time() - store.used))} ago"
    if store.is_dataset:
        files = some(facts["files"], "file")
        return [store.name, f"{files} of the Hugging Face Hub", "", used, "", "", human(store.nbytes), ""]
    state = "" if run is None else state_of(run, time.time(), is_alive=is_alive(run))[0]
    state = "" if facts["complete"] else state.replace("finished", "") or "incomplete"
    name = link(store.name, "build", store.name)
    source = facts.get("problem") or f"{first_names(facts['inputs'], 2)} by {facts['tokenizer']}"
    return [
        joined([name, *([" ", tag("strong", state, class_=f"state {state}")] if state else [])]),
        source,
        "; ".join(run.explained) if run is not None and run.explained else "first build of these inputs",
        used,
        f"{facts.get('documents', 0):,}",
        f"{facts.get('tokens', 0):,}",
        human(store.nbytes),
        human(store.own_bytes),
    ]


def _last_run(folder: Path) -> Run | None:
    log = FollowedLog()
    log.update(folder)
    return log.history.run


def _last_miss(runs: list[Run]) -> str:
    """Why the last build of all had something to do."""
    missed = [run for run in runs if run.end is None or run.end["event"] != "up_to_date"]
    if not missed:
        return ""
    last = max(missed, key=lambda run: run.began)
    return "; ".join(last.explained) or "these inputs were never built with this tokenizer and these options"
