"""Every file touched and compared by content, in a process that has done it before: hashing is faster than a process starts."""

import json
import os
import sys
import time

sys.modules["torch"] = None
import tokenmill as tm

folder, tokenizer, turns, engine = sys.argv[1:]
tokenizer = tm.load_tokenizer(tokenizer, engine=engine)
paths = [entry.path for entry in os.scandir(folder)]
size, best = sum(map(os.path.getsize, paths)), None
for _ in range(int(turns)):
    for path in paths:
        os.utime(path)
    events = []
    began = time.perf_counter()
    tm.build(folder, tokenizer, progress=events.append)
    seconds = time.perf_counter() - began
    found = [(event.name, getattr(event, "bytes", None)) for event in events if event.name != "begun"]
    if found != [("comparing", size), ("up_to_date", None)]:
        raise SystemExit(f"the files were not compared and found unchanged: {events}")
    best = min(seconds, best or seconds)
print(json.dumps({"seconds": best, "bytes": size}))
