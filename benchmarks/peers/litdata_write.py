"""A numpy file of tokens as litData's chunks."""

import os
import sys

import numpy as np

os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"
import litdata

flat, out, seq_len = np.load(sys.argv[1], mmap_mode="r"), sys.argv[2], int(sys.argv[3])
part, end = seq_len * 2048, len(flat) // seq_len * seq_len


def read(start):
    return np.array(flat[start : min(start + part, end)])


litdata.optimize(
    read,
    list(range(0, end, part)),
    out,
    num_workers=1,
    chunk_bytes="64MB",
    item_loader=litdata.TokensLoader(),
    start_method="fork",
)
print("0")
