"""Raw text -> a store in the cache, built once however many ranks ask for it at the same time."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from tokenmill.building import build
from tokenmill.encoding import load_tokenizer
from tokenmill.errors import BuildError, LockedError, UsageError
from tokenmill.kept import cache_folder
from tokenmill.reading import Source, read
from tokenmill.store import Store
from tokenmill.store.files import canonical, digest

LOOK_AGAIN = 0.5  # seconds between looks at a store that another process builds


def store_of(data: Any, tokenizer: Any) -> Store:
    """The store of these texts by this tokenizer: the one that is kept, brought up to date, or a new one."""
    if tokenizer is None:
        raise UsageError(f"tokenizer is missing: {data!r:.80} is no store, and raw text needs one to become tokens")
    source = data if isinstance(data, Source) else read(*data) if isinstance(data, tuple) else read(data)
    if source.streams:
        raise UsageError(
            f"{', '.join(source.inputs)} is not in files, so nothing says later whether it is still the same; build a store"
            " of it, tm.build(data, tokenizer, 'corpus/'), and load that"
        )
    effective = load_tokenizer(tokenizer)
    try:
        folder = cache_folder() / "stores" / _key(source, effective.fingerprint)
        folder.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        return _on_the_fly(source, tokenizer, error)
    said = False
    while True:
        try:
            return _held(build(source, tokenizer, folder))
        except LockedError:
            if not said:
                print(f"waiting for another process that builds {folder}", file=sys.stderr)
                said = True
            time.sleep(LOOK_AGAIN)
        except BuildError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            return _on_the_fly(source, tokenizer, error)


def _on_the_fly(source: Source, tokenizer: Any, error: Exception) -> Store:
    """Where nothing can be kept: tokens for this process alone, gone when it ends."""
    folder = Path(tempfile.mkdtemp(prefix="tokenmill-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    warnings.warn(f"the tokens cannot be kept ({error}); tokenizing for this run alone", stacklevel=5)
    return _held(build(source, tokenizer, folder / "store", progress="quiet"))


def _held(store: Store) -> Store:
    """Mapped now, where that is possible: another run that brings this store up to date does not take it from this one."""
    if store.failed:
        names = ", ".join(entry["file"] for entry in store.failed[:3])
        warnings.warn(f"{len(store.failed)} input files failed and are not loaded: {names}", stacklevel=6)
    if store.maps_all:
        for shard in range(store.num_shards):
            store.ids_of(shard), store.ends_of(shard)
    return store


def _key(source: Source, tokenizer: str) -> str:
    """A name for the store: what was asked for. That it is up to date is the build's own question."""
    asked = [source.inputs, source.format, source.text, source.template, source.separator, source.limit, tokenizer]
    return digest(canonical(asked))[:24]
