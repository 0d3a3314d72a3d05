"""tokenizers.encode_batch alone. Its time does not include loading the library, the tokenizer and the text."""

import json
import sys
import time

import tokenizers

engine = tokenizers.Tokenizer.from_file(sys.argv[2])
with open(sys.argv[1], "rb") as lines:
    texts = [json.loads(line)["text"] for line in lines]
began = time.perf_counter()
for start in range(0, len(texts), 1000):
    engine.encode_batch(texts[start : start + 1000], add_special_tokens=False)
print(json.dumps(time.perf_counter() - began))
