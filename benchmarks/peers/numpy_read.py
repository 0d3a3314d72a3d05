"""Random rows of a memory-mapped numpy file, an epoch after another."""

import numpy as np
from pace import again, batch, path, report, seq_len

flat = np.load(path, mmap_mode="r")
flat = flat[: len(flat) // seq_len * seq_len].reshape(-1, seq_len)
rng = np.random.default_rng(0)


def epoch():
    order = rng.permutation(len(flat))
    for start in range(0, len(order), batch):
        yield flat[order[start : start + batch]].astype(np.int64)


report(epoch() for _ in again(None))
