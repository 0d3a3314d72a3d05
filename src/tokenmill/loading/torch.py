"""Everything that imports torch: tensors, and batches as an IterableDataset for DataLoader's workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

if TYPE_CHECKING:
    from tokenmill.loading.loader import Loader


def tensors(arrays: dict[str, Any], device: Any, pin_memory: bool) -> dict[str, Any]:
    """Arrays as tensors over the same memory; copied only if pinned or sent to a device."""
    found = {}
    for name, value in arrays.items():
        if isinstance(value, np.ndarray):
            value = torch.from_numpy(value)
            value = value.pin_memory() if pin_memory else value
            value = value.to(device, non_blocking=pin_memory) if device is not None else value
        found[name] = value
    return found


class BatchDataset(IterableDataset[dict[str, Any]]):
    """The batches of a loader, for `DataLoader(..., batch_size=None)`. Worker w of k makes every k-th, and DataLoader takes them
    in turns: the same batches in the same order for any number of workers.

    Each `for` that was gone through to its end is followed by the next pass, where the copy at hand saw it: without workers, or
    with `persistent_workers`. Workers that are started anew for every epoch know nothing of it: say `set_epoch` then. With
    workers, one that was left in the middle begins again. `state_dict` is of this copy, as torchdata's StatefulDataLoader
    wants it: one a worker.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.given = 0  # batches by this worker since `loader.seen`
        self.skip = 0  # of these, what a state that was loaded says

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        if worker is None:
            self.loader.check_world()
        skip, self.skip = self.skip, 0
        end = self.loader.seen
        for at, span in enumerate(self.loader.spans()):
            end = span.stop
            if at % workers == number and at // workers >= skip:
                batch = self.loader.made(span)
                if worker is None:
                    self.loader.seen = end
                else:
                    self.given = at // workers + 1
                yield batch
        self.loader.seen, self.given = end, 0

    def __len__(self) -> int:
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """Begin the pass of this number at the next `for`: an epoch, or as many as the loader's `epochs`."""
        self.loader.seen = epoch * (self.loader.epochs or 1) * len(self.loader.samples)
        self.given = self.skip = 0

    def state_dict(self) -> dict[str, Any]:
        return {**self.loader.state_dict(), "given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict({name: value for name, value in state.items() if name != "given"})
        self.given = self.skip = int(state.get("given", 0))
