"""A training program up to its first batch."""

import sys

path, tokenizer, seq_len, batch_size, kind = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
if kind == "numpy":
    sys.modules["torch"] = None
import tokenmill as tm

ids = next(iter(tm.load(path, batch_size, tokenizer=tokenizer, seq_len=seq_len)))["input_ids"]
print("ready", flush=True)
if ids.shape != (batch_size, seq_len) or type(ids).__module__ != kind:
    raise SystemExit(f"unexpected batch: {type(ids)} of {ids.shape}")
