"""How the tokenizers that the tests use were made: four kinds, as in the model families in use, each trained in a second.

    python scripts/train_test_tokenizers.py

Needs `tokenizers` below 1.0, which still trains. Another Python has other texts, and gives other tokenizers.
"""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

TARGET = Path(__file__).parent.parent / "tests" / "support" / "trained"


def changed(made: tokenizers.Tokenizer, change: Callable[[dict[str, Any]], None]) -> tokenizers.Tokenizer:
    body = json.loads(made.to_str())
    change(body)
    return tokenizers.Tokenizer.from_str(json.dumps(body))


def word_piece(texts: list[str]) -> tokenizers.Tokenizer:
    """As BERT: lower case, words and punctuation, pieces with ##."""
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    inside = [f"##{letter}" for letter in sorted(filter(str.isalnum, {*"".join(texts).lower()}))]  # else in any order
    trainer = trainers.WordPieceTrainer(vocab_size=700, special_tokens=[*special, *inside], show_progress=False)
    made.train_from_iterator(texts, trainer)
    return changed(made, lambda body: body.update(added_tokens=body["added_tokens"][: len(special)]))


def unigram(texts: list[str]) -> tokenizers.Tokenizer:
    """As T5: NFKC, a mark for every space, the likeliest pieces."""
    made = tokenizers.Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False, max_piece_length=8
    )
    made.train_from_iterator([text[:1500] for text in texts], trainer)
    return changed(made, rounded)


def rounded(body: dict[str, Any]) -> None:
    """The same pieces with scores that do not vary from run to run, and no two that are equal."""
    vocabulary = body["model"]["vocab"]
    ordered = sorted(vocabulary[2:], key=lambda piece: (-round(piece[1], 2), piece[0]))
    vocabulary[2:] = [[name, round(round(score, 2) - place / 1e6, 6)] for place, (name, score) in enumerate(ordered)]


def sentence_piece(texts: list[str]) -> tokenizers.Tokenizer:
    """As Llama 2: one mark before the document and for every space, no words, bytes for what is not in the vocabulary."""
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=special, show_progress=False, max_token_length=10)
    made.train_from_iterator(texts, trainer)
    return changed(made, lambda body: body.update(pre_tokenizer=None, added_tokens=body["added_tokens"][:3]))


def byte_level(texts: list[str]) -> tokenizers.Tokenizer:
    """As GPT-2, trained here; with a second special token and a plain added word."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=800,
        special_tokens=["<|endoftext|>", "<|im_start|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    made.add_tokens(["tokenmill"])
    return made


KINDS: dict[str, Callable[[list[str]], tokenizers.Tokenizer]] = {
    "word_piece": word_piece,
    "unigram": unigram,
    "sentence_piece": sentence_piece,
    "byte_level": byte_level,
}


def main() -> None:
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:25]
    texts = [path.read_text("utf-8")[:6000] for path in modules]
    TARGET.mkdir(exist_ok=True)
    for name, train in KINDS.items():
        body = json.loads(train(texts).to_str())
        (TARGET / f"{name}.json").write_text(json.dumps(body, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
