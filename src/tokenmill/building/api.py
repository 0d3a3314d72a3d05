"""The verb `build`: what is asked for, checked; then done in a folder of the user's, or in the cache."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenmill.building.changes import told
from tokenmill.building.destination import agree, check_folder, leave_no_litter, without_own_files
from tokenmill.building.executors.base import Executor
from tokenmill.building.executors.choose import executor_for
from tokenmill.building.publish import sweep
from tokenmill.building.reporting import EventSink, listener_for
from tokenmill.building.request import BuildRequest, ask
from tokenmill.building.sequence import Build, up_to_date
from tokenmill.building.source_index import SourceIndex, unchanged
from tokenmill.encoding import Tokenizer
from tokenmill.errors import UsageError
from tokenmill.events import Explained, Listener
from tokenmill.io.lock import build_lock
from tokenmill.reading import check_fields, text_weight
from tokenmill.store import Store, files_are_complete


def build(
    source: Any,
    tokenizer: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    eos: str | int | None = "auto",
    bos: str | int | None = None,
    shard_bytes: str | int | None = None,
    workers: int | None = None,
    memory: str | int | None = None,
    engine: str | None = None,
    special_tokens: str | None = None,
    max_rows: int | None = None,
    max_documents: int | None = None,
    max_tokens: int | None = None,
    force: bool = False,
    rehash: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    progress: str | Listener | None = None,
    **reading: Any,
) -> Store:
    """Tokenize a corpus into a store at `out`, or finish one that was begun, or say that it is up to date.

    `source` is what `tm.read` takes, or what it returns; its options (`text_field`, `format`, `template`, `separator`, `limit`,
    `on_error`) may be given here. Without `out` the store is in the cache (`cache_dir`, or TOKENMILL_CACHE, or
    ~/.cache/tokenmill), found by what it holds; of many processes that ask at once, one builds and the others wait. Runs on
    one worker process per physical core (`workers=0`: inside this process) and within `memory` (half of what is free, unless
    said). `progress` is "auto", "bar", "plain", "quiet" or "verbose", or a function that gets each event.

    `engine` is "auto" (the fastest that proves itself on this tokenizer and a sample of this corpus), "reference" or an
    engine's name. `special_tokens` says what the names of special tokens in the text become: "parse" (their ids), "text"
    (ordinary text: nobody forges a document's end) or "error" (the build stops there). A document that begins with `bos`
    does not get another.

    Whether a file changed is told by its size, times and inode, and where those differ by its content; `rehash` compares the
    content of every file. `force` makes everything anew. `max_rows`, `max_documents` and `max_tokens` stop early, for a
    trial, which is never taken for the whole.

    The store's bytes depend on the input, the tokenizer and `shard_bytes` (32MB; 1MB for slow Python tokenizers) alone.
    Input files that cannot be read are left out: the store then says `complete == False`, `failed` names them, and the
    next build tries just those again.
    """
    if out is not None and cache_dir is not None:
        raise UsageError("out and cache_dir exclude each other: a store is in a folder of yours, or in the cache")
    asked = ask(
        source,
        tokenizer,
        reading,
        eos=eos,
        bos=bos,
        shard_bytes=shard_bytes,
        workers=workers,
        memory=memory,
        engine=engine,
        special_tokens=special_tokens,
        max_rows=max_rows,
        max_documents=max_documents,
        max_tokens=max_tokens,
        force=force,
        rehash=rehash,
    )
    if out is not None:
        return build_in(Path(out), asked, progress)
    from tokenmill.building.cache.store_cache import build_cached

    return build_cached(asked, cache_dir, progress)


def build_in(folder: Path, asked: BuildRequest, progress: str | Listener | None) -> Store:
    """The store in a folder of the user's; a second build there at the same time is an error."""
    asked = replace(asked, source=without_own_files(asked.source, folder))
    check_folder(folder)
    with ExitStack() as stack:
        stack.enter_context(build_lock(folder))
        if all(entry.name == ".lock" for entry in folder.iterdir()):
            stack.callback(leave_no_litter, folder)
        watch = stack.enter_context(EventSink(listener_for(progress), folder))
        stack.callback(shutil.rmtree, folder / "spool", ignore_errors=True)
        begun = (folder / "manifest.json").exists()
        crew = None if begun else stack.enter_context(executor_of(asked, watch.emit))
        if crew is not None:
            crew.start()  # they get ready while the work is planned
        tokenizer = asked.loaded()
        asked = asked.spooled(folder / "spool", tokenizer)
        check_fields(asked.source)
        options = asked.options(tokenizer)
        published = agree(folder, asked.source, tokenizer, options, asked.force)
        believed = published is not None and published.complete and asked.believes(tokenizer)
        as_it_was = believed and unchanged(folder, asked.source) is not None
        if published is not None and as_it_was and files_are_complete(folder, published):
            sweep(folder, set(published.shard_ids))
            return up_to_date(Store(folder, published), watch.emit)
        build = Build(folder, asked.source, tokenizer, options, published, [SourceIndex(folder, asked.source)])
        build.plan(watch.emit, rehash=asked.rehash)
        if reasons := told(build):
            watch.emit(Explained(reasons=reasons))
        if crew is None or tokenizer.reference_traits.is_slow:
            if crew is not None:
                crew.stop()
            crew = stack.enter_context(executor_of(asked, watch.emit, tokenizer, build.weight))
        store = build.carry_out(crew, watch.emit)
        build.seen[0].write(asked.source)
        return store


def executor_of(
    asked: BuildRequest, emit: Listener, tokenizer: Tokenizer | None = None, weight: int | None = None
) -> Executor:
    """The executor for a request. `weight` is the text to encode, all of the source if not given."""
    if weight is None and not asked.source.streams:
        weight = sum(map(text_weight, asked.source.files))
    return executor_for(
        emit,
        workers=asked.workers,
        memory=asked.memory,
        text_bytes=weight,
        is_trial=asked.is_trial,
        is_slow=tokenizer is not None and tokenizer.reference_traits.is_slow,
        live=tokenizer.live if tokenizer is not None and tokenizer.traits.in_process_only else None,
    )
