"""Hugging Face datasets: `map` with a fast tokenizer of transformers, batched, a process per core; then `save_to_disk`."""

import os
import sys
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # as transformers advises for processes that were forked
from datasets import load_dataset
from transformers import AutoTokenizer

text, tokenizer, out, cores, eos = sys.argv[1:]


def encode(batch):
    rows = fast(batch["text"], add_special_tokens=False, return_attention_mask=False)["input_ids"]
    return {"input_ids": [[*row, int(eos)] for row in rows]}


if __name__ == "__main__":
    fast = AutoTokenizer.from_pretrained(tokenizer)
    files = sorted(map(str, Path(text).glob("*.jsonl")))
    cache = os.path.join(out, "cache")
    texts = load_dataset("json", data_files=files, split="train", cache_dir=cache, num_proc=int(cores))
    tokens = texts.map(encode, batched=True, num_proc=int(cores), remove_columns=texts.column_names)
    tokens.save_to_disk(os.path.join(out, "saved"), num_proc=int(cores))
