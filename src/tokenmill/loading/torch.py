"""The only module that imports torch: tensors, and batches as an IterableDataset for DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from tokenmill.callers import FOR_TRAINERS, calling_objects, warn
from tokenmill.errors import UsageError


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


class BatchDataset(IterableDataset[dict[str, Any]]):
    """The batches of a loader, for `DataLoader(..., batch_size=None)`. Worker w of k makes every k-th batch, and DataLoader takes
    them in turns: the same batches in the same order for any number of workers.

    A `for` loop that ran to its end is followed by the next pass, without workers or with `persistent_workers`. Workers that are
    started again for every epoch do not know about earlier passes: call `set_epoch`. With workers, a loop that was left early
    starts again. `state_dict` belongs to this copy of the dataset: torchdata's StatefulDataLoader stores one per worker.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader  # a Loader, whose module imports this one
        if loader._in_workers is None:
            loader._in_workers = torch.tensor([0, -1]).share_memory_()  # type: ignore[no-untyped-call]
        self.given = 0  # batches made by this worker since `loader.seen`
        self.skip = 0  # batches to skip, according to a state that was loaded

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        if worker is None:
            self.loader._check_rank()
        self._check_use(worker)
        skip, self.skip = self.skip, 0
        end = self.loader.seen
        for at, span in enumerate(self.loader._spans()):
            end = span.stop
            if at % workers == number and at // workers >= skip:
                batch = self.loader._make_batch(span)
                if worker is None:
                    self.loader.seen = end
                else:
                    self.given = at // workers + 1
                yield batch
        self.loader.seen, self.given = end, 0

    def _check_use(self, worker: Any) -> None:
        """Refuse to be batched again, and warn where new workers begin again with the first batches."""
        for fetcher in calling_objects("_IterableDatasetFetcher"):
            collate = getattr(fetcher.collate_fn, "data_collator", fetcher.collate_fn)  # inside of the Trainer's own
            if fetcher.auto_collation and collate.__module__.partition(".")[0] in ("torch", "transformers"):
                raise UsageError(f"dataset() has whole batches: DataLoader(dataset, batch_size=None). {FOR_TRAINERS}")
        shared = self.loader._in_workers
        if worker is not None and shared is not None:
            if worker.id == 0 and shared[0] and self.loader.shuffle and not self.skip:
                again = "the workers of a DataLoader are new, and make the batches of the last pass again"
                warn(f"{again}: call dataset.set_epoch(n) before each pass, or give persistent_workers=True")
            if worker.id == 0:
                shared += torch.tensor([1, self.loader.seen - int(shared[1])])
            self.loader._in_workers = None  # in this process, which is not new any more

    def __len__(self) -> int:
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """Start the pass of this number at the next `for`. A pass is one epoch, or the loader's `epochs`."""
        self.loader.seen = epoch * (self.loader.epochs or 1) * len(self.loader._samples)
        if self.loader._in_workers is not None:  # as in a worker
            self.loader._in_workers[0] = 0
        self.given = self.skip = 0

    def state_dict(self) -> dict[str, Any]:
        return {**self.loader.state_dict(), "given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict({name: value for name, value in state.items() if name != "given"})
        self.given = self.skip = int(state.get("given", 0))
