"""How tokenmill's demo tokenizer was made: a byte-level BPE of 4,096 ids, trained on Python's own standard library.

    python scripts/train_demo_tokenizer.py

It is small on purpose (a demo and the tests must run anywhere, offline). It splits text as GPT-2 does and ends documents
with <|endoftext|>. Run again on another Python, it gives another, equally good tokenizer: the one in the package is data.
"""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB_SIZE = 4096
TARGET = Path(__file__).parent.parent / "src" / "tokenmill" / "data" / "demo_tokenizer"


def corpus() -> Iterator[str]:
    """The .py and .txt files of the standard library, tests and installed packages left out."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if path.suffix in (".py", ".txt") and not {"site-packages", "test", "tests", "idlelib"} & set(parts):
            yield path.read_text(encoding="utf-8", errors="ignore")


def main() -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    TARGET.mkdir(parents=True, exist_ok=True)
    (TARGET / "tokenizer.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False), "utf-8")
    (TARGET / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}) + "\n", "utf-8")
    print(f"{tokenizer.get_vocab_size()} ids in {TARGET.relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
