"""A run resumed as a program would: open, pack, load, load the state, one batch."""

import json
import sys
import time

from memory import peak

path, seq_len, batch_size, world_size, step = sys.argv[1], *map(int, sys.argv[2:6])
began = time.perf_counter()
if sys.argv[6] == "torch":
    import torch  # noqa: F401
else:
    sys.modules["torch"] = None
import tokenmill as tm

_ = tm.open, tm.pack, tm.load  # imports them
imported = time.perf_counter()
view = tm.pack(tm.open(path), seq_len, split="all")
loader = tm.load(view, batch_size, rank=world_size // 2, world_size=world_size, epochs="endless")
loaded = time.perf_counter()
loader.load_state_dict({**loader.state_dict(), "samples": step * batch_size * world_size})
batch = next(iter(loader))
ended = time.perf_counter()
memory = peak()
if loader.step != step + 1 or any((batch[name] != value).any() for name, value in loader.batch(step).items()):
    raise SystemExit("the batch after the state is not the batch of that step")
print(json.dumps({"import": imported - began, "load": loaded - imported, "batch": ended - loaded, "peak": memory}))
