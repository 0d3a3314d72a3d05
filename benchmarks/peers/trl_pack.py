"""TRL's pack_dataset over documents of given lengths, with ids of one byte, all 0, in memory."""

import json
import sys
import time

import datasets
import numpy as np
import pyarrow as pa
import trl

path, seq_len, strategy, batch = sys.argv[1], int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
datasets.disable_caching()
datasets.disable_progress_bars()
lengths = np.load(path)
chunks = []
for part in np.array_split(lengths, 1 + int(lengths.sum()) // (1 << 30)):
    offsets = np.concatenate(([0], np.cumsum(part))).astype(np.int32)
    chunks.append(pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.zeros(offsets[-1], np.int8))))
dataset = datasets.Dataset(pa.table({"input_ids": pa.chunked_array(chunks)}))
began = time.perf_counter()
packed = trl.pack_dataset(dataset, seq_len, strategy=strategy, map_kwargs={"batch_size": batch})
seconds = time.perf_counter() - began
assert not packed.cache_files
tokens = sum(len(chunk.flatten()) for chunk in packed.data.column("input_ids").chunks)
result = {
    "seconds": seconds,
    "documents": len(lengths),
    "rows": len(packed),
    "version": trl.__version__,
    "fill": tokens / len(packed) / seq_len,
    "lost": int(lengths.sum()) - tokens,
}
print(json.dumps(result))
