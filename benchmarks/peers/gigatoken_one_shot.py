"""The one-shot recipe: everything in memory, one call, flatten, insert eos, write."""

import sys

import gigatoken
import numpy as np

kind, path, tokenizer, out, eos, dtype = sys.argv[1:]
source = (gigatoken.JsonlFileSource if kind == "jsonl" else gigatoken.ParquetFileSource)([path])
layout = gigatoken.Tokenizer(tokenizer).encode_files(source).layout
flat, offsets = np.asarray(layout.content.data), np.asarray(layout.offsets.data)
np.save(out + ".npy", np.insert(flat.astype(dtype), offsets[1:], int(eos)))
np.save(out + ".ends.npy", offsets[1:] + np.arange(1, len(offsets)))
