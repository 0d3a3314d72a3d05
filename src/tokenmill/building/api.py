"""The verb `build`: what is asked for, checked; then done in a folder of the user's, or in the cache."""

from __future__ import annotations

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
from tokenmill.building.request import BuildRequest, request_for
from tokenmill.building.sequence import Build, up_to_date
from tokenmill.building.source_index import SourceIndex, unchanged
from tokenmill.encoding import Tokenizer
from tokenmill.errors import UsageError
from tokenmill.events import Explained, Listener
from tokenmill.io.lock import build_lock
from tokenmill.option_types import takes
from tokenmill.options import BuildArguments
from tokenmill.reading import check_fields, text_weight
from tokenmill.store import Store, files_are_complete


@takes(BuildArguments)
def build(source: Any, arguments: BuildArguments) -> Store:
    """Tokenize a corpus into a store at `out`, finish one that was begun, or report that it is up to date.

    `source` is what `tm.read` takes, with options of `tm.read` here if needed, or what it returns. `tokenizer` is what
    `tm.load_tokenizer` takes. Without `out` the store is in the cache, found by its content; if several processes ask for it
    at once, one builds and the others wait. `progress` may be a function that receives each event.

    With `engine="auto"` the fastest engine is used that gives the ids of the reference on this tokenizer and a sample of
    this corpus. With `special_tokens="text"` no document can forge the end of another. A document that begins with `bos`
    does not get a second one.

    Changed files are recognized by size, times and inode, and if those differ by content; `rehash` compares the content of
    every file. `max_rows`, `max_documents` and `max_tokens` make a trial, which is never taken for the whole.

    The bytes of the store depend only on the input, the tokenizer and `shard_bytes`. Input files that cannot be read are left
    out: then `store.complete` is False, `store.failed` names them, and the next build tries them again.
    """
    return build_store(source, arguments)


def build_store(source: Any, arguments: BuildArguments, *, temporary: bool = True) -> Store:
    """`tm.build`. If the cache cannot be written, the store is built for this process alone, or, without `temporary`,
    BuildError is raised."""
    if arguments.out is not None and arguments.cache_dir is not None:
        raise UsageError("out and cache_dir exclude each other: a store is in a folder of yours, or in the cache")
    asked = request_for(source, arguments)
    if arguments.out is not None:
        return build_in(Path(arguments.out), asked, arguments.progress)
    from tokenmill.building.cache.store_cache import build_cached

    return build_cached(asked, arguments.cache_dir, arguments.progress, for_this_run=temporary)


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
