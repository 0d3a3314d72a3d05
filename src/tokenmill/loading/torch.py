"""The only module that imports torch: tensors, and batches as an IterableDataset for DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from tokenmill.callers import FOR_TRAINERS, calling_objects, check_resumed, warn
from tokenmill.errors import MismatchError, UsageError
from tokenmill.loading.samples import Batch


def tensors(arrays: dict[str, Any], *, device: Any, pin_memory: bool) -> dict[str, Any]:
    """Arrays as tensors over the same memory; copied only if pinned or moved to a device."""
    converted = {}
    for name, value in arrays.items():
        if isinstance(value, np.ndarray):
            value = torch.from_numpy(value)
            value = value.pin_memory() if pin_memory else value
            value = value.to(device, non_blocking=pin_memory) if device is not None else value
        converted[name] = value
    return converted


# A table that the workers of a loader share: in each slot the number of a pass and, in the upper half, that of its `for`. After
# these are as many slots for the number of a `for` that worker 0 has begun.
SLOTS, PASSES = 256, 1 << 32


class BatchDataset(IterableDataset[Batch]):
    """The batches of a loader, for `DataLoader(..., batch_size=None)`. Worker w of k makes every k-th batch, and DataLoader takes
    them in turns: the same batches in the same order for any number of workers.

    As with the loader, each `for` is followed by the next pass. With workers also one that was left early, since nobody knows how
    far it came; an endless loader begins again, with a warning. (Workers know a `for` by the seed that DataLoader
    draws: seed torch once, not before each.) `state_dict` belongs to this copy of the dataset: torchdata's StatefulDataLoader
    stores one per worker.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader  # a Loader, whose module imports this one
        if loader._in_workers is None:
            loader._in_workers = torch.zeros(2 * SLOTS, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self.given = 0  # batches made by this worker since `loader.seen`
        self.skip = 0  # batches to skip, according to a state that was loaded
        self.placed = False  # in this worker, by a state or set_epoch
        self.began: int | None = None  # where the last pass of this worker began

    def __iter__(self) -> Iterator[Batch]:
        self._check_use()
        if (worker := get_worker_info()) is None:
            self.loader._check_rank()
            check_resumed(self.loader)
        else:  # now, and not with the first batch: a state may be asked for before
            self._go_to_pass(worker)
        return self._batches(worker)

    def _batches(self, worker: Any) -> Iterator[Batch]:
        number, workers = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        skip, self.skip = self.skip, 0
        end = self.loader.seen
        for at, span in enumerate(self.loader._spans()):
            end = span.seen
            if at % workers == number and at // workers >= skip:
                batch = self.loader._make_batch(span)
                if worker is None:
                    self.loader.seen = end
                else:
                    self.given = at // workers + 1
                yield batch
        self.loader.seen, self.given = end, 0

    def _check_use(self) -> None:
        """Refuse to be batched again."""
        for fetcher in calling_objects("_IterableDatasetFetcher"):
            collate = getattr(fetcher.collate_fn, "data_collator", fetcher.collate_fn)  # inside of the Trainer's own
            if fetcher.auto_collation and collate.__module__.partition(".")[0] in ("torch", "transformers"):
                raise UsageError(f"dataset() has whole batches: DataLoader(dataset, batch_size=None). {FOR_TRAINERS}")

    def _go_to_pass(self, worker: Any) -> None:
        """Go to the pass after the last one that workers began. The workers of one `for`, which draw the same seed, agree."""
        loop = 1 + (worker.seed - worker.id) % (1 << 30)
        table = self.loader._in_workers
        begun = {each // PASSES: each % PASSES for each in table[:SLOTS].tolist() if each}
        size, is_first = self.loader._pass, self.began is None
        if size and self.began is not None:
            self.loader.seen = (self.began // size + 1) * size
        elif size and begun and not self.placed:
            self.loader.seen = max(self.loader.seen, begun.get(loop, max(begun.values()) + 1) * size)
        elif (begun.keys() - {loop} or not is_first) and not (self.placed or worker.id) and self.loader.shuffle:
            warn("the workers of a DataLoader begin again with the first batches of this endless loader")
        if is_first and not worker.id:
            if table[SLOTS + loop % SLOTS] == loop and not self.placed and self.loader.shuffle:
                warn("torch was seeded as before an earlier loop, whose batches come again: seed it once")
            table[SLOTS + loop % SLOTS] = loop
        if is_first:
            table[loop % SLOTS] = loop * PASSES + self.loader.seen // (size or 1)
        self.began, self.placed, self.given = self.loader.seen, False, self.skip

    def __len__(self) -> int:
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """Start the pass of this number at the next `for`. A pass is one epoch, or the loader's `epochs`."""
        self._place(epoch * (self.loader._pass or len(self.loader._samples)), 0)

    def state_dict(self) -> dict[str, Any]:
        return {**self.loader._state(), "given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        seen, given = self.loader._samples_in(state), int(state.get("given", 0))
        was, size = state["global_batch_size"], self.loader.global_batch_size
        if given and was != size:  # nobody knows which rows of all were given
            raise MismatchError(f"a worker's state counts batches of global_batch_size={was}, not {size}: give {was}")
        self._place(seen, given)

    def _place(self, seen: int, given: int) -> None:
        """Begin the next `for` at this sample, after some batches that this worker gave."""
        self.given, self.skip, self.began = given, given, None
        if get_worker_info() is None:
            self.loader._go_to(seen)
        else:  # the table of passes stays, which workers share
            self.loader.seen, self.placed = seen, True
