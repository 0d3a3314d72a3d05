"""Four kinds of tokenizer, as in the model families in use, trained by scripts/train_test_tokenizers.py.

And again with decoders, of few tokens, trained on PROSE.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import tokenizers

_TRAINED = Path(__file__).parent / "trained"
KINDS = {path.stem: path for path in sorted(_TRAINED.glob("*.json"))}
WITH_DECODERS = {path.stem: path for path in sorted((_TRAINED / "with_decoders").glob("*.json"))}
PROSE = [
    "The mill stands by the river, and the river turns the wheel of the mill all day and all night.",
    "  Two spaces first;\n\ta tab, then  two  more. 3.14 and 1,000 are numbers. Don't can't won't.",
    "Die Mühle steht am Fluß; naïve café, œuvre, ¿qué? Москва и река. 中文字符 日本語 한국어",
    "def grind(grain):\n    return [flour for flour in grain if flour]\n",
] * 3
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
