"""One packing as a program would do it: open, pack, one row, the stats. Imports are not in the times."""

import json
import sys
import time

from memory import peak

import tokenmill as tm

path, seq_len, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
steps, peaks = {}, {}


def measured(name, function):
    began = time.perf_counter()
    result = function()
    steps[name], peaks[name] = time.perf_counter() - began, peak()
    return result


_ = tm.open, tm.pack  # imports them
store = measured("open", lambda: tm.open(path))
view = measured("pack", lambda: tm.pack(store, seq_len, split="all", **options))
measured("row", lambda: view[len(view) * 2 // 3])
result = {"rows": len(view)}
if "stats" in sys.argv[4:]:
    stats = measured("stats", lambda: view.stats)
    result |= {"fill": stats.fill, "lost": stats.tokens + stats.repeated - (stats.positions - stats.padding)}
print(json.dumps({"steps": steps, "peaks": peaks, **result}))
