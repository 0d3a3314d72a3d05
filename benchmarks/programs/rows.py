"""Random batches of 16 rows, numpy and a view in turns; the same rows of the same tokens where the packing is concat."""

import json
import statistics
import sys
import time

import numpy as np

import tokenmill as tm

path, plain, seq_len, turns = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
flat = np.load(plain, mmap_mode="r")
flat = flat[: len(flat) // seq_len * seq_len].reshape(-1, seq_len)
store = tm.open(path)
flat.max(), max(int(ids.max()) for ids in store)  # maps in every page of both files before the clock starts
fields = ("input_ids", "labels", "position_ids", "document_ids")
views = {}
for strategy in ("concat", "best_fit"):
    for count in (1, 2, 4):
        views[strategy, count] = tm.pack(store, seq_len, strategy=strategy, fields=fields[:count], split="all")
rng = np.random.default_rng(0)
times = {key: ([], []) for key in views}
for turn in range(-turns // 10, turns):
    for key, view in views.items():
        rows = rng.integers(0, len(flat), 16)
        began = time.perf_counter()
        ids = flat[rows].astype(np.int64)
        middle = time.perf_counter()
        batch = view.rows(rows)
        ended = time.perf_counter()
        if turn >= 0:
            times[key][0].append(middle - began)
            times[key][1].append(ended - middle)
        elif key[0] == "concat" and not (batch["input_ids"] == ids).all():
            raise SystemExit("the rows of concat are not those of the plain file")
results = [
    {"strategy": strategy, "fields": count, "numpy": statistics.median(plain), "view": statistics.median(ours)}
    for (strategy, count), (plain, ours) in times.items()
]
print(json.dumps(results))
