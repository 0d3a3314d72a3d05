"""Four kinds of tokenizer, as in the model families in use, trained by scripts/train_test_tokenizers.py."""

from __future__ import annotations

import tempfile
from pathlib import Path

import tokenizers

KINDS = {path.stem: path for path in sorted((Path(__file__).parent / "trained").glob("*.json"))}
NASTY = [
    "ab",
    "Zq",
    "7",
    "\n",
    "\r\n",
    "\t",
    "",
    "'",
    "'s",
    "'LL",
    ".",
    ",",
    "_",
    "-",
    "中",
    "文",
    "é",
    "é",
    "́",
    "👍",
    "👩\u200d👩\u200d👧",
    "\u200b",
    "\ufeff",
    "\xa0",
    "\u3000",
    "\x00",
    "\x7f",
    "▁",
    "Ġ",
    "##",
    "½",
    "ﬁ",
    "İ",
    "ß",
    "<|endoftext|>",
    "<|im_start|>",
    "</s>",
    "<s>",
    "<unk>",
    "[CLS]",
    "[MASK]",
    "<0x0A>",
    "tokenmill",
]


def from_json(body: str) -> tokenizers.Tokenizer:
    """The tokenizer of a tokenizer.json. In every line of the library, which reads a file in all of them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tokenizer.json")
        path.write_text(body, "utf-8")
        return tokenizers.Tokenizer.from_file(str(path))


def ids_of(reference: tokenizers.Tokenizer, texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in reference.encode_batch(texts, add_special_tokens=False)]
