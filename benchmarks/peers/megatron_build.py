"""Megatron-LM's recipe with gigatoken: all files encoded in memory in one call, eos inserted, .bin and .idx written.

Megatron's own script imports torch and writes document by document; this one does neither, and is faster than it.
"""

import struct
import sys
from pathlib import Path

import gigatoken
import numpy as np

text, tokenizer, out, _, eos = sys.argv[1:]
files = sorted(map(str, Path(text).glob("*.jsonl")))
engine = gigatoken.Tokenizer(f"{tokenizer}/tokenizer.json")
layout = engine.encode_files(gigatoken.JsonlFileSource(files)).layout
flat, offsets = np.asarray(layout.content.data), np.asarray(layout.offsets.data)
lengths = (np.diff(offsets) + 1).astype(np.int32)
small = engine.vocab_size < 65500
np.insert(flat.astype(np.uint16 if small else np.int32), offsets[1:], int(eos)).tofile(f"{out}/train.bin")
with open(f"{out}/train.idx", "wb") as index:
    index.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8 if small else 4, len(lengths), len(lengths) + 1))
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    for column in (lengths, starts * (2 if small else 4), np.arange(len(lengths) + 1, dtype=np.int64)):
        column.tofile(index)
