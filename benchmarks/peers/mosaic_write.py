"""Rows of a numpy file as Mosaic's MDS shards. Its image support, which needs a matching torchvision, is left out."""

import sys
import types

import numpy as np

sys.modules["streaming.vision"] = types.ModuleType("streaming.vision")
import streaming

flat, out, seq_len = np.load(sys.argv[1], mmap_mode="r"), sys.argv[2], int(sys.argv[3])
with streaming.MDSWriter(out=out, columns={"ids": f"ndarray:{flat.dtype.name}:{seq_len}"}) as writer:
    for row in flat[: len(flat) // seq_len * seq_len].reshape(-1, seq_len):
        writer.write({"ids": np.asarray(row)})
print("0")
