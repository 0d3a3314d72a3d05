"""Mosaic streaming, as llm-foundry converts text: a process per group of files, each document encoded with a fast tokenizer of
transformers, tokens joined to rows of 2,048, what is left at the end of a group dropped. Image support is left out."""

import json
import os
import sys
import types
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.modules["streaming.vision"] = types.ModuleType("streaming.vision")
from streaming import MDSWriter
from transformers import AutoTokenizer

SEQ_LEN = 2048
text, tokenizer, out, cores, eos = sys.argv[1:]


def rows(paths):
    fast = AutoTokenizer.from_pretrained(tokenizer)
    fast.model_max_length = int(1e30)
    buffer = []
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                ids = fast(json.loads(line)["text"], truncation=False, padding=False)["input_ids"]
                buffer += [*ids, int(eos)]
                while len(buffer) >= SEQ_LEN:
                    yield {"tokens": np.asarray(buffer[:SEQ_LEN], np.int32)}
                    buffer = buffer[SEQ_LEN:]


def convert(group, paths):
    with MDSWriter(out=os.path.join(out, str(group)), columns={"tokens": "ndarray:int32"}) as writer:
        for row in rows(paths):
            writer.write(row)


if __name__ == "__main__":
    files, number = sorted(Path(text).glob("*.jsonl")), int(cores)
    with ProcessPoolExecutor(number) as pool:
        list(pool.map(convert, range(number), [files[i::number] for i in range(number)]))
