"""`tm.build`: a corpus and a tokenizer to a store, in a folder or in the cache."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenmill.building.dashboard_process import DashboardPage
from tokenmill.building.destination import Destination, FolderDestination, without_own_files, without_store_at
from tokenmill.building.reporting import listener_for, waiting_reporter
from tokenmill.building.request import BuildRequest, request_for, resolve
from tokenmill.building.sequence import report_up_to_date, run_build, run_slice
from tokenmill.building.slices import NotesInBucket, NotesInFolder, SliceNotes
from tokenmill.callers import warn
from tokenmill.errors import BuildError, LockedError, UsageError
from tokenmill.events import Listener
from tokenmill.formatting import first_names, some
from tokenmill.io.atomic import naming_files
from tokenmill.io.lock import build_lock
from tokenmill.io.object_store import is_url
from tokenmill.option_calls import never_none_as, takes
from tokenmill.option_types import option_name
from tokenmill.options import BuildArguments, WholeBuild
from tokenmill.store.store import Store


@never_none_as(WholeBuild)
@takes(BuildArguments, "what tm.read takes, or what it returns")
def build(source: Any, arguments: BuildArguments) -> Store | None:
    """Tokenize a corpus into a store at `out`, finish one that was begun, or report that it is up to date.

    `source` is what `tm.read` takes, with options of `tm.read` here if needed, or what it returns. `tokenizer` is what
    `tm.load_tokenizer` takes. Without `out` the store is in the cache, found by its content. If several processes ask for a
    store at once, such as the ranks of torchrun, one builds and the others wait. `progress` may be a function that receives
    each event.

    With `engine="auto"` the fastest engine is used that gives the ids of the reference on this tokenizer and a sample of
    this corpus. With `special_tokens="text"` no document can forge the end of another. A document that begins with `bos`
    does not get a second one.

    Changed files are recognized by size, times and inode, and if those differ by content; `rehash` compares the content of
    every file. `max_rows`, `max_documents` and `max_tokens` make a trial, which is never taken for the whole.

    The bytes of the store depend only on the input, the tokenizer and `shard_bytes`. Input files that cannot be read are left
    out: then `store.complete` is False, `store.failed` names them, and the next build tries them again. Many bad rows are a
    UserWarning with the likely cause; if no document is left, that is an InputError, and no store is published.

    `out` may be the URL of a place in a bucket, such as s3://bucket/store. With `slice="K/N"` only part of the shards is made:
    the result is the store if this slice is the last one, and None if others are not done yet.

    Example:
        store = tm.build("data/*.jsonl", "path/to/tokenizer.json", "corpus/")
        store[0], store.text(0), store.num_tokens
    """
    store = build_store(source, arguments)
    if store is not None and store.failed:
        names = first_names(entry["file"] for entry in store.failed)
        be = "is" if len(store.failed) == 1 else "are"
        warn(f"{some(len(store.failed), 'input file')} failed and {be} not in {store.name}: {names}")
    if store is not None:  # as of a slice
        for doubt in store._manifest.source.get("doubts", ()):
            warn(f"{store.name}: {doubt}")
    return store


def build_store(source: Any, arguments: BuildArguments, *, allow_temporary: bool = True) -> Store | None:
    """What `tm.build` and `tokenmill build` have in common.

    If the cache cannot be written, the store is built for this process only; without `allow_temporary` that is an error.
    """
    if arguments.out is not None and arguments.cache_dir is not None:
        raise UsageError(f"give -o (out=...) or {option_name('cache_dir')}, not both: a store is in one or the other")
    listener = listener_for(arguments.progress)
    if not arguments.dashboard:
        return _build_or_find(source, arguments, listener, allow_temporary=allow_temporary)
    with closing(DashboardPage()) as page:
        store = _build_or_find(source, arguments, page.listener(listener), allow_temporary=allow_temporary)
        if store is not None:
            page.tell(store.name)
        return store


def _build_or_find(
    source: Any, arguments: BuildArguments, listener: Listener, *, allow_temporary: bool
) -> Store | None:
    request = request_for(source, arguments)
    if arguments.out is None and request.slice is not None:
        raise UsageError(f"{option_name('slice')} needs -o (out=...): a folder or a bucket that all slices write to")
    if arguments.out is None:
        from tokenmill.building.cache.store_cache import build_cached, cache_root

        return build_cached(request, cache_root(arguments.cache_dir), listener, allow_temporary=allow_temporary)
    if is_url(arguments.out):
        request = replace(request, source=without_store_at(request.source, str(arguments.out)))
    else:
        request = replace(request, source=without_own_files(request.source, Path(arguments.out)))
    if request.slice is not None:
        return _build_slice(request, arguments.out, listener)
    if is_url(arguments.out):
        return run_build(request, _destination(arguments.out), listener)
    return _build_in_folder(request, Path(arguments.out), listener)


def _destination(out: str | os.PathLike[str], *, shared: bool = False) -> Destination:
    if is_url(out):
        from tokenmill.building.bucket_destination import BucketDestination

        return BucketDestination(str(out), keeps_log=not shared)
    return FolderDestination(Path(out), shared=shared)


@naming_files()
def _build_in_folder(request: BuildRequest, folder: Path, listener: Listener) -> Store:
    """Build in a folder. Another build there may make the same store: wait for it. One that cannot be written may have it."""
    destination = FolderDestination(folder)
    store = None
    while store is None:
        try:
            return run_build(request, destination, listener)
        except LockedError:
            with build_lock(folder, waiting_reporter(folder, listener)):
                pass  # what it has built is looked at by all that wait at once
            store = destination.current_store(request := resolve(request))
        except BuildError as error:
            store = destination.current_store(resolve(request)) if error.is_unwritable else None
            if store is None:
                raise
    return report_up_to_date(store, listener)


def _build_slice(request: BuildRequest, out: str | os.PathLike[str], listener: Listener) -> Store | None:
    """Make one slice, and finish the store if all others are done. None if they are not, or if another one finishes it."""
    if request.is_trial or request.source._streams or request.force:
        raise UsageError(
            f"{option_name('slice')} is for whole builds of files: leave out {option_name('force')}, limits, and standard input"
        )
    notes: SliceNotes = NotesInBucket(str(out)) if is_url(out) else NotesInFolder(Path(out))
    done = run_slice(request, _destination(out, shared=True), notes, listener)
    if isinstance(done, Store):
        return done
    if not done:
        return None
    try:
        store = run_build(replace(request, slice=None), _destination(out), listener)
    except LockedError:  # another slice was as quick
        return None
    notes.forget()
    return store
