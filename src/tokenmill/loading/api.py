"""`tm.load`: batches from a view, a mixture, a store or raw text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tokenmill.errors import UsageError
from tokenmill.formatting import some
from tokenmill.loading.loader import Loader, current_rank
from tokenmill.loading.mixture import Mixture
from tokenmill.loading.samples import MixtureSamples, ViewSamples
from tokenmill.option_calls import takes
from tokenmill.option_types import given_of, whole_number
from tokenmill.options import LayoutOptions, LoadArguments, LoadOptions, RowOptions
from tokenmill.packing import View, pack
from tokenmill.store.store import Store, store_unless_text


@takes(LoadArguments, "a view, a mixture, a store or its path; or raw text, as tm.read takes it")
def load(data: Any, options: LoadArguments) -> Loader:
    """Batches for training: dicts of torch tensors, or of numpy arrays if torch is not installed.

    `data` is a view (`tm.pack`), a mixture (`tm.mix`), or what a view is made from: a store or its path, with `seq_len` and
    options of `tm.pack`; or raw text (paths, globs, folders, `tm.read`), with `tokenizer` too, which is built once and
    kept in the cache. Give `batch_size` or `global_batch_size`. Rank and world size come from torch.distributed or torchrun
    unless given.

    A `for` loop makes one pass over the rows and ends, like that of a DataLoader; the next one goes on with the next epoch, in
    another order. `epochs=3` makes three passes in one loop, `epochs="endless"` never ends. Neither `prefetch` nor the number
    of ranks changes a batch.

    Example:
        loader = tm.load("corpus/", 4, seq_len=128, seed=7)
        batch = loader.batch(0)                          # {"input_ids": ..., "labels": ..., ...}, 4 rows each
        for batch in loader:                             # one pass; epochs="endless" never ends
            break
        state = loader.state_dict()                      # JSON for a checkpoint; loader.load_state_dict(state) continues
    """
    rank, world_size = _world(options)
    size = _global_size(options, world_size)
    view = _configured(_view(data, options), options)
    samples = (
        ViewSamples(view, options.seed, shuffle=options.shuffle)
        if isinstance(view, View)
        else MixtureSamples(view, options.seed, shuffle=options.shuffle)
    )
    _check_rows(len(samples), size, options)
    return Loader(samples, options, global_batch_size=size, rank=rank, world_size=world_size)


def _check_rows(rows: int, size: int, options: LoadOptions) -> None:
    """Refuse data that does not fill a batch."""
    if not rows:
        raise UsageError("there are no rows to load: the view is empty; view.stats shows where its documents went")
    endless = isinstance(options.epochs, str)
    rows *= 1 if isinstance(options.epochs, str) else options.epochs
    if size > rows and (endless or options.drop_last):
        larger = f"a global batch of {size:,} rows is larger than the data, {some(rows, 'row')}"
        raise UsageError(f"{larger}; make it smaller{'' if endless else ', or give drop_last=False'}")


def _view(data: Any, options: LoadArguments) -> View | Mixture:
    packing = {**given_of(LayoutOptions, options), **given_of(RowOptions, options)}
    if isinstance(data, View | Mixture):
        given = {"seq_len": options.seq_len, "split": options.split, "tokenizer": options.tokenizer, **packing}
        extra = [name for name, value in given.items() if value is not None]
        if extra:
            raise UsageError(f"{', '.join(extra)}: the {type(data).__name__.lower()} has its own; leave it out")
        return data
    several = list(data.values()) if isinstance(data, Mapping) else data
    if isinstance(several, list | tuple) and several and isinstance(several[0], View | Mixture | Store):
        raise UsageError(
            f"a {type(data).__name__} of {type(several[0]).__name__.lower()}s is not loaded as a whole: load one of them, a store"
            " with split='train', or a mixture: tm.mix({'web': (view, 0.7), 'code': (view, 0.3)})"
        )
    if options.seq_len is None:
        raise UsageError("seq_len is missing: give the length of a row, or a view (tm.pack)")
    return pack(_store(data, options.tokenizer), options.seq_len, split=options.split, **packing)


def _store(data: Any, tokenizer: Any) -> Store:
    """The store that `data` is or names; raw text is built in the cache."""
    if (store := store_unless_text(data, tokenizer)) is not None:
        return store
    from tokenmill.building.api import build  # and with it readers and engines, which a built store does not need

    return build(data, tokenizer)  # warns of files that failed


def _configured(data: View | Mixture, options: LoadOptions) -> View | Mixture:
    """The same rows with another dtype, or over a store that verifies what it reads."""
    if options.dtype is None and options.verify is None:
        return data
    if isinstance(data, Mixture):
        return Mixture({name: _configured_view(view, options) for name, view in data.views.items()}, data.stages)
    return _configured_view(data, options)


def _configured_view(view: View, options: LoadOptions) -> View:
    row_format: Any = view._row_format
    if options.dtype is not None:
        row_format = replace(row_format, dtype=options.dtype)
    store = view.store if options.verify is None else view.store._with_first_touch()
    return View(store, view._layout, row_format, view._splits)


def _world(options: LoadArguments) -> tuple[int, int]:
    if options.rank is None and options.world_size is None:
        return current_rank()
    if options.rank is None or options.world_size is None:
        raise UsageError("rank and world_size go together; give both or neither")
    return whole_number("rank", options.rank, 0, options.world_size - 1), options.world_size


def _global_size(options: LoadOptions, world_size: int) -> int:
    batch_size, size = options.batch_size, options.global_batch_size
    if batch_size is not None and size is None:
        return batch_size * world_size
    if size is None:
        raise UsageError(
            "batch_size, rows per rank, or global_batch_size, rows of all ranks, is missing: tm.load makes batches;"
            " tm.open opens a store, tm.pack makes rows of it"
        )
    if batch_size is not None:
        raise UsageError("give batch_size, rows per rank, or global_batch_size, rows of all ranks; not both")
    if size % world_size:
        near = max(size // world_size, 1) * world_size
        raise UsageError(
            f"global_batch_size={size} is not a multiple of world_size={world_size}; use {near} or {near + world_size}"
        )
    return size
