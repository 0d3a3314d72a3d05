"""The check of many unchanged files in a process that has done it before, beside os.stat of each."""

import glob
import json
import os
import sys
import time

sys.modules["torch"] = None
import tokenmill as tm

folder, how, tokenizer, turns, engine = sys.argv[1:]
tokenizer = tm.load_tokenizer(tokenizer, engine=engine)
paths = sorted(glob.glob(os.path.join(folder, "*", "*.txt")))
inputs = {"folder": [folder], "glob": [os.path.join(folder, "**", "*.txt")], "paths": paths}[how]
tm.build(tm.read(*inputs), tokenizer, progress="quiet")
best = {}
for _ in range(int(turns)):
    events = []
    clock = [time.perf_counter()]
    for path in paths:
        os.stat(path)
    clock.append(time.perf_counter())
    source = tm.read(*inputs)
    clock.append(time.perf_counter())
    tm.build(source, tokenizer, progress=events.append)
    clock.append(time.perf_counter())
    if len(source.files) != len(paths) or [event.name for event in events] != ["up_to_date"]:
        raise SystemExit(f"not up to date: {events}")
    for i, name in enumerate(("stat", "read", "build")):
        seconds = clock[i + 1] - clock[i]
        best[name] = min(seconds, best.get(name, seconds))
print(json.dumps(best))
