"""litData: `optimize` over files with its loader of tokens, a worker per core, each document encoded with tokenizers."""

import json
import sys
from functools import partial
from pathlib import Path

import litdata
import torch
from tokenizers import Tokenizer

text, tokenizer, out, cores, eos = sys.argv[1:]


def encode(path, engine):
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            ids = engine.encode(json.loads(line)["text"], add_special_tokens=False).ids
            yield torch.tensor([*ids, int(eos)], dtype=torch.int32)


if __name__ == "__main__":
    litdata.optimize(
        fn=partial(encode, engine=Tokenizer.from_file(f"{tokenizer}/tokenizer.json")),
        inputs=sorted(map(str, Path(text).glob("*.jsonl"))),
        output_dir=out,
        num_workers=int(cores),
        chunk_bytes="64MB",
        item_loader=litdata.TokensLoader(),
        start_method="fork",
    )
