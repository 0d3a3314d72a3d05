"""`tm.load`: from a view, a mixture, a store or raw text to batches."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenmill.errors import UsageError
from tokenmill.formatting import whole_number
from tokenmill.loading.convert import converter_for
from tokenmill.loading.distributed import current_rank
from tokenmill.loading.loader import Loader
from tokenmill.loading.mixture import Mixture
from tokenmill.loading.samples import MixtureSamples, Samples, ViewSamples
from tokenmill.packing import View, pack
from tokenmill.store import Store, open_store


def load(
    data: Any,
    batch_size: int | None = None,
    *,
    global_batch_size: int | None = None,
    seed: int = 0,
    shuffle: bool = True,
    epochs: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    drop_last: bool = True,
    prefetch: int = 2,
    pin_memory: bool | None = None,
    device: Any = None,
    dtype: Any = None,
    verify: str | None = None,
    tokenizer: Any = None,
    seq_len: int | None = None,
    **packing: Any,
) -> Loader:
    """Batches for training: dicts of torch tensors (numpy arrays where torch is not installed).

    data: a view (`tm.pack`), a mixture (`tm.mix`), or what a view is made of: a store or its path with `seq_len` and options
        of `tm.pack`; raw text (paths, globs, folders, `tm.read`) with `tokenizer` too, built once and kept in the cache.
    batch_size, global_batch_size: rows a rank, or rows of all ranks together. Rank and world size are torch.distributed's or
        torchrun's unless given.
    epochs: one `for` goes through so many; None never ends. Every row comes once an epoch, and batches go across their ends.
    prefetch: batches made ahead, on a thread. It changes no batch, nor does the number of ranks.
    verify: "first-touch" compares each block of a shard with its checksum when it is first read.
    """
    given = rank is not None
    rank, world_size = _given(rank, world_size) if given or world_size is not None else current_rank()
    size = _global_size(batch_size, global_batch_size, world_size)
    seed = whole_number("seed", seed, 0, 2**63 - 1)
    if epochs is not None:
        epochs = whole_number("epochs", epochs, 1, 2**31)
    prefetch = whole_number("prefetch", prefetch, 0, 1000)
    dtype = _checked_dtype(dtype)
    if verify not in (None, "first-touch"):
        raise UsageError(f"verify={verify!r} is not None or 'first-touch'")
    view = _view_of(data, tokenizer, seq_len, packing)
    if dtype is not None or verify is not None:
        view = _changed(view, dtype, verify)
    samples: Samples = (
        ViewSamples(view, seed, shuffle=bool(shuffle))
        if isinstance(view, View)
        else MixtureSamples(view, seed, shuffle=bool(shuffle))
    )
    rows = len(samples) * (epochs or 1)
    if not rows:
        raise UsageError("there are no rows to load: the view is empty; its stats say where its documents went")
    if size > rows and (drop_last or epochs is None):
        raise UsageError(
            f"a global batch of {size:,} rows is larger than the data, {rows:,} rows; make it smaller"
            + (", or give drop_last=False" if epochs else "")
        )
    return Loader(
        samples,
        converter_for(device, pin_memory),
        global_batch_size=size,
        rank=rank,
        world_size=world_size,
        world_given=given,
        seed=seed,
        shuffle=bool(shuffle),
        epochs=epochs,
        drop_last=bool(drop_last),
        prefetch=prefetch,
    )


def _view_of(data: Any, tokenizer: Any, seq_len: int | None, packing: dict[str, Any]) -> View | Mixture:
    """The data as a view or a mixture: packs a store, and builds one from raw text."""
    if isinstance(data, View | Mixture):
        options = {"seq_len": seq_len, "tokenizer": tokenizer, **packing}
        given = [name for name, value in options.items() if value is not None]
        if given:
            raise UsageError(f"{', '.join(given)}: the {type(data).__name__.lower()} has its own; leave it out")
        return data
    if seq_len is None:
        raise UsageError("seq_len is missing: give the length of a row, or a view (tm.pack)")
    unknown = [name for name in packing if name not in (pack.__kwdefaults__ or {})]
    if unknown:
        raise UsageError(
            f"{', '.join(unknown)}: not an option of tm.load or tm.pack; pass reading options to tm.read(...)"
        )
    if isinstance(data, str | os.PathLike) and (Path(data) / "manifest.json").exists():
        data = open_store(Path(data).absolute())  # the program may change its working directory
    if isinstance(data, Store):
        if tokenizer is not None:
            raise UsageError("tokenizer: a store has its own; leave it out")
        return pack(data, seq_len, **packing)
    if tokenizer is None:
        raise UsageError(f"tokenizer is missing: {data!r:.80} is not a store, and raw text needs a tokenizer")
    return pack(_built(data, tokenizer), seq_len, **packing)


def _built(data: Any, tokenizer: Any) -> Store:
    """The store of raw text, from the cache if it is there. Imports readers and engines, which a built store does not need."""
    from tokenmill.building import build

    store = build(data, tokenizer)
    if store.failed:
        names = ", ".join(entry["file"] for entry in store.failed[:3])
        warnings.warn(f"{len(store.failed)} input files failed and are not loaded: {names}", stacklevel=5)
    return store


def _checked_dtype(dtype: Any) -> str | None:
    if dtype is None:
        return None
    name = getattr(dtype, "__name__", None) or str(dtype).removeprefix("torch.")
    if name not in ("int64", "int32"):
        raise UsageError(f"dtype={dtype!r} is not one of 'int64', 'int32'")
    return str(name)


def _changed(data: View | Mixture, dtype: str | None, verify: str | None) -> View | Mixture:
    """The same data with another dtype, or over a store that checks what it reads."""
    if isinstance(data, Mixture):
        views = {name: _changed_view(view, dtype, verify) for name, view in data.views.items()}
        return Mixture(views, data.stages)
    return _changed_view(data, dtype, verify)


def _changed_view(view: View, dtype: str | None, verify: str | None) -> View:
    row_format = view.row_format if dtype is None else replace(view.row_format, dtype=dtype)
    store = view.store if verify is None else view.store.with_first_touch()
    return View(store, view.layout, row_format, view.splits)


def _given(rank: int | None, world_size: int | None) -> tuple[int, int]:
    if rank is None or world_size is None:
        raise UsageError("rank and world_size go together; give both or neither")
    world_size = whole_number("world_size", world_size, 1, 2**31)
    return whole_number("rank", rank, 0, world_size - 1), world_size


def _global_size(batch_size: int | None, global_batch_size: int | None, world_size: int) -> int:
    if (batch_size is None) == (global_batch_size is None):
        raise UsageError("give batch_size, the rows a rank, or global_batch_size, those of all ranks; one of them")
    if batch_size is not None:
        return whole_number("batch_size", batch_size, 1, 2**31) * world_size
    size = whole_number("global_batch_size", global_batch_size, 1, 2**31)
    if size % world_size:
        near = max(size // world_size, 1) * world_size
        raise UsageError(
            f"global_batch_size={size} is not a multiple of world_size={world_size}; {near} or {near + world_size} would be"
        )
    return size
