"""Batches of a run: `batch(t)` is a function of the data, the seed, the global batch size and t, and of nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from tokenmill.errors import MismatchError, UsageError
from tokenmill.formatting import whole_number
from tokenmill.loading.convert import Shown
from tokenmill.loading.distributed import found_world
from tokenmill.loading.order import Numbers
from tokenmill.loading.samples import Samples

VERSION = 1
ROWS_AT_ONCE, TOKENS_AT_ONCE = 64, 1 << 17


class Span(NamedTuple):
    """The samples of a global batch; `stop` is also how many have been seen when it has been."""

    start: int
    stop: int


class Loader:
    """This rank's part of every global batch, one after the other.

    A run is an endless sequence of samples; global batch t is the next `global_batch_size` of them, and rank r has the r-th part.
    So the batches are the same on any number of ranks, and to resume is to know how many samples were seen. `for batch in
    loader` goes on where the loader is. With `epochs` it ends after so many, and the next `for` goes on with those after them.
    """

    def __init__(
        self,
        samples: Samples,
        shown: Shown,
        *,
        global_batch_size: int,
        rank: int,
        world_size: int,
        world_given: bool,
        seed: int,
        shuffle: bool,
        epochs: int | None,
        drop_last: bool,
        prefetch: int,
    ) -> None:
        self.samples, self.shown = samples, shown
        self.global_batch_size, self.rank, self.world_size = global_batch_size, rank, world_size
        self.seed, self.shuffle, self.epochs, self.drop_last, self.prefetch = seed, shuffle, epochs, drop_last, prefetch
        self.world_given = world_given
        self.seen = 0  # where in the sequence of samples the run is; those of all ranks, and the rest of a pass that was left out

    @property
    def batch_size(self) -> int:
        """Rows of a batch on this rank."""
        return self.global_batch_size // self.world_size

    @property
    def data(self) -> Any:
        """The view or the mixture that is loaded."""
        return self.samples.data

    @property
    def fingerprint(self) -> str:
        """Of the data: the store's tokens, the packing, the mixture."""
        return self.samples.fingerprint

    @property
    def step(self) -> int:
        """Batches of this size that were handed out."""
        if self.epochs is None:
            return self.seen // self.global_batch_size
        passes, within = divmod(self.seen, self._pass)
        return passes * len(self) + within // self.global_batch_size

    @property
    def epoch(self) -> float:
        """Epochs that were gone through."""
        return self.seen / len(self.samples)

    def __repr__(self) -> str:
        part = f"rank {self.rank} of {self.world_size}"
        return f"Loader(batch_size={self.batch_size}, {part}, step={self.step:,}, epoch={self.epoch:.2f})"

    def __len__(self) -> int:
        """Batches of one `for`."""
        if self.epochs is None:
            raise TypeError("a loader without epochs never ends, so it has no length; give epochs=1")
        whole, rest = divmod(self._pass, self.global_batch_size)
        return whole + (1 if rest and not self.drop_last else 0)

    def __iter__(self) -> Iterator[Any]:
        self.check_world()
        spans = self.spans()
        groups = iter(lambda: list(islice(spans, self._at_once)), [])
        for span, batch in self._ahead(groups) if self.prefetch else self._in_turn(groups):
            if isinstance(batch, Exception):
                raise batch
            self.seen = span.stop
            yield batch

    def _in_turn(self, groups: Iterator[list[Span]]) -> Iterator[tuple[Span, Any]]:
        for group in groups:
            yield from zip(group, self._made(group), strict=False)

    def _ahead(self, groups: Iterator[list[Span]]) -> Iterator[tuple[Span, Any]]:
        """The same, by a thread that is ahead of the training step."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="tokenmill-load")
        waiting: deque[tuple[list[Span], Future[list[Any]]]] = deque()
        try:
            while True:
                while (len(waiting) - 1) * self._at_once < self.prefetch and (group := next(groups, None)):
                    waiting.append((group, thread.submit(self._made, group)))
                if not waiting:
                    return
                group, future = waiting.popleft()
                yield from zip(group, future.result(), strict=False)
        finally:
            for _, future in waiting:
                future.cancel()
            thread.shutdown()

    def batch(self, step: int) -> Any:
        """This rank's part of global batch `step`, counted from 0 at the start of the run. Does not move the loader."""
        step = whole_number("step", step, 0, 2**62 // self.global_batch_size)
        self.check_world()
        size = self.global_batch_size
        if self.epochs is None:
            return self.made(Span(step * size, (step + 1) * size))
        passes, within = divmod(step, len(self))
        start = passes * self._pass + within * size
        return self.made(Span(start, min(start + size, (passes + 1) * self._pass)))

    def state_dict(self) -> dict[str, Any]:
        """Where the run is, as plain JSON; the same on every rank."""
        return {
            "version": VERSION,
            "samples": self.seen,
            "global_batch_size": self.global_batch_size,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "fingerprint": self.fingerprint,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there at the next `for`, on any number of ranks. The data, the seed and the order must be the same. One that
        is under way is to be dropped: it would go on counting from where it was."""
        if not isinstance(state, dict) or type(state.get("version")) is not int or state["version"] != VERSION:
            version = state.get("version") if isinstance(state, dict) else type(state).__name__
            raise MismatchError(f"a state of version {version!r}, where this tokenmill writes and reads {VERSION}")
        mine = self.state_dict()
        differs = [
            f"{name}: {state.get(name)!r} in the state, {mine[name]!r} here"
            for name in ("fingerprint", "seed", "shuffle")
            if state.get(name) != mine[name]
        ]
        size, samples = state.get("global_batch_size"), state.get("samples")
        if type(size) is not int or size < 1 or (size % self.global_batch_size and self.global_batch_size % size):
            differs.append(
                f"global_batch_size: {size!r} in the state, {self.global_batch_size} here, and neither divides the other"
            )
        if type(samples) is not int or not 0 <= samples <= 2**62:
            differs.append(f"samples: {samples!r} in the state is not a count")
        if differs:
            raise MismatchError(
                f"this state is of another run ({'; '.join(differs)}). Load the data it was saved with, or begin anew without it"
            )
        self.seen = int(samples or 0)

    def progress(self) -> dict[str, Any]:
        """How far the run is: samples, tokens, steps, and the epochs of each source."""
        tokens = self.seen * self.samples.seq_len
        return {"samples": self.seen, "tokens": tokens, "step": self.step, "epochs": self.samples.epochs(self.seen)}

    def dataset(self) -> Any:
        """The batches as a torch IterableDataset: `DataLoader(loader.dataset(), batch_size=None, num_workers=2)`."""
        from tokenmill.loading.torch import BatchDataset

        self.check_world()
        return BatchDataset(self)

    def spans(self) -> Iterator[Span]:
        """The global batches from here to the end of the pass."""
        start, size = self.seen, self.global_batch_size
        if self.epochs is None:
            while True:
                yield Span(start, start + size)
                start += size
        end = (start // self._pass + 1) * self._pass
        if start + size > end and self.drop_last:  # the rest of the pass before is less than a batch
            start, end = end, end + self._pass
        while start + size <= end:
            yield Span(start, start + size)
            start += size
        if start < end and not self.drop_last:
            yield Span(start, end)

    def made(self, span: Span) -> Any:
        """This rank's part of a global batch."""
        return self.shown(self.samples.take(self._places(span)))

    def _made(self, group: list[Span]) -> list[Any]:
        """Several batches at once: small ones cost more in steps than in tokens. Each is a part of the same arrays.

        Where something is wrong with one of them, those before it, and then the error.
        """
        try:
            if len(group) == 1:
                return [self.made(group[0])]
            places = [self._places(span) for span in group]
            arrays = self.samples.take(np.concatenate(places, axis=-1))
        except Exception as error:
            return [error] if len(group) == 1 else list(chain.from_iterable(self._made([span]) for span in group))
        ends = np.cumsum([each.shape[-1] for each in places]).tolist()
        return [
            self.shown({name: value[low:high] for name, value in arrays.items()})
            for low, high in zip([0, *ends], ends, strict=False)
        ]

    @property
    def _at_once(self) -> int:
        """Batches that are made together: a few rows' worth, and only where all arrays have a row for each row."""
        alike = not self.samples.buckets and not {*self.samples.look.extra} - {"attention_mask"}
        at_once = min(ROWS_AT_ONCE, TOKENS_AT_ONCE // self.samples.seq_len) // self.batch_size
        return max(1, at_once) if alike else 1

    def _places(self, span: Span) -> Numbers:
        count = span.stop - span.start
        low, high = count * self.rank // self.world_size, count * (self.rank + 1) // self.world_size
        return self.samples.places(span.start + low, span.start + high)

    def check_world(self) -> None:
        """A loader that was made before torch.distributed began may have taken another rank for its own."""
        if not self.world_given and (found := found_world()) != (self.rank, self.world_size):
            raise UsageError(
                f"this loader was made as rank {self.rank} of {self.world_size}, and now it is rank {found[0]} of {found[1]};"
                " make it after torch.distributed is initialised, or give rank and world_size"
            )

    @property
    def _pass(self) -> int:
        """Samples of one `for`."""
        return (self.epochs or 0) * len(self.samples)
