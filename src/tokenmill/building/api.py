"""`tm.build`: a corpus and a tokenizer to a store, in a folder or in the cache."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenmill.building.destination import FolderDestination, without_own_files
from tokenmill.building.reporting import listener_for
from tokenmill.building.request import request_for
from tokenmill.building.sequence import run_build
from tokenmill.errors import UsageError
from tokenmill.formatting import first_names, some
from tokenmill.io.object_store import is_url
from tokenmill.option_calls import takes
from tokenmill.option_types import option_name
from tokenmill.options import BuildArguments
from tokenmill.store.store import Store


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
    store = build_store(source, arguments)
    if store.failed:
        names = first_names(entry["file"] for entry in store.failed)
        be = "is" if len(store.failed) == 1 else "are"
        warnings.warn(
            f"{some(len(store.failed), 'input file')} failed and {be} not in {store.name}: {names}", stacklevel=3
        )
    return store


def build_store(source: Any, arguments: BuildArguments, *, allow_temporary: bool = True) -> Store:
    """What `tm.build` and `tokenmill build` have in common.

    If the cache cannot be written, the store is built for this process only; without `allow_temporary` that is an error.
    """
    if arguments.out is not None and arguments.cache_dir is not None:
        raise UsageError(
            f"give -o (out=...) or {option_name('cache_dir')}, not both: a store is in a folder or in the cache"
        )
    request, listener = request_for(source, arguments), listener_for(arguments.progress)
    if arguments.out is None:
        from tokenmill.building.cache.store_cache import build_cached, cache_root

        return build_cached(request, cache_root(arguments.cache_dir), listener, allow_temporary=allow_temporary)
    if is_url(arguments.out):
        from tokenmill.building.bucket_destination import BucketDestination

        return run_build(request, BucketDestination(str(arguments.out)), listener)
    folder = Path(arguments.out)
    request = replace(request, source=without_own_files(request.source, folder))
    return run_build(request, FolderDestination(folder), listener)
