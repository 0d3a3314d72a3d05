"""Batches of tm.load."""

import sys

from pace import batch, more, path, report, seq_len

fields, prefetch, tensors = int(more[0]), int(more[1]), more[2] == "torch"
if not tensors:
    sys.modules["torch"] = None
import tokenmill as tm

FIELDS = ("input_ids", "labels", "position_ids", "document_ids")

view = tm.pack(tm.open(path), seq_len, fields=FIELDS[:fields])
loader = tm.load(view, batch, prefetch=prefetch, epochs="endless")
first = loader.batch(0)
if len(first) != fields or type(first["input_ids"]).__module__ != ("torch" if tensors else "numpy"):
    raise SystemExit(f"unexpected batches: {[type(value) for value in first.values()]}")
report([(batch["input_ids"] for batch in loader)])  # one pass, which never ends
