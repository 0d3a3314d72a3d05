"""The common script: tokenizers in batches, on every core, and a plain write."""

import json
import sys

import numpy as np
import tokenizers

path, tokenizer, out, eos, dtype = sys.argv[1:]
engine = tokenizers.Tokenizer.from_file(tokenizer)
with open(path, "rb") as lines, open(out, "wb") as sink:
    texts = [json.loads(line)["text"] for line in lines]
    for start in range(0, len(texts), 1000):
        for encoding in engine.encode_batch(texts[start : start + 1000], add_special_tokens=False):
            sink.write(np.array([*encoding.ids, int(eos)], dtype).tobytes())
