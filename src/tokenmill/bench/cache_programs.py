"""What the processes run that `tokenmill bench --cache` times. Each prints its answer as its last line."""

from __future__ import annotations

# A training program up to its first batch.
LOAD = """
import sys
path, tokenizer, seq_len, batch, kind = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
if kind == "numpy":
    sys.modules["torch"] = None
import tokenmill as tm
ids = next(iter(tm.load(path, batch, tokenizer=tokenizer, seq_len=seq_len)))["input_ids"]
print("ready", flush=True)
if ids.shape != (batch, seq_len) or type(ids).__module__ != kind:
    raise SystemExit(f"another batch than was asked for: {type(ids)} of {ids.shape}")
"""

# Loading the library, the tokenizer and the text is not in its time.
REFERENCE = """
import json, sys, time, tokenizers
engine = tokenizers.Tokenizer.from_file(sys.argv[2])
with open(sys.argv[1], "rb") as lines:
    texts = [json.loads(line)["text"] for line in lines]
began = time.perf_counter()
for start in range(0, len(texts), 1000):
    engine.encode_batch(texts[start : start + 1000], add_special_tokens=False)
print(json.dumps(time.perf_counter() - began))
"""

# The check of many files in a process that has done it before, beside a plain look at each of them.
CHECK = """
import glob, json, os, sys, time
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
    if len(source.files) != len(paths) or [event["event"] for event in events] != ["up to date"]:
        raise SystemExit(f"not up to date: {events}")
    for name, began, ended in zip(("stat", "read", "build"), clock, clock[1:]):
        best[name] = min(ended - began, best.get(name, ended - began))
print(json.dumps(best))
"""

# Every file touched and compared by content, in a process that has done it before: hashing is faster than a process starts.
TOUCHED = """
import json, os, sys, time
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
    took = time.perf_counter() - began
    if [(event.name, getattr(event, "bytes", None)) for event in events] != [("comparing", size), ("up_to_date", None)]:
        raise SystemExit(f"not compared and found the same: {events}")
    best = min(took, best or took)
print(json.dumps({"seconds": best, "bytes": size}))
"""

# A first build inside one process, its CPU time: with contents hashed on the way; with a number in place of each; or hashed
# with a clock around it.
HASHED = """
import itertools, json, sys, time
import tokenmill as tm
from tokenmill.reading.content_hash import Content
path, tokenizer, folder, how, engine = sys.argv[1:]
spent, hashed, update = 0.0, 0, Content.update
def clocked(self, data):
    global spent, hashed
    began = time.thread_time()
    update(self, data)
    spent, hashed = spent + time.thread_time() - began, hashed + memoryview(data).nbytes
if how == "not hashed":
    numbers = itertools.count()
    Content.update = lambda self, data: None
    Content.finish = lambda self: setattr(self, "digest", f"{next(numbers):032x}")
elif how == "clocked":
    Content.update = clocked
tm.load_tokenizer(tokenizer), tm.build
began = time.process_time()
tm.build(path, tokenizer, cache_dir=folder, engine=engine, workers=0, progress="quiet")
print(json.dumps({"cpu": time.process_time() - began, "spent": spent, "bytes": hashed}))
"""
