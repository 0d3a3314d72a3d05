"""Batches of a run: `batch(t)` is a function of the data, the seed, the global batch size and t alone."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate, islice
from math import lcm
from numbers import Integral
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from tokenmill.callers import FOR_TRAINERS, check_resumed, warn, warn_of_shifting_twice
from tokenmill.display import html_table, one_line
from tokenmill.errors import MismatchError, UsageError
from tokenmill.habits import Answering
from tokenmill.loading.convert import converter_for
from tokenmill.loading.samples import Batch, PreparedSamples, Samples, Span
from tokenmill.option_types import whole_number
from tokenmill.options import LoadArguments

if TYPE_CHECKING:
    from tokenmill.loading.torch import BatchDataset

VERSION = 1
# The parts of the data of a state that are digests, in words for a difference.
DATA_PARTS = {
    "store": "the store has other tokens",
    "packing": "other options of tm.pack",
    "split": "another split",
    "mixture": "other sources or weights of the mixture",
}
ROWS_FOUND_AT_ONCE, TOKENS_FOUND_AT_ONCE = 256, 1 << 20  # rows of several batches are found together, up to this size
ROWS_AT_ONCE, TOKENS_AT_ONCE = 64, 1 << 17  # the thread that prefetches makes small batches together, up to this size


class Loader(Answering):
    """This rank's part of each global batch, in order.

    A `for` loop makes one pass over the rows and ends, like that of a DataLoader; the next one goes on with the next epoch, in
    another order. `epochs=3` makes three passes in one loop, `epochs="endless"` never ends. A loop that was left early is gone on
    with, as after `load_state_dict`; `loader.restart()` begins again.

    A run is an endless sequence of samples. Global batch t is the next `global_batch_size` of them, and rank r gets the r-th
    part. So the batches are the same on any number of ranks, and the state of a run is the number of samples seen.
    Made by `tm.load`.
    """

    seen: int  # samples of all ranks so far; after a pass including its rest that is dropped

    def __init__(
        self, samples: Samples, options: LoadArguments, *, global_batch_size: int, rank: int, world_size: int
    ) -> None:
        self._samples = samples
        self.global_batch_size, self.rank, self.world_size = global_batch_size, rank, world_size
        self.seed, self.shuffle, self.prefetch = options.seed, options.shuffle, options.prefetch
        self.epochs, self.drop_last = options.epochs, options.drop_last
        # Samples of one `for`, or 0 if it never ends.
        self._pass = 0 if isinstance(self.epochs, str) else self.epochs * len(samples)
        self._converted = converter_for(options.device, pin_memory=options.pin_memory)
        self._rank_given = options.rank is not None
        self.seen = 0
        self._in_workers: Any = None  # shared with them: the passes that they began

    @property
    def batch_size(self) -> int:
        """Rows per batch on this rank."""
        return self.global_batch_size // self.world_size

    @property
    def data(self) -> Any:
        """The view or mixture that is loaded."""
        return self._samples.data

    @property
    def fingerprint(self) -> str:
        """A digest of the data: the store's tokens, the packing, the mixture."""
        return self._samples.fingerprint

    @property
    def step(self) -> int:
        """Batches returned so far: the number of the next one."""
        if not self._pass:
            return self.seen // self.global_batch_size
        passes, within = divmod(self.seen, self._pass)
        return passes * len(self) + within // self.global_batch_size

    @property
    def epoch(self) -> float:
        """Epochs completed so far, as a fraction; a whole number after each pass."""
        return self.seen / len(self._samples)

    def __repr__(self) -> str:
        place = f"step={self.step:,}", f"epoch={self.epoch:.2f}"
        return one_line("Loader", f"batch_size={self.batch_size:,}", f"rank {self.rank} of {self.world_size}", *place)

    def _repr_html_(self) -> str:
        rows = [
            ("data", repr(self.data)),
            ("batches", f"{self.batch_size:,} rows of {self._samples.seq_len:,} positions"),
            ("rank", f"{self.rank} of {self.world_size}" if self.world_size > 1 else ""),
            ("order", f"shuffled, seed {self.seed}" if self.shuffle else "as stored"),
            ("position", f"step {self.step:,}, epoch {self.epoch:.2f}"),
        ]
        return html_table("loader", rows)

    def __len__(self) -> int:
        """Batches of one `for` loop."""
        if not self._pass:
            raise TypeError(f"a loader with epochs='endless' has no length; leave epochs out. {FOR_TRAINERS}")
        whole, rest = divmod(self._pass, self.global_batch_size)
        return whole + (1 if rest and not self.drop_last else 0)

    def __bool__(self) -> bool:
        return True  # also without a length

    def __length_hint__(self) -> int:
        raise UsageError("epochs='endless' fills no list; list(itertools.islice(loader, 10)) takes ten batches")

    def __getitem__(self, number: Any) -> Never:
        raise TypeError(
            "a loader is read with `for`, or loader.batch(step); for a DataLoader: DataLoader(loader.dataset(),"
            f" batch_size=None). {FOR_TRAINERS}"
        )

    def __next__(self) -> Never:
        raise TypeError("a loader is not an iterator: batches = iter(loader), once, and then next(batches)")

    def __iter__(self) -> Iterator[Batch]:
        self._check_rank()
        check_resumed(self)
        warn_of_shifting_twice(self._samples.row_format.labels)
        for span, batch in self._made_ahead() if self.prefetch else self._made(self._spans()):
            if isinstance(batch, Exception):
                raise batch
            self.seen = span.seen
            yield batch

    def _made(self, spans: Iterator[Span]) -> Iterator[tuple[Span, Any]]:
        """Batches, each made when it is taken. The rows of several are found together, of more and more: the first batch does
        not wait for others."""
        most = min(ROWS_FOUND_AT_ONCE, TOKENS_FOUND_AT_ONCE // self._samples.seq_len) // self.batch_size
        at_once = 1
        while group := list(islice(spans, at_once)):
            at_once = max(1, min(2 * at_once, most))
            parts = [self._part(span) for span in group]
            try:
                rows = self._prepared(parts)
            except Exception:
                if len(group) == 1:
                    raise
                for span in group:  # those before the one that fails can be made
                    yield from self._made(iter([span]))
                continue
            ends = list(accumulate(map(len, parts)))
            for span, low, high in zip(group, [0, *ends], ends, strict=False):
                yield span, self._converted(rows.arrays(low, high))

    def _made_ahead(self) -> Iterator[tuple[Span, Any]]:
        """Batches made on a thread, ahead of the training step, several small ones at a time."""
        made = self._made(self._spans())
        at_once = max(1, min(ROWS_AT_ONCE, TOKENS_AT_ONCE // self._samples.seq_len) // self.batch_size)

        def make_some() -> list[tuple[Span, Any]]:
            """The next batches. If one of them fails, those before it, then the exception."""
            some: list[tuple[Span, Any]] = []
            try:
                for pair in islice(made, at_once):
                    some.append(pair)
            except Exception as error:
                some.append((Span(0, 0, 0), error))
            return some

        thread = ThreadPoolExecutor(1, thread_name_prefix="tokenmill-load")
        waiting: deque[Future[list[tuple[Span, Any]]]] = deque()
        try:
            while True:
                while (len(waiting) - 1) * at_once < self.prefetch:
                    waiting.append(thread.submit(make_some))
                some = waiting.popleft().result()
                if not some:
                    return
                yield from some
        finally:
            for future in waiting:
                future.cancel()
            thread.shutdown()

    def restart(self) -> None:
        """Begin again with the first batch of the first epoch at the next `for`."""
        self._go_to(0)

    def _go_to(self, seen: int) -> None:
        """Begin the next `for`, also one in workers, at this sample."""
        self.seen = seen
        if self._in_workers is not None:  # those that run keep their table
            self._in_workers = self._in_workers.new_zeros(len(self._in_workers)).share_memory_()

    def batch(self, step: int) -> Batch:
        """This rank's part of global batch `step`, from 0 at the start of the run. Does not change the loader's position."""
        last = 2**62 // self.global_batch_size
        if isinstance(step, Integral) and not 0 <= step <= last:
            raise IndexError(f"step {step} is not from 0 to {last}")
        step = whole_number("step", step, 0, last)
        self._check_rank()
        size = self.global_batch_size
        if not self._pass:
            return self._make_batch(Span(step * size, (step + 1) * size, 0))
        passes, within = divmod(step, len(self))
        start = passes * self._pass + within * size
        return self._make_batch(Span(start, min(start + size, (passes + 1) * self._pass), 0))

    def state_dict(self) -> dict[str, Any]:
        """The position of the run, as JSON values; the same on every rank."""
        if self._in_workers is not None and self._in_workers.any():
            warn("this state lacks the batches of a DataLoader's workers: use StatefulDataLoader, or num_workers=0")
        return self._state()

    def _state(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "samples": self.seen,
            "global_batch_size": self.global_batch_size,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "fingerprint": self.fingerprint,
            "data": self._samples.facts,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state at the next `for`, on any number of ranks. The data, the seed and the shuffling must be the
        same. Discard an iterator that is in use: it would continue from its own position."""
        self._go_to(self._samples_in(state))

    def _samples_in(self, state: Any) -> int:
        """The samples seen in a state. Raises MismatchError for a state of another run."""
        if not isinstance(state, dict) or type(state.get("version")) is not int or state["version"] != VERSION:
            version = state.get("version") if isinstance(state, dict) else type(state).__name__
            raise MismatchError(
                f"the state has version {version!r}; this version of tokenmill reads version {VERSION}, as"
                " loader.state_dict() gives it"
            )
        differences = self._differences(state)
        if differences:
            raise MismatchError(
                f"this state belongs to another run ({'; '.join(differences)}). Load the data it was saved with, or start a new"
                " run without it"
            )
        samples = int(state["samples"])
        # What is left of a pass, if it is less than a batch of this loader, is dropped.
        rest = -samples % self._pass if self._pass and self.drop_last else 0
        return samples + (rest if rest < self.global_batch_size else 0)

    def _differences(self, state: dict[str, Any]) -> list[str]:
        """Why a state does not fit this loader."""
        mine = self._state()
        differences = [] if state.get("fingerprint") == self.fingerprint else self._data_differences(state)
        differences += [_differing(name, state, mine) for name in ("seed", "shuffle") if state.get(name) != mine[name]]
        size, samples = state.get("global_batch_size"), state.get("samples")
        if type(size) is not int or size < 1 or (size % self.global_batch_size and self.global_batch_size % size):
            differences.append(
                f"global_batch_size: {size!r} in the state, {self.global_batch_size} here, and neither divides the other"
                + (f"; {lcm(size, self.world_size)} would fit" if type(size) is int and size > 0 else "")
            )
        if type(samples) is not int or not 0 <= samples <= 2**62:
            differences.append(f"samples: {samples!r} in the state is not a count")
        return differences

    def _data_differences(self, state: dict[str, Any]) -> list[str]:
        """Which parts of the data differ. A state of an earlier version has only the fingerprint of the whole."""
        mine, theirs = self._samples.facts, state.get("data")
        if not isinstance(theirs, dict):
            theirs = mine
        differing = [name for name in mine if theirs.get(name) != mine[name]]
        differences = [DATA_PARTS.get(name) or _differing(name, theirs, mine) for name in differing]
        return differences or [_differing("fingerprint", state, self._state())]

    def progress(self) -> dict[str, Any]:
        """The progress of the run: samples, tokens, steps, and the epochs of each source."""
        tokens = self.seen * self._samples.seq_len
        return {"samples": self.seen, "tokens": tokens, "step": self.step, "epochs": self._samples.epochs(self.seen)}

    def dataset(self) -> BatchDataset:
        """The batches as a torch IterableDataset: `DataLoader(loader.dataset(), batch_size=None, num_workers=2)`."""
        from tokenmill.loading.torch import BatchDataset

        self._check_rank()
        return BatchDataset(self)

    def _spans(self) -> Iterator[Span]:
        """The global batches from the current position to the end of the pass."""
        start, size = self.seen, self.global_batch_size
        if not self._pass:
            while True:
                yield Span(start, start + size, start + size)
                start += size
        end = (start // self._pass + 1) * self._pass
        while (stop := start + size) <= end:
            yield Span(start, stop, end if self.drop_last and stop + size > end else stop)
            start = stop
        if start < end and not self.drop_last:
            yield Span(start, end, end)

    def _make_batch(self, span: Span) -> Batch:
        """This rank's part of a global batch."""
        part = self._part(span)
        return self._converted(self._prepared([part]).arrays(0, len(part)))

    def _part(self, span: Span) -> range:
        """The samples of a global batch that are this rank's."""
        count, start = span.stop - span.start, span.start
        low, high = count * self.rank // self.world_size, count * (self.rank + 1) // self.world_size
        return range(start + low, start + high)

    def _prepared(self, parts: list[range]) -> PreparedSamples:
        """The rows of these samples, part after part."""
        if self.world_size == 1:  # consecutive batches are consecutive samples
            return self._samples.prepared(self._samples.places(parts[0].start, parts[-1].stop))
        places = [self._samples.places(part.start, part.stop) for part in parts]
        return self._samples.prepared(np.concatenate(places, axis=-1))

    def _check_rank(self) -> None:
        """Raise a UsageError if the rank has changed, as it does for a loader made before torch.distributed was initialised."""
        if not self._rank_given and (now := current_rank()) != (self.rank, self.world_size):
            raise UsageError(
                f"this loader was made as rank {self.rank} of {self.world_size}, but this process is rank {now[0]} of {now[1]};"
                " make the loader after torch.distributed is initialised, or give rank and world_size"
            )


def _differing(name: str, state: dict[str, Any], mine: dict[str, Any]) -> str:
    return f"{name}: {state.get(name)!r} in the state, {mine[name]!r} here"


def current_rank() -> tuple[int, int]:
    """The rank of this process and the number of ranks; 0 and 1 if nothing is set."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    rank, world_size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    task, tasks = os.environ.get("SLURM_PROCID"), os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    if rank is None and world_size is None and task is not None and tasks != "1":
        raise UsageError(
            f"this is task {task} of {tasks} that srun started, but nothing says which rank it is: make the loader after"
            f" torch.distributed is initialised, or give rank={task} and world_size={tasks} (0 and 1 for all rows in every task)"
        )
    try:
        number, count = int(rank or 0), int(world_size or 1)
    except ValueError:
        number, count = -1, 0
    if not 0 <= number < count or (count > 1 and rank is None):
        raise UsageError(
            f"the environment variables RANK={rank} and WORLD_SIZE={world_size} do not name a rank; give rank and world_size,"
            " or make the loader after torch.distributed is initialised"
        )
    return number, count
