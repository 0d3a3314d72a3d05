"""One epoch in a new process, so that each block of each shard is checked exactly once."""

import json
import sys
import time

path, seq_len, batch_size, fields, verify, tensors = sys.argv[1], *map(int, sys.argv[2:5]), *sys.argv[5:7]
if tensors == "torch":
    import torch  # noqa: F401

    import tokenmill.loading.torch
else:
    sys.modules["torch"] = None
import tokenmill as tm

FIELDS = ("input_ids", "labels", "position_ids", "document_ids")

view = tm.pack(tm.open(path), seq_len, fields=FIELDS[:fields], split="all")
_ = tm.load  # imports it
began = time.perf_counter()
loader = tm.load(view, batch_size, prefetch=0, verify=verify or None)
rows = sum(len(batch["input_ids"]) for batch in loader)
seconds = time.perf_counter() - began
if rows != len(view) // batch_size * batch_size:
    raise SystemExit(f"an epoch of {rows} rows, of a view of {len(view)}")
print(json.dumps(seconds))
